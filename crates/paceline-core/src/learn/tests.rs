//! What responses teach, rule by rule.

use super::*;
use crate::{Cost, Dimension};

fn at(ms: u64) -> Tick {
    Tick::from_nanos(ms * 1_000_000)
}

fn receipt(ms: u64) -> Receipt {
    Receipt::new(Cost::ONE, at(ms))
}

fn fixed(limit: u64, remaining: u64, reset_ms: u64) -> Reading {
    let signal = Signal {
        limit: Some(limit),
        remaining: Some(remaining),
        reset: Some(Duration::from_millis(reset_ms)),
        ..Signal::default()
    };
    Reading { signals: vec![signal], ..Reading::default() }
}

fn left(state: &ScopeState, ms: u64) -> u64 {
    state.status(at(ms)).limits[0].remaining.whole()
}

#[test]
fn rule_10_with_nothing_outstanding_the_level_is_what_the_server_says() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    state.observe(&receipt(0), &fixed(100, 42, 30_000), &policy, at(10));
    assert_eq!(left(&state, 10), 42);
    let receipt = state.admit(&Cost::ONE, at(20)).unwrap();
    state.observe(&receipt, &fixed(100, 7, 29_000), &policy, at(30));
    assert_eq!(left(&state, 30), 7);
}

#[test]
fn rule_10_a_prediction_between_the_bounds_stands() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    state.observe(&receipt(0), &fixed(100, 50, 30_000), &policy, at(10));
    let sent: Vec<_> = (20..25).map(|ms| state.admit(&Cost::ONE, at(ms)).unwrap()).collect();
    assert_eq!(left(&state, 25), 45);
    // The first of five is answered: the server has counted it and perhaps the others.
    state.observe(&sent[0], &fixed(100, 49, 30_000), &policy, at(30));
    assert_eq!(left(&state, 30), 45);
    // A stranger spends ten: the lower end is now below what we predicted.
    state.observe(&sent[1], &fixed(100, 38, 30_000), &policy, at(31));
    assert_eq!(left(&state, 31), 38 - 3 - 1);
}

#[test]
fn rule_10_answers_out_of_order_never_raise_the_level() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    state.observe(&receipt(0), &fixed(100, 50, 30_000), &policy, at(10));
    let sent: Vec<_> = (20..24).map(|ms| state.admit(&Cost::ONE, at(ms)).unwrap()).collect();
    // The server counts them last first, and the answers come first first.
    for (i, receipt) in sent.iter().enumerate() {
        state.observe(receipt, &fixed(100, 46 + i as u64, 30_000), &policy, at(40));
        assert_eq!(left(&state, 40), 46);
    }
}

#[test]
fn rule_10_a_late_answer_never_raises_the_level() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    state.observe(&receipt(5), &fixed(100, 40, 30_000), &policy, at(10));
    state.observe(&receipt(2), &fixed(100, 60, 30_000), &policy, at(12));
    assert_eq!(left(&state, 12), 40);
}

#[test]
fn rule_9_the_window_is_the_distance_between_two_resets() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    state.observe(&receipt(0), &fixed(5_000, 4_000, 10_000), &policy, at(0));
    state.observe(&receipt(10_001), &fixed(5_000, 4_999, 3_599_000), &policy, at(10_002));
    let status = &state.status(at(10_002)).limits[0];
    assert_eq!(status.limit.window.to_string(), "1h");
    assert_eq!(status.limit.origin, Origin::Estimated);
}

#[test]
fn rule_9_a_wrong_reset_heals_with_the_next_answer() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    let ask = |state: &mut ScopeState, ms: u64, remaining: u64, reset_ms: u64| {
        let receipt = state.admit(&Cost::ONE, at(ms)).unwrap();
        state.observe(&receipt, &fixed(60, remaining, reset_ms), &policy, at(ms + 1));
    };
    ask(&mut state, 0, 59, 31_000_000_000);
    ask(&mut state, 1_000, 58, 59_000);
    assert_eq!(state.status(at(1_001)).limits[0].reset, Duration::from_secs(59));
}

