use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use super::{Builder, free_port, poll, resp};

/// How long a server may take to start, and to answer a command.
const PATIENCE: Duration = Duration::from_secs(10);

/// One redis-server process. The methods may be called from any thread.
pub(crate) struct Server {
    builder: Builder,
    directory: TempDir,
    port: u16,
    child: Mutex<Option<Child>>,
}

impl Server {
    /// Keeps nothing on disk, wants no password.
    pub(crate) fn start() -> Self {
        Self::builder().start()
    }

    pub(crate) fn builder() -> Builder {
        Builder::default()
    }

    pub(super) fn start_as(builder: Builder) -> Self {
        let directory = tempfile::Builder::new().prefix("paceline-").tempdir().unwrap();
        File::create(directory.path().join("redis.conf")).unwrap();
        let mut server = Self { builder, directory, port: 0, child: Mutex::default() };
        let started = (0..20).any(|_| {
            server.port = if server.builder.socket_only { 0 } else { free_port() };
            server.launch()
        });
        assert!(started, "20 ports were free, and were taken before redis-server took them");
        let synced = || {
            // While a replica loads its copy, this is an error.
            let role = server.command(&["ROLE"]).ok()?;
            (!role.starts_with("slave") || role.contains("\nconnected\n")).then_some(())
        };
        poll(PATIENCE, synced).unwrap_or_else(|| panic!("it is not in sync:\n{}", server.log()));
        server
    }

    /// Whether it runs now; not when somebody else has its port.
    fn launch(&self) -> bool {
        let log = File::create(self.directory.path().join("log")).unwrap();
        *self.child() = Some(self.builder.spawn(self.port, self.directory.path(), &log));
        let exited = || self.child().as_mut().is_some_and(|it| it.try_wait().unwrap().is_some());
        let ready = poll(PATIENCE, || match self.command(&["PING"]) {
            Ok(_) => Some(true),
            Err(_) => exited().then_some(false),
        });
        let log = self.log();
        assert!(ready == Some(true) || log.contains("Address already in use"), "no start:\n{log}");
        ready == Some(true)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.builder.certificates.is_some() { "rediss" } else { "redis" };
        let password = self.builder.password.as_ref();
        let user = password.map(|password| format!(":{password}@")).unwrap_or_default();
        format!("{scheme}://{user}{}", self.address())
    }

    /// Every server has a Unix socket too, in its directory.
    pub(crate) fn unix_url(&self) -> String {
        let password = self.builder.password.as_ref();
        let query = password.map(|password| format!("?pass={password}")).unwrap_or_default();
        format!("unix://{}{query}", self.socket().display())
    }

    /// Runs one command over the Unix socket, so that it needs no TLS and reaches no other server.
    /// The elements of an array stand on lines of their own, and nothing is `(nil)`.
    pub(crate) fn command(&self, command: &[&str]) -> Result<String, String> {
        let stream = UnixStream::connect(self.socket()).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        if let Some(password) = &self.builder.password {
            resp::ask(&stream, &["AUTH", password])?;
        }
        resp::ask(&stream, command)
    }

    /// As a crash does it: nothing is saved, nobody is told.
    pub(crate) fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// On the same port and directory; kills it first when it still runs.
    pub(crate) fn restart(&self) {
        self.kill();
        poll(PATIENCE, || self.launch().then_some(())).expect("its port is free again");
    }

    /// Takes connections but answers nothing, until `resume`.
    pub(crate) fn pause(&self) {
        self.signal("STOP");
    }

    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    /// Of the running process: another one after `restart`.
    pub(crate) fn pid(&self) -> u32 {
        self.child().as_ref().expect("the server was killed").id()
    }

    fn signal(&self, name: &str) {
        // The shell's own kill: not every machine has it as a program.
        let kill = format!("kill -{name} {}", self.pid());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
