//! A server, a network and those who call through the engine, on a clock of their own: what takes twenty
//! seconds takes a millisecond, and is the same each time.

use paceline_core::headers::{Detector, Response, detect};
use paceline_core::provider::{self, Account};
use paceline_core::state::Receipt;
use paceline_core::time::nanos;
use paceline_core::{Cause, Cost, Policy, Reading, ScopeState, Tick};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
/// When the server's clock, which tells the time, stands where the world begins.
const EPOCH: u64 = 1_800_000_000 * SECOND;
/// How soon the head of a line asks a store again that other processes use as well.
const OTHERS: u64 = 750 * MS;

/// What a server says of its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tells {
    /// `X-RateLimit-*`, the reset as an epoch.
    Github,
    /// `RateLimit` and `RateLimit-Policy`.
    Ietf,
    /// `x-ratelimit-*-requests`, the reset as a duration.
    Openai,
    /// `Retry-After` on a rejection.
    RetryAfter,
    Nothing,
}

/// What a world is made of.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) counts: provider::Policy,
    pub(crate) tells: Tells,
    pub(crate) limit: u64,
    pub(crate) window: Duration,
    /// What a stranger takes of it, in millionths.
    pub(crate) stranger: u32,
    pub(crate) processes: usize,
    /// Callers in each process.
    pub(crate) callers: usize,
    /// The way there takes so long at the least, and so does the way back.
    pub(crate) way: Duration,
    /// What it takes longer on average.
    pub(crate) jitter: Duration,
    /// Windows before the measured ones, and those.
    pub(crate) warm_up: u32,
    pub(crate) windows: u32,
    /// What is known before.
    pub(crate) state: ScopeState,
    pub(crate) policy: Policy,
    pub(crate) seed: u64,
}

impl Plan {
    /// 100 requests in two seconds, and sixteen callers who never rest.
    pub(crate) fn new(counts: provider::Policy, tells: Tells) -> Self {
        let mut policy = Policy::default();
        policy.learn_first = true;
        Self {
            counts,
            tells,
            limit: 100,
            window: Duration::from_secs(2),
            stranger: 0,
            processes: 1,
            callers: 16,
            way: Duration::from_millis(1),
            jitter: Duration::from_micros(500),
            warm_up: 0,
            windows: 10,
            state: policy.fresh(),
            policy,
            seed: 1,
        }
    }
}

/// What the server's journal says.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    /// What it could have admitted.
    pub(crate) could: u64,
}

/// Repeatable noise (splitmix64).
struct Dice(u64);

impl Dice {
    fn upto(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % (most + 1)
    }

    /// So many nanoseconds on average, mostly shorter and sometimes much longer.
    fn delay(&mut self, mean: u64) -> u64 {
        let usual = self.upto(mean * 3 / 2);
        usual + if self.upto(15) == 0 { mean * 4 } else { 0 }
    }
}

/// What happens at an instant.
#[derive(Debug)]
enum Event {
    /// The head of a line looks whether its time has come, unless it was timed anew.
    Alarm { process: usize, number: u64 },
    /// A caller joins its line.
    Join { process: usize, call: Call },
    /// A request reaches the server.
    Arrive { process: usize, call: Call, receipt: Receipt },
    /// An answer reaches the caller.
    Answer { process: usize, call: Call, receipt: Receipt, answer: Box<Told> },
}

#[derive(Debug, Clone, Copy, Default)]
struct Call {
    /// Rejections of it that named no wait.
    tries: u32,
    joined: u64,
}

