//! One limit for many machines: Redis or Valkey.
//!
//! The engine runs inside the server, as a script that imitates it (`engine.lua`), so an admission is
//! one round trip whatever the number of scopes and limits it touches, and every process sees the same
//! clock, the server's. A script does a whole [`Batch`]; what can wait without harm, such as that a
//! request is over and taught nothing, rides along with the next one.

mod address;
mod batch;
mod books;
mod lease;
mod link;
mod script;

use crate::clock::Epoch;
use crate::combine::Combiner;
use crate::process::PerProcess;
use crate::tally::{day_of, in_order, oldest};
use crate::template::Templates;
use crate::view::Views;
use crate::{Admission, Ask, Clock, Day, Grant, Key, Place, Snapshot, Store, StoreError, Tally};
pub(crate) use address::read;
use batch::{Answer, Arguments, Batch, Reply};
use books::BOOKS;
use lease::Leases;
use link::Link;
pub use link::Server;
use paceline_core::record::Record;
use paceline_core::state::Receipt;
use paceline_core::{
    Amount, Cause, Cost, Dimension, Limit, Policy, Reading, Scope, ScopeState, Tick, Verdict, Wait,
};
use parking_lot::Mutex;
use redis::Value;
use script::{ENGINE, Script, TALLY};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a key in Redis begins with. The host is its hash tag, so that all scopes of a host live in one
/// slot of a cluster.
const PREFIX: &str = "paceline:";
/// What the keys of scopes begin with.
const SCOPES: &str = "paceline:{";

/// Limits and buckets in Redis or Valkey.
#[derive(Debug)]
pub struct Redis {
    server: Server,
    timeout: Duration,
    templates: Templates,
    clock: Clock,
    epoch: Epoch,
    lease: Option<Duration>,
    here: PerProcess<Here>,
}

/// What one process has of it.
#[derive(Debug)]
struct Here {
    link: Mutex<Link>,
    failures: AtomicU64,
    combiner: Combiner,
    views: Views,
    leases: Option<Leases>,
    /// What is to be told at the next visit.
    ended: Mutex<Vec<Ended>>,
    /// How far the server's clock is ahead of this process's, in microseconds.
    ahead: Mutex<i64>,
}

/// A request that is over, or what is left of a lease.
#[derive(Debug)]
struct Ended {
    key: Key,
    receipt: Receipt,
    sent: bool,
}

impl Redis {
    /// How long a visit may take where nobody says otherwise.
    pub const TIMEOUT: Duration = Duration::from_millis(250);

    /// Connects, and waits at most `timeout` for this and for each visit.
    ///
    /// # Errors
    /// [`StoreError`] when the server cannot be reached or refuses us.
    pub fn connect(server: Server, policy: Policy, timeout: Duration) -> Result<Self, StoreError> {
        let store = Self::with_clock(server, policy, timeout, Clock::real());
        store.ping()?;
        Ok(store)
    }

    /// A store that connects when it is first visited. A virtual clock takes the place of the server's.
    pub fn with_clock(
        server: Server,
        policy: Policy,
        timeout: Duration,
        clock: impl Into<Clock>,
    ) -> Self {
        Self {
            server,
            timeout,
            templates: Templates::new(policy),
            clock: clock.into(),
            epoch: Epoch::default(),
            lease: None,
            here: PerProcess::default(),
        }
    }

    /// Takes small parts of limits at once, to be used within `span` without asking again.
    #[must_use]
    pub fn leasing(mut self, span: Duration) -> Self {
        self.lease = Some(span);
        self
    }

    fn here(&self) -> Arc<Here> {
        self.here.get(|| Here::new(&self.server, self.timeout, self.lease))
    }

