//! The connection to a server, made when it is needed and made anew when it broke.

use super::batch::Arguments;
use super::script::Script;
use crate::StoreError;
use redis::cluster::{ClusterClient, ClusterConnection};
use redis::{
    Client, Cmd, Connection, ConnectionAddr, ConnectionInfo, ConnectionLike, ErrorKind,
    IntoConnectionInfo, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind,
    TlsCertificates, Value, cmd,
};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// More hashes than one visit should read.
const AT_ONCE: usize = 512;

/// Where a server is, and how to get in.
#[derive(Clone)]
pub struct Server(Arc<Place>);

struct Place {
    kind: Kind,
    /// Each server that may be asked; for sentinels, the sentinels.
    nodes: Vec<ConnectionInfo>,
    /// Database, user and password of the server behind sentinels.
    login: RedisConnectionInfo,
    /// A certificate authority of the user's own, in PEM.
    authority: Option<Vec<u8>>,
    /// What may be shown: the address without user and password.
    shown: String,
}

/// How servers are organised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// One server.
    Alone,
    /// Sentinels know which one is the master of this service.
    Sentinel(String),
    /// Each knows a part of the keys.
    Cluster,
}

impl Server {
    pub(super) fn new(
        kind: Kind,
        nodes: Vec<ConnectionInfo>,
        login: RedisConnectionInfo,
        authority: Option<Vec<u8>>,
        shown: String,
    ) -> Self {
        Self(Arc::new(Place { kind, nodes, login, authority, shown }))
    }
}

// User names and passwords are in there: only the address is shown.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.0.shown)
    }
}

/// A connection, if there is one.
pub(super) struct Link {
    server: Server,
    timeout: Duration,
    connected: Option<Connected>,
    hung_up: bool,
}

enum Connected {
    One(Box<Connection>),
    Cluster(Box<ClusterConnection>),
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let up = self.connected.is_some();
        f.debug_struct("Link").field("server", &self.server).field("connected", &up).finish()
    }
}

impl Link {
    pub(super) fn new(server: Server, timeout: Duration) -> Self {
        Self { server, timeout, connected: None, hung_up: false }
    }

    /// Whether there is a connection, as far as is known.
    pub(super) fn is_up(&self) -> bool {
        self.connected.is_some()
    }

    /// Whether the server was found to have hung up since the time before. What was sent into the dead
    /// connection may at worst have been charged.
    pub(super) fn hung_up(&mut self) -> bool {
        std::mem::take(&mut self.hung_up)
    }

    pub(super) fn ping(&mut self) -> Result<(), StoreError> {
        self.ask(cmd("PING")).map(drop).map_err(|error| self.unavailable(&error))
    }

    /// What is told of an error: which server it was, and what to make of it.
    fn unavailable(&self, error: &RedisError) -> StoreError {
        StoreError::new(self.told(error))
    }

    fn told(&self, error: &RedisError) -> String {
        let shown = &self.server.0.shown;
        if error.is_timeout() {
            format!("{shown} did not answer within {:?}", self.timeout)
        } else if error.kind() == ErrorKind::Parse {
            format!("what answers at {shown} does not speak the protocol of Redis")
        } else {
            format!("{shown}: {error}")
        }
    }