/// An answer as it left the server.
#[derive(Debug)]
struct Told {
    status: u16,
    headers: Vec<(&'static str, String)>,
}

#[derive(Default)]
struct Process {
    line: VecDeque<Call>,
    alarm: u64,
    /// What it last saw of a shared store, and what it has to tell there.
    view: ScopeState,
    ended: Vec<Receipt>,
}

struct World {
    plan: Plan,
    now: u64,
    dice: Dice,
    /// By when they happen, and in the order in which they were made.
    events: BTreeMap<(u64, u64), Event>,
    number: u64,
    account: Account,
    state: ScopeState,
    processes: Vec<Process>,
    /// When each request came, whether it was admitted, and what the stranger had by then.
    journal: Vec<(u64, bool, u64)>,
    detector: Detector,
}

/// Lets a world run, and reads its journal.
pub(crate) fn run(plan: Plan) -> Figures {
    let window = nanos(plan.window);
    let until = EPOCH + window * u64::from(plan.warm_up + plan.windows + 2) + SECOND;
    let mut world = World::new(plan);
    while let Some(((at, _), event)) = world.events.pop_first() {
        if at > until {
            break;
        }
        world.now = at;
        world.happens(event);
    }
    world.figures()
}

impl World {
    fn new(plan: Plan) -> Self {
        let limit = provider::Limit::new(plan.limit, plan.window).expect("a limit");
        let mut world = Self {
            now: 0,
            dice: Dice(plan.seed),
            events: BTreeMap::new(),
            number: 0,
            account: Account::new(plan.counts, &[limit]).with_stranger(plan.stranger),
            state: plan.state.clone(),
            processes: (0..plan.processes).map(|_| Process::default()).collect(),
            journal: Vec::new(),
            detector: Detector::default(),
            plan,
        };
        // Where within a second it begins differs from world to world.
        world.now = EPOCH + world.dice.upto(SECOND);
        for process in 0..world.plan.processes {
            for _ in 0..world.plan.callers {
                let after = world.dice.delay(300_000);
                world.later(after, Event::Join { process, call: Call::default() });
            }
        }
        world
    }

    fn later(&mut self, after: u64, event: Event) -> u64 {
        self.number += 1;
        self.events.insert((self.now + after, self.number), event);
        self.number
    }

    fn tick(&self) -> Tick {
        // No clock of a store counts from 1970.
        Tick::from_nanos(self.now - EPOCH + SECOND)
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Alarm { process, number } => {
                if self.processes[process].alarm == number {
                    self.pump(process);
                }
            }
            Event::Join { process, call } => {
                let call = Call { joined: self.now, ..call };
                self.processes[process].line.push_back(call);
                if self.processes[process].line.len() == 1 {
                    self.pump(process);
                }
            }
            Event::Arrive { process, call, receipt } => {
                let answer = Box::new(self.serve());
                let after = self.way();
                self.later(after, Event::Answer { process, call, receipt, answer });
            }
            Event::Answer { process, call, receipt, answer } => {
                self.answered(process, call, &receipt, &answer);
            }
        }
    }

    fn way(&mut self) -> u64 {
        nanos(self.plan.way) + self.dice.delay(nanos(self.plan.jitter))
    }

    fn is_shared(&self) -> bool {
        self.plan.processes > 1
    }

    /// What a visit to a shared store brings there, and how long the answer takes.
    fn visit(&mut self, process: usize) -> u64 {
        if !self.is_shared() {
            return 0;
        }
        for receipt in std::mem::take(&mut self.processes[process].ended) {
            self.state.close(&receipt, self.tick());
        }
        100_000 + self.dice.delay(100_000)
    }

    /// Admits from the head of a line on as long as there is room.
    fn pump(&mut self, process: usize) {
        while let Some(head) = self.processes[process].line.front().copied() {
            let back = self.visit(process);
            let verdict = self.state.admit(&Cost::ONE, self.tick());
            self.processes[process].view = self.state.clone();
            match verdict {
                Ok(receipt) => {
                    let call = self.processes[process].line.pop_front().expect("the head");
                    let after = back + self.way();
                    self.later(after, Event::Arrive { process, call, receipt });
                }
                Err(wait) => {
                    let after = nanos(wait.after);
                    let sleep = match self.is_shared() {
                        true => (after + self.courtesy(&head, &wait.by, after)).min(OTHERS),
                        false => after,
                    };
                    // Nobody wakes up on time.
                    let sleep = sleep + back + self.dice.delay(100_000);
                    let number = self.number + 1;
                    let set = self.later(sleep, Event::Alarm { process, number });
                    self.processes[process].alarm = set;
                    return;
                }
            }
        }
    }

    /// As in the lines of processes that share a store: whoever has waited longer asks sooner.
    fn courtesy(&self, head: &Call, by: &Cause, after: u64) -> u64 {
        let Cause::Limit(limit) = by else { return 0 };
        let unit = limit.window.as_nanos() / limit.units;
        let round = unit.max(after);
        let most = (if limit.burst > 1 { round / 4 } else { unit / 64 }).min(4 * MS);
        most / 8 * 8_u64.saturating_sub((self.now - head.joined) / round.max(1))
    }

