//! Where a store is asked that takes its time, for callers that must not wait for it.
//!
//! An event loop that asked a file or a server itself would stand still meanwhile. So it leaves what it
//! wants here and is rung for when it is done: one thread asks on behalf of all, many at a time, and
//! stands in the lines for them. Stores in memory are asked directly, and so are all others by threads
//! of their own, so a program without event loops never has this one.

use crate::bell::Bell;
use crate::books::Books;
use crate::limiter::{Inner, Limiter};
use crate::line::{Step, Waiter};
use crate::{Clock, Error, Permit};
use paceline_core::{Cost, Reading, Scope, Tick};
use paceline_store::{Admission, Ask, Grant, Store, StoreError};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long what a store keeps back may lie there while nobody comes.
const TIDY: Duration = Duration::from_millis(50);
/// How long somebody who is about to leave waits for what was left here to be done.
const PATIENCE: Duration = Duration::from_secs(2);
/// More than one visit should carry.
const AT_ONCE: usize = 256;

/// The desk of one limiter in one process.
///
/// Its thread nearly always sleeps, also while its process forks. Whoever sleeps in a lock or condition of
/// `parking_lot` stands in a table of the whole process, which a child inherits together with those who are
/// no longer there; a channel of the standard library keeps them to itself.
#[derive(Debug)]
pub(crate) struct Desk {
    put: Sender<Job>,
    /// Until somebody works here.
    inbox: Mutex<Option<Receiver<Job>>>,
    staffed: AtomicBool,
    next: AtomicU64,
}

impl Default for Desk {
    fn default() -> Self {
        let (put, inbox) = mpsc::channel();
        let inbox = Mutex::new(Some(inbox));
        Self { put, inbox, staffed: AtomicBool::default(), next: AtomicU64::default() }
    }
}

/// What is wanted.
#[derive(Debug)]
pub(crate) enum Job {
    Enter(Arc<Place>),
    Leave(Arc<Place>),
    /// A bell rang for a place in line.
    Look(u64),
    Observe(Grant, Reading),
    Settle(Grant, Cost),
    Close(Grant),
    GiveBack(Grant),
    /// Something was counted.
    Count,
    /// Somebody wants to know when everything before it was done.
    Drain(Sender<()>),
    /// Nobody will come any more.
    End,
}

/// A caller that waits for its permit, here or in a line.
pub(crate) struct Place {
    number: u64,
    scope: Scope<'static>,
    cost: Cost,
    max_wait: Option<Duration>,
    entered: Tick,
    bell: Arc<dyn Bell>,
    fate: Mutex<Fate>,
}

#[derive(Debug)]
enum Fate {
    Open,
    Decided(Box<Result<Permit, Error>>),
    /// Nobody waits for it any more.
    Gone,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl Place {
    /// Lays the outcome ready; the bell is to be rung.
    fn settle(&self, outcome: Result<Permit, Error>) {
        let mut fate = self.fate.lock();
        let unwanted = match *fate {
            Fate::Open => {
                *fate = Fate::Decided(outcome.into());
                None
            }
            _ => Some(outcome),
        };
        drop(fate);
        // Dropping a permit gives it back, which takes locks of its own.
        drop(unwanted);
    }

    fn decide(&self, outcome: Result<Permit, Error>) {
        self.settle(outcome);
        self.bell.ring();
    }

    fn is_gone(&self) -> bool {
        matches!(*self.fate.lock(), Fate::Gone)
    }

    /// The outcome, once it is there.
    pub(crate) fn take(&self) -> Option<Result<Permit, Error>> {
        let mut fate = self.fate.lock();
        match std::mem::replace(&mut *fate, Fate::Gone) {
            Fate::Decided(outcome) => Some(*outcome),
            other => {
                *fate = other;
                None
            }
        }
    }
}

impl Desk {
    /// Leaves a call here.
    pub(crate) fn enter(
        self: &Arc<Self>,
        limiter: &Limiter,
        scope: Scope<'static>,
        cost: Cost,
        max_wait: Option<Duration>,
        bell: Arc<dyn Bell>,
    ) -> Arc<Place> {
        let place = Arc::new(Place {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            scope,
            cost,
            max_wait,
            entered: limiter.inner.clock.now(),
            bell,
            fate: Mutex::new(Fate::Open),
        });
        self.post(&limiter.inner, Job::Enter(Arc::clone(&place)));
        place
    }

    /// Whoever was at that place no longer waits; what was granted meanwhile is given back.
    pub(crate) fn leave(self: &Arc<Self>, inner: &Arc<Inner>, place: &Arc<Place>) {
        let fate = std::mem::replace(&mut *place.fate.lock(), Fate::Gone);
        if matches!(fate, Fate::Open) {
            self.post(inner, Job::Leave(Arc::clone(place)));
        }
    }

