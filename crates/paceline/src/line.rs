//! The waiting line in front of one scope: the engine's gate, with bells to wake those who wait.
//!
//! Only the head asks the store, and whoever finds out that there is room, a head whose time has
//! come or a caller who gave something back, admits all who can go, in order, and rings their
//! bells. So there is no dispatcher and no thread of its own, one timer runs for the head, and
//! everybody else sleeps.
//!
//! Locks are taken in the order line, then store; bells ring after both are released.

use crate::bell::Bell;
use crate::desk::Place;
use crate::error::{Error, Refused};
use crate::limiter::{Inner, Limiter};
use crate::long_wait::{self, LONG, LongWait};
use crate::permit::Permit;
use crate::sync::{Mutex, Ordering};
use paceline_core::gate::Tail;
use paceline_core::{Cause, Cost, Gate, Scope, ScopeState, Tick, Ticket, Wait};
use paceline_store::{Admission, Ask, Clock, Grant, Key};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How often this process is a fork of the one before: those who waited there are not here.
static FORKS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// Tells that this process is a fork: nobody waits here but those who come from now on, and every store
/// is opened anew. To be called in the child, before anything else.
pub fn after_fork_in_child() {
    paceline_store::after_fork_in_child();
    FORKS.fetch_add(1, Ordering::AcqRel);
}

#[derive(Debug)]
pub(crate) struct Line {
    key: Key,
    /// The number of forks when it was made.
    born: u32,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    gate: Gate<Waiting>,
    /// Decided, and not yet picked up.
    outcomes: BTreeMap<Ticket, Outcome>,
    /// Who has to be told by when.
    deadlines: BTreeSet<(Tick, Ticket)>,
    /// What the scope will look like when everybody in line has gone; unknown after anything
    /// unforeseen.
    tail: Option<Tail>,
    /// What the head waited for at last.
    by: Option<Cause>,
    /// Until then nobody has to hear of a long wait: it was told, or looked for.
    told: Tick,
}

type Outcome = Result<Grant, Error>;

struct Waiting {
    scope: Scope<'static>,
    cost: Cost,
    deadline: Option<Tick>,
    joined: Tick,
    bell: Arc<dyn Bell>,
    /// When its timer goes off, once it is the head.
    alarm: Option<Tick>,
}

/// How soon the head asks a store again that others use as well: they may have given something back,
/// or set another limit.
const OTHERS: Duration = Duration::from_millis(750);
/// The most that one visit carries.
const MANY: usize = 256;

/// How exactly somebody else's timer is set: finer than any timer goes off.
const FINE: Duration = Duration::from_micros(50);

/// How much later than it could somebody asks a store that others use as well. All who wait for the same
/// unit would ask at the same instant, and whoever wins would mostly win again; so the longer somebody has
/// waited, the sooner they ask. A bucket makes up for so short a pause, unless it holds but one.
fn courtesy(inner: &Inner, head: &Waiting, wait: &Wait, now: Tick) -> Duration {
    const MOST: Duration = Duration::from_millis(4);
    const ROUNDS: u32 = 8;
    let (Cause::Limit(limit), Clock::Real { .. }) = (&wait.by, &inner.clock) else {
        return Duration::ZERO;
    };
    let unit = Duration::from_nanos(limit.window.as_nanos() / limit.units.max(1));
    // Several units may be waited for at once, as for a lease.
    let round = unit.max(wait.after);
    let most = (if limit.burst > 1 { round / 4 } else { unit / 64 }).min(MOST);
    let waited = now.since(head.joined).as_nanos() / round.as_nanos().max(1);
    most / ROUNDS * ROUNDS.saturating_sub(u32::try_from(waited).unwrap_or(ROUNDS))
}

/// What is left for when the lock is released.
#[derive(Default)]
struct Bells {
    rings: Vec<(Arc<dyn Bell>, Option<Duration>)>,
    /// A long wait that is to be told.
    told: Option<Wait>,
}

