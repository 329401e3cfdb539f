//! Real Redis servers for tests, each in a directory of its own, killed when dropped.
//!
//! Keep them in the test, never in a `static`: statics are not dropped, and the server would stay.
#![cfg(unix)]
// Every test file compiles this module for itself, and uses a part of it.
#![allow(dead_code, unused_imports)]

mod builder;
mod cluster;
mod resp;
mod sentinel;
mod standalone;
mod tls;

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) use builder::Builder;
pub(crate) use cluster::Cluster;
pub(crate) use sentinel::Sentinel;
pub(crate) use standalone::Server;
pub(crate) use tls::Certificates;

/// A port of the loopback on which nobody listens now. Somebody else may still be first to take it.
///
/// It lies below those that the system gives to outgoing connections, and so does the cluster's bus
/// 10000 above it: nothing takes the port of a killed server before it restarts.
fn free_port() -> u16 {
    const FIRST: u16 = 12_000;
    const COUNT: u16 = 10_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test processes that run side by side begin far from each other.
    let start = (std::process::id() * 389 % u32::from(COUNT)) as u16;
    loop {
        let port = FIRST + (start + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// Asks every few milliseconds until there is an answer; `None` when there is none in time.
fn poll<T>(patience: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let answer = ask();
        if answer.is_some() || start.elapsed() > patience {
            return answer;
        }
        sleep(Duration::from_millis(3));
    }
}