    /// Sends batches, each for one host, and gives their replies in order. Whatever was kept back for
    /// one of the hosts rides along.
    fn run(&self, mut batches: Vec<Batch>) -> Result<Vec<Reply>, StoreError> {
        let here = self.here();
        let ended = std::mem::take(&mut *here.ended.lock());
        let asked = batches.len();
        for Ended { key, receipt, sent } in &ended {
            let at = self.micros(receipt.at);
            let batch = of_host(&mut batches, Scope::from_key(key.as_str()).host());
            batches[batch].end(key.as_str(), receipt, at, *sent);
        }
        // What there was to hand in, another thread has handed in.
        if batches.is_empty() {
            return Ok(Vec::new());
        }
        let instant = self.instant();
        let arguments = || {
            let now = self.now(&here);
            let lost = |key: &str| {
                let state = here.views.doubted(key).filter(|state| state.governs(now))?;
                Some(Record::of(&state, now, self.micros(now)))
            };
            let encode = |batch: &Batch| batch.encode(instant, &self.templates, lost);
            let encoded: Result<Vec<_>, _> = batches.iter().map(encode).collect();
            encoded.map_err(StoreError::new)
        };
        let values = match here.evaluate(&ENGINE, arguments) {
            Ok(values) => values,
            Err(error) => {
                here.ended.lock().extend(ended);
                return Err(error);
            }
        };
        let mut replies = Vec::with_capacity(batches.len());
        for (i, (batch, value)) in batches.iter().zip(values).enumerate() {
            let frame = |micros| self.epoch.tick(micros);
            let read = |value| batch.decode(value, frame).map_err(StoreError::of_data);
            let reply = match value.and_then(read) {
                Ok(reply) => reply,
                // What is wrong with one host is not told of the others.
                Err(error) if i == 0 && asked == 1 => return Err(error),
                Err(_) => Reply::default(),
            };
            if reply.at > 0 {
                let micros = i64::try_from(reply.at).unwrap_or(i64::MAX);
                *here.ahead.lock() = micros.saturating_sub(self.local_micros());
            }
            for key in &reply.keys {
                match reply.state(key) {
                    Some(state) => here.views.see(key, state.clone()),
                    None => here.views.forget(Some(key)),
                }
            }
            replies.push(reply);
        }
        replies.truncate(asked);
        Ok(replies)
    }

    /// Puts an ask into the batch of its host, unless a lease covers it.
    fn plan(&self, here: &Here, batches: &mut Vec<Batch>, ask: &Ask<'_>) -> Plan {
        let now = self.clock.now();
        let leases = here.leases.as_ref().filter(|_| *ask.cost == Cost::ONE);
        if let Some(grant) = leases.and_then(|_| here.take(ask.scope, now)) {
            return Plan::Leased(grant);
        }
        let batch = of_host(batches, ask.scope.host());
        let place = batches[batch].len();
        let Some(leases) = leases else {
            batches[batch].admit(ask.scope, ask.cost);
            return Plan::Asked(batch, place);
        };
        if batches[batch].leases(ask.scope) {
            return Plan::Follow;
        }
        let key = here.governing(ask.scope);
        let (many, rest) = leases.ask(&key, now);
        if let Some((receipt, left)) = rest {
            here.end(&key, part(receipt, left), false);
        }
        batches[batch].lease(ask.scope, many, leases.span);
        Plan::Asked(batch, place)
    }

    /// One batch.
    fn run_one(&self, batch: Batch) -> Result<Reply, StoreError> {
        let mut replies = self.run(vec![batch])?;
        replies.pop().ok_or_else(|| StoreError::new("the server gave no answer"))
    }

    /// One operation on exactly one scope.
    fn run_on(&self, key: &str, add: impl FnOnce(&mut Batch)) -> Result<(), StoreError> {
        let mut batch = Batch::new(Scope::from_key(key).host());
        add(&mut batch);
        self.run_one(batch).map(drop)
    }

    fn micros(&self, tick: Tick) -> u64 {
        self.epoch.begins().unwrap_or(0).saturating_add(tick.as_nanos() / 1_000)
    }

    /// The instant that is sent: 0 for the server's own.
    fn instant(&self) -> u64 {
        match &self.clock {
            Clock::Real { .. } => 0,
            Clock::Virtual(_) => self.clock.wall_micros(),
        }
    }

    fn local_micros(&self) -> i64 {
        i64::try_from(self.clock.now().as_nanos() / 1_000).unwrap_or(i64::MAX)
    }

    /// Now by the server's clock, as far as is known without asking.
    fn now(&self, here: &Here) -> Tick {
        if self.epoch.begins().is_none() {
            return Tick::ZERO;
        }
        let micros = self.local_micros().saturating_add(*here.ahead.lock());
        self.epoch.tick(u64::try_from(micros).unwrap_or(0))
    }