#[test]
fn rule_9_a_pause_is_no_window() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    state.observe(&receipt(0), &fixed(60, 59, 60_000), &policy, at(0));
    let five_hours = 5 * 3_600_000;
    let receipt = state.admit(&Cost::ONE, at(five_hours)).unwrap();
    state.observe(&receipt, &fixed(60, 59, 60_000), &policy, at(five_hours));
    assert_eq!(state.status(at(five_hours)).limits[0].limit.window.to_string(), "1m");
}

#[test]
fn rule_9_the_rest_of_a_window_is_not_taken_for_the_whole() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    state.observe(&receipt(0), &fixed(2, 1, 50), &policy, at(0));
    // A new window, and no answer yet: its end is not known to be 50 ms away.
    for _ in 0..2 {
        state.admit(&Cost::ONE, at(50)).unwrap();
    }
    assert!(state.admit(&Cost::ONE, at(200)).is_err());
}

#[test]
fn rule_10_an_answer_from_a_window_that_is_over_changes_nothing() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    state.observe(&receipt(0), &fixed(10, 9, 1_000), &policy, at(0));
    let late = state.admit(&Cost::ONE, at(999)).unwrap();
    let sent: Vec<_> = (0..10).map(|_| state.admit(&Cost::ONE, at(1_000)).unwrap()).collect();
    state.observe(&late, &fixed(10, 8, 0), &policy, at(1_001));
    assert!(state.admit(&Cost::ONE, at(1_001)).is_err(), "all of the new window is in flight");
    state.observe(&sent[0], &fixed(10, 9, 999), &policy, at(1_002));
    assert_eq!(left(&state, 1_002), 0);
}

#[test]
fn a_reset_that_is_always_zero_teaches_no_limit() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    state.observe(&receipt(0), &fixed(60, 59, 0), &policy, at(0));
    assert!(!state.has_limits());
}

#[test]
fn rule_11_a_window_without_a_reset_ends_all_the_same() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    let mut silent = fixed(1, 0, 0);
    silent.signals[0].reset = None;
    state.observe(&receipt(0), &silent, &policy, at(0));
    let wait = state.wait(&Cost::ONE, at(0)).unwrap();
    assert_eq!(wait.after, Duration::from_secs(60));
    assert_eq!(state.wait(&Cost::ONE, at(60_000)), None);
}

#[test]
fn rule_9_a_bucket_reset_is_when_it_is_full() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    let signal = Signal {
        dimension: Dimension::new("tokens").unwrap(),
        limit: Some(60_000),
        remaining: Some(30_000),
        reset: Some(Duration::from_secs(30)),
        counting: Counting::Bucket,
        ..Signal::default()
    };
    let reading = Reading { signals: vec![signal], ..Reading::default() };
    state.observe(&receipt(0), &reading, &policy, at(0));
    assert_eq!(state.status(at(0)).limits[0].limit.to_string(), "tokens=60000/1m");
    assert_eq!(left(&state, 0), 30_000);
    assert_eq!(left(&state, 10_000), 40_000);
}

#[test]
fn rule_12_a_configured_limit_is_never_overwritten() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    state.set_limit(Limit::parse("60/1m").unwrap(), at(0));
    state.observe(&receipt(0), &fixed(30, 0, 30_000), &policy, at(1));
    assert_eq!(left(&state, 1), 60);
    assert_eq!(state.status(at(1)).limits.len(), 1);
    // A server that agrees, and counts a fixed window, is followed beside it (rule 11).
    state.observe(&receipt(2), &fixed(60, 0, 30_000), &policy, at(3));
    let wait = state.wait(&Cost::ONE, at(3)).unwrap();
    assert_eq!(wait.after, Duration::from_secs(30));
}

