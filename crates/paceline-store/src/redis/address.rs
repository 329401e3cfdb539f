//! Which server a storage string means.

use super::link::{Kind, Server};
use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};

/// Reads what stands behind `scheme://`; `None` when the scheme is not one of ours. `shown` is the text
/// without secrets.
pub(crate) fn read(scheme: &str, rest: &str, shown: &str) -> Option<Result<Server, String>> {
    let (kind, tls) = match scheme {
        "redis" => (Kind::Alone, false),
        "rediss" => (Kind::Alone, true),
        "unix" => return Some(socket(rest, shown)),
        "redis+cluster" => (Kind::Cluster, false),
        "rediss+cluster" => (Kind::Cluster, true),
        "redis+sentinel" => (Kind::Sentinel(String::new()), false),
        "rediss+sentinel" => (Kind::Sentinel(String::new()), true),
        _ => return None,
    };
    Some(servers(kind, tls, rest, shown))
}

fn socket(rest: &str, shown: &str) -> Result<Server, String> {
    let bad = |_| "expected unix:///path/to/redis.sock".to_owned();
    let node = format!("unix://{rest}").into_connection_info().map_err(bad)?;
    match node.addr() {
        ConnectionAddr::Unix(path) if path.as_os_str().len() > 1 => {}
        _ => return Err("the path names no socket; expected unix:///path/to/redis.sock".to_owned()),
    }
    let login = node.redis_settings().clone();
    Ok(Server::new(Kind::Alone, vec![node], login, None, shown.to_owned()))
}

/// Reads `[user:password@]host:port,host:port/path?ca=file`.
fn servers(kind: Kind, tls: bool, rest: &str, shown: &str) -> Result<Server, String> {
    let scheme = if tls { "rediss" } else { "redis" };
    // What follows such a character would be taken for the path, and shown.
    let login = rest.rsplit_once('@').map_or("", |(login, _)| login);
    if login.contains(['/', '?', '#', '@']) {
        return Err("in a user or password / ? # @ are written %2F %3F %23 %40".to_owned());
    }
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
    Ok(Server::new(kind, nodes, login, parameters(query, tls)?, shown.to_owned()))
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
