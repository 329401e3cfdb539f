//! Limits as data: a TOML file.

use paceline_core::{Limit, Scope};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// What a configuration file says.
///
/// ```
/// let config = paceline::Config::parse(r#"
///     default_limits = ["10/1s"]
///
///     [[scope]]
///     endpoint = "api.example.com"
///     limits = ["60/1m", { limit = "tokens=90000/1m", burst = 9000 }]
///
///     [[scope]]
///     endpoint = "api.example.com/search"
///     limits = [{ limit = "10/1m", strict = true }]
/// "#)?;
/// assert_eq!(config.scopes.len(), 2);
/// # Ok::<(), paceline::ConfigError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Limits of every host that has none of its own.
    pub default_limits: Vec<Limit>,
    /// Each endpoint with its limits.
    pub scopes: Vec<(String, Vec<Limit>)>,
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
    /// It says something that makes no sense; the message shows the line.
    #[error("{0}")]
    Wrong(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    default_limits: Vec<Declared>,
    #[serde(default)]
    scope: Vec<ScopeTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeTable {
    endpoint: Endpoint,
    limits: Vec<Declared>,
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Endpoint(String);

impl TryFrom<String> for Endpoint {
    type Error = paceline_core::Error;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Scope::parse(&text)?;
        Ok(Self(text))
    }
}

#[derive(Deserialize)]
#[serde(try_from = "Form")]
struct Declared(Limit);

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected \"60/1m\" or { limit = \"60/1m\", burst = 5 }")]
enum Form {
    Short(String),
    Long(Long),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Long {
    limit: String,
    burst: Option<u64>,
    #[serde(default)]
    strict: bool,
}

impl TryFrom<Form> for Declared {
    type Error = paceline_core::Error;

    fn try_from(form: Form) -> Result<Self, Self::Error> {
        let long = match form {
            Form::Short(limit) => Long { limit, burst: None, strict: false },
            Form::Long(long) => long,
        };
        let mut limit = Limit::parse(&long.limit)?;
        if let Some(burst) = long.burst {
            limit = limit.with_burst(burst)?;
        }
        Ok(Self(if long.strict { limit.strict()? } else { limit }))
    }
}

impl Config {
    /// Reads TOML.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] with the line of an unknown key, a bad limit or a bad endpoint.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let file: File =
            toml::from_str(text).map_err(|error| ConfigError::Wrong(error.to_string()))?;
        let limits = |declared: Vec<Declared>| declared.into_iter().map(|limit| limit.0).collect();
        Ok(Self {
            default_limits: limits(file.default_limits),
            scopes: file.scope.into_iter().map(|s| (s.endpoint.0, limits(s.limits))).collect(),
        })
    }

    /// Reads a TOML file.
    ///
    /// # Errors
    /// [`ConfigError`] naming the file when it cannot be read or makes no sense.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let read = std::fs::read_to_string(path);
        let text = read.map_err(|source| ConfigError::Unreadable { path: path.into(), source })?;
        Self::parse(&text)
            .map_err(|error| ConfigError::Wrong(format!("{}: {error}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_shown_with_its_line() {
        for (text, part) in [
            ("defaults = []", "unknown field `defaults`"),
            ("default_limits = [\"60 per minute\"]", "expected [DIMENSION=]N/WINDOW"),
            ("[[scope]]\nendpoint = \"\"\nlimits = []", "it is empty"),
            (
                "[[scope]]\nendpoint = \"a.example\"\nlimits = [{ limit = \"1/1s\", burst = 0 }]",
                "burst",
            ),
            ("[[scope]]\nlimits = [7]", "60/1m"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("line"), "{error}");
        }
    }
}