impl Bells {
    fn ring(self, inner: &Inner, key: &Key) {
        if let Some(Wait { after, by }) = self.told {
            inner.on_wait.tell(&LongWait { scope: Limiter::display(key), by, after });
        }
        for (bell, after) in self.rings {
            match after {
                Some(after) => bell.ring_after(after),
                None => bell.ring(),
            }
        }
    }
}

/// A place in line. Dropping it leaves the line, and gives back what was granted meanwhile.
#[derive(Debug)]
#[must_use = "a waiter that is dropped leaves the line"]
pub struct Waiter {
    limiter: Limiter,
    stand: Stand,
    done: bool,
}

/// Where it stands.
#[derive(Debug)]
enum Stand {
    Line { line: Arc<Line>, ticket: Ticket, joined: Tick },
    Desk(Arc<Place>),
}

/// What a waiter has to do next.
#[derive(Debug)]
pub enum Step {
    /// Its turn came, or its time ran out.
    Done(Result<Permit, Error>),
    /// It is the head of the line: poll again after this long, or when the bell rings.
    Sleep(Duration),
    /// Poll again when the bell rings.
    Park,
}

impl Waiter {
    pub(crate) fn join(
        limiter: &Limiter,
        line: Arc<Line>,
        scope: Scope<'_>,
        cost: Cost,
        max_wait: Option<Duration>,
        bell: Arc<dyn Bell>,
    ) -> Result<Self, Refused> {
        let inner = &limiter.inner;
        let now = inner.clock.now();
        let scope = scope.into_owned();
        let mut queue = line.queue.lock();
        let deadline = max_wait.map(|most| now.after(most));
        // Decided up front (rule 21), with everybody in line taken into account.
        if let Some(most) = max_wait
            && queue.estimate(inner, &scope, &cost).is_some_and(|wait| wait.after > most)
            && let Some(wait) = queue.forecast(inner, &scope, &cost)
            && wait.after > most
        {
            return Err(inner.refuse(&line.key, wait));
        }
        if let Some(tail) = &mut queue.tail {
            tail.add(&cost, now);
        }
        let waiting = Waiting { scope, cost, deadline, joined: now, bell, alarm: None };
        let ticket = queue.gate.arrive(waiting);
        queue.deadlines.extend(deadline.map(|deadline| (deadline, ticket)));
        let mut bells = Bells::default();
        queue.tell_of_a_long_wait(inner, &mut bells);
        drop(queue);
        bells.ring(inner, &line.key);
        inner.waiting.fetch_add(1, Ordering::AcqRel);
        let stand = Stand::Line { line, ticket, joined: now };
        Ok(Self { limiter: limiter.clone(), stand, done: false })
    }

    pub(crate) fn at_desk(limiter: &Limiter, place: Arc<Place>) -> Self {
        Self { limiter: limiter.clone(), stand: Stand::Desk(place), done: false }
    }

    /// Looks whether its turn has come, and if it is the head, whether there is room.
    pub fn poll(&mut self) -> Step {
        let (line, ticket, joined) = match &self.stand {
            Stand::Line { line, ticket, joined } => (Arc::clone(line), *ticket, *joined),
            Stand::Desk(place) => {
                let Some(outcome) = place.take() else { return Step::Park };
                self.done = true;
                return Step::Done(outcome);
            }
        };
        let inner = Arc::clone(&self.limiter.inner);
        let mut bells = Bells::default();
        let step = {
            let mut queue = line.queue.lock();
            let sleep = match queue.is_timed_for(ticket, inner.clock.now()) {
                true => None,
                false => queue.pump(&inner, &line.key, Some(ticket), &mut bells),
            };
            match queue.outcomes.remove(&ticket) {
                Some(outcome) => Step::Done(outcome.map(|grant| {
                    let waited = inner.clock.now().since(joined);
                    long_wait::ended(&line.key, queue.by.as_ref(), waited);
                    self.limiter.permit(grant, waited).waited_for(queue.by.clone())
                })),
                None => sleep.map_or(Step::Park, Step::Sleep),
            }
        };
        bells.ring(&inner, &line.key);
        if matches!(step, Step::Done(_)) {
            self.leave(&line);
        }
        step
    }