    /// Runs a script once for each batch, in one round trip where the server takes them so.
    pub(super) fn run(
        &mut self,
        script: &Script,
        batches: &[Arguments],
    ) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
        let answers = self.evaluate(script, batches).map_err(|error| self.unavailable(&error))?;
        let mut told = Vec::with_capacity(answers.len());
        for answer in answers {
            told.push(match answer {
                // The script itself says so: it stumbled over what is stored for this host.
                Err(error) if is_of_data(&error) => Err(StoreError::of_data(self.told(&error))),
                Err(error) => {
                    self.judge(&error);
                    return Err(self.unavailable(&error));
                }
                Ok(value) => Ok(value),
            });
        }
        Ok(told)
    }

    fn evaluate(
        &mut self,
        script: &Script,
        batches: &[Arguments],
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        let evalsha = |batch| call("EVALSHA", &script.hash, batch);
        let was_up = self.is_up();
        let sent = self.try_send(&batches.iter().map(evalsha).collect::<Vec<_>>());
        self.hung_up = was_up && sent.as_ref().is_err_and(is_hangup);
        let mut answers = sent?;
        // A server that was restarted or flushed does not know the script: those batches did nothing.
        let lost: Vec<usize> = (0..answers.len()).filter(|i| is_noscript(&answers[*i])).collect();
        if !lost.is_empty() {
            let eval = |i: &usize| call("EVAL", &script.text, &batches[*i]);
            let again = self.send(&lost.iter().map(eval).collect::<Vec<_>>())?;
            for (i, answer) in lost.into_iter().zip(again) {
                answers[i] = answer;
            }
        }
        Ok(answers)
    }

    /// The names of all keys that begin with `prefix`.
    pub(super) fn names(&mut self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.scan(prefix).map_err(|error| self.unavailable(&error))
    }

    fn scan(&mut self, prefix: &str) -> RedisResult<Vec<String>> {
        let pattern = format!("{prefix}*");
        if self.server.0.kind == Kind::Cluster {
            let mut keys = cmd("KEYS");
            keys.arg(pattern);
            let names: Vec<Vec<u8>> = redis::from_redis_value(self.ask(keys)?)?;
            return Ok(readable(names));
        }
        let (mut names, mut cursor) = (Vec::new(), 0_u64);
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1_000);
            let (next, some): (u64, Vec<Vec<u8>>) = redis::from_redis_value(self.ask(scan)?)?;
            names.extend(readable(some));
            cursor = next;
            if cursor == 0 {
                return Ok(names);
            }
        }
    }

    /// What stands in hashes, by field; nothing in what is none.
    pub(super) fn hashes(
        &mut self,
        names: &[String],
    ) -> Result<Vec<HashMap<String, String>>, StoreError> {
        let mut hashes = Vec::with_capacity(names.len());
        // A visit is bounded in time, so it reads no more than it can.
        for some in names.chunks(AT_ONCE) {
            let read = |name: &String| {
                let mut read = cmd("HGETALL");
                read.arg(name);
                read
            };
            let answers = self.send(&some.iter().map(read).collect::<Vec<_>>());
            let fields = |answer: RedisResult<Value>| match answer {
                Err(error) if error.code() == Some("WRONGTYPE") => Ok(HashMap::new()),
                answer => Ok(redis::from_redis_value(answer?).unwrap_or_default()),
            };
            let read =
                answers.and_then(|all| all.into_iter().map(fields).collect::<RedisResult<_>>());
            let read: Vec<_> = read.map_err(|error| self.unavailable(&error))?;
            hashes.extend(read);
        }
        Ok(hashes)
    }

    pub(super) fn delete(&mut self, names: &[String]) -> Result<(), StoreError> {
        let delete = |name: &String| {
            let mut unlink = cmd("UNLINK");
            unlink.arg(name);
            unlink
        };
        let sent = self.send(&names.iter().map(delete).collect::<Vec<_>>());
        let done = sent.and_then(|all| all.into_iter().try_for_each(|answer| answer.map(drop)));
        done.map_err(|error| self.unavailable(&error))
    }

    fn ask(&mut self, command: Cmd) -> RedisResult<Value> {
        let answer = self.send(&[command])?.pop().unwrap_or(Ok(Value::Nil));
        answer.inspect_err(|error| self.judge(error))
    }

    /// Sends commands and gives what the server says to each.
    fn send(&mut self, commands: &[Cmd]) -> RedisResult<Vec<RedisResult<Value>>> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let was_connected = self.connected.is_some();
        match self.try_send(commands) {
            // The server has hung up since the last time, as it does when it was restarted.
            Err(error) if was_connected && is_hangup(&error) => self.try_send(commands),
            sent => sent,
        }
    }

    fn try_send(&mut self, commands: &[Cmd]) -> RedisResult<Vec<RedisResult<Value>>> {
        let connected = match &mut self.connected {
            Some(connected) => connected,
            None => self.connected.insert(connect(&self.server.0, self.timeout)?),
        };
        let answered = match connected {
            Connected::One(connection) => {
                let mut packed = Vec::new();
                for command in commands {
                    command.write_packed_command(&mut packed);
                }
                let values = connection.req_packed_commands(&packed, 0, commands.len());
                values.map(|values| values.into_iter().map(Value::extract_error).collect())
            }
            Connected::Cluster(connection) => {
                Ok(commands.iter().map(|command| connection.req_command(command)).collect())
            }
        };
        answered.inspect_err(|error| self.judge(error))
    }

    /// Drops a connection that is of no more use: an answer that is late would be taken for the next.
    fn judge(&mut self, error: &RedisError) {
        let refused = matches!(
            error.kind(),
            ErrorKind::Server(
                ServerErrorKind::ResponseError
                    | ServerErrorKind::NoScript
                    | ServerErrorKind::BusyLoading
                    | ServerErrorKind::CrossSlot
            )
        );
        if !refused {
            self.connected = None;
        }
    }
}

