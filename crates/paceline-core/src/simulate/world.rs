//! What happens, one event after the other.

use super::dice::Dice;
use super::outcome::{is_same, share};
use super::server::{Answer, Counter, counters};
use super::workload::{Request, Workload};
use super::{
    Bound, Concurrency, Fate, Impossible, LONGEST, Mark, Outcome, Simulation, Timeline, Usage,
    Waits,
};
use crate::gate::Tail;
use crate::retry;
use crate::state::Receipt;
use crate::time::nanos;
use crate::{Amount, Cause, Cost, Reading, ScopeState, Tick};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

/// What happens at an instant. The numbers are those of calls and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The next request comes.
    Come,
    /// The head of a line looks whether its time has come, unless it was timed anew.
    Alarm { key: usize, number: u64 },
    /// A request reaches the server.
    Arrive(usize),
    /// An answer reaches its caller.
    Answer(usize),
    /// A rejected request is sent again.
    Again(usize),
}

/// A request that a worker has taken up.
#[derive(Debug)]
struct Call {
    request: Request,
    key: usize,
    /// When it joined the line at last.
    joined: u64,
    /// How long it has waited in all.
    waited: u64,
    /// Attempts that were sent.
    attempts: u32,
    /// When it was sent at first and at last.
    first: u64,
    sent: u64,
    receipt: Receipt,
    answer: Option<(Answer, u64)>,
}

/// The callers of one key, and what they know.
#[derive(Debug)]
struct Line {
    state: ScopeState,
    queue: VecDeque<usize>,
    tail: Option<Tail>,
    alarm: u64,
}

pub(super) struct World<'a> {
    plan: &'a Simulation,
    workload: Workload<'a>,
    next: Option<Request>,
    /// How many were taken up.
    taken: u64,
    /// Whether it is already noted when the next one comes.
    expected: bool,
    now: u64,
    dice: Dice,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    lines: Vec<Line>,
    servers: Vec<Counter<'a>>,
    calls: Vec<Call>,
    free: Vec<usize>,
    idle: u64,
    waiting: u64,
    flying: u64,
    /// What the head of a line waited for at last.
    cause: Bound,
    waits: Vec<u64>,
    delays: Vec<u64>,
    spent: Cost,
    last_sent: u64,
    busy: u128,
    finished: u64,
    most_flying: u64,
    done: Outcome,
}

impl<'a> World<'a> {
    pub(super) fn new(plan: &'a Simulation) -> Self {
        let mut dice = Dice::new(plan.seed);
        let state = match plan.limits.as_slice() {
            [] => plan.policy.fresh(),
            limits => ScopeState::with_limits(limits),
        };
        let line = || Line { state: state.clone(), queue: VecDeque::new(), tail: None, alarm: 0 };
        let mut workload = Workload::new(plan);
        let next = workload.next();
        let done = Outcome {
            requests: workload.requests(),
            answered: 0,
            refused: 0,
            rejected: 0,
            failed: 0,
            finished: Duration::ZERO,
            waits: Waits::default(),
            delays: Waits::default(),
            usage: Vec::new(),
            bounds: Vec::new(),
            concurrency: Concurrency { most: 0, of_use: None, ceiling: None },
            timeline: Timeline::new(),
            marks: Vec::new(),
        };
        // Where within a second it begins differs from seed to seed.
        let phase = dice.upto(SECOND - 1);
        Self {
            workload,
            next,
            taken: 0,
            expected: false,
            now: 0,
            dice,
            events: BinaryHeap::new(),
            number: 0,
            lines: (0..plan.keys).map(|_| line()).collect(),
            servers: counters(plan, phase),
            calls: Vec::new(),
            free: Vec::new(),
            idle: plan.workers.into(),
            waiting: 0,
            flying: 0,
            cause: Bound::Arrivals,
            waits: Vec::new(),
            delays: Vec::new(),
            spent: Cost::NOTHING,
            last_sent: 0,
            busy: 0,
            finished: 0,
            most_flying: 0,
            done,
            plan,
        }
    }

