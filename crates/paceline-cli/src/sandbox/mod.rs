//! A local server that really enforces limits: for our tests, for a demo, for our users' tests.
//!
//! It refuses what a provider would refuse and says so in the provider's own words and headers.
//! What it admitted is on record at `GET /_sandbox`, so a test can tell how much of the quota a
//! client used. Counting is [`paceline_core::provider`], which shares nothing with our limiter.

mod args;
mod errors;
mod headers;
mod ledger;
mod llm;
mod plan;
mod service;

pub(crate) use args::policies;
pub use args::{LimitSpec, SandboxArgs, Share};
pub use headers::{Family, Rounding};
pub use paceline_core::provider::{Limit, Policy};
pub use plan::Config;

use axum::handler::HandlerWithoutStateExt as _;
use axum::serve::ListenerExt as _;
use service::Service;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long answers under way may take to finish after a stop.
const GRACE: Duration = Duration::from_secs(2);

/// Why a sandbox did not start, or could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// Two limits differ in their count only.
    #[error("two limits on {dimension} per {window}; keep one, or give them different windows")]
    SameLimitTwice {
        /// The dimension of both.
        dimension: String,
        /// The window of both.
        window: String,
    },
    /// The address is taken, forbidden or unknown.
    #[error("cannot listen on {host}:{port}: {source}; try another --port (0 takes any free one)")]
    Listen {
        /// The host asked for.
        host: String,
        /// The port asked for.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody reads the line that tells the address.
    #[error("cannot write the address: {0}")]
    Announce(#[from] io::Error),
}

/// A running sandbox. It stops when dropped; [`Sandbox::stop`] also waits for it.
#[derive(Debug)]
pub struct Sandbox {
    addr: SocketAddr,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Sandbox {
    /// Starts a sandbox on the current tokio runtime. It accepts connections once this returns.
    pub async fn start(config: Config) -> Result<Self, SandboxError> {
        let service = Arc::new(Service::new(&config)?);
        let Config { host, port, .. } = config;
        let listener = async {
            let listener = TcpListener::bind((host.as_str(), port)).await?;
            listener.local_addr().map(|addr| (listener, addr))
        };
        let (listener, addr) = listener.await.map_err(|source| SandboxError::Listen {
            host: host.clone(),
            port,
            source,
        })?;
        // Nagle's algorithm would hold back the small writes of a stream.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let answer = move |request| {
            let service = Arc::clone(&service);
            async move { service.answer(request).await }
        };
        let (stop, stopped) = oneshot::channel();
        let serving = axum::serve(listener, answer.into_service().into_make_service())
            .with_graceful_shutdown(async move { drop(stopped.await) });
        let server = tokio::spawn(async move { drop(serving.await) });
        Ok(Self { addr, stop, server })
    }

    /// Where it listens.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it listens, as a URL without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Accepts nothing more and waits, but not for long, until answers under way are finished.
    pub async fn stop(self) {
        drop(self.stop);
        let _ = tokio::time::timeout(GRACE, self.server).await;
    }
}

/// `paceline sandbox`: serves until `shutdown` and tells `out` the address, in one line.
pub async fn run(
    args: SandboxArgs,
    mut out: impl Write,
    shutdown: impl Future<Output = ()>,
) -> Result<(), SandboxError> {
    let json = args.json;
    let sandbox = Sandbox::start(args.into()).await?;
    let url = sandbox.url();
    if json {
        writeln!(out, "{}", serde_json::json!({"url": url}))?;
    } else {
        writeln!(out, "listening on {url}")?;
    }
    out.flush()?;
    drop(out); // it may hold a lock on stdout
    shutdown.await;
    sandbox.stop().await;
    Ok(())
}

/// Completes on Ctrl-C, and on SIGTERM where there is one.
pub async fn interrupted() {
    let ctrl_c = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut term) = signal(SignalKind::terminate()) {
            tokio::select! {
                () = ctrl_c => {}
                _ = term.recv() => {}
            }
            return;
        }
    }
    ctrl_c.await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: SandboxArgs,
    }

    #[tokio::test]
    async fn the_command_prints_one_line_that_tells_the_address() {
        for (flag, start) in [
            ("--retry-after", "listening on http://127.0.0.1:"),
            ("--json", "{\"url\":\"http://127.0.0.1:"),
        ] {
            let cli = Cli::try_parse_from(["sandbox", "--port", "0", flag]);
            let (args, mut out) = (cli.expect("valid").args, Vec::new());
            let ran = run(args, &mut out, async {}).await;
            let line = String::from_utf8(out).expect("text");
            assert!(ran.is_ok() && line.starts_with(start), "{line}");
            assert_eq!(line.matches('\n').count(), 1);
        }
    }

    #[test]
    fn the_default_policy_is_that_of_the_header_family() {
        for (family, policy) in
            [("openai", Policy::Bucket), ("anthropic", Policy::Bucket), ("github", Policy::Fixed)]
        {
            let cli = Cli::try_parse_from(["sandbox", "--headers", family]).expect("valid");
            assert_eq!(Config::from(cli.args).policy, policy);
        }
        let flags = ["sandbox", "--headers=openai", "--policy=gcra"];
        let cli = Cli::try_parse_from(flags).expect("valid");
        assert_eq!(Config::from(cli.args).policy, Policy::Gcra);
    }

    #[tokio::test]
    async fn what_cannot_be_served_is_said_before_anything_is() {
        let limits = ["1/1m", "2/60s"].map(|limit| limit.parse().expect("a limit"));
        let twice = Config { limits: limits.to_vec(), ..Config::default() };
        let error = Sandbox::start(twice).await.expect_err("the same limit twice");
        assert!(error.to_string().contains("two limits on requests per 1m"), "{error}");
        let first = Sandbox::start(Config::default()).await.expect("a sandbox");
        let same = Config { port: first.addr().port(), ..Config::default() };
        let error = Sandbox::start(same.clone()).await.expect_err("taken");
        assert!(error.to_string().contains("cannot listen on 127.0.0.1:"), "{error}");
        first.stop().await;
        Sandbox::start(same).await.expect("free again");
    }
}