/// Names that are none of ours need not be text.
fn readable(names: Vec<Vec<u8>>) -> Vec<String> {
    names.into_iter().filter_map(|name| String::from_utf8(name).ok()).collect()
}

/// Whether the script failed, or refused what is stored.
fn is_of_data(error: &RedisError) -> bool {
    const FAILED: ErrorKind = ErrorKind::Server(ServerErrorKind::ResponseError);
    let stumbled = error.kind() == FAILED && error.to_string().contains("user_script");
    stumbled || error.code() == Some("PACELINE")
}

fn is_noscript(answer: &RedisResult<Value>) -> bool {
    const NO_SCRIPT: ErrorKind = ErrorKind::Server(ServerErrorKind::NoScript);
    answer.as_ref().is_err_and(|error| error.kind() == NO_SCRIPT)
}

fn call(name: &str, script: &str, batch: &Arguments) -> Cmd {
    let mut command = cmd(name);
    command.arg(script).arg(batch.keys.len()).arg(&batch.keys).arg(batch.packed.as_slice());
    command
}

fn is_hangup(error: &RedisError) -> bool {
    !error.is_timeout() && (error.is_connection_dropped() || error.is_io_error())
}

fn connect(place: &Place, timeout: Duration) -> RedisResult<Connected> {
    let started = Instant::now();
    if place.kind == Kind::Cluster {
        choose_cryptography();
        let mut builder = ClusterClient::builder(place.nodes.clone())
            .connection_timeout(timeout / 2)
            .response_timeout(timeout / 2)
            .retries(2);
        if let Some(authority) = &place.authority {
            builder = builder.certs(certificates(authority));
        }
        let connection = builder.build()?.get_connection()?;
        return Ok(Connected::Cluster(Box::new(connection)));
    }
    let mut last = RedisError::from((ErrorKind::Io, "no server is named"));
    for node in &place.nodes {
        let left = timeout.saturating_sub(started.elapsed()).max(Duration::from_millis(10));
        match reach(place, node, left) {
            Ok(connection) => return Ok(Connected::One(Box::new(connection))),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects to a server, or to the one that a sentinel names.
fn reach(place: &Place, node: &ConnectionInfo, timeout: Duration) -> RedisResult<Connection> {
    let mut connection = open(place, node.clone(), timeout)?;
    let Kind::Sentinel(service) = &place.kind else { return Ok(connection) };
    let named: Option<(String, u16)> =
        cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service).query(&mut connection)?;
    let Some((host, port)) = named else {
        let detail = format!("no sentinel knows the service {service:?}");
        return Err((ErrorKind::InvalidClientConfig, "wrong service", detail).into());
    };
    let address = match node.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            let (insecure, tls_params) = (*insecure, tls_params.clone());
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    let master = address.into_connection_info()?.set_redis_settings(place.login.clone());
    open(place, master, timeout)
}

fn open(place: &Place, node: ConnectionInfo, timeout: Duration) -> RedisResult<Connection> {
    choose_cryptography();
    let client = match &place.authority {
        Some(authority) if matches!(node.addr(), ConnectionAddr::TcpTls { .. }) => {
            Client::build_with_tls(node, certificates(authority))?
        }
        _ => Client::open(node)?,
    };
    let connection = client.get_connection_with_timeout(timeout)?;
    connection.set_read_timeout(Some(timeout))?;
    connection.set_write_timeout(Some(timeout))?;
    Ok(connection)
}

/// Where a program has not chosen one, rustls wants to be told which cryptography to use.
fn choose_cryptography() {
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
}

fn certificates(authority: &[u8]) -> TlsCertificates {
    TlsCertificates { client_tls: None, root_cert: Some(authority.to_vec()) }
}