    pub(crate) fn post(self: &Arc<Self>, inner: &Arc<Inner>, job: Job) {
        self.put(job);
        if !self.staffed.swap(true, Ordering::AcqRel) {
            let Some(inbox) = self.inbox.lock().take() else { return };
            let clerk = Clerk::new(Arc::clone(self), inbox, inner);
            let thread = std::thread::Builder::new().name("paceline".to_owned());
            // Without a thread every call would wait for ever: there is nothing else to do.
            thread.spawn(move || clerk.work()).expect("a thread can be started");
        }
    }

    /// Waits until everything that was left here so far was done, but not for ever.
    pub(crate) fn drain(&self) {
        if !self.staffed.load(Ordering::Acquire) {
            return;
        }
        let (tell, told) = mpsc::channel();
        self.put(Job::Drain(tell));
        let _ = told.recv_timeout(PATIENCE);
    }

    fn put(&self, job: Job) {
        // Nobody takes it up any more only once the limiter is gone.
        drop(self.put.send(job));
    }

    /// Nobody will come any more.
    pub(crate) fn close(&self) {
        self.put(Job::End);
    }
}

/// Rings at the desk for somebody in a line.
struct DeskBell {
    desk: Arc<Desk>,
    number: u64,
}

impl Bell for DeskBell {
    fn ring(&self) {
        self.desk.put(Job::Look(self.number));
    }
}

/// Whoever works at the desk.
struct Clerk {
    desk: Arc<Desk>,
    inbox: Receiver<Job>,
    inner: Weak<Inner>,
    /// Outlives the limiter, for what was left here when that was dropped.
    store: Arc<dyn Store>,
    books: Arc<Books>,
    clock: Clock,
    /// Those who stand in a line.
    lined_up: HashMap<u64, (Arc<Place>, Waiter)>,
    alarms: BTreeSet<(Tick, u64)>,
    /// The store may have kept something back.
    untidy: bool,
    /// Nobody will come any more.
    ended: bool,
}

impl Clerk {
    fn new(desk: Arc<Desk>, inbox: Receiver<Job>, inner: &Arc<Inner>) -> Self {
        let (store, clock) = (Arc::clone(&inner.store), inner.clock.clone());
        Self {
            desk,
            inbox,
            inner: Arc::downgrade(inner),
            store,
            books: inner.books(),
            clock,
            lined_up: HashMap::new(),
            alarms: BTreeSet::new(),
            untidy: false,
            ended: false,
        }
    }

    fn work(mut self) {
        while let Some(jobs) = self.next() {
            match self.inner.upgrade() {
                Some(inner) => self.tend(&Limiter { inner }, jobs),
                // Nobody waits any more, and what they did is told all the same.
                None => jobs.into_iter().for_each(|job| drop(self.tell(job))),
            }
        }
        self.tidy();
    }

    /// Hands in what was kept back.
    fn tidy(&self) {
        drop(self.books.tell(&*self.store));
        drop(self.store.flush());
    }

    /// Sleeps until there is something to do. `None` when nobody will come any more.
    fn next(&mut self) -> Option<Vec<Job>> {
        loop {
            let mut jobs: Vec<_> = self.inbox.try_iter().collect();
            if jobs.is_empty() && !self.ended {
                match self.wait() {
                    Ok(job) => {
                        jobs.push(job);
                        jobs.extend(self.inbox.try_iter());
                    }
                    Err(RecvTimeoutError::Timeout) if self.alarms.is_empty() => {
                        self.untidy = false;
                        self.tidy();
                        continue;
                    }
                    // An alarm rings.
                    Err(RecvTimeoutError::Timeout) => return Some(jobs),
                    Err(RecvTimeoutError::Disconnected) => return None,
                }
            }
            self.ended |= jobs.iter().any(|job| matches!(job, Job::End));
            return (!jobs.is_empty()).then_some(jobs);
        }
    }

    fn wait(&self) -> Result<Job, RecvTimeoutError> {
        let alarm = self.alarms.first().map(|(alarm, _)| alarm.since(self.clock.now()));
        match (alarm, &self.clock) {
            (Some(left), Clock::Virtual(clock)) => {
                clock.advance(left);
                Err(RecvTimeoutError::Timeout)
            }
            (Some(left), Clock::Real { .. }) => self.inbox.recv_timeout(left),
            (None, _) if self.untidy => self.inbox.recv_timeout(TIDY),
            (None, _) => self.inbox.recv().map_err(RecvTimeoutError::from),
        }
    }