    fn leave(&mut self, line: &Arc<Line>) {
        self.done = true;
        self.limiter.inner.waiting.fetch_sub(1, Ordering::AcqRel);
        self.limiter.inner.leave(line);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let inner = Arc::clone(&self.limiter.inner);
        let (line, ticket) = match &self.stand {
            Stand::Line { line, ticket, .. } => (Arc::clone(line), *ticket),
            Stand::Desk(place) => return inner.desk().leave(&inner, place),
        };
        let mut bells = Bells::default();
        let granted = {
            let mut queue = line.queue.lock();
            let granted = queue.outcomes.remove(&ticket);
            if granted.is_none() {
                queue.forgo(ticket);
                queue.pump(&inner, &line.key, None, &mut bells);
            }
            granted
        };
        bells.ring(&inner, &line.key);
        if let Some(Ok(grant)) = granted {
            // A store that is away has forgotten the grant anyway.
            drop(inner.give_back(&grant));
        }
        self.leave(&line);
    }
}

impl Line {
    pub(crate) fn new(key: Key) -> Self {
        Self { key, born: FORKS.load(Ordering::Acquire), queue: Mutex::new(Queue::default()) }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Whether those in it are in this process.
    pub(crate) fn is_ours(&self) -> bool {
        self.born == FORKS.load(Ordering::Acquire)
    }

    pub(crate) fn is_empty(&self) -> bool {
        let queue = self.queue.lock();
        queue.gate.is_empty() && queue.outcomes.is_empty()
    }

    /// How long a newcomer would wait behind everybody in line; `None` when nobody waits.
    pub(crate) fn forecast(&self, inner: &Inner, scope: &Scope<'_>, cost: &Cost) -> Option<Wait> {
        let mut queue = self.queue.lock();
        if queue.gate.is_empty() {
            return None;
        }
        queue.forecast(inner, scope, cost)
    }

    /// The scope changed: the head is timed anew, and whoever can no longer make it in time is told.
    pub(crate) fn replan(&self, inner: &Inner) {
        let mut bells = Bells::default();
        {
            let mut queue = self.queue.lock();
            queue.tail = None;
            queue.pump(inner, &self.key, None, &mut bells);
            if !queue.deadlines.is_empty() {
                queue.refuse_the_late(inner, &self.key, &mut bells);
            }
        }
        bells.ring(inner, &self.key);
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.gate.len()).finish_non_exhaustive()
    }
}

impl Queue {
    /// Whether somebody else will wake up in time for this one: the head, whose alarm is set and
    /// goes off before this one's deadline. Then the store need not be asked again.
    fn is_timed_for(&mut self, ticket: Ticket, now: Tick) -> bool {
        let alarm = match self.gate.head() {
            Some((head, waiting)) if head != ticket => waiting.alarm,
            _ => None,
        };
        let deadline = self.gate.get_mut(ticket).and_then(|waiting| waiting.deadline);
        alarm.is_some_and(|alarm| alarm > now && deadline.is_none_or(|deadline| alarm < deadline))
    }

