//! Which store a user means: the `storage=` string.

#[cfg(feature = "redis")]
use crate::redis::Server;
#[cfg(feature = "sqlite")]
use std::path::PathBuf;
use std::str::FromStr;

/// Where limits and buckets are kept.
///
/// | String | Where |
/// | --- | --- |
/// | `memory` | in this process |
/// | `sqlite:///relative.db`, `sqlite:////absolute.db` | in a file, for all processes of a machine |
/// | `redis://[user:password@]host[:port][/database]` | in Redis or Valkey, for many machines |
/// | `rediss://...` | the same over TLS; `?ca=/path/to/ca.pem` trusts an authority of your own |
/// | `unix:///path/to/redis.sock[?db=0&user=&pass=]` | the same over a socket of this machine |
/// | `redis+sentinel://[user:password@]host:port,host:port/service[/database]` | the master that sentinels name |
/// | `redis+cluster://[user:password@]host:port,host:port` | a cluster |
///
/// `rediss+sentinel` and `rediss+cluster` use TLS.
///
/// ```
/// use paceline_store::Storage;
/// assert!("sqlite:///limits.db".parse::<Storage>().is_ok());
/// let error = "redis://localhost:port".parse::<Storage>().unwrap_err().to_string();
/// assert!(error.contains("port"), "{error}");
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Storage {
    /// In this process.
    Memory,
    /// In a file.
    #[cfg(feature = "sqlite")]
    Sqlite(PathBuf),
    /// In Redis or Valkey.
    #[cfg(feature = "redis")]
    Redis(Server),
}

impl Storage {
    /// Whether parts of its limits can be taken at once.
    #[must_use]
    pub const fn takes_leases(&self) -> bool {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(_) => true,
            _ => false,
        }
    }
}

/// A storage string that makes no sense. No user name or password is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad storage {shown:?}: {reason}")]
pub struct BadStorage {
    shown: String,
    reason: String,
}

impl BadStorage {
    /// A storage that does not do what is asked of it.
    #[must_use]
    pub fn because(storage: &str, reason: &str) -> Self {
        Self { shown: shown(storage), reason: reason.to_owned() }
    }
}

impl FromStr for Storage {
    type Err = BadStorage;

    fn from_str(text: &str) -> Result<Self, BadStorage> {
        let bad = |reason: String| BadStorage { shown: shown(text), reason };
        let Some((scheme, _)) = text.split_once("://") else {
            return match text {
                "memory" => Ok(Self::Memory),
                _ => Err(bad(format!("expected {EXPECTED}"))),
            };
        };
        match scheme {
            #[cfg(feature = "sqlite")]
            "sqlite" => sqlite(behind(text, scheme)).map(Self::Sqlite).map_err(bad),
            #[cfg(feature = "redis")]
            _ if let Some(server) =
                crate::redis::read(scheme, behind(text, scheme), &shown(text)) =>
            {
                server.map(Self::Redis).map_err(bad)
            }
            _ => Err(bad(format!("unknown scheme {scheme:?}; expected {EXPECTED}"))),
        }
    }
}

const EXPECTED: &str = "\"memory\", \"sqlite:///file.db\", \"redis://host:6379/0\", \
    \"rediss://host\", \"unix:///redis.sock\", \"redis+sentinel://host:26379/service\" or \
    \"redis+cluster://host:6379\"";

/// The text without what stands before an `@`, and without its parameters. In this order, for a password
/// may hold anything.
fn shown(text: &str) -> String {
    let open = match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, after))) => format!("{scheme}://{after}"),
        _ => text.to_owned(),
    };
    open.split('?').next().unwrap_or_default().to_owned()
}

/// What stands behind `scheme://`.
#[cfg(any(feature = "redis", feature = "sqlite"))]
fn behind<'a>(text: &'a str, scheme: &str) -> &'a str {
    &text[scheme.len() + "://".len()..]
}

#[cfg(feature = "sqlite")]
fn sqlite(rest: &str) -> Result<PathBuf, String> {
    let Some(path) = rest.strip_prefix('/') else {
        return Err(
            "a path has three slashes before it when it is relative (sqlite:///file.db) and \
             four when it is absolute (sqlite:////var/lib/file.db)"
                .to_owned(),
        );
    };
    if path.is_empty() || path.ends_with('/') {
        return Err("the path names no file".to_owned());
    }
    Ok(PathBuf::from(path))
}

#[cfg(all(test, feature = "redis", feature = "sqlite"))]
mod tests {
    use super::*;

    #[test]
    fn a_bad_storage_says_which_part_is_wrong() {
        for (text, part) in [
            ("", "expected \"memory\""),
            ("mysql://x", "unknown scheme \"mysql\""),
            ("sqlite://file.db", "three slashes"),
            ("sqlite:///", "names no file"),
            ("redis://h:x/0", "port \"x\""),
            ("redis://h:99999/0", "port"),
            ("redis://h/one", "database \"one\""),
            ("redis://a,b", "redis+cluster"),
            ("redis://", "host is missing"),
            ("redis+cluster://a,b/3", "no databases"),
            ("redis+sentinel://a", "service is missing"),
            ("unix://", "expected unix:///"),
            ("redis://h?ca=/x", "rediss"),
            ("rediss://h?ca=/nowhere.pem", "cannot read ca"),
            ("redis://h?timeout=3", "unknown parameter \"timeout\""),
        ] {
            let error = text.parse::<Storage>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn rule_17_no_password_is_shown() {
        for text in [
            "redis://user:hunter2@h:x/0",
            "redis+sentinel://:hunter2@a,b",
            "x://a:hunter2@b",
            "redis://:hunter2?x@h:bad",
            "redis://:x/hunter2@h",
            "redis://:hunter2@x@h",
        ] {
            let error = text.parse::<Storage>().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
        let storage: Storage = "rediss+cluster://user:hunter2@a:1,b:2".parse().unwrap();
        assert!(!format!("{storage:?}").contains("hunter2"), "{storage:?}");
    }
}
