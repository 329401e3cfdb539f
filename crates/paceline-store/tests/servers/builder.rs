use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{Certificates, Server};

const MISSING: &str =
    "redis-server is not installed: run make test, or apt-get install redis-server";

/// What a server is started with.
#[derive(Default)]
pub(crate) struct Builder {
    pub(super) args: Vec<String>,
    pub(super) password: Option<String>,
    pub(super) certificates: Option<Certificates>,
    pub(super) socket_only: bool,
}

impl Builder {
    /// More of redis-server's own arguments, as `["--timeout", "1"]`. They win over all before them.
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    /// Letters and digits only: it stands in URLs as it is.
    pub(crate) fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.args(&["--requirepass", password, "--masterauth", password])
    }

    /// Every write that was answered is still there after `kill` and `restart`.
    pub(crate) fn persistent(self) -> Self {
        self.args(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Speaks TLS on its port, and nothing else there. Clients need no certificate.
    pub(crate) fn tls(mut self, certificates: &Certificates) -> Self {
        self.certificates = Some(certificates.clone());
        self
    }

    /// Has no port, only the socket that every server has.
    pub(crate) fn unix_socket(mut self) -> Self {
        self.socket_only = true;
        self
    }

    /// As `"2mb"`. What does not fit is refused.
    pub(crate) fn maxmemory(self, limit: &str) -> Self {
        self.args(&["--maxmemory", limit, "--maxmemory-policy", "noeviction"])
    }

    /// `start` returns when the replica is in sync.
    pub(crate) fn replica_of(self, master: &Server) -> Self {
        self.args(&["--replicaof", "127.0.0.1", &master.port().to_string()])
    }

    /// Starts it, and waits until it answers.
    pub(crate) fn start(self) -> Server {
        Server::start_as(self)
    }

    /// The configuration file is for what servers write into it themselves.
    pub(super) fn spawn(&self, port: u16, directory: &Path, log: &File) -> Child {
        let mut command = Command::new("redis-server");
        command.current_dir(directory).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log.try_clone().unwrap());
        command.arg("redis.conf").args(["--bind", "127.0.0.1", "--unixsocket", "redis.sock"]);
        command.args(["--save", "", "--appendonly", "no", "--loglevel", "warning"]);
        // A copy that goes over the wire waits seconds for more replicas, and for an acknowledgement.
        command.args(["--enable-debug-command", "yes", "--repl-diskless-sync", "no"]);
        match &self.certificates {
            None => command.args(["--port", &port.to_string()]),
            Some(certificates) => command
                .args(["--port", "0", "--tls-port", &port.to_string(), "--tls-auth-clients", "no"])
                .arg("--tls-cert-file")
                .arg(certificates.certificate())
                .arg("--tls-key-file")
                .arg(certificates.key())
                .arg("--tls-ca-cert-file")
                .arg(certificates.authority()),
        };
        command.args(&self.args).spawn().unwrap_or_else(|error| match error.kind() {
            ErrorKind::NotFound => panic!("{MISSING}"),
            _ => panic!("redis-server cannot be run: {error}"),
        })
    }
}