    fn serve(&mut self) -> Told {
        let now = Duration::from_nanos(self.now);
        let outcome = self.account.admit(now, &[1]);
        let stranger = self.account.strangers().next().unwrap_or(0);
        self.journal.push((self.now, outcome.is_ok(), stranger));
        let standing = self.account.standings(now).next().expect("a limit");
        let whole = |nanos: u64| nanos.div_ceil(SECOND);
        let reset = nanos(standing.reset);
        let mut headers = Vec::new();
        let limit = self.plan.limit.to_string();
        let left = standing.remaining.to_string();
        match self.plan.tells {
            Tells::Github => headers.extend([
                ("x-ratelimit-limit", limit),
                ("x-ratelimit-remaining", left),
                ("x-ratelimit-reset", whole(self.now + reset).to_string()),
                ("x-ratelimit-used", (self.plan.limit - standing.remaining).to_string()),
                ("x-ratelimit-resource", "core".to_owned()),
            ]),
            Tells::Ietf => {
                let window = self.plan.window.as_secs();
                headers.extend([
                    ("ratelimit-policy", format!("\"default\";q={limit};w={window}")),
                    ("ratelimit", format!("\"default\";r={left};t={}", whole(reset))),
                ]);
            }
            Tells::Openai => headers.extend([
                ("x-ratelimit-limit-requests", limit),
                ("x-ratelimit-remaining-requests", left),
                ("x-ratelimit-reset-requests", format!("{}ms", reset.div_ceil(MS))),
            ]),
            Tells::RetryAfter => {
                if let Err(wait) = outcome.map_err(|refusal| refusal.wait.expect("one unit fits")) {
                    headers.push(("retry-after", whole(nanos(wait)).to_string()));
                }
            }
            Tells::Nothing => {}
        }
        Told { status: if outcome.is_ok() { 200 } else { 429 }, headers }
    }

    fn answered(&mut self, process: usize, call: Call, receipt: &Receipt, answer: &Told) {
        let headers = answer.headers.iter().map(|(name, value)| (*name, value.as_str()));
        let now = Duration::from_nanos(self.now);
        let response = Response { status: answer.status, url: None, now, headers, body: None };
        let reading = detect(&self.detector, response);
        if self.learn(process, receipt, &reading) {
            self.pump(process);
        }
        // Without a wait that the server names, a retry waits by itself; else for its permit.
        let (pause, tries) = match (reading.rejected, reading.retry_after) {
            (true, None) if call.tries < 3 => (SECOND << call.tries, call.tries + 1),
            _ => (self.dice.delay(200_000), 0),
        };
        self.later(pause, Event::Join { process, call: Call { tries, joined: 0 } });
    }

    /// Learns from a response, and tells whether those who wait have to be timed anew.
    fn learn(&mut self, process: usize, receipt: &Receipt, reading: &Reading) -> bool {
        let (now, policy) = (self.tick(), self.plan.policy.clone());
        if !self.is_shared() {
            return self.state.observe(receipt, reading, &policy, now);
        }
        let view = &self.processes[process].view;
        if view.teaches_nothing(receipt, reading, &policy, now) {
            let awaited = view.is_awaited();
            self.processes[process].ended.push(receipt.clone());
            if awaited {
                self.visit(process);
                self.processes[process].view = self.state.clone();
            }
            return awaited;
        }
        self.visit(process);
        self.state.observe(receipt, reading, &policy, now);
        self.processes[process].view = self.state.clone();
        true
    }

    fn figures(&self) -> Figures {
        let window = nanos(self.plan.window);
        let first = self.journal.first().expect("somebody called").0;
        let opened = match self.plan.counts {
            provider::Policy::Fixed if window.is_multiple_of(SECOND) => first - first % SECOND,
            _ => first,
        };
        let is_fixed = self.plan.counts == provider::Policy::Fixed;
        // Whole windows of the server: what is left of the first is not everybody's fault.
        let begin = opened + window * u64::from(self.plan.warm_up + u32::from(is_fixed));
        let end = begin + window * u64::from(self.plan.windows);
        let within: Vec<_> =
            self.journal.iter().filter(|entry| (begin..end).contains(&entry.0)).collect();
        let admitted = count(within.iter().filter(|entry| entry.1));
        let before = self.journal.iter().take_while(|entry| entry.0 < begin).last();
        let strangers = within.last().map_or(0, |entry| entry.2) - before.map_or(0, |it| it.2);
        let full = self.plan.counts == provider::Policy::Bucket && self.plan.warm_up == 0;
        let could = self.plan.limit * u64::from(self.plan.windows)
            + u64::from(full) * self.plan.limit
            + u64::from(self.plan.counts == provider::Policy::Gcra)
            - strangers;
        Figures { admitted, refused: count(within.iter()) - admitted, could }
    }
}

fn count(all: impl Iterator) -> u64 {
    u64::try_from(all.count()).expect("so many")
}
