use super::*;
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);

fn account(policy: Policy, units: u64, window: Duration) -> Account {
    Account::new(policy, &[Limit::new(units, window).expect("a valid limit")])
}

fn admitted(account: &mut Account, now: Duration, tries: u64) -> u64 {
    (0..tries).map(|_| u64::from(account.admit(now, &[1]).is_ok())).sum()
}

fn wait(account: &mut Account, now: Duration, cost: u64) -> Option<Duration> {
    account.admit(now, &[cost]).expect_err("a refusal").wait
}

fn standing(account: &mut Account, now: Duration) -> (u64, Duration) {
    let first = account.standings(now).next().expect("one limit");
    (first.remaining, first.reset)
}

#[test]
fn fixed_window_opens_with_the_first_request_and_jumps_back_when_it_closes() {
    let mut account = account(Policy::Fixed, 3, 100 * MS);
    assert_eq!(standing(&mut account, 40 * MS), (3, 100 * MS));
    assert_eq!(admitted(&mut account, 50 * MS, 1), 1);
    assert_eq!(admitted(&mut account, 149 * MS, 5), 2);
    assert_eq!(standing(&mut account, 149 * MS), (0, MS));
    assert_eq!(wait(&mut account, 149 * MS, 1), Some(MS));
    assert_eq!(admitted(&mut account, 150 * MS, 5), 3);
    assert_eq!(standing(&mut account, 170 * MS), (0, 80 * MS));
}

#[test]
fn fixed_windows_open_in_the_second_of_a_request_with_it_or_by_the_clock() {
    for (policy, reset) in
        [(Policy::Fixed, 1_300), (Policy::FixedFirst, 2_000), (Policy::FixedClock, 300)]
    {
        let mut account = account(policy, 1, 2_000 * MS);
        assert_eq!(admitted(&mut account, 5_700 * MS, 2), 1);
        assert_eq!(standing(&mut account, 5_700 * MS), (0, reset * MS), "{policy}");
        let opens = 5_700 * MS + reset * MS;
        assert_eq!(admitted(&mut account, opens - Duration::from_nanos(1), 1), 0, "{policy}");
        assert_eq!(admitted(&mut account, opens, 2), 1, "{policy}");
    }
    let mut account = account(Policy::FixedClock, 9, 100 * MS);
    assert_eq!(standing(&mut account, 130 * MS), (9, 70 * MS), "nobody has to open it");
}

#[test]
fn a_refusal_that_costs_is_counted_and_says_how_long_to_wait_after_it() {
    for (policy, wait) in [
        (Policy::FixedFirst, 70),
        // The refused requests have to leave the window as well.
        (Policy::Sliding, 100),
        // What had come back to the bucket is gone.
        (Policy::Bucket, 50),
        // Each of four delays the next by 50 ms, 5 of which are forgiven.
        (Policy::Gcra, 165),
    ] {
        let limit = Limit::new(2, 100 * MS).expect("a limit");
        let mut account = Account::new(policy, &[limit]).with_refusals_that_cost(true);
        let times = [100, 101, 130, 130].map(|ms| ms * MS).into_iter();
        let refusals = times.filter_map(|now| account.admit(now, &[1]).err());
        let told = refusals.last().and_then(|refusal| refusal.wait).expect("a wait");
        assert_eq!(told.as_millis(), wait, "{policy}");
        assert!(account.admit(130 * MS + told, &[1]).is_ok(), "{policy}");
        let (spent, _) = account.usage().next().expect("one limit");
        assert!(spent <= 3, "{policy}: what was refused was not admitted");
    }
}

