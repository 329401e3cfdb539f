//! What programs in Rust hear of waits by `tracing`. It stands alone: who waits beside it, and listens to
//! nothing, could decide for all that an event is of interest to nobody.
#![cfg(not(loom))]

use paceline::{Limit, Limiter, VirtualClock};
use std::io;
use std::sync::{Arc, Mutex};
use tracing_subscriber::fmt::MakeWriter;

const HOST: &str = "https://api.example.com";

/// What is written to the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[test]
fn each_wait_is_an_event_that_says_which_limit() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .without_time()
        .with_max_level(tracing::Level::DEBUG)
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let limiter = Limiter::builder().clock(VirtualClock::default()).build();
        limiter.set_limit(HOST, Limit::parse("1/5s").unwrap()).unwrap();
        for _ in 0..2 {
            limiter.acquire_blocking(HOST).unwrap().sent();
        }
    });
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let begins =
        format!("INFO paceline::long_wait: waiting scope=\"{HOST}\" limit=1/5s seconds=5.0");
    let ends = format!("DEBUG paceline::long_wait: waited scope=\"{HOST}\" limit=1/5s seconds=5.0");
    assert_eq!(lines, [begins, ends]);
}
