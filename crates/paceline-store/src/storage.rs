//! Which store a user means: the `storage=` string.

use crate::redis::{Kind, Server};
use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};
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
    Sqlite(PathBuf),
    /// In Redis or Valkey.
    Redis(Server),
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
        let Some((scheme, rest)) = text.split_once("://") else {
            return match text {
                "memory" => Ok(Self::Memory),
                _ => Err(bad(format!("expected {EXPECTED}"))),
            };
        };
        let (kind, tls) = match scheme {
            "sqlite" => return sqlite(rest).map(Self::Sqlite).map_err(bad),
            "redis" => (Kind::Alone, false),
            "rediss" => (Kind::Alone, true),
            "unix" => return socket(text).map(Self::Redis).map_err(bad),
            "redis+cluster" => (Kind::Cluster, false),
            "rediss+cluster" => (Kind::Cluster, true),
            "redis+sentinel" => (Kind::Sentinel(String::new()), false),
            "rediss+sentinel" => (Kind::Sentinel(String::new()), true),
            _ => return Err(bad(format!("unknown scheme {scheme:?}; expected {EXPECTED}"))),
        };
        servers(kind, tls, rest, shown(text)).map(Self::Redis).map_err(bad)
    }
}

const EXPECTED: &str = "\"memory\", \"sqlite:///file.db\", \"redis://host:6379/0\", \
    \"rediss://host\", \"unix:///redis.sock\", \"redis+sentinel://host:26379/service\" or \
    \"redis+cluster://host:6379\"";

/// The text without what stands before an `@`, and without its parameters.
fn shown(text: &str) -> String {
    let text = text.split('?').next().unwrap_or_default();
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, after))) => format!("{scheme}://{after}"),
        _ => text.to_owned(),
    }
}

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

fn socket(text: &str) -> Result<Server, String> {
    let bad = |_| "expected unix:///path/to/redis.sock".to_owned();
    let node = text.into_connection_info().map_err(bad)?;
    match node.addr() {
        ConnectionAddr::Unix(path) if path.as_os_str().len() > 1 => {}
        _ => return Err("the path names no socket; expected unix:///path/to/redis.sock".to_owned()),
    }
    let login = node.redis_settings().clone();
    Ok(Server::new(Kind::Alone, vec![node], login, None, shown(text)))
}

/// Reads `[user:password@]host:port,host:port/path?ca=file`.
fn servers(kind: Kind, tls: bool, rest: &str, shown: String) -> Result<Server, String> {
    let scheme = if tls { "rediss" } else { "redis" };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), authority),
    };
    let (kind, database) = match kind {
        Kind::Sentinel(_) => {
            let (service, database) = path.split_once('/').unwrap_or((path, ""));
            if service.is_empty() {
                return Err("the service is missing; expected \
                     redis+sentinel://host:26379/service"
                    .to_owned());
            }
            (Kind::Sentinel(service.to_owned()), database)
        }
        Kind::Cluster if !path.is_empty() => {
            return Err(format!("a cluster has no databases, so there is no /{path}"));
        }
        kind => (kind, path),
    };
    if !database.is_empty() && database.parse::<u32>().is_err() {
        return Err(format!("the database {database:?} is no number"));
    }
    let default_port = if matches!(kind, Kind::Sentinel(_)) { 26_379 } else { 6_379 };
    let mut nodes = Vec::new();
    for host in hosts.split(',') {
        if host.is_empty() {
            return Err("a host is missing".to_owned());
        }
        if kind == Kind::Alone && hosts.contains(',') {
            return Err("several hosts are a cluster (redis+cluster://) or sentinels \
                 (redis+sentinel://)"
                .to_owned());
        }
        // The colons of an IPv6 address stand in brackets.
        let port = host.rsplit_once(':').map(|(_, port)| port).filter(|it| !it.ends_with(']'));
        if let Some(port) = port.filter(|port| port.parse::<u16>().is_err()) {
            return Err(format!("the port {port:?} is no number from 0 to 65535"));
        }
        // Behind sentinels the login is the master's; they themselves are mostly open.
        let login = if matches!(kind, Kind::Sentinel(_)) { "" } else { &login };
        let port = if port.is_none() { format!(":{default_port}") } else { String::new() };
        let database = if kind == Kind::Alone { database } else { "" };
        let node = format!("{scheme}://{login}{host}{port}/{database}");
        // What the library says of a bad host might repeat the password.
        let node = node.into_connection_info().map_err(|_| format!("{host:?} is no host"))?;
        nodes.push(node);
    }
    let settings = format!("redis://{login}localhost/{database}")
        .into_connection_info()
        .map_err(|_| "the user and password cannot be read".to_owned())?;
    let login: RedisConnectionInfo = settings.redis_settings().clone();
    Ok(Server::new(kind, nodes, login, parameters(query, tls)?, shown))
}

/// The certificate authority that the parameters name.
fn parameters(query: &str, tls: bool) -> Result<Option<Vec<u8>>, String> {
    let mut authority = None;
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        if name != "ca" {
            return Err(format!("unknown parameter {name:?}; expected ca=/path/to/ca.pem"));
        }
        if !tls {
            return Err("ca= goes with TLS: use rediss://".to_owned());
        }
        let read = std::fs::read(&*value);
        authority = Some(read.map_err(|error| format!("cannot read ca {value:?}: {error}"))?);
    }
    Ok(authority)
}

#[cfg(test)]
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
        for text in
            ["redis://user:hunter2@h:x/0", "redis+sentinel://:hunter2@a,b", "x://a:hunter2@b"]
        {
            let error = text.parse::<Storage>().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
        let storage: Storage = "rediss+cluster://user:hunter2@a:1,b:2".parse().unwrap();
        assert!(!format!("{storage:?}").contains("hunter2"), "{storage:?}");
    }
}
