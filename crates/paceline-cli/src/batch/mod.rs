//! `paceline batch`: a file of requests, as fast as the limits allow.
//!
//! One thread reads lines, the main task turns them into requests and starts each as soon as there
//! is a place in the window, and writes what comes back. The window bounds memory: nothing grows
//! with the file.

mod args;
mod input;
mod output;
mod plan;
mod progress;
mod send;

pub use args::BatchArgs;
pub(crate) use send::describe;

use crate::{Failure, exit};
use args::Settings;
use input::Request;
use output::{Done, Output, Record};
use plan::Plan;
use progress::{Progress, Summary};
use send::Sender;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

/// How often the progress line is drawn.
const TICK: Duration = Duration::from_millis(200);
/// A longer line is no request; it is skipped without being held in memory.
const LONGEST_LINE: u64 = 64 << 20;

/// A numbered line with its text, or what is wrong with it; or why nothing more could be read.
type Line = io::Result<(u64, Result<String, String>)>;

/// What became of the request in a line (`None` when it was given up), what it cost, and the place
/// in the window that it frees.
type Answer = (u64, Option<Record>, paceline::Cost, OwnedSemaphorePermit);

/// Runs the command and tells the exit status.
///
/// # Errors
/// When nothing can be sent: the input, the output, a limit or a credential is unusable.
pub async fn run(args: BatchArgs) -> Result<u8, Failure> {
    let mut settings = args.settle()?;
    let lines = read_lines(open(&settings.input)?);
    if settings.dry_run {
        settings.look_up()?;
        return dry_run(&settings, lines).await;
    }
    let done = match (&settings.output, settings.resume) {
        (Some(path), true) => {
            let read = Done::read(path, settings.retry_failed);
            read.map_err(|error| at(path, "resume", &error))?
        }
        (None, true) => {
            return Err("--resume needs --output: it looks there for what is done".into());
        }
        (_, false) => Done::default(),
    };
    let output = Output::open(settings.output.as_deref(), settings.resume, settings.ordered)
        .map_err(|error| {
            at(settings.output.as_deref().unwrap_or(Path::new("-")), "write", &error)
        })?;
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        crate::sandbox::interrupted().await;
        let _ = stop.send(true);
        // Whoever asks twice does not want to wait.
        crate::sandbox::interrupted().await;
        std::process::exit(i32::from(exit::INTERRUPTED));
    });
    let progress = Progress::new(settings.quiet);
    let mut batch = Batch {
        sender: Arc::new(settings.sender(stopped.clone(), progress.announcer())?),
        progress,
        declared: HashSet::new(),
        host: None,
        settings,
        output,
        done,
    };
    batch.run(lines, stopped).await?;
    batch.finish()
}

/// A batch under way.
struct Batch {
    settings: Settings,
    sender: Arc<Sender>,
    progress: Progress,
    output: Output,
    done: Done,
    /// Hosts for which the limits of the command line are declared.
    declared: HashSet<String>,
    /// The host of the latest request, whose limits are shown.
    host: Option<String>,
}

