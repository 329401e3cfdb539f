//! What a sandbox is asked to do, and the parts of it that are worked out before the first request.

use super::SandboxError;
use super::args::{LimitSpec, SandboxArgs, Share};
use super::headers::{Family, Rounding};
use paceline_core::provider::{Limit, Policy};
use std::time::Duration;

/// What a sandbox enforces and how it answers. The default is unlimited, on any free local port.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address or host name to listen on.
    pub host: String,
    /// Port to listen on; 0 takes any free one.
    pub port: u16,
    /// The limits; all apply.
    pub limits: Vec<LimitSpec>,
    /// How requests are counted.
    pub policy: Policy,
    /// Which headers counted responses carry.
    pub headers: Family,
    /// How the whole seconds of resets are rounded.
    pub reset_rounding: Rounding,
    /// How much later than they come resets are told.
    pub reset_late: Duration,
    /// Whether a 429 says when to come back, and how its whole seconds are rounded.
    pub retry_after: Option<Rounding>,
    /// Whether any other counted response says so too.
    pub retry_after_always: bool,
    /// Whether what is refused is counted all the same.
    pub refusals_cost: bool,
    /// The share of each limit that a stranger with the same credential spends.
    pub stranger: Share,
    /// How many tokens an answer of a model takes, at most what its request allows; a few unless said.
    pub answer_tokens: Option<u64>,
    /// Whether what an answer did not take of its reservation is taken back.
    pub settle: bool,
    /// How long each admitted response is delayed.
    pub latency: Duration,
    /// By how much at most a request is delayed before it is counted, and its response again.
    pub jitter: Duration,
    /// The share of admitted requests that fail.
    pub error_rate: Share,
    /// Decides which requests fail, how much jitter delays each, and what the models say.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 0,
            limits: Vec::new(),
            policy: Policy::Fixed,
            headers: Family::Legacy,
            reset_rounding: Rounding::Up,
            reset_late: Duration::ZERO,
            retry_after: None,
            retry_after_always: false,
            refusals_cost: false,
            stranger: Share::default(),
            answer_tokens: None,
            settle: false,
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            error_rate: Share::default(),
            seed: 0,
        }
    }
}

impl From<SandboxArgs> for Config {
    fn from(args: SandboxArgs) -> Self {
        let policy = args.policy.unwrap_or(match args.headers {
            Family::Openai | Family::Anthropic => Policy::Bucket,
            _ => Policy::Fixed,
        });
        Self {
            host: args.host,
            port: args.port,
            limits: args.limits,
            policy,
            headers: args.headers,
            reset_rounding: args.reset_rounding,
            reset_late: args.reset_late,
            retry_after: args.retry_after,
            retry_after_always: args.retry_after_always,
            refusals_cost: args.refusals_cost,
            stranger: args.stranger,
            answer_tokens: args.answer_tokens,
            settle: args.settle,
            latency: args.latency,
            jitter: args.jitter,
            error_rate: args.error_rate,
            seed: args.seed,
        }
    }
}

/// A limit with the name it goes by: its dimension, or `dimension/window` for a second one on it.
#[derive(Debug, Clone)]
pub(super) struct NamedLimit {
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) spec: LimitSpec,
}

/// The enforced part of a [`Config`].
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) policy: Policy,
    pub(super) named: Vec<NamedLimit>,
    pub(super) limits: Vec<Limit>,
    pub(super) refusals_cost: bool,
    pub(super) stranger: Share,
    pub(super) error_rate: Share,
    pub(super) answer_tokens: Option<u64>,
    pub(super) settle: bool,
    pub(super) seed: u64,
}

impl Plan {
    pub(super) fn new(config: &Config) -> Result<Self, SandboxError> {
        let mut named: Vec<NamedLimit> = Vec::with_capacity(config.limits.len());
        for (index, spec) in config.limits.iter().cloned().enumerate() {
            let same = |other: &&NamedLimit| other.spec.dimension == spec.dimension;
            let window = spec.limit.window();
            if named.iter().filter(same).any(|other| other.spec.limit.window() == window) {
                return Err(SandboxError::SameLimitTwice {
                    window: spec.window_text(),
                    dimension: spec.dimension,
                });
            }
            let name = match named.iter().find(same) {
                Some(_) => format!("{}/{}", spec.dimension, spec.window_text()),
                None => spec.dimension.clone(),
            };
            named.push(NamedLimit { index, name, spec });
        }
        Ok(Self {
            policy: config.policy,
            limits: named.iter().map(|limit| limit.spec.limit).collect(),
            named,
            refusals_cost: config.refusals_cost,
            stranger: config.stranger,
            error_rate: config.error_rate,
            answer_tokens: config.answer_tokens,
            settle: config.settle,
            seed: config.seed,
        })
    }
}

/// A number that looks random and depends on `seed` and `n` alone (SplitMix64).
pub(super) const fn scatter(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