    pub(super) fn run(mut self) -> Result<Outcome, Impossible> {
        self.take_up();
        // Alarms that were set anew may still go off when everything is over.
        while !self.is_over()
            && let Some(Reverse((at, _, event))) = self.events.pop()
        {
            if at > nanos(LONGEST) {
                return Err(Impossible::Endless);
            }
            self.pass(at);
            self.happens(event);
            self.take_up();
        }
        Ok(self.outcome())
    }

    fn is_over(&self) -> bool {
        self.next.is_none() && self.idle == u64::from(self.plan.workers)
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Come => self.expected = false,
            Event::Alarm { key, number } => {
                if self.lines[key].alarm == number {
                    self.pump(key);
                }
            }
            Event::Arrive(call) => self.arrive(call),
            Event::Answer(call) => self.answered(call),
            Event::Again(call) => self.join(call),
        }
    }

    fn later(&mut self, after: u64, event: Event) -> u64 {
        self.number += 1;
        self.events.push(Reverse((self.now.saturating_add(after), self.number, event)));
        self.number
    }

    /// No clock of a store stands at zero.
    const fn tick(&self) -> Tick {
        Tick::from_nanos(SECOND + self.now)
    }

    /// Time passes: says what it passed with.
    fn pass(&mut self, at: u64) {
        if at > self.now {
            let bound = self.bound();
            let span = Duration::from_nanos(at - self.now);
            match self.done.bounds.iter_mut().find(|(known, _)| known.is(&bound)) {
                Some((_, total)) => *total += span,
                None => self.done.bounds.push((bound, span)),
            }
            for slot in self.done.timeline.reach(at) {
                let (left, server_left) = self.levels(self.done.timeline.end(slot));
                self.done.timeline.close(left, server_left);
            }
            self.now = at;
        }
    }

    /// What has to pass before the next request goes.
    fn bound(&self) -> Bound {
        match () {
            () if self.waiting > 0 => self.cause.clone(),
            () if self.next.is_some() && self.idle > 0 => Bound::Arrivals,
            () if self.flying == 0 => Bound::Retries,
            () if self.next.is_some() => Bound::Workers,
            () => Bound::Answers,
        }
    }

    /// What is left of each limit at an instant that has no event before it.
    fn levels(&mut self, at: u64) -> (Vec<Amount>, Vec<u64>) {
        let tick = Tick::from_nanos(SECOND + at);
        let mut left: Vec<Amount> = Vec::new();
        for line in &self.lines {
            for (i, level) in line.state.status(tick).limits.iter().enumerate() {
                match left.get_mut(i) {
                    Some(sum) => *sum = sum.plus(level.remaining),
                    None => left.push(level.remaining),
                }
            }
        }
        let mut server_left: Vec<u64> = Vec::new();
        for server in &mut self.servers {
            for (i, remaining) in server.left(at).enumerate() {
                match server_left.get_mut(i) {
                    Some(sum) => *sum = sum.saturating_add(remaining),
                    None => server_left.push(remaining),
                }
            }
        }
        (left, server_left)
    }

    /// Workers that are free take up what has come.
    fn take_up(&mut self) {
        while self.idle > 0 {
            let Some(at) = self.next.as_ref().map(|next| next.at) else { return };
            if at > self.now {
                if !self.expected {
                    self.expected = true;
                    self.later(at - self.now, Event::Come);
                }
                return;
            }
            let Some(request) = std::mem::replace(&mut self.next, self.workload.next()) else {
                return;
            };
            self.done.timeline.open().came += 1;
            self.idle -= 1;
            let key = usize::try_from(self.taken % u64::from(self.plan.keys)).unwrap_or(0);
            self.taken += 1;
            let call = Call {
                request,
                key,
                joined: self.now,
                waited: 0,
                attempts: 0,
                first: 0,
                sent: 0,
                receipt: Receipt::new(Cost::NOTHING, Tick::ZERO),
                answer: None,
            };
            let call = match self.free.pop() {
                Some(at) => {
                    self.calls[at] = call;
                    at
                }
                None => {
                    self.calls.push(call);
                    self.calls.len() - 1
                }
            };
            self.join(call);
        }
    }

    /// How long a call in line may still wait.
    fn patience(&self, call: usize) -> Option<Duration> {
        let it = &self.calls[call];
        self.left(it.waited + self.now - it.joined)
    }

    /// How long one that has waited so long may still wait.
    fn left(&self, waited: u64) -> Option<Duration> {
        self.plan.max_wait.map(|most| most.saturating_sub(Duration::from_nanos(waited)))
    }

    /// A call takes its place in line, unless it would wait too long (rule 21).
    fn join(&mut self, call: usize) {
        self.calls[call].joined = self.now;
        let key = self.calls[call].key;
        let (now, patience) = (self.tick(), self.patience(call));
        let calls = &self.calls;
        let line = &mut self.lines[key];
        if let Some(most) = patience
            && !line.queue.is_empty()
        {
            let (state, queue) = (&line.state, &line.queue);
            let tail = line.tail.get_or_insert_with(|| {
                let costs = queue.iter().map(|call| &calls[*call].request.cost);
                costs.fold(Tail::new(state.clone(), now), |tail, cost| tail.and(cost, now))
            });
            let cost = &calls[call].request.cost;
            if tail.wait(cost, now).is_beyond(Some(most)) {
                return self.refuse(call);
            }
            tail.add(cost, now);
        }
        line.queue.push_back(call);
        self.waiting += 1;
        let open = self.done.timeline.open();
        open.waiting = open.waiting.max(self.waiting);
        if self.lines[key].queue.len() == 1 {
            self.pump(key);
        }
    }

    /// Admits from the head of a line on as long as there is room.
    fn pump(&mut self, key: usize) {
        while let Some(call) = self.lines[key].queue.front().copied() {
            let now = self.tick();
            match self.lines[key].state.admit(&self.calls[call].request.cost, now) {
                Ok(receipt) => {
                    self.leave(key);
                    self.calls[call].receipt = receipt;
                    self.send(call);
                }
                Err(wait) if wait.is_beyond(self.patience(call)) => {
                    self.leave(key);
                    self.lines[key].tail = None;
                    self.refuse(call);
                }
                Err(wait) => {
                    self.blame(&wait.by);
                    let number = self.number + 1;
                    self.lines[key].alarm =
                        self.later(nanos(wait.after), Event::Alarm { key, number });
                    return;
                }
            }
        }
        self.lines[key].tail = None;
    }

    fn blame(&mut self, by: &Cause) {
        // The usual case, in which nothing is copied.
        if let (Cause::Limit(by), Bound::Limit(before)) = (by, &self.cause)
            && is_same(by, before)
        {
            return;
        }
        self.cause = by.into();
    }

    /// The head of a line leaves it.
    fn leave(&mut self, key: usize) {
        self.lines[key].queue.pop_front();
        self.waiting -= 1;
    }

    fn send(&mut self, call: usize) {
        let now = self.now;
        let it = &mut self.calls[call];
        it.waited += now - it.joined;
        it.sent = now;
        if it.attempts == 0 {
            it.first = now;
        }
        it.attempts += 1;
        let latency = it.request.latency;
        self.spent.add(&self.calls[call].request.cost);
        self.last_sent = now;
        self.flying += 1;
        self.most_flying = self.most_flying.max(self.flying);
        self.done.timeline.open().sent += 1;
        let way = self.dice.upto(nanos(self.plan.jitter));
        match self.servers.is_empty() {
            true => {
                let back = self.dice.upto(nanos(self.plan.jitter));
                self.later(way.saturating_add(latency).saturating_add(back), Event::Answer(call))
            }
            false => self.later(way, Event::Arrive(call)),
        };
    }

    fn arrive(&mut self, call: usize) {
        let key = self.calls[call].key;
        let answer = self.servers[key].answer(&self.calls[call].request.cost, self.now);
        let back = self.dice.upto(nanos(self.plan.jitter));
        // What is refused is refused at once.
        let after = if answer.rejected { 0 } else { self.calls[call].request.latency };
        self.calls[call].answer = Some((answer, self.now));
        self.later(after.saturating_add(back), Event::Answer(call));
    }

    fn answered(&mut self, call: usize) {
        let (now, tick) = (self.now, self.tick());
        let it = &mut self.calls[call];
        let key = it.key;
        self.flying -= 1;
        self.busy += u128::from(now - it.sent);
        let reading = match it.answer.take() {
            Some((answer, made)) => self.servers[key].reading(&answer, made, now),
            None => Reading::default(),
        };
        let line = &mut self.lines[key];
        if line.state.observe(&it.receipt, &reading, &self.plan.policy, tick) {
            line.tail = None;
            self.pump(key);
        }
        match reading.rejected {
            true => self.rejected(call, &reading),
            false => {
                self.done.answered += 1;
                let it = &self.calls[call];
                self.waits.push(it.waited);
                self.delays.push(it.first - it.request.at);
                let fate = match () {
                    () if it.attempts > 1 => Fate::Rejected,
                    () if it.waited > 0 => Fate::Waited,
                    () => Fate::Sent,
                };
                self.end(call, self.calls[call].sent, fate);
            }
        }
    }

    fn rejected(&mut self, call: usize, reading: &Reading) {
        self.done.rejected += 1;
        self.done.timeline.open().rejected += 1;
        let it = &self.calls[call];
        let outcome = retry::Outcome {
            method: "GET",
            keyed: false,
            status: 429,
            retry_after: reading.retry_after,
            attempt: it.attempts - 1,
        };
        let pause = self.plan.retry.pause(&outcome, 0.0);
        let left = self.left(it.waited);
        let beyond = |pause: &Duration| left.is_some_and(|left| *pause > left);
        match pause {
            Some(pause) if !beyond(&pause) => {
                // Where the server says how long, the wait for the next permit is the pause.
                let pause = if reading.retry_after.is_some() { 0 } else { nanos(pause) };
                self.calls[call].waited += pause;
                self.later(pause, Event::Again(call));
            }
            _ => {
                self.done.failed += 1;
                self.end(call, self.calls[call].sent, Fate::Rejected);
            }
        }
    }

    fn refuse(&mut self, call: usize) {
        self.done.refused += 1;
        self.done.timeline.open().refused += 1;
        self.end(call, self.now, Fate::Refused);
    }

    /// A call is over, and its worker is free.
    fn end(&mut self, call: usize, at: u64, fate: Fate) {
        self.finished = self.now;
        self.idle += 1;
        self.free.push(call);
        if self.done.marks.len() < self.plan.marks {
            let came = Duration::from_nanos(self.calls[call].request.at);
            self.done.marks.push(Mark { came, at: Duration::from_nanos(at), fate });
        }
    }

    fn outcome(mut self) -> Outcome {
        let (left, server_left) = self.levels(self.now);
        let last = self.done.timeline.open();
        (last.left, last.server_left) = (left, server_left);
        let limits: Vec<_> =
            self.lines[0].state.status(self.tick()).limits.into_iter().map(|it| it.limit).collect();
        let spent: Vec<Amount> =
            limits.iter().map(|limit| self.spent.of(&limit.dimension)).collect();
        let sent = self.done.answered + self.done.rejected;
        self.done.concurrency =
            Concurrency::new(self.plan, self.most_flying, &limits, &spent, sent, self.busy);
        let span = Duration::from_nanos(self.last_sent);
        let usage = limits.into_iter().zip(spent).map(|(limit, spent)| {
            let share = share(&limit, spent, self.plan.keys, span);
            Usage { limit, spent, share }
        });
        self.done.usage = usage.collect();
        self.done.finished = Duration::from_nanos(self.finished);
        self.done.waits = Waits::of(self.waits);
        self.done.delays = Waits::of(self.delays);
        self.done.bounds.sort_by_key(|(_, span)| Reverse(*span));
        self.done
    }
}
