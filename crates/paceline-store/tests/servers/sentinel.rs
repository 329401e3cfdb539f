use std::time::Duration;

use super::{Server, poll};

const SERVICE: &str = "paceline";

/// A master, its replica, and three sentinels that watch them.
pub(crate) struct Sentinel {
    data: [Server; 2],
    sentinels: Vec<Server>,
}

impl Sentinel {
    pub(crate) fn start() -> Self {
        let master = Server::start();
        let replica = Server::builder().replica_of(&master).start();
        let port = master.port().to_string();
        let watch = |_| {
            let sentinel = Server::builder().args(&["--sentinel"]).start();
            let ask = |command: &[&str]| sentinel.command(&[&["SENTINEL"], command].concat());
            // They tell each other what they see ten times as often as they would by themselves.
            let speed = ["DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "200", "PING-PERIOD"];
            ask(&[&speed[..], &["100"]].concat()).unwrap();
            ask(&["MONITOR", SERVICE, "127.0.0.1", &port, "2"]).unwrap();
            let times = ["down-after-milliseconds", "500", "failover-timeout", "2000"];
            ask(&[&["SET", SERVICE][..], &times].concat()).unwrap();
            sentinel
        };
        let sentinels = (0..3).map(watch).collect();
        let group = Self { data: [master, replica], sentinels };
        group.wait_until_whole();
        group
    }

    /// The name by which the sentinels know the master.
    pub(crate) fn service(&self) -> &'static str {
        SERVICE
    }

    pub(crate) fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// Of the sentinels.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }

    /// As the first sentinel says now: another one after `fail_over`.
    pub(crate) fn master(&self) -> &Server {
        let port = master_port(&self.sentinels[0]);
        self.data.iter().find(|it| it.port() == port).expect("the sentinels watch these two")
    }

    /// The one that is not the master.
    pub(crate) fn replica(&self) -> &Server {
        let port = self.master().port();
        self.data.iter().find(|it| it.port() != port).expect("there are two")
    }

    /// Kills the master, and waits until all sentinels name the other one, and it takes writes.
    /// What was written before is kept: the replica catches up first.
    /// Before the next time, `restart` what is now the `replica`, and `wait_until_whole`.
    pub(crate) fn fail_over(&self) {
        let (old, new) = (self.master(), self.replica());
        let written = offset(old, 1);
        self.wait_until("the replica catches up", |_| offset(new, 4) >= written);
        old.kill();
        self.wait_until("all name the replica", |sentinel| {
            // Not left to their election, which may take many seconds. An error says: not yet done.
            if master_port(&self.sentinels[0]) != new.port() {
                let _ = self.sentinels[0].command(&["SENTINEL", "FAILOVER", SERVICE]);
            }
            master_port(sentinel) == new.port()
                && new.command(&["ROLE"]).is_ok_and(|role| role.starts_with("master"))
        });
    }

    /// Until all sentinels know each other and both servers, and the replica is in sync.
    pub(crate) fn wait_until_whole(&self) {
        const MASTER: [&str; 3] =
            ["\nflags\nmaster\n", "\nnum-slaves\n1\n", "\nnum-other-sentinels\n2\n"];
        const REPLICA: [&str; 3] =
            ["\nflags\nslave\n", "\nrole-reported\nslave\n", "\nmaster-link-status\nok\n"];
        self.wait_until("all know all", |sentinel| {
            let says = |about, wanted: [&str; 3]| {
                let known = sentinel.command(&["SENTINEL", about, SERVICE]).unwrap_or_default();
                wanted.iter().all(|it| known.contains(it))
            };
            says("MASTER", MASTER) && says("REPLICAS", REPLICA)
        });
    }

    fn wait_until(&self, what: &str, holds: impl Fn(&Server) -> bool) {
        let all = || self.sentinels.iter().all(&holds).then_some(());
        poll(Duration::from_secs(30), all).unwrap_or_else(|| panic!("not in 30 s: {what}"));
    }
}

fn master_port(sentinel: &Server) -> u16 {
    let address = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).unwrap();
    let port = address.lines().nth(1).and_then(|port| port.parse().ok());
    port.unwrap_or_else(|| panic!("no port: {address:?}"))
}

/// How much of the stream of writes a server has, as line `line` of its role says.
fn offset(server: &Server, line: usize) -> i64 {
    let role = server.command(&["ROLE"]).unwrap();
    let offset = role.lines().nth(line).and_then(|offset| offset.parse().ok());
    offset.unwrap_or_else(|| panic!("no offset: {role:?}"))
}
