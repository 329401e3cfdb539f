//! The command line of `paceline batch`.

use super::input::Request;
use super::progress::Summary;
use super::send::Sender;
use crate::Failure;
use crate::credentials::Credentials;
use crate::limits::everything;
use crate::storage::StorageArgs;
use clap::Args;
use paceline::retry::RetryConfig;
use paceline::{Config, Limit, Limiter, Notice, OnFailure, Origin, Scope};
use reqwest::header::HeaderMap;
use std::collections::HashMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};
use url::Url;

/// Requests in the window when the user names no number: enough for a thousand a minute that take
/// four minutes each.
const WINDOW: usize = 4_096;
/// What is in flight at most where no limit is known.
const UNLIMITED: usize = 64;

/// Send a file of requests as fast as the limits allow, and write the answers.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Input lines:
  {\"url\": \"https://api.example.com/items/1\", \"id\": \"one\"}
  {\"path\": \"/v1/chat/completions\", \"body\": {...}, \"cost\": {\"tokens\": 900}}   (with --base-url)
  {\"custom_id\": \"q1\", \"method\": \"POST\", \"url\": \"/v1/embeddings\", \"body\": {...}}
  https://api.example.com/items/2

Output lines:
  {\"id\": \"one\", \"line\": 1, \"status\": 200, \"body\": {...}, \"attempts\": 1, \"waited\": 0.25}

Without --limit or --config the limits are learned from the responses: one request goes first.

With --storage, every batch and program on the same storage lives by the same limits. What --limit and
--config declare is declared there, for all of them; paceline set changes it on the run.

Exit status: 0 when every request succeeded; 1 when some did not, a line was no request, or the storage
could not be reached (--fail-closed); 2 when nothing could be sent; 130 after Ctrl-C.")]
pub struct BatchArgs {
    /// The requests, one a line; - for standard input. Ids should be unique
    file: PathBuf,
    /// Where answers go; standard output unless given
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Skip what the output already holds, and go on behind it
    #[arg(long)]
    resume: bool,
    /// With --resume: send again what failed before, and drop its old records
    #[arg(long, requires = "resume")]
    retry_failed: bool,
    /// Replace an output that is not empty
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    /// Write answers in the order of the input
    #[arg(long)]
    ordered: bool,
    /// Keep response headers in the output
    #[arg(long)]
    headers: bool,
    /// A limit of each host, such as 60/1m or tokens=90000/1m; repeatable
    #[arg(short, long = "limit", value_name = "[DIMENSION=]N/WINDOW")]
    limits: Vec<Limit>,
    /// Never exceed a --limit in any span of its window: for providers that count exact windows
    #[arg(long, requires = "limits")]
    strict: bool,
    /// Limits per endpoint and other settings, as TOML; paceline check finds mistakes in it
    #[arg(long, value_name = "FILE", env = "PACELINE_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    storage: StorageArgs,
    /// Send nothing while the storage cannot be reached; otherwise requests go unpaced, with a warning
    #[arg(long, requires = "storage")]
    fail_closed: bool,
    /// What paths in the input are relative to
    #[arg(long, value_name = "URL")]
    base_url: Option<Url>,
    /// Requests waiting and in flight at once; automatic unless given
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    concurrency: Option<u32>,
    /// Further attempts after a 429, 503, 504 or a failed connection
    #[arg(long, value_name = "N", default_value_t = 5)]
    retries: u32,
    /// Give up on an answer after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    #[command(flatten)]
    credentials: Credentials,
    /// Tell when the batch would finish and which limit binds, without sending
    #[arg(long)]
    dry_run: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
    /// Print the summary (or the forecast) as JSON: on standard output with --output, else on
    /// standard error
    #[arg(long)]
    json: bool,
}

/// The command line, read and checked.
pub(super) struct Settings {
    pub(super) input: PathBuf,
    pub(super) output: Option<PathBuf>,
    pub(super) resume: bool,
    pub(super) retry_failed: bool,
    pub(super) ordered: bool,
    pub(super) dry_run: bool,
    pub(super) quiet: bool,
    pub(super) json: bool,
    /// Limits of every host.
    pub(super) limits: Vec<Limit>,
    base_url: Option<Url>,
    /// Requests waiting and in flight at once.
    pub(super) window: usize,
    config: Config,
    storage: StorageArgs,
    /// What it holds, by key, once it was looked up.
    stored: HashMap<String, Vec<Limit>>,
    on_failure: OnFailure,
    unlimited: usize,
    retries: u32,
    timeout: Duration,
    headers: HeaderMap,
    keep_headers: bool,
}

impl BatchArgs {
    /// Checks everything that can be checked before anything is sent.
    pub(super) fn settle(self) -> Result<Settings, Failure> {
        let headers = self.credentials.headers()?;
        self.spare_the_output()?;
        let strict = |limit: Limit| if self.strict { limit.strict() } else { Ok(limit) };
        let limits = self.limits.into_iter().map(strict).collect::<Result<_, _>>()?;
        let config = self.config.as_deref().map(Config::load).transpose()?.unwrap_or_default();
        // Each request in flight is a connection at worst, and each of those an open file.
        let files = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(256);
        let most = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(64).max(16);
        let asked = self.concurrency.map(|n| usize::try_from(n).unwrap_or(WINDOW));
        Ok(Settings {
            input: self.file,
            output: self.output,
            resume: self.resume,
            retry_failed: self.retry_failed,
            ordered: self.ordered,
            dry_run: self.dry_run,
            quiet: self.quiet,
            json: self.json,
            limits,
            base_url: self.base_url,
            window: asked.unwrap_or(WINDOW).min(most),
            storage: self.storage.or(config.storage.as_deref()),
            stored: HashMap::new(),
            on_failure: if self.fail_closed { OnFailure::Closed } else { config.on_failure },
            unlimited: asked.unwrap_or(UNLIMITED),
            retries: self.retries,
            timeout: Duration::from_secs(self.timeout),
            headers,
            keep_headers: self.headers,
            config,
        })
    }

    /// Refuses an output that is the input, and one that would be lost.
    fn spare_the_output(&self) -> Result<(), Failure> {
        let Some(output) = self.output.as_deref().filter(|_| !self.dry_run) else { return Ok(()) };
        let same = |a: &Path, b: &Path| Some(a.canonicalize().ok()? == b.canonicalize().ok()?);
        if same(output, &self.file) == Some(true) {
            return Err(format!("{} is the input; name another --output", output.display()).into());
        }
        let holds = std::fs::metadata(output).is_ok_and(|meta| meta.is_file() && meta.len() > 0);
        if holds && !self.resume && !self.overwrite {
            let shown = output.display();
            return Err(
                format!("{shown} is not empty; go on with --resume, or --overwrite it").into()
            );
        }
        Ok(())
    }
}

impl Settings {
    /// Everything that it takes to send; `notify` is told when the storage goes away and is back.
    pub(super) fn sender(
        &self,
        stop: watch::Receiver<bool>,
        notify: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Result<Sender, Failure> {
        let limiter = Limiter::builder()
            .config(&self.config)
            .learn_first(true)
            .on_failure(self.on_failure)
            .notify(notify)
            .on_wait(|_| ()) // The progress says what is waited for.
            .open(self.storage.or_memory())?;
        self.config.apply(&limiter, None)?;
        let client = reqwest::Client::builder()
            // Each hop takes a permit of its own.
            .redirect(reqwest::redirect::Policy::none())
            .timeout(self.timeout)
            // Shorter than servers keep an idle connection: one that they close is a lost request.
            .pool_idle_timeout(Duration::from_secs(20))
            .user_agent(concat!("paceline/", env!("CARGO_PKG_VERSION")))
            .build()?;
        let retry = RetryConfig { max_retries: self.retries, ..RetryConfig::default() };
        Ok(Sender {
            client,
            limiter,
            retry,
            headers: self.headers.clone(),
            keep_headers: self.keep_headers,
            unlimited: Semaphore::new(self.unlimited),
            stop,
            rejected: AtomicU64::new(0),
        })
    }

    /// The request in a line; `None` in a blank one.
    pub(super) fn request(
        &self,
        number: u64,
        text: Result<String, String>,
    ) -> Result<Option<Request>, String> {
        match text?.trim() {
            "" => Ok(None),
            text => Request::read(number, text, self.base_url.as_ref()).map(Some),
        }
    }

    /// Takes in the limits that the storage holds, for a forecast.
    pub(super) fn look_up(&mut self) -> Result<(), Failure> {
        if !self.storage.may_hold() {
            return Ok(());
        }
        for (scope, status) in everything(&self.storage.open()?)? {
            let limits = status.limits.into_iter().map(|level| level.limit).collect();
            self.stored.insert(Scope::parse(&scope)?.key().to_owned(), limits);
        }
        Ok(())
    }

    /// The limits that a scope's key will have: those declared, and those that the storage holds
    /// beside them.
    pub(super) fn declared(&self, key: &str) -> Vec<Limit> {
        let here = |endpoint: &str| Scope::parse(endpoint).is_ok_and(|scope| scope.key() == key);
        let configured = self.config.scopes.iter().filter(|(endpoint, _)| here(endpoint));
        let mut limits: Vec<_> = configured.flat_map(|(_, limits)| limits.clone()).collect();
        let host = Scope::from_key(key).depth() == 0;
        if host {
            limits.extend(self.limits.iter().cloned());
        }
        for stored in self.stored.get(key).into_iter().flatten() {
            let learned = stored.origin != Origin::Configured;
            let makes_way = |limit: &Limit| {
                limit.dimension == stored.dimension && (learned || limit.window == stored.window)
            };
            if !limits.iter().any(makes_way) {
                limits.push(stored.clone());
            }
        }
        if host && limits.is_empty() {
            limits.extend(self.config.default_limits.iter().cloned());
        }
        limits
    }

    /// The number of lines, once they are counted; nothing for what can be read only once.
    pub(super) fn count_lines(&self) -> mpsc::Receiver<u64> {
        match self.input.is_file() && !self.quiet {
            true => super::count(&self.input),
            false => mpsc::channel(1).1,
        }
    }

    /// Prints the summary, and how to go on after an interruption.
    pub(super) fn report(&self, summary: &Summary) -> Result<(), Failure> {
        let text = match self.json {
            true => serde_json::to_string(summary)?,
            false => summary.table(),
        };
        match self.json && self.output.is_some() {
            true => writeln!(io::stdout(), "{text}")?,
            false if self.quiet && !self.json => {}
            false => writeln!(io::stderr(), "{text}")?,
        }
        if summary.interrupted {
            let how = match &self.output {
                Some(path) => format!("go on with: --resume --output {}", quoted(path)),
                None => "next time, write to --output FILE: then --resume can go on".to_owned(),
            };
            writeln!(io::stderr(), "paceline: stopped; {how}")?;
        }
        Ok(())
    }
}

fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    match text.contains(|c: char| c.is_whitespace() || c == '\'') {
        true => format!("'{}'", text.replace('\'', r"'\''")),
        false => text,
    }
}