    fn tend(&mut self, limiter: &Limiter, jobs: Vec<Job>) {
        let mut entering = Vec::new();
        let (mut looking, mut draining) = (Vec::new(), Vec::new());
        self.untidy = true;
        for job in jobs {
            match job {
                Job::Enter(place) => entering.push(place),
                Job::Leave(place) => drop(self.lined_up.remove(&place.number)),
                Job::Look(number) => looking.push(number),
                Job::Drain(drained) => draining.push(drained),
                end => {
                    if let Ok(Some(grant)) = self.tell(end) {
                        limiter.inner.nudge_for(&grant);
                    }
                }
            }
        }
        let now = limiter.inner.clock.now();
        while let Some(due) = self.alarms.first().copied().filter(|(at, _)| *at <= now) {
            self.alarms.remove(&due);
            looking.push(due.1);
        }
        for number in looking {
            self.look(number, limiter);
        }
        while !entering.is_empty() {
            entering = self.admit(limiter, entering);
        }
        for drained in draining {
            let _ = drained.send(());
        }
    }

    /// Tells the store what became of a request. Gives the grant where waits may have changed.
    fn tell(&self, job: Job) -> Result<Option<Grant>, StoreError> {
        // Whoever watches over the store says so if it is away; the request itself is over.
        let (grant, changed) = match job {
            Job::Observe(grant, reading) => {
                let changed = self.store.observe(&grant, &reading)?;
                (grant, changed)
            }
            Job::Settle(grant, spent) => {
                self.store.settle(&grant, &spent)?;
                (grant, true)
            }
            Job::Close(grant) => {
                let changed = self.store.close(&grant)?;
                (grant, changed)
            }
            Job::GiveBack(grant) => {
                self.store.give_back(&grant)?;
                (grant, true)
            }
            Job::Count => {
                self.books.tell_if_due(&*self.store, self.clock.now());
                return Ok(None);
            }
            Job::Drain(drained) => {
                let _ = drained.send(());
                return Ok(None);
            }
            Job::Enter(_) | Job::Leave(_) | Job::Look(_) | Job::End => return Ok(None),
        };
        Ok(changed.then_some(grant))
    }

    /// Admits those who can go at once and sends the others to their lines. Gives back those about
    /// whom the store said nothing yet.
    fn admit(&mut self, limiter: &Limiter, places: Vec<Arc<Place>>) -> Vec<Arc<Place>> {
        let (inner, mut asking, mut later) = (&limiter.inner, Vec::new(), Vec::new());
        for place in places {
            if place.is_gone() {
                continue;
            }
            match inner.line_before(&place.scope) {
                Some(line) => self.line_up(limiter, line, place),
                None if asking.len() < AT_ONCE => asking.push(place),
                None => later.push(place),
            }
        }
        let ask = |place: &'_ Arc<Place>| (place.scope.clone(), place.cost.clone());
        let wanted: Vec<_> = asking.iter().map(ask).collect();
        let asks: Vec<_> = wanted.iter().map(|(scope, cost)| Ask { scope, cost }).collect();
        let answers = match inner.store.admit_all(&asks) {
            Ok(answers) => answers,
            Err(error) => {
                asking.iter().for_each(|place| place.decide(Err(error.clone().into())));
                return later;
            }
        };
        let (mut again, mut bells) = (Vec::new(), Vec::new());
        for (place, answer) in asking.into_iter().zip(answers) {
            match answer {
                Some(Admission::Granted(grant)) => {
                    let waited = inner.clock.now().since(place.entered);
                    place.settle(Ok(limiter.permit(grant, waited).through_desk()));
                    bells.push(Arc::clone(&place.bell));
                }
                Some(Admission::Wait(key, wait)) if wait.is_beyond(place.max_wait) => {
                    place.decide(Err(inner.refuse(&key, wait).into()));
                }
                Some(Admission::Wait(key, _)) => {
                    let line = inner.line(&key);
                    self.line_up(limiter, line, place);
                }
                None => again.push(place),
            }
        }
        if let Some((first, others)) = bells.split_first() {
            first.ring_with(others);
        }
        again.extend(later);
        again
    }

    fn line_up(&mut self, limiter: &Limiter, line: Arc<crate::line::Line>, place: Arc<Place>) {
        let bell = DeskBell { desk: Arc::clone(&self.desk), number: place.number };
        let (scope, cost) = (place.scope.clone(), place.cost.clone());
        match Waiter::join(limiter, line, scope, cost, place.max_wait, Arc::new(bell)) {
            Ok(waiter) => {
                let number = place.number;
                self.lined_up.insert(number, (place, waiter));
                self.look(number, limiter);
            }
            Err(refused) => place.decide(Err(refused.into())),
        }
    }

    /// Looks whether the turn of somebody in line has come.
    fn look(&mut self, number: u64, limiter: &Limiter) {
        let Some((_, waiter)) = self.lined_up.get_mut(&number) else { return };
        match waiter.poll() {
            Step::Done(outcome) => {
                let Some((place, _)) = self.lined_up.remove(&number) else { return };
                place.decide(outcome.map(Permit::through_desk));
            }
            Step::Sleep(after) => {
                self.alarms.insert((limiter.inner.clock.now().after(after), number));
            }
            Step::Park => {}
        }
    }
}
