//! What is simulated, as it is said: on a command line, in the address of the page, from Python.

use super::replay;
use crate::sandbox::{Share, policies};
use crate::{Failure, times};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use paceline::simulate::{Arrivals, Server, Simulation, Spend, Tells};
use paceline::{Amount, Dimension, Limit, Window};
use paceline_core::provider::{self, Policy as Counts};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What is simulated.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// A limit, such as 60/1m or tokens=90000/1m; repeatable, all apply
    #[arg(short, long = "limit", value_name = "[DIMENSION=]N/WINDOW", help_heading = "Limits")]
    limits: Vec<Limit>,
    /// Requests per minute
    #[arg(long, value_name = "N", help_heading = "Limits")]
    rpm: Option<u64>,
    /// Tokens per minute
    #[arg(long, value_name = "N", help_heading = "Limits")]
    tpm: Option<u64>,
    /// Requests per day
    #[arg(long, value_name = "N", help_heading = "Limits")]
    rpd: Option<u64>,
    /// How many requests go back to back after a pause: of --rpm, or of the one --limit
    #[arg(long, value_name = "N", help_heading = "Limits")]
    burst: Option<u64>,
    /// Never exceed a limit in any span of its window
    #[arg(long, conflicts_with = "burst", help_heading = "Limits")]
    strict: bool,
    /// How many keys take turns; each has all of the limits
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Limits")]
    keys: u32,

    /// How many requests there are
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100, help_heading = "Requests")]
    requests: u64,
    /// When they come: all at once; 10/1s evenly; poisson:10/1s at random; burst:100/1m
    #[arg(long, value_name = "HOW", default_value = "at-once", help_heading = "Requests")]
    arrivals: When,
    /// Requests as they once came: a file of JSON lines with a time, and tokens, cost and latency
    ///
    /// A line is an object. `time` is a number of seconds or an RFC 3339 time; `cost` an object such as
    /// {"tokens": 900}, `tokens` short for that; `latency` the seconds until the answer.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["arrivals", "costs", "avg_tokens"], help_heading = "Requests")]
    replay: Option<PathBuf>,
    /// What a request spends: tokens=1500, or tokens=500..2500 for anything between; repeatable
    #[arg(long = "cost", value_name = "NAME=N[..M]", help_heading = "Requests")]
    costs: Vec<Priced>,
    /// Tokens that a request spends: short for --cost tokens=N
    #[arg(long, value_name = "N", help_heading = "Requests")]
    avg_tokens: Option<u64>,

    /// Requests waiting and under way at once
    #[arg(short, long, value_name = "N", default_value_t = 16, help_heading = "Callers")]
    workers: u32,
    /// How long an answer takes, such as 800ms
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = times::parse, help_heading = "Callers")]
    latency: Duration,
    /// By how much at most each way to the server and back takes longer
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = times::parse, help_heading = "Callers")]
    jitter: Duration,
    /// What happens to a call that would have to wait
    #[arg(long, value_enum, default_value_t, help_heading = "Callers")]
    on_rate_limit: OnRateLimit,
    /// The longest wait of one call; whoever would wait longer is refused at once
    #[arg(long, value_name = "TIME", value_parser = times::parse, help_heading = "Callers")]
    max_wait: Option<Duration>,
    /// Further attempts after a 429
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Callers")]
    retries: u32,

    /// How the server counts; without it nothing is ever rejected
    #[arg(long, value_name = "HOW", value_parser = policies(), help_heading = "Server")]
    server: Option<Counts>,
    /// A limit of the server; repeatable [default: the same limits]
    #[arg(
        long = "server-limit",
        value_name = "[DIMENSION=]N/WINDOW",
        requires = "server",
        help_heading = "Server"
    )]
    server_limits: Vec<Limit>,
    /// What the server says of its limits
    #[arg(long, value_enum, default_value_t, requires = "server", help_heading = "Server")]
    tells: Told,
    /// The share of each limit that strangers with the same key take, such as 50%
    #[arg(
        long,
        value_name = "SHARE",
        default_value = "0%",
        requires = "server",
        help_heading = "Server"
    )]
    strangers: Share,
    /// Count what is rejected as if it had been admitted
    #[arg(long, requires = "server", help_heading = "Server")]
    refusals_cost: bool,

    /// Decides everything that is left to chance
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Output")]
    seed: u64,
    /// Tell in the JSON what became of each of the first N requests
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Output")]
    marks: usize,
}

/// What happens to a call that would have to wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum OnRateLimit {
    /// It waits
    #[default]
    Wait,
    /// It is refused at once
    Raise,
}

/// [`Tells`] as a choice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Told(Tells);

impl ValueEnum for Told {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Told; Tells::ALL.len()] = {
            let mut all = [Told(Tells::Nothing); Tells::ALL.len()];
            let mut i = 0;
            while i < all.len() {
                all[i] = Told(Tells::ALL[i]);
                i += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            Tells::Nothing => "a 429, and no more",
            Tells::RetryAfter => "Retry-After on a 429",
            Tells::Github => "X-RateLimit-*, the reset as an epoch",
            Tells::Ietf => "RateLimit and RateLimit-Policy",
            Tells::Openai => "x-ratelimit-*-DIMENSION, the reset as a duration",
        };
        Some(PossibleValue::new(self.0.name()).help(help))
    }
}

