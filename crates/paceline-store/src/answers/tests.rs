use super::*;
use paceline_core::VirtualClock;

const BOUNDS: Bounds = Bounds { entries: 3, bytes: 10_000, age: Some(Duration::from_secs(3_600)) };

fn answer(body: &[u8]) -> Answer {
    Answer {
        status: 200,
        headers: vec![(ByteBuf::from("Content-Type"), ByteBuf::from("text/plain"))],
        body: ByteBuf::from(body),
        parts: vec![u32::try_from(body.len()).unwrap()],
        model: "gpt-4o".into(),
        ..Answer::default()
    }
}

/// Runs a test on each place where answers are kept.
fn everywhere(bounds: Bounds, test: impl Fn(&Answers, &VirtualClock)) {
    let clock = VirtualClock::default();
    test(&Answers::open("memory", bounds, clock.clone().into()).unwrap(), &clock);
    #[cfg(feature = "sqlite")]
    {
        let directory = tempfile::tempdir().unwrap();
        let storage = format!("sqlite:///{}", directory.path().join("answers.db").display());
        let clock = VirtualClock::default();
        test(&Answers::open(&storage, bounds, clock.clone().into()).unwrap(), &clock);
    }
}

fn has(answers: &Answers, key: u8) -> bool {
    answers.get(&[key; 32]).unwrap().is_some()
}

#[test]
fn an_answer_comes_back_as_it_was() {
    everywhere(BOUNDS, |answers, _| {
        assert!(!has(answers, 1));
        answers.put([1; 32], answer(b"one\xff")).unwrap();
        assert_eq!(*answers.get(&[1; 32]).unwrap().unwrap().0, answer(b"one\xff"));
        answers.put([1; 32], answer(b"two")).unwrap();
        assert_eq!(*answers.get(&[1; 32]).unwrap().unwrap().0, answer(b"two"));
        answers.clear().unwrap();
        assert!(!has(answers, 1));
    });
}

#[test]
fn an_answer_is_given_until_it_is_too_old() {
    everywhere(BOUNDS, |answers, clock| {
        let (_, until) = answers.put([1; 32], answer(b"one")).unwrap();
        clock.advance(Duration::from_secs(3_599));
        let found = answers.get(&[1; 32]).unwrap().unwrap();
        assert_eq!(found.1, until);
        clock.advance(Duration::from_secs(1));
        assert!(!has(answers, 1));
    });
    everywhere(Bounds { age: None, ..BOUNDS }, |answers, clock| {
        answers.put([1; 32], answer(b"one")).unwrap();
        clock.advance(Duration::from_secs(1 << 30));
        assert!(has(answers, 1));
    });
}

#[test]
fn those_that_were_not_asked_for_the_longest_go_first() {
    everywhere(BOUNDS, |answers, clock| {
        for key in 1..=3 {
            answers.put([key; 32], answer(b"short")).unwrap();
            // A file writes down once a minute that an answer was asked for.
            clock.advance(Duration::from_secs(60));
        }
        assert!(has(answers, 1));
        answers.put([4; 32], answer(b"short")).unwrap();
        assert_eq!([1, 2, 3, 4].map(|key| has(answers, key)), [true, false, true, true]);
    });
}

#[test]
fn the_bytes_are_bounded_too() {
    everywhere(BOUNDS, |answers, _| {
        answers.put([1; 32], answer(&[0; 6_000])).unwrap();
        answers.put([2; 32], answer(&[0; 6_000])).unwrap();
        assert_eq!([1, 2].map(|key| has(answers, key)), [false, true]);
        // Larger than all may be: it is not kept, and what it replaces is gone.
        answers.put([3; 32], answer(&[0; 1_000])).unwrap();
        answers.put([2; 32], answer(&[0; 60_000])).unwrap();
        assert_eq!([2, 3].map(|key| has(answers, key)), [false, true]);
    });
}

#[test]
fn two_memories_have_nothing_in_common() {
    let open = || Answers::open("memory", BOUNDS, Clock::real()).unwrap();
    assert_ne!(open().secret().unwrap(), open().secret().unwrap());
}

#[cfg(feature = "redis")]
#[test]
fn redis_is_no_place_for_answers() {
    let error = Answers::open("redis://:hunter2@h", BOUNDS, Clock::real()).unwrap_err();
    assert!(error.to_string().contains("sqlite:///"), "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[cfg(feature = "sqlite")]
mod in_a_file {
    use super::*;
    use std::path::Path;

    fn open(path: &Path) -> Result<Answers, CannotOpen> {
        let clock = VirtualClock::default();
        Answers::open(&format!("sqlite:///{}", path.display()), BOUNDS, clock.into())
    }

    #[test]
    fn answers_survive_a_restart_and_are_shared() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("answers.db");
        let (one, two) = (open(&path).unwrap(), open(&path).unwrap());
        assert_eq!(one.secret().unwrap(), two.secret().unwrap());
        one.put([1; 32], answer(b"one")).unwrap();
        assert!(has(&two, 1));
        drop((one, two));
        assert!(has(&open(&path).unwrap(), 1));
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_reads_the_file() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let answers = open(&directory.path().join("answers.db")).unwrap();
        answers.put([1; 32], answer(b"one")).unwrap();
        for file in directory.path().read_dir().unwrap() {
            let mode = file.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_file_of_another_program_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("limits.db");
        crate::Sqlite::open(&path, paceline_core::Policy::default()).unwrap();
        let before = std::fs::read(&path).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains("a file of its own"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_file_that_was_deleted_is_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("answers.db");
        let answers = open(&path).unwrap();
        for end in ["", "-wal", "-shm"] {
            std::fs::remove_file(format!("{}{end}", path.display())).unwrap();
        }
        answers.put([1; 32], answer(b"one")).unwrap();
        assert!(has(&answers, 1) && has(&open(&path).unwrap(), 1));
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_answer_young_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("answers.db");
        let (ahead, storage) = (VirtualClock::default(), format!("sqlite:///{}", path.display()));
        ahead.advance(Duration::from_secs(9));
        let answers = Answers::open(&storage, BOUNDS, ahead.into()).unwrap();
        answers.put([1; 32], answer(b"one")).unwrap();
        assert!(!has(&open(&path).unwrap(), 1));
    }
}