#[test]
fn a_stranger_takes_its_share_evenly_from_the_first_request_on() {
    let limit = Limit::new(10, 100 * MS).expect("a limit");
    for policy in [Policy::Fixed, Policy::FixedFirst, Policy::Sliding, Policy::Bucket] {
        let mut account = Account::new(policy, &[limit]).with_stranger(500_000);
        assert_eq!(admitted(&mut account, 200 * MS, 1), 1);
        assert_eq!(account.strangers().next(), Some(0));
        // One unit each 20 ms.
        assert_eq!(
            standing(&mut account, 299 * MS).0,
            if policy == Policy::Bucket { 10 } else { 5 }
        );
        assert_eq!(account.strangers().next(), Some(4), "{policy}");
        let (spent, capacity) = account.usage().next().expect("one limit");
        assert_eq!((spent, capacity), (1, 10), "{policy}: nothing was admitted later");
        for ms in 300..2_300 {
            let _ = account.admit(ms * MS, &[1]);
        }
        let strangers = account.strangers().next().expect("one limit");
        assert!((1..=105).contains(&strangers), "{policy}: {strangers}");
    }
    let mut account = Account::new(Policy::Fixed, &[limit]).with_stranger(2_000_000);
    assert_eq!(admitted(&mut account, MS, 1), 1);
    assert_eq!(standing(&mut account, 100 * MS).0, 0, "it is refused like everybody");
    assert_eq!(account.strangers().next(), Some(9));
}

#[test]
fn sliding_log_frees_each_request_one_window_after_it_came() {
    let mut account = account(Policy::Sliding, 3, 100 * MS);
    assert_eq!(admitted(&mut account, MS, 1), 1);
    assert_eq!(admitted(&mut account, 60 * MS, 5), 2);
    assert_eq!(wait(&mut account, 60 * MS, 1), Some(41 * MS));
    assert_eq!(wait(&mut account, 60 * MS, 2), Some(100 * MS));
    assert_eq!(admitted(&mut account, 101 * MS, 5), 1);
    assert_eq!(standing(&mut account, 101 * MS), (0, 100 * MS));
}

#[test]
fn bucket_starts_full_and_refills_continuously() {
    let mut account = account(Policy::Bucket, 10, 100 * MS);
    assert_eq!(admitted(&mut account, MS, 20), 10);
    assert_eq!(wait(&mut account, MS, 1), Some(10 * MS));
    assert_eq!(admitted(&mut account, 11 * MS - Duration::from_nanos(1), 1), 0);
    assert_eq!(admitted(&mut account, 11 * MS, 5), 1);
    assert_eq!(standing(&mut account, 46 * MS), (3, 65 * MS));
    assert_eq!(admitted(&mut account, 5000 * MS, 20), 10);
}

#[test]
fn gcra_spaces_requests_evenly_and_forgives_a_tenth_of_an_interval() {
    let mut account = account(Policy::Gcra, 10, 1000 * MS);
    assert_eq!(standing(&mut account, MS), (1, Duration::ZERO));
    assert_eq!(admitted(&mut account, Duration::ZERO, 5), 1);
    assert_eq!(standing(&mut account, MS), (0, 99 * MS));
    assert_eq!(wait(&mut account, 80 * MS, 1), Some(10 * MS));
    assert_eq!(admitted(&mut account, 90 * MS, 5), 1);
    assert_eq!(admitted(&mut account, 189 * MS, 5), 0, "the next is due at 200, not at 190");
    assert_eq!(admitted(&mut account, 190 * MS, 5), 1);
}

#[test]
fn a_refused_request_charges_nothing_in_any_dimension() {
    let limits = [Limit::new(5, 100 * MS), Limit::new(100, 100 * MS)].map(Option::unwrap);
    for policy in Policy::ALL {
        let mut account = Account::new(policy, &limits);
        assert!(account.admit(MS, &[1, 60]).is_ok());
        let before: Vec<_> = account.standings(60 * MS).collect();
        let refusal = account.admit(60 * MS, &[5, 101]).expect_err("too large");
        assert_eq!((refusal.limit, refusal.wait), (1, None), "{policy}");
        assert_eq!(account.standings(60 * MS).collect::<Vec<_>>(), before, "{policy}");
        assert_eq!(account.usage().map(|(spent, _)| spent).collect::<Vec<_>>(), [1, 60]);
    }
}