impl Batch {
    async fn run(
        &mut self,
        mut lines: mpsc::Receiver<Line>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<(), Failure> {
        let window = Arc::new(Semaphore::new(self.settings.window));
        let (answer, mut answers) = mpsc::channel::<Answer>(self.settings.window.min(1_024));
        let mut total = self.settings.count_lines();
        let mut ticks = tokio::time::interval(TICK);
        // A line with its request that waits for a place in the window.
        let mut next: Option<Request> = None;
        let (mut reading, mut stopping) = (true, false);
        let mut kept = Vec::new();
        while reading || next.is_some() || window.available_permits() < self.settings.window {
            tokio::select! {
                biased;
                Some(answered) = answers.recv() => self.answered(answered, &mut kept)?,
                _ = ticks.tick() => self.progress.tick(&self.sender, self.host.as_deref()),
                Some(count) = total.recv() => self.progress.expect(count),
                _ = stop.wait_for(|stop| *stop), if !stopping => {
                    (stopping, reading, next) = (true, false, None);
                    self.progress.say("stopping: finishing what is in flight (Ctrl-C again to quit at once)");
                }
                Ok(place) = Arc::clone(&window).acquire_owned(), if next.is_some() => {
                    if let Some(request) = next.take() {
                        self.start(request, place, answer.clone());
                    }
                }
                line = lines.recv(), if reading && next.is_none() => match line {
                    Some(line) => next = self.request(line.map_err(|error| at(&self.settings.input, "read", &error))?, &mut kept)?,
                    None => reading = false,
                },
            }
        }
        self.output.finish().map_err(|error| self.unwritable(&error))
    }

    /// The request in a line, if it is one that has to be sent.
    fn request(
        &mut self,
        (number, text): (u64, Result<String, String>),
        kept: &mut Vec<OwnedSemaphorePermit>,
    ) -> Result<Option<Request>, Failure> {
        let request = match self.settings.request(number, text) {
            Err(error) => {
                self.progress.bad_line(number, &error);
                None
            }
            Ok(Some(request)) if self.done.has(&request) => {
                self.progress.resumed();
                None
            }
            Ok(request) => request,
        };
        if request.is_none() {
            let written = self.output.skip(number).map_err(|error| self.unwritable(&error))?;
            kept.truncate(kept.len().saturating_sub(written));
        }
        Ok(request)
    }

    fn start(
        &mut self,
        request: Request,
        place: OwnedSemaphorePermit,
        answer: mpsc::Sender<Answer>,
    ) {
        let host = request.host();
        if !self.settings.limits.is_empty() && !self.declared.contains(&host) {
            let declare = |limit: &paceline::Limit| {
                self.sender.limiter.set_limit(&host, limit.clone()).is_ok()
            };
            // A host that came out of a URL is an endpoint, so only a storage that is away refuses: the
            // next request tries again, and this one is not let through without it either.
            if self.settings.limits.iter().all(declare) {
                self.declared.insert(host);
            }
        }
        self.host = Some(request.url.to_string());
        let sender = Arc::clone(&self.sender);
        let (line, cost) = (request.line, request.cost.clone());
        tokio::spawn(async move {
            let record = sender.send(request).await;
            // The batch is over before its answers are only when it failed.
            drop(answer.send((line, record, cost, place)).await);
        });
    }

    fn answered(
        &mut self,
        (line, record, cost, place): Answer,
        kept: &mut Vec<OwnedSemaphorePermit>,
    ) -> Result<(), Failure> {
        let done = match record {
            // Given up, because the batch is stopped: its place is free, and nobody waits for it.
            None => self.output.skip(line),
            // In order, a place is free when its line is written, not before: what waits for its
            // turn takes up memory.
            Some(record) => {
                self.progress.answered(&record, &cost);
                kept.push(place);
                self.output.write(&record)
            }
        };
        let written = done.map_err(|error| self.unwritable(&error))?;
        kept.truncate(kept.len().saturating_sub(written));
        Ok(())
    }

    fn unwritable(&self, error: &io::Error) -> Failure {
        at(self.settings.output.as_deref().unwrap_or(Path::new("standard output")), "write", error)
    }

    /// Reports, and tells the exit status.
    fn finish(self) -> Result<u8, Failure> {
        // What is lost where the storage is away was lost before, and said.
        drop(self.sender.limiter.flush());
        let host = self.host.as_deref();
        let summary = self.progress.finish(&self.sender, host, self.done.failed);
        self.settings.report(&summary)?;
        Ok(match summary {
            Summary { interrupted: true, .. } => exit::INTERRUPTED,
            Summary { failed: 0, failed_before: 0, bad_lines: 0, .. } => exit::OK,
            _ => exit::FAILED,
        })
    }
}

async fn dry_run(settings: &Settings, mut lines: mpsc::Receiver<Line>) -> Result<u8, Failure> {
    let mut plan = Plan::default();
    while let Some(line) = lines.recv().await {
        let (number, text) = line.map_err(|error| at(&settings.input, "read", &error))?;
        match settings.request(number, text) {
            Ok(None) => {}
            Ok(Some(request)) => plan.add(&request, |key| settings.declared(key)),
            Err(error) => {
                plan.bad_line();
                drop(writeln!(io::stderr(), "paceline: line {number}: {error}"));
            }
        }
    }
    let forecasts = plan.forecasts();
    let mut out = io::stdout().lock();
    if settings.json {
        writeln!(out, "{}", serde_json::to_string(&forecasts)?)?;
    } else {
        for forecast in &forecasts {
            writeln!(out, "{}", forecast.sentence())?;
        }
    }
    Ok(if plan.bad_lines() == 0 { exit::OK } else { exit::FAILED })
}

fn open(input: &Path) -> Result<Box<dyn BufRead + Send>, Failure> {
    if input == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(input).map_err(|error| at(input, "read", &error))?;
    if file.metadata().is_ok_and(|meta| meta.is_dir()) {
        return Err(format!("cannot read {}: it is a directory", input.display()).into());
    }
    Ok(Box::new(BufReader::with_capacity(1 << 18, file)))
}

/// Reads lines on a thread of its own, a few ahead.
fn read_lines(mut input: Box<dyn BufRead + Send>) -> mpsc::Receiver<Line> {
    let (sender, receiver) = mpsc::channel(256);
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        for number in 1.. {
            let line = match read_line(&mut input, &mut bytes) {
                Ok(None) => return,
                Ok(Some(text)) => Ok((number, text)),
                Err(error) => Err(error),
            };
            let failed = line.is_err();
            if sender.blocking_send(line).is_err() || failed {
                return;
            }
        }
    });
    receiver
}

/// The next line, or what is wrong with it; `None` at the end.
fn read_line(
    input: &mut dyn BufRead,
    bytes: &mut Vec<u8>,
) -> io::Result<Option<Result<String, String>>> {
    bytes.clear();
    if input.take(LONGEST_LINE).read_until(b'\n', bytes)? == 0 {
        return Ok(None);
    }
    if bytes.len() as u64 == LONGEST_LINE && bytes.last() != Some(&b'\n') {
        input.skip_until(b'\n')?;
        return Ok(Some(Err(format!("longer than {} MiB", LONGEST_LINE >> 20))));
    }
    // Files that were saved on Windows may begin with a mark.
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let text = std::str::from_utf8(text).map(ToOwned::to_owned);
    Ok(Some(text.map_err(|error| format!("not UTF-8 after byte {}", error.valid_up_to()))))
}

/// Counts the lines of a file on a thread of its own, for the progress line.
fn count(path: &Path) -> mpsc::Receiver<u64> {
    let (sender, receiver) = mpsc::channel(1);
    let path = path.to_owned();
    std::thread::spawn(move || {
        let Ok(file) = File::open(path) else { return };
        let mut reader = BufReader::with_capacity(1 << 18, file);
        let (mut lines, mut open) = (0, false);
        while let Ok(chunk) = reader.fill_buf() {
            let Some(last) = chunk.last() else { break };
            open = *last != b'\n';
            lines += chunk.iter().filter(|byte| **byte == b'\n').count() as u64;
            let read = chunk.len();
            reader.consume(read);
        }
        let _ = sender.blocking_send(lines + u64::from(open));
    });
    receiver
}

fn at(path: &Path, verb: &str, error: &io::Error) -> Failure {
    format!("cannot {verb} {}: {error}", path.display()).into()
}
