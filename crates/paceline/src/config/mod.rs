//! Settings as data: `paceline.toml`.

mod doubts;
mod finding;
mod reader;
mod sections;

pub use finding::Finding;

use crate::{Builder, Error, Guard, Limiter, OnFailure};
use paceline_core::headers::{HeadersMap, Provider};
use paceline_core::llm::Rule;
use paceline_core::retry::RetryConfig;
use paceline_core::{Limit, Window};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a configuration file says.
///
/// ```
/// let config = paceline::Config::parse(r#"
///     storage = "redis://limits.internal:6379/0"
///     max_wait = "30s"
///     default_limits = ["10/1s"]
///
///     [[scope]]
///     endpoint = "api.example.com"
///     limits = ["60/1m", { limit = "tokens=90000/1m", burst = 9000 }]
///
///     [[scope]]
///     endpoint = "api.example.com/search"
///     limits = [{ limit = "10/1m", strict = true }]
///
///     [[rule]]
///     model = "gpt-4o"
///     requests_per_minute = 500
///
///     [[provider]]
///     hosts = ["api.internal", "*.api.internal"]
///     requests = { limit = "X-Calls-Limit", remaining = "X-Calls-Left", window = "1h" }
/// "#)?;
/// assert_eq!(config.scopes.len(), 2);
/// # Ok::<(), paceline::ConfigError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// Where limits live; this process, unless said otherwise.
    pub storage: Option<String>,
    /// What to do while the storage is away.
    pub on_failure: OnFailure,
    /// How long parts of a limit in Redis are taken at once.
    pub lease: Option<Duration>,
    /// The longest wait of a call.
    pub max_wait: Option<Duration>,
    /// Whether one request goes ahead where nothing is known.
    pub learn_first: bool,
    /// Whether the rate of an API that says nothing is searched for.
    pub adaptive: bool,
    /// Whether wider scopes are charged, too.
    pub also_parents: bool,
    /// Limits of every host that has none of its own.
    pub default_limits: Vec<Limit>,
    /// Headers in which any host states its limit.
    pub headers_map: HeadersMap,
    /// What to send again.
    pub retry: Option<RetryConfig>,
    /// Each endpoint with its limits.
    pub scopes: Vec<(String, Vec<Limit>)>,
    /// APIs of the user's own.
    pub providers: Vec<Provider>,
    /// Limits of models: the model, perhaps its provider, and the rule.
    pub rules: Vec<(String, Option<String>, Rule)>,
    /// Budgets of models: the model, perhaps its provider, whole dollars and for how long.
    pub budgets: Vec<(String, Option<String>, u64, Window)>,
}

/// Why a configuration was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It says something that makes no sense: the first such thing, and its line.
    #[error("{0}")]
    Wrong(String),
}

impl Config {
    /// The name by which the file is found.
    pub const NAME: &str = "paceline.toml";

    /// The nearest `paceline.toml`: in that folder, or in one above it.
    #[must_use]
    pub fn find(folder: &Path) -> Option<PathBuf> {
        folder.ancestors().map(|folder| folder.join(Self::NAME)).find(|file| file.is_file())
    }

    /// Reads TOML, and tells everything that is wrong or doubtful about it, in the order of lines. What
    /// could be made of it comes with it; where anything is wrong, that is not all of it.
    #[must_use]
    pub fn check(text: &str) -> (Self, Vec<Finding>) {
        let (config, mut findings) = sections::read(text);
        findings.sort_by_key(|finding| (finding.line, finding.column));
        (config, findings)
    }

    /// Reads TOML. What is only doubtful is accepted.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] with the first thing that is wrong, and its line.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let (config, findings) = Self::check(text);
        match findings.into_iter().find(|finding| finding.is_error) {
            Some(wrong) => Err(ConfigError::Wrong(wrong.to_string())),
            None => Ok(config),
        }
    }

    /// Reads a TOML file.
    ///
    /// # Errors
    /// [`ConfigError`] naming the file when it cannot be read or makes no sense.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let read = std::fs::read_to_string(path);
        let text = read.map_err(|source| ConfigError::Unreadable { path: path.into(), source })?;
        Self::parse(&text)
            .map_err(|error| ConfigError::Wrong(format!("{}, {error}", path.display())))
    }

    /// A limiter that lives by it.
    ///
    /// ```
    /// let config = paceline::Config::parse(r#"default_limits = ["60/1m"]"#)?;
    /// let limiter = config.open()?;
    /// limiter.acquire_blocking("api.example.com")?.sent();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the storage is not there, and calls without it are not to be let
    /// through.
    pub fn open(&self) -> Result<Limiter, Error> {
        let storage = self.storage.as_deref().unwrap_or("memory");
        let limiter = Builder::default().config(self).open(storage)?;
        self.apply(&limiter, None)?;
        Ok(limiter)
    }

    /// Sets its limits, and knows its providers. What was used of a limit stays used, also when it is
    /// another number now; where `before` had limits that are gone, the endpoint begins anew. Other
    /// settings are those of a limiter from its beginning.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the storage cannot be reached.
    pub fn apply(&self, limiter: &Limiter, before: Option<&Self>) -> Result<(), Error> {
        for (endpoint, limits) in before.into_iter().flat_map(|before| &before.scopes) {
            let now = self.scopes.iter().find(|(known, _)| known == endpoint);
            let stays = |limit: &Limit| {
                now.is_some_and(|(_, limits)| limits.iter().any(|it| it.replaces(limit)))
            };
            if !limits.iter().all(stays) {
                limiter.clear(Some(endpoint))?;
            }
        }
        for (endpoint, limits) in &self.scopes {
            for limit in limits {
                limiter.set_limit(endpoint, limit.clone())?;
            }
        }
        for provider in &self.providers {
            if before.is_none_or(|before| !before.providers.contains(provider)) {
                limiter.register_provider(provider.clone());
            }
        }
        Ok(())
    }

    /// Sets its rules and budgets; those that only `before` had are removed.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the storage cannot be reached.
    pub fn guard(&self, guard: &Guard, before: Option<&Self>) -> Result<(), Error> {
        for (model, provider, _) in before.into_iter().flat_map(|before| &before.rules) {
            guard.remove_rule(model, provider.as_deref());
        }
        for (model, provider, rule) in &self.rules {
            guard.set_rule(model, provider.as_deref(), *rule)?;
        }
        for (model, provider, ..) in before.into_iter().flat_map(|before| &before.budgets) {
            if !self.budgets.iter().any(|it| (&it.0, &it.1) == (model, provider)) {
                guard.set_budget(model, provider.as_deref(), None)?;
            }
        }
        for (model, provider, usd, per) in &self.budgets {
            guard.set_budget(model, provider.as_deref(), Some((*usd, *per)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