#[test]
fn a_dimension_that_is_not_spent_never_gates() {
    let limits = [Limit::new(100, 100 * MS), Limit::new(1, 100 * MS)].map(Option::unwrap);
    for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::Gcra) {
        let mut account = Account::new(policy, &limits);
        assert!(account.admit(MS, &[1, 1]).is_ok());
        assert!(account.admit(MS, &[1]).is_ok(), "{policy}");
        assert_eq!(account.admit(MS, &[1, 1]).map_err(|refusal| refusal.limit), Err(1));
    }
}

#[test]
fn limits_that_cannot_be_counted_exactly_are_not_built() {
    assert_eq!(Limit::new(0, MS), None);
    assert_eq!(Limit::new(1, Duration::ZERO), None);
    assert_eq!(Limit::new(u64::MAX, MS), None);
    assert_eq!(Limit::new(1, Duration::MAX), None);
    let largest = Limit::new(MAX_UNITS, MAX_WINDOW).expect("the largest");
    for policy in Policy::ALL {
        let mut account = Account::new(policy, &[largest]);
        for now in [Duration::ZERO, MS, MAX_WINDOW, Duration::MAX] {
            assert!(account.admit(now, &[MAX_UNITS]).is_ok() || now == MS, "{policy} {now:?}");
            assert_eq!(wait(&mut account, now, u64::MAX), None);
            account.standings(now).for_each(drop);
        }
    }
}

/// Gaps between requests, and what each costs.
fn traffic() -> impl Strategy<Value = Vec<(Duration, u64)>> {
    let gap = (0_u64..60_000_000).prop_map(Duration::from_nanos);
    prop::collection::vec((gap, 1_u64..6), 1..200)
}

proptest! {
    #[test]
    fn sliding_never_exceeds_the_limit_in_any_window(units in 1_u64..12, traffic in traffic()) {
        let mut account = account(Policy::Sliding, units, 100 * MS);
        let (mut now, mut passed) = (MS, Vec::new());
        for (gap, cost) in traffic {
            now += gap;
            if account.admit(now, &[cost]).is_ok() {
                passed.push((now, cost));
            }
        }
        for (start, &(opens, _)) in passed.iter().enumerate() {
            let inside = passed[start..].iter().take_while(|(at, _)| *at < opens + 100 * MS);
            prop_assert!(inside.map(|(_, cost)| cost).sum::<u64>() <= units);
        }
    }

    #[test]
    fn the_wait_of_a_refusal_is_exact(units in 5_u64..12, traffic in traffic()) {
        for policy in Policy::ALL {
            let (mut account, mut now) = (account(policy, units, 100 * MS), MS);
            for &(gap, cost) in &traffic {
                now += gap;
                if let Err(refusal) = account.admit(now, &[cost]) {
                    now += refusal.wait.expect("the cost is below the limit");
                    let early = account.admit(now - Duration::from_nanos(1), &[cost]);
                    prop_assert!(early.is_err(), "{policy} admitted before the wait was over");
                    prop_assert!(account.admit(now, &[cost]).is_ok(), "{policy} after the wait");
                }
            }
        }
    }

    #[test]
    fn no_policy_admits_more_than_its_capacity(
        units in 1_u64..12, traffic in traffic(), share in 0_u32..1_500_000, cost in any::<bool>(),
    ) {
        for policy in Policy::ALL {
            let limit = Limit::new(units, 100 * MS).expect("a limit");
            let account = Account::new(policy, &[limit]).with_refusals_that_cost(cost);
            let (mut account, mut now) = (account.with_stranger(share), MS);
            for &(gap, cost) in &traffic {
                now += gap;
                let _ = account.admit(now, &[cost]);
                let (spent, capacity) = account.usage().next().expect("one limit");
                prop_assert!(spent <= capacity, "{policy}: {spent} of {capacity}");
            }
        }
    }
}