    /// Admits from the head on as long as there is room. Tells `me`, if it is the head, how long
    /// to sleep.
    fn pump(
        &mut self,
        inner: &Inner,
        key: &Key,
        me: Option<Ticket>,
        bells: &mut Bells,
    ) -> Option<Duration> {
        loop {
            let now = inner.clock.now();
            let (ticket, _) = self.gate.head()?;
            if inner.places.are_known() {
                // Answers that came meanwhile may have told in which bucket it is counted.
                let head = self.gate.get_mut(ticket)?;
                head.scope = inner.places.route(head.scope.clone());
            }
            let (_, head) = self.gate.head()?;
            let wait = match inner.store.admit(&head.scope, &head.cost) {
                Ok(Admission::Granted(grant)) => {
                    self.decide(ticket, Ok(grant), me, bells);
                    if inner.is_slow {
                        self.pump_many(inner, me, bells);
                    }
                    continue;
                }
                Ok(Admission::Wait(_, wait)) => {
                    self.by = Some(wait.by.clone());
                    wait
                }
                Err(error) => {
                    self.decide(ticket, Err(error.into()), me, bells);
                    continue;
                }
            };
            let left = head.deadline.map(|deadline| deadline.since(now));
            let over = head.deadline.is_some_and(|deadline| deadline < now);
            if over || wait.is_beyond(left) {
                self.decide(ticket, Err(inner.refuse(key, wait).into()), me, bells);
                continue;
            }
            let courtesy = courtesy(inner, head, &wait, now);
            if self.expire(inner, key, now, me, bells) {
                continue;
            }
            self.tell_of_a_long_wait(inner, bells);
            // A deadline further down the line may come before the head's turn.
            let first_deadline = self.deadlines.first().map(|(deadline, _)| deadline.since(now));
            let overdue = first_deadline.map(|left| left.saturating_add(Duration::from_nanos(1)));
            let turn = match inner.is_slow {
                true => wait.after.saturating_add(courtesy).min(OTHERS),
                false => wait.after,
            };
            let sleep = overdue.map_or(turn, |overdue| turn.min(overdue));
            let alarm = Some(now.after(sleep));
            let head = self.gate.get_mut(ticket)?;
            if me == Some(ticket) {
                head.alarm = alarm;
                return Some(sleep);
            }
            // One that goes off too early, or hardly too late, does no harm.
            if head.alarm.is_none_or(|set| set.since(now) > sleep + FINE) {
                head.alarm = alarm;
                bells.rings.push((Arc::clone(&head.bell), Some(sleep)));
            }
            return None;
        }
    }

    /// There was room for the head: admits more of those behind it with each visit, until one has to
    /// wait.
    fn pump_many(&mut self, inner: &Inner, me: Option<Ticket>, bells: &mut Bells) {
        let mut many = 4;
        loop {
            let next: Vec<_> = self.gate.iter().take(many).collect();
            let asks: Vec<_> =
                next.iter().map(|(_, it)| Ask { scope: &it.scope, cost: &it.cost }).collect();
            let Ok(answers) = inner.store.admit_all(&asks) else { return };
            let tickets: Vec<_> = next.iter().map(|(ticket, _)| *ticket).collect();
            let asked = tickets.len();
            let mut granted = 0;
            for (ticket, answer) in tickets.into_iter().zip(answers) {
                if let Some(Admission::Granted(grant)) = answer {
                    self.decide(ticket, Ok(grant), me, bells);
                    granted += 1;
                }
            }
            if granted < asked || asked < many {
                return;
            }
            many = (many * 2).min(MANY);
        }
    }

    /// Takes a waiter out of the line with its outcome, and wakes it.
    fn decide(&mut self, ticket: Ticket, outcome: Outcome, me: Option<Ticket>, bells: &mut Bells) {
        if outcome.is_err() {
            self.tail = None;
        }
        if let Some(waiting) = self.remove(ticket) {
            self.tell(ticket, waiting.bell, outcome, me, bells);
        }
    }