#[test]
fn rule_13_a_rejection_holds_the_scope_and_a_known_limit_starts_empty() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    state.set_limit(Limit::parse("60/1m").unwrap(), at(0));
    let rejection = |secs| Reading {
        retry_after: Some(Duration::from_secs(secs)),
        rejected: true,
        ..Reading::default()
    };
    state.observe(&receipt(0), &rejection(5), &policy, at(0));
    assert_eq!(state.wait(&Cost::ONE, at(0)).unwrap().after, Duration::from_secs(6));
    assert_eq!(left(&state, 5_000), 0);
    // Beyond the cap the hold lasts the cap, and then one goes first.
    let mut state = ScopeState::default();
    state.observe(&receipt(0), &rejection(3_600), &policy, at(0));
    assert_eq!(state.wait(&Cost::ONE, at(0)).unwrap().after, Duration::from_secs(60));
    assert!(state.admit(&Cost::ONE, at(60_000)).is_ok());
    assert!(state.admit(&Cost::ONE, at(60_000)).is_err());
}

#[test]
fn rule_9_every_limit_of_a_dimension_is_followed() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    let named = |name: &str, limit, window| Signal {
        name: Some(name.into()),
        limit: Some(limit),
        remaining: Some(limit - 1),
        reset: Some(Duration::from_secs(1)),
        window: Window::parse(window).ok(),
        ..Signal::default()
    };
    let signals = vec![named("burst", 10, "1s"), named("daily", 12, "1d")];
    let reading = Reading { signals, ..Reading::default() };
    state.observe(&receipt(0), &reading, &policy, at(0));
    let limits: Vec<_> = state.status(at(0)).limits.iter().map(|it| it.limit.to_string()).collect();
    assert_eq!(limits, ["10/1s", "12/1d"]);
    for _ in 0..9 {
        assert!(state.admit(&Cost::ONE, at(1)).is_ok());
    }
    assert!(state.admit(&Cost::ONE, at(1)).is_err());
}

#[test]
fn rule_8_a_server_that_makes_up_names_fills_no_memory() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    for n in 0..1_000 {
        let mut reading = fixed(60, 59, 60_000);
        reading.signals[0].name = Some(n.to_string().into());
        state.observe(&receipt(n), &reading, &policy, at(n));
    }
    assert_eq!(state.status(at(1_000)).limits.len(), MOST_LEARNED);
}

#[test]
fn rule_8_no_reset_makes_anybody_wait_longer_than_a_day() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    let years = 50 * 365 * 86_400_000;
    state.observe(&receipt(0), &fixed(60, 0, years), &policy, at(0));
    assert_eq!(state.wait(&Cost::ONE, at(0)).unwrap().after, FARTHEST);
    let mut state = ScopeState::default();
    let mut reading = fixed(1, 0, years);
    reading.signals[0].counting = Counting::Bucket;
    reading.signals[0].window = Window::parse("3650d").ok();
    state.observe(&receipt(0), &reading, &policy, at(0));
    assert!(state.wait(&Cost::ONE, at(0)).unwrap().after <= FARTHEST);
}

/// What a server that counts a window of `limit` and states nothing but `Retry-After` answers.
struct Silent {
    limit: u64,
    counted: u64,
    ends: u64,
}

impl Silent {
    fn answer(&mut self, ms: u64) -> Reading {
        if ms >= self.ends {
            (self.counted, self.ends) = (0, ms + 2_000);
        }
        if self.counted < self.limit {
            self.counted += 1;
            return Reading::default();
        }
        let retry_after = Some(Duration::from_secs((self.ends - ms).div_ceil(1_000)));
        Reading { rejected: true, retry_after, ..Reading::default() }
    }
}