    fn admission(
        &self,
        scope: &Scope<'_>,
        cost: &Cost,
        answer: &Answer,
        reply: &Reply,
    ) -> Option<Admission> {
        let key = |number: usize| {
            let known = reply.keys.get(number.checked_sub(1)?)?;
            Some(Key::new(known))
        };
        Some(match answer {
            Answer::Granted(number, at, before) | Answer::Leased(number, at, before, _) => {
                let before = paceline_core::record::cost(before).unwrap_or_default();
                let receipt = Receipt { cost: cost.clone(), at: self.epoch.tick(*at), before };
                let key = key(*number).unwrap_or_else(|| Key::new(scope.host()));
                Admission::Granted(Grant::new(Place::Key(key), receipt))
            }
            Answer::Wait(number, after, by) => {
                let key = key(*number)?;
                let wait = wait(reply.state(key.as_str()), *after, *by);
                Admission::Wait(key, wait)
            }
            Answer::Done(_) => return None,
        })
    }
}

/// Where the answer to an ask comes from.
enum Plan {
    Leased(Grant),
    Asked(usize, usize),
    Follow,
}

/// The batch for a host, made if need be.
fn of_host(batches: &mut Vec<Batch>, host: &str) -> usize {
    batches.iter().position(|batch| batch.host() == host).unwrap_or_else(|| {
        batches.push(Batch::new(host));
        batches.len() - 1
    })
}

/// So many requests of a lease.
fn part(receipt: Receipt, requests: u64) -> Receipt {
    let mut cost = Cost::NOTHING;
    cost.set(Dimension::Requests, Amount::units(requests));
    Receipt { cost, ..receipt }
}

/// A wait as the script tells it.
fn wait(state: Option<&ScopeState>, nanos: u64, by: i64) -> Wait {
    let limit = usize::try_from(by - 1).ok().and_then(|at| state?.limit(at));
    let by = match (limit, by) {
        (Some(limit), _) => Cause::Limit(Arc::clone(limit)),
        (None, -2) => Cause::FirstAnswer,
        (None, _) => Cause::Hold,
    };
    Wait { after: Duration::from_nanos(nanos), by }
}

impl Here {
    fn new(server: &Server, timeout: Duration, lease: Option<Duration>) -> Self {
        Self {
            link: Mutex::new(Link::new(server.clone(), timeout)),
            failures: AtomicU64::new(0),
            combiner: Combiner::default(),
            views: Views::default(),
            leases: lease.map(Leases::new),
            ended: Mutex::default(),
            ahead: Mutex::default(),
        }
    }

    /// Has the end of a request told at the next visit, together with others of the same grant.
    fn end(&self, key: &Key, receipt: Receipt, sent: bool) {
        let mut ended = self.ended.lock();
        let same =
            |it: &&mut Ended| it.receipt.at == receipt.at && it.sent == sent && it.key == *key;
        match ended.last_mut().filter(same) {
            Some(known) => known.receipt.cost.add(&receipt.cost),
            None => ended.push(Ended { key: key.clone(), receipt, sent }),
        }
    }

    /// Runs a script for each of the arguments; anew, if the server has hung up since the time before.
    fn evaluate(
        &self,
        script: &Script,
        arguments: impl Fn() -> Result<Vec<Arguments>, StoreError>,
    ) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
        // Whoever was behind one that found the server away need not find out again.
        let before = self.failures.load(Ordering::Acquire);
        let mut link = self.link.lock();
        let answered = match self.failures.load(Ordering::Acquire) == before {
            true => {
                // A server that hung up may have been restarted, and have lost everything.
                if !link.is_up() {
                    self.views.doubt();
                }
                let first = link.run(script, &arguments()?);
                if first.is_err() && link.hung_up() {
                    self.views.doubt();
                    link.run(script, &arguments()?)
                } else {
                    first
                }
            }
            false => Err(StoreError::new("the server did not answer a moment ago")),
        };
        if answered.is_err() {
            self.failures.fetch_add(1, Ordering::AcqRel);
        }
        answered
    }

    /// The key of the scope that governs, as far as is known.
    fn governing(&self, scope: &Scope<'_>) -> Key {
        let known = scope
            .candidates()
            .map(Key::new)
            .find(|key| self.views.of(key, ScopeState::has_limits).unwrap_or(false));
        known.unwrap_or_else(|| Key::new(scope.host()))
    }

    /// One request of a lease.
    fn take(&self, scope: &Scope<'_>, now: Tick) -> Option<Grant> {
        let key = self.governing(scope);
        let receipt = self.leases.as_ref()?.take(&key, now)?;
        Some(Grant::new(Place::Key(key), receipt))
    }
}