    /// Lays an outcome ready, and wakes whoever it is for.
    fn tell(
        &mut self,
        ticket: Ticket,
        bell: Arc<dyn Bell>,
        outcome: Outcome,
        me: Option<Ticket>,
        bells: &mut Bells,
    ) {
        self.outcomes.insert(ticket, outcome);
        if me != Some(ticket) {
            bells.rings.push((bell, None));
        }
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Waiting> {
        let waiting = self.gate.leave(ticket)?;
        if let Some(deadline) = waiting.deadline {
            self.deadlines.remove(&(deadline, ticket));
        }
        Some(waiting)
    }

    /// Refuses those whose time ran out although the forecast had been better. The head is not
    /// among them: it has just been asked for.
    fn expire(
        &mut self,
        inner: &Inner,
        key: &Key,
        now: Tick,
        me: Option<Ticket>,
        bells: &mut Bells,
    ) -> bool {
        let mut any = false;
        while let Some((_, ticket)) = self.deadlines.first().copied().filter(|(at, _)| *at < now) {
            let Some(late) = self.remove(ticket) else { break };
            self.tail = None;
            let wait = self.forecast(inner, &late.scope, &late.cost);
            let wait = wait.unwrap_or(Wait { after: Duration::ZERO, by: Cause::FirstAnswer });
            self.tell(ticket, late.bell, Err(inner.refuse(key, wait).into()), me, bells);
            any = true;
        }
        any
    }

    /// Refuses those whose turn will now come too late.
    fn refuse_the_late(&mut self, inner: &Inner, key: &Key, bells: &mut Bells) {
        let Some((mut state, now)) = self.view(inner) else { return };
        let mut at = now;
        let mut late = Vec::new();
        let started = inner.clock.now();
        for (ticket, waiting) in self.gate.iter() {
            let wait = state.wait(&waiting.cost, at);
            let turn = wait.as_ref().map_or(at, |wait| at.after(wait.after));
            let after = turn.since(now);
            match (wait, waiting.deadline) {
                (Some(wait), Some(deadline)) if started.after(after) > deadline => {
                    late.push((ticket, Wait { after, by: wait.by }));
                }
                _ => {
                    state.spend(&waiting.cost, turn);
                    at = turn;
                }
            }
        }
        for (ticket, wait) in late {
            self.decide(ticket, Err(inner.refuse(key, wait).into()), None, bells);
        }
    }

    /// How long a newcomer would wait behind everybody in line.
    fn forecast(&mut self, inner: &Inner, scope: &Scope<'_>, cost: &Cost) -> Option<Wait> {
        if self.tail.as_ref().is_some_and(Tail::is_late) {
            self.tail = None;
        }
        self.estimate(inner, scope, cost)
    }

    /// The same, but perhaps too long when somebody left the line meanwhile.
    fn estimate(&mut self, inner: &Inner, scope: &Scope<'_>, cost: &Cost) -> Option<Wait> {
        if self.gate.is_empty() {
            let (_, state, now) = inner.store.view(scope)?;
            return state.wait(cost, now);
        }
        let (tail, now) = self.tail(inner)?;
        Some(tail.wait(cost, now))
    }

    /// The scope as the next newcomer will find it.
    fn tail(&mut self, inner: &Inner) -> Option<(&Tail, Tick)> {
        let (state, now) = self.view(inner)?;
        let line = &self.gate;
        let tail = self.tail.get_or_insert_with(|| {
            let costs = line.iter().map(|(_, waiting)| &waiting.cost);
            costs.fold(Tail::new(state, now), |tail, cost| tail.and(cost, now))
        });
        Some((tail, now))
    }

    /// Whoever joined last waits for longer than a second: that is told, once for all who wait meanwhile.
    fn tell_of_a_long_wait(&mut self, inner: &Inner, bells: &mut Bells) {
        /// To look for it is not free.
        const PAUSE: Duration = Duration::from_millis(250);
        let now = inner.clock.now();
        if now < self.told {
            return;
        }
        let Some(wait) = self.tail(inner).map(|(tail, at)| tail.last(at)) else { return };
        self.told = now.after(if wait.after > LONG { wait.after } else { PAUSE });
        bells.told = Some(wait).filter(|wait| wait.after > LONG);
    }

    /// Takes out somebody who will not go. Those behind go earlier, which the tail need not know
    /// before it refuses somebody: so leaving costs the same however long the line is.
    fn forgo(&mut self, ticket: Ticket) {
        let Some(waiting) = self.remove(ticket) else { return };
        if let Some(tail) = &mut self.tail {
            tail.forgo(waiting.cost);
        }
    }

    /// The state of the scope that governs the head, as far as is known without a visit.
    fn view(&self, inner: &Inner) -> Option<(ScopeState, Tick)> {
        let (_, head) = self.gate.head()?;
        inner.store.view(&head.scope).map(|(_, state, now)| (state, now))
    }
}
