//! What an SQLite file is like from outside: private, marked, and readable by later releases.

use paceline_core::{Cost, Limit, Policy, Scope, VirtualClock};
use paceline_store::{Key, Sqlite, Store, Tally};
use std::path::{Path, PathBuf};

fn scope() -> Scope<'static> {
    Scope::parse("api.example.com").unwrap()
}

fn used_file(folder: &Path) -> PathBuf {
    let path = folder.join("limits.db");
    let store = Sqlite::open(&path, Policy::default()).unwrap();
    store.set_limit(&scope(), Limit::parse("5/1h").unwrap()).unwrap();
    store.charge(&scope(), &Cost::ONE).unwrap();
    path
}

#[cfg(unix)]
#[test]
fn only_its_owner_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    used_file(folder.path());
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", entry.path().display());
    }
}

#[test]
fn a_file_of_another_program_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("theirs.db");
    let theirs = rusqlite::Connection::open(&path).unwrap();
    theirs.execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)").unwrap();
    let error = Sqlite::open(&path, Policy::default()).unwrap_err().to_string();
    assert!(error.contains("another program") && error.contains("theirs.db"), "{error}");
    let count: i64 = theirs.query_row("SELECT count(*) FROM theirs", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1);
    let mode: String = theirs.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete");
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "something was left beside it"
    );
}

#[test]
fn a_file_that_others_make_at_the_same_moment_is_ours_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..40 {
        let path = folder.path().join(format!("{round}.db"));
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| Sqlite::open(&path, Policy::default()).unwrap());
            }
        });
    }
}

#[test]
fn rule_35_a_file_of_a_later_release_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = used_file(folder.path());
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = Sqlite::open(&path, Policy::default()).unwrap_err().to_string();
    assert!(error.contains("later release") && error.contains("99"), "{error}");
}

/// The file was written by release 0.1.0: five an hour, two of which were used, and a strict limit.
#[test]
fn rule_35_a_file_of_an_earlier_release_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    std::fs::copy("tests/fixtures/release-0.1.0.db", &path).unwrap();
    // As if it was the same instant.
    let store = Sqlite::with_clock(&path, Policy::default(), VirtualClock::default());
    let (_, state, now) = store.snapshot(&scope()).unwrap().unwrap();
    let told = |level: paceline_core::LimitStatus| {
        format!("{} {} {}", level.limit, level.limit.strict, level.remaining.whole())
    };
    let limits: Vec<_> = state.status(now).limits.into_iter().map(told).collect();
    assert_eq!(limits, ["5/1h false 3", "tokens=1000/1m true 400"]);
    for _ in 0..3 {
        assert!(store.charge(&scope(), &Cost::ONE).unwrap().is_granted());
    }
    assert!(!store.charge(&scope(), &Cost::ONE).unwrap().is_granted());
}

/// That release kept no books.
#[test]
fn rule_35_a_file_of_an_earlier_release_gets_books() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    std::fs::copy("tests/fixtures/release-0.1.0.db", &path).unwrap();
    let layout = || -> i64 {
        let file = rusqlite::Connection::open(&path).unwrap();
        file.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    };
    assert_eq!(layout(), 1);
    // Whoever comes first, and whoever has opened it a moment before.
    let stores =
        [(); 4].map(|()| Sqlite::with_clock(&path, Policy::default(), VirtualClock::default()));
    let entry = (Key::new("openai:gpt-4o"), Tally { sent: 1, ..Tally::default() });
    std::thread::scope(|threads| {
        for store in &stores {
            threads.spawn(|| store.count(std::slice::from_ref(&entry)).unwrap());
        }
    });
    assert_eq!(layout(), 2);
    let books = stores[0].tallies().unwrap();
    assert_eq!(books.len(), 1);
    assert_eq!((&books[0].0, books[0].2.sent), (&entry.0, 4));
    let (_, state, now) = stores[0].snapshot(&scope()).unwrap().unwrap();
    assert_eq!(state.status(now).limits.len(), 2, "what was there is still there");
}

/// Writes the fixture of this release: `cargo test -p paceline-store --test files -- --ignored`.
#[test]
#[ignore = "run once for each release that changes the layout"]
fn write_the_fixture_of_this_release() {
    let name = format!("tests/fixtures/release-{}.db", env!("CARGO_PKG_VERSION"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let store = Sqlite::with_clock(&path, Policy::default(), VirtualClock::default());
    store.set_limit(&scope(), Limit::parse("5/1h").unwrap()).unwrap();
    let strict = Limit::parse("tokens=1000/1m").unwrap().strict().unwrap();
    store.set_limit(&scope(), strict).unwrap();
    let cost = Cost::ONE.with("tokens", paceline_core::Amount::units(300)).unwrap();
    for _ in 0..2 {
        store.charge(&scope(), &cost).unwrap();
    }
    drop(store);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA journal_mode = delete; VACUUM").unwrap();
    drop(connection);
    std::fs::create_dir_all("tests/fixtures").unwrap();
    std::fs::copy(path, name).unwrap();
}

#[test]
fn somebody_who_writes_without_standing_in_the_queue_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = used_file(folder.path());
    let store = Sqlite::open(&path, Policy::default()).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|threads| {
        let charge = threads.spawn(|| store.charge(&scope(), &Cost::ONE).unwrap().is_granted());
        std::thread::sleep(std::time::Duration::from_millis(40));
        assert!(!charge.is_finished());
        other.execute_batch("COMMIT").unwrap();
        assert!(charge.join().unwrap());
    });
}

#[test]
fn a_file_that_was_deleted_is_made_anew_with_the_limits_of_those_who_use_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let store = Sqlite::open(&path, Policy::default()).unwrap();
    store.set_limit(&scope(), Limit::parse("1/1h").unwrap()).unwrap();
    assert!(store.charge(&scope(), &Cost::ONE).unwrap().is_granted());
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert!(store.charge(&scope(), &Cost::ONE).unwrap().is_granted());
    let other = Sqlite::open(&path, Policy::default()).unwrap();
    assert!(!other.charge(&scope(), &Cost::ONE).unwrap().is_granted());
}
