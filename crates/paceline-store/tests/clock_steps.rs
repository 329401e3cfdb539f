//! Clocks that are set: rule 2 says never more than a full bucket, and no stall beyond one window.
//!
//! Each process reads the wall clock anew, so one that was set is two stores on the same file or
//! server whose clocks differ.

mod servers;

use paceline_core::{Cost, Limit, Policy, Scope, VirtualClock};
use paceline_store::{Redis, Sqlite, Storage, Store};
use servers::Server;
use std::time::Duration;

const START: Duration = Duration::from_secs(7_200);

fn at(time: Duration) -> VirtualClock {
    let clock = VirtualClock::default();
    clock.advance(time);
    clock
}

/// How many calls pass at once.
fn burst(store: &dyn Store, scope: &Scope<'_>) -> usize {
    let granted = |_: &u32| store.charge(scope, &Cost::ONE).unwrap().is_granted();
    (0..100).take_while(|i| granted(i)).count()
}

fn survives_steps(open: impl Fn(VirtualClock) -> Box<dyn Store>) {
    let steps = [(-3_600, 0), (-11, 0), (3_600, 10)];
    for (i, (step, most)) in steps.into_iter().enumerate() {
        let name = format!("h{i}.example.com");
        let scope = Scope::parse(&name).unwrap();
        let before = open(at(START));
        before.set_limit(&scope, Limit::parse("10/1m").unwrap()).unwrap();
        assert_eq!(burst(&*before, &scope), 10);
        let clock = at(Duration::from_secs(7_200_u64.checked_add_signed(step).unwrap()));
        let after = open(clock.clone());
        assert_eq!(burst(&*after, &scope), most, "a step of {step} s");
        // Six seconds a unit, whatever the clock says.
        let wait = after.wait(&scope, &Cost::ONE).unwrap().unwrap().after;
        assert!(wait <= Duration::from_secs(6), "a step of {step} s stalls for {wait:?}");
        clock.advance(wait);
        assert_eq!(burst(&*after, &scope), 1, "a step of {step} s");
        clock.advance(Duration::from_secs(60));
        assert_eq!(burst(&*after, &scope), 10, "a step of {step} s");
    }
}

#[test]
fn rule_2_a_step_of_the_clock_neither_stalls_nor_floods_a_file() {
    let folder = tempfile::tempdir().unwrap();
    survives_steps(|clock| {
        Box::new(Sqlite::with_clock(&folder.path().join("x.db"), Policy::default(), clock))
    });
}

#[test]
fn rule_2_a_step_of_the_clock_neither_stalls_nor_floods_redis() {
    let server = Server::start();
    survives_steps(|clock| {
        let Ok(Storage::Redis(place)) = server.url().parse() else { panic!() };
        Box::new(Redis::with_clock(place, Policy::default(), Duration::from_secs(5), clock))
    });
}