/// [`Arrivals`] as they are said.
#[derive(Debug, Clone)]
struct When(Arrivals);

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "`{text}` is no way to come; expected at-once, 10/1s, poisson:10/1s or burst:100/1m"
            )
        };
        let (how, rate) = text.split_once(':').unwrap_or(("steady", text));
        if text == "at-once" {
            return Ok(Self(Arrivals::Together));
        }
        let limit = Limit::parse(rate).map_err(|_| expected())?;
        if limit.dimension != Dimension::Requests {
            return Err(expected());
        }
        let Limit { units, window, .. } = limit;
        Ok(Self(match how {
            "steady" => Arrivals::Steady(units, window),
            "poisson" => Arrivals::Poisson(units, window),
            "burst" => Arrivals::Bursts(units, window),
            _ => return Err(expected()),
        }))
    }
}

/// [`Spend`] as it is said.
#[derive(Debug, Clone)]
struct Priced(Spend);

impl FromStr for Priced {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("`{text}` is no cost; expected such as tokens=1500 or tokens=500..2500");
        let (name, amount) = text.split_once('=').ok_or_else(expected)?;
        let (least, most) = amount.split_once("..").unwrap_or((amount, amount));
        let units = |text: &str| {
            let value = text.trim().replace('_', "").parse::<f64>().map_err(|_| expected())?;
            Amount::from_f64(value).map_err(|error| error.to_string())
        };
        let spend = Spend::between(name.trim(), units(least)?, units(most)?);
        spend.map(Self).map_err(|error| error.to_string())
    }
}

impl Settings {
    /// The simulation that is asked for.
    ///
    /// # Errors
    /// What contradicts itself, and a replay that cannot be read.
    pub fn simulation(&self) -> Result<Simulation, Failure> {
        let limits = self.limits()?;
        let mut spends: Vec<Spend> = self.costs.iter().map(|cost| cost.0.clone()).collect();
        spends.extend(self.avg_tokens.map(|n| Spend::exactly("tokens", n)).transpose()?);
        let (requests, arrivals) = match &self.replay {
            Some(file) => {
                let past = replay::read(file)?;
                (past.len() as u64, Arrivals::Replay(past))
            }
            None => (self.requests, self.arrivals.0.clone()),
        };
        let mut simulation = Simulation {
            server: self.server(&limits)?,
            limits,
            requests,
            arrivals,
            spends,
            workers: self.workers,
            keys: self.keys,
            latency: self.latency,
            jitter: self.jitter,
            max_wait: match self.on_rate_limit {
                OnRateLimit::Wait => self.max_wait,
                OnRateLimit::Raise => Some(Duration::ZERO),
            },
            seed: self.seed,
            marks: self.marks,
            ..Simulation::default()
        };
        simulation.retry.max_retries = self.retries;
        simulation.policy.learn_first = simulation.limits.is_empty();
        Ok(simulation)
    }

    fn limits(&self) -> Result<Vec<Limit>, Failure> {
        let day = Window::parse("1d")?;
        let mut limits = Vec::new();
        for (dimension, units, window) in [
            ("requests", self.rpm, Window::MINUTE),
            ("tokens", self.tpm, Window::MINUTE),
            ("requests", self.rpd, day),
        ] {
            limits.extend(units.map(|units| Limit::new(dimension, units, window)).transpose()?);
        }
        limits.extend(self.limits.iter().cloned());
        for (i, limit) in limits.iter().enumerate() {
            if limits[..i].iter().any(|it| limit.replaces(it)) {
                let (dimension, window) = (&limit.dimension, limit.window);
                let message = format!("two limits on {dimension} per {window}; keep one of them");
                return Err(message.into());
            }
        }
        if let Some(burst) = self.burst {
            let (([one], _) | ([one, ..], Some(_))) = (limits.as_mut_slice(), self.rpm) else {
                return Err("--burst goes with --rpm, or with one --limit".into());
            };
            *one = one.clone().with_burst(burst)?;
        }
        if self.strict {
            limits = limits.into_iter().map(Limit::strict).collect::<Result<_, _>>()?;
        }
        Ok(limits)
    }

    fn server(&self, ours: &[Limit]) -> Result<Option<Server>, Failure> {
        let Some(counts) = self.server else { return Ok(None) };
        let limits = if self.server_limits.is_empty() { ours } else { &self.server_limits };
        if limits.is_empty() {
            return Err(
                "a --server without limits rejects nothing; give it a --server-limit".into()
            );
        }
        let counted = |limit: &Limit| {
            let counted = provider::Limit::new(limit.units, limit.window.duration());
            let counted = counted.ok_or("a server's limit is at most 2^53 per 366d")?;
            Ok::<_, Failure>((limit.dimension.clone(), counted))
        };
        Ok(Some(Server {
            counts,
            limits: limits.iter().map(counted).collect::<Result<_, _>>()?,
            tells: self.tells.0,
            strangers: self.strangers.per_million(),
            refusals_cost: self.refusals_cost,
        }))
    }

    /// Whether a file of this machine is to be read.
    pub(super) const fn reads_a_file(&self) -> bool {
        self.replay.is_some()
    }
}