#[test]
fn rule_9_a_span_that_slides_is_not_taken_for_a_window_for_long() {
    let (mut state, policy) = (ScopeState::unknown(), Policy::default());
    let (mut counted, mut rejected) = (std::collections::VecDeque::<u64>::new(), Vec::new());
    let mut passed = 0;
    let mut flying: std::collections::VecDeque<(u64, Receipt, Reading)> = [].into();
    for ms in 0..40_000 {
        while flying.front().is_some_and(|(due, ..)| *due <= ms) {
            let (_, receipt, reading) = flying.pop_front().unwrap();
            state.observe(&receipt, &reading, &policy, at(ms));
        }
        while flying.len() < 8
            && let Ok(receipt) = state.admit(&Cost::ONE, at(ms))
        {
            counted.retain(|then| then + 2_000 > ms);
            let refused = counted.len() >= 20;
            if refused {
                rejected.push(ms);
            } else {
                counted.push_back(ms);
                passed += u64::from(ms > 10_000);
            }
            // The end of the span is told as an epoch in whole seconds, rounded up.
            let reset = (counted.back().unwrap() + 2_000).div_ceil(1_000) * 1_000 - ms;
            let reading = Reading {
                rejected: refused,
                ..fixed(20, 20 - u64::try_from(counted.len()).unwrap(), reset)
            };
            flying.push_back((ms + 4, receipt, reading));
        }
    }
    assert_eq!(rejected, [0_u64; 0]);
    assert!(passed >= 285, "{passed} of 300 passed after five spans");
    let limit = &state.status(at(40_000)).limits[0].limit;
    assert!(limit.strict && limit.window.duration().as_secs() == 2, "{limit:?}");
}

#[test]
fn rule_13_what_passed_before_a_rejection_costs_one_rejection_a_window() {
    let (mut state, policy) = (ScopeState::unknown(), Policy::default());
    let mut server = Silent { limit: 20, counted: 0, ends: 0 };
    let (mut rejected, mut passed) = (0, 0);
    // Eight callers, each answered after 4 ms, for twenty windows.
    let mut flying: std::collections::VecDeque<(u64, Receipt, Reading)> = [].into();
    for ms in 0..40_000 {
        while flying.front().is_some_and(|(due, ..)| *due <= ms) {
            let (_, receipt, reading) = flying.pop_front().unwrap();
            rejected += u64::from(reading.rejected);
            passed += u64::from(!reading.rejected);
            state.observe(&receipt, &reading, &policy, at(ms));
        }
        while flying.len() < 8
            && let Ok(receipt) = state.admit(&Cost::ONE, at(ms))
        {
            flying.push_back((ms + 4, receipt, server.answer(ms)));
        }
    }
    assert!(rejected <= 8 + 20, "{rejected} rejections in 20 windows");
    assert!(passed >= 20 * 20 * 9 / 10, "{passed} of 400 passed");
    let status = &state.status(at(40_000)).limits[0];
    assert_eq!((status.limit.units, status.limit.origin), (20, Origin::Estimated));
}

#[test]
fn a_rejection_without_a_wait_holds_for_a_floor_that_grows() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    let rejection = Reading { rejected: true, ..Reading::default() };
    let mut now = 0;
    for expected in [100, 200, 400] {
        state.observe(&receipt(now), &rejection, &policy, at(now));
        let wait = state.wait(&Cost::ONE, at(now)).unwrap().after;
        assert_eq!(wait, Duration::from_millis(expected));
        now += expected;
    }
}

#[test]
fn rule_13_waits_beyond_the_longest_hold_do_not_add_up() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    let mut now = 0;
    for left in (60..=3_600).rev().step_by(60) {
        let receipt = state.admit(&Cost::ONE, at(now)).unwrap();
        let retry_after = Some(Duration::from_secs(left));
        let reading = Reading { rejected: true, retry_after, ..Reading::default() };
        state.observe(&receipt, &reading, &policy, at(now));
        now += 60_000;
    }
    let receipt = state.admit(&Cost::ONE, at(now)).unwrap();
    state.observe(&receipt, &Reading::default(), &policy, at(now + 1));
    let window = state.status(at(now + 1)).limits[0].limit.window;
    assert!(window.duration() <= Duration::from_secs(3_600), "{window}");
}

#[test]
fn rule_8_a_reset_that_was_rounded_down_to_nothing_is_waited_for() {
    let (mut state, policy) = (ScopeState::default(), Policy::default());
    state.observe(&receipt(0), &fixed(20, 0, 0), &policy, at(0));
    let wait = state.wait(&Cost::ONE, at(0)).unwrap();
    assert_eq!(wait.after, ROUNDED);
}
