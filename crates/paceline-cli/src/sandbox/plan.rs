//! What a sandbox is asked to do, and the parts of it that are worked out before the first request.

use super::SandboxError;
use super::args::{ErrorRate, LimitSpec, SandboxArgs};
use super::headers::Family;
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
    /// Whether a 429 says when to come back.
    pub retry_after: bool,
    /// How long each admitted response is delayed.
    pub latency: Duration,
    /// The share of admitted requests that fail.
    pub error_rate: ErrorRate,
    /// Decides which requests fail and what the models say.
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
            retry_after: false,
            latency: Duration::ZERO,
            error_rate: ErrorRate::default(),
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
            retry_after: args.retry_after,
            latency: args.latency,
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
    pub(super) error_rate: ErrorRate,
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
            error_rate: config.error_rate,
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