impl Store for Redis {
    fn admit(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Admission, StoreError> {
        let here = self.here();
        if here.leases.is_some()
            && *cost == Cost::ONE
            && let Some(grant) = here.take(scope, self.clock.now())
        {
            here.views.count(&grant);
            return Ok(Admission::Granted(grant));
        }
        here.combiner.admit(Ask { scope, cost }, |asks| self.admit_all(asks))
    }

    fn admit_all(&self, asks: &[Ask<'_>]) -> Result<Vec<Option<Admission>>, StoreError> {
        let here = self.here();
        let mut batches: Vec<Batch> = Vec::new();
        // What becomes of each ask: decided here, or by one place in one batch.
        let plan: Vec<_> = asks.iter().map(|ask| self.plan(&here, &mut batches, ask)).collect();
        let asked = self.clock.now();
        let replies = if batches.is_empty() { Vec::new() } else { self.run(batches)? };
        let mut answers: Vec<Option<Admission>> = Vec::with_capacity(asks.len());
        for (ask, plan) in asks.iter().zip(plan) {
            let answer = match plan {
                Plan::Leased(grant) => Some(Admission::Granted(grant)),
                Plan::Asked(batch, place) => replies.get(batch).and_then(|reply| {
                    let answer = reply.answers.get(place)?;
                    let admission = self.admission(ask.scope, ask.cost, answer, reply)?;
                    if let (Some(leases), Answer::Leased(.., many), Admission::Granted(grant)) =
                        (&here.leases, answer, &admission)
                    {
                        leases.put(grant.key(), grant.receipt.clone(), *many, asked);
                    }
                    Some(admission)
                }),
                // The lease that one before it asked for is there by now, or was refused.
                Plan::Follow => here.take(ask.scope, asked).map(Admission::Granted),
            };
            if let Some(Admission::Granted(grant)) = &answer {
                here.views.count(grant);
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    fn charge(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Verdict, StoreError> {
        let mut batch = Batch::new(scope.host());
        batch.charge(scope, cost);
        let reply = self.run_one(batch)?;
        Ok(match reply.answers.first().and_then(|it| self.admission(scope, cost, it, &reply)) {
            Some(Admission::Wait(_, wait)) => Verdict::Wait(wait.into()),
            _ => Verdict::Granted,
        })
    }

    fn settle(&self, grant: &Grant, actual: &Cost) -> Result<(), StoreError> {
        let (key, at) = (grant.key().as_str(), self.micros(grant.receipt.at));
        self.run_on(key, |batch| batch.settle(key, &grant.receipt, at, actual))
    }

    fn close(&self, grant: &Grant) -> Result<bool, StoreError> {
        let here = self.here();
        let awaited = here.views.of(grant.key(), ScopeState::is_awaited).unwrap_or(false);
        here.end(grant.key(), grant.receipt.clone(), true);
        if awaited {
            self.flush()?;
        }
        Ok(awaited)
    }

    fn give_back(&self, grant: &Grant) -> Result<(), StoreError> {
        self.here().end(grant.key(), grant.receipt.clone(), false);
        self.run(Vec::new()).map(drop)
    }

    fn observe(&self, grant: &Grant, reading: &Reading) -> Result<bool, StoreError> {
        let here = self.here();
        let (policy, now) = (&self.templates.policy, self.now(&here));
        let expected =
            |state: &ScopeState| state.teaches_nothing(&grant.receipt, reading, policy, now);
        if here.views.of(grant.key(), expected).unwrap_or_else(|| reading.is_silent()) {
            return self.close(grant);
        }
        if let (Some(leases), true) = (&here.leases, reading.rejected) {
            leases.stop(grant.key());
        }
        let (key, at) = (grant.key().as_str(), self.micros(grant.receipt.at));
        self.run_on(key, |batch| batch.observe(key, &grant.receipt, at, reading))?;
        Ok(true)
    }

    fn set_limit(&self, scope: &Scope<'_>, limit: Limit) -> Result<(), StoreError> {
        self.templates.declare(scope.key(), limit.clone());
        self.run_on(scope.key(), |batch| batch.limit(scope.key(), limit))
    }

    fn spend(&self, scope: &Scope<'_>, cost: &Cost) -> Result<(), StoreError> {
        let mut batch = Batch::new(scope.host());
        batch.spend(scope, cost);
        self.run_one(batch).map(drop)
    }

    fn clear(&self, scope: Option<&Scope<'_>>) -> Result<usize, StoreError> {
        let goes = |key: &str| scope.is_none_or(|scope| scope.covers(key));
        self.templates.forget(goes);
        let here = self.here();
        here.views.forget(None);
        let gone: Vec<_> = self.keys()?.into_iter().filter(|key| goes(key.as_str())).collect();
        let names: Vec<_> = gone.iter().map(|key| batch::name(key.as_str())).collect();
        here.link.lock().delete(&names)?;
        Ok(gone.len())
    }

    fn snapshot(&self, scope: &Scope<'_>) -> Result<Option<Snapshot>, StoreError> {
        let mut batch = Batch::new(scope.host());
        batch.look(scope);
        let reply = self.run_one(batch)?;
        let found = scope.candidates().find_map(|key| {
            let state = reply.state(key).filter(|state| state.governs(reply.now))?;
            Some((Key::new(key), state.clone(), reply.now))
        });
        if found.is_some() || !self.templates.policy.governs() {
            return Ok(found);
        }
        let host = scope.host();
        let state = reply.state(host).cloned().unwrap_or_else(|| self.templates.policy.fresh());
        Ok(Some((Key::new(host), state, reply.now)))
    }

    fn keys(&self) -> Result<Vec<Key>, StoreError> {
        let names = self.here().link.lock().names(SCOPES)?;
        let mut keys: Vec<_> =
            names.iter().filter_map(|name| Some(Key::new(&batch::key(name)?))).collect();
        keys.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        keys.dedup();
        Ok(keys)
    }

    fn count(&self, entries: &[(Key, Tally)]) -> Result<(), StoreError> {
        let (here, instant) = (self.here(), self.instant());
        // Where it is another day than here, the server says so, and nothing was added yet.
        let today = day_of(self.clock.wall_micros());
        let mut left: Vec<_> = entries.iter().map(|(key, tally)| (key, tally, today)).collect();
        let mut wrong = None;
        while !left.is_empty() {
            let add = |(key, tally, day): &(&Key, &Tally, Day)| {
                books::addition(instant, *day, key, tally).map_err(StoreError::new)
            };
            let values = here.evaluate(&TALLY, || left.iter().map(add).collect())?;
            let mut later = Vec::new();
            for ((key, tally, day), value) in left.into_iter().zip(values) {
                match value {
                    Ok(Value::Int(at)) => {
                        let told = day_of(u64::try_from(at).unwrap_or(0));
                        if told != day {
                            later.push((key, tally, told));
                        }
                    }
                    Ok(_) => wrong = Some(StoreError::of_data(batch::Garbled::Shape)),
                    Err(error) => wrong = Some(error),
                }
            }
            left = later;
        }
        wrong.map_or(Ok(()), Err)
    }

    fn tallies(&self) -> Result<Vec<(Key, Day, Tally)>, StoreError> {
        let here = self.here();
        let mut link = here.link.lock();
        let mut names = link.names(BOOKS)?;
        names.sort_unstable();
        names.dedup();
        let hashes = link.hashes(&names)?;
        drop(link);
        // The server lets go of what is too old, by its own clock.
        let first = match &self.clock {
            Clock::Real { .. } => Day::MIN,
            Clock::Virtual(_) => oldest(day_of(self.clock.wall_micros())),
        };
        let books = names.iter().zip(&hashes).filter(|(_, fields)| !fields.is_empty());
        Ok(in_order(books.filter_map(|(name, fields)| {
            let (day, key) = books::day_and_key(name)?;
            (day >= first).then(|| (key, day, books::tally(fields)))
        })))
    }

    fn view(&self, scope: &Scope<'_>) -> Option<Snapshot> {
        let here = self.here();
        here.views.find(scope, self.now(&here))
    }

    fn share(&self, key: &Key) -> u32 {
        self.here().views.share(key)
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn ping(&self) -> Result<(), StoreError> {
        self.here().link.lock().ping()
    }

    fn flush(&self) -> Result<(), StoreError> {
        let Some(here) = self.here.mine() else { return Ok(()) };
        for (key, receipt, left) in here.leases.iter().flat_map(|it| it.rests(self.clock.now())) {
            here.end(&key, part(receipt, left), false);
        }
        if here.ended.lock().is_empty() {
            return Ok(());
        }
        self.run(Vec::new()).map(drop)
    }
}
