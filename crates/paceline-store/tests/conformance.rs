//! Every store of ours passes the suite, on real files and servers.

mod servers;

use paceline_store::{Memory, Redis, Sqlite, Storage, conformance};
use servers::{Cluster, Sentinel, Server};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Each check starts with an empty server.
fn on_redis(url: &str, flush: impl Fn()) {
    conformance::check(|policy, clock| {
        flush();
        let Ok(Storage::Redis(server)) = url.parse() else { panic!("{url}") };
        Arc::new(Redis::with_clock(server, policy, Duration::from_secs(5), clock))
    });
}

#[test]
fn memory_conforms() {
    conformance::check(|policy, clock| Arc::new(Memory::with_clock(policy, clock)));
}

#[test]
fn sqlite_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let count = AtomicU32::new(0);
    conformance::check(|policy, clock| {
        let name = format!("{}.db", count.fetch_add(1, Ordering::Relaxed));
        Arc::new(Sqlite::with_clock(&folder.path().join(name), policy, clock))
    });
}

#[test]
fn redis_conforms() {
    let server = Server::start();
    on_redis(&server.url(), || drop(server.command(&["FLUSHALL"]).unwrap()));
}

#[test]
fn redis_cluster_conforms() {
    let cluster = Cluster::start(3);
    let hosts: Vec<_> = cluster.nodes().iter().map(Server::address).collect();
    on_redis(&format!("redis+cluster://{}", hosts.join(",")), || {
        for node in cluster.nodes() {
            node.command(&["FLUSHALL"]).unwrap();
        }
    });
}

#[test]
fn redis_behind_sentinels_conforms() {
    let sentinel = Sentinel::start();
    let hosts: Vec<_> = sentinel.sentinels().iter().map(Server::address).collect();
    let url = format!("redis+sentinel://{}/{}", hosts.join(","), sentinel.service());
    on_redis(&url, || drop(sentinel.master().command(&["FLUSHALL"]).unwrap()));
}
