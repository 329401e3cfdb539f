//! `paceline probe`: what an API says of its limits, and what would be made of that.

use crate::batch::describe;
use crate::credentials::Credentials;
use crate::limits::{Explained, text, titled};
use crate::{Failure, exit, times};
use clap::Args;
use paceline::headers::{Detector, Response, detect};
use paceline::{Call, Counting, Limiter, Reading, Signal};
use reqwest::Method;
use serde::Serialize;
use std::io::{self, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// More of a body is not looked at: nobody states a limit in it.
const LONGEST: usize = 65_536;

/// Send one request, and tell what its answer says of limits and what would be made of it
#[derive(Debug, Args)]
#[command(after_help = "\
JSON is an object: status, headers (those that speak of limits), asserted (what they say), rejected,
retry_after, and then: what would govern the next call. New names may be added.

Exit status: 0 when the answer speaks of limits; 1 when it says nothing of them, or none came; 2 when the
command line makes no sense.")]
pub struct ProbeArgs {
    /// Where to send it; a bare host means https
    url: String,
    /// The method
    #[arg(short = 'X', long, default_value = "GET")]
    method: Method,
    /// Send this as the body, as JSON; the method is POST then, unless given
    #[arg(short, long, value_name = "JSON")]
    data: Option<String>,
    #[command(flatten)]
    credentials: Credentials,
    /// Give up on an answer after so long
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = times::parse)]
    timeout: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was found, as programs see it. Times are in seconds.
#[derive(Debug, Serialize)]
struct Probed {
    status: u16,
    headers: Vec<(String, String)>,
    asserted: Vec<Asserted>,
    rejected: bool,
    retry_after: Option<f64>,
    then: Explained,
}

/// A limit as the answer states it; null where it does not.
#[derive(Debug, Serialize)]
struct Asserted {
    dimension: String,
    name: Option<String>,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset: Option<f64>,
    window: Option<f64>,
    counting: &'static str,
}

impl From<&Signal> for Asserted {
    fn from(signal: &Signal) -> Self {
        Self {
            dimension: signal.dimension.to_string(),
            name: signal.name.as_deref().map(str::to_owned),
            limit: signal.limit,
            remaining: signal.remaining,
            reset: signal.reset.map(|reset| reset.as_secs_f64()),
            window: signal.window.map(|window| window.duration().as_secs_f64()),
            counting: counting(signal.counting),
        }
    }
}

const fn counting(counting: Counting) -> &'static str {
    match counting {
        Counting::Fixed => "window",
        Counting::Bucket => "bucket",
    }
}

/// Runs the command and tells the exit status.
///
/// # Errors
/// When the URL or a credential is unusable.
pub async fn run(mut args: ProbeArgs) -> Result<u8, Failure> {
    // As everywhere else, a bare host means https.
    if !args.url.contains("://") {
        args.url.insert_str(0, "https://");
    }
    let limiter = Limiter::builder().learn_first(true).build();
    let mut permit = limiter.acquire_now(Call::to(&args.url))?;
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(args.timeout)
        .user_agent(concat!("paceline/", env!("CARGO_PKG_VERSION")))
        .default_headers(args.credentials.headers()?)
        .build()?;
    let method = match (&args.data, args.method) {
        (Some(_), Method::GET) => Method::POST,
        (_, method) => method,
    };
    let mut request = client.request(method, &args.url);
    if let Some(data) = args.data {
        request = request.header("content-type", "application/json").body(data);
    }
    let answer = match request.send().await {
        Ok(answer) => answer,
        Err(error) if error.is_builder() => return Err(error.into()),
        Err(error) => {
            writeln!(io::stderr(), "paceline: no answer came: {}", describe(&error))?;
            return Ok(exit::FAILED);
        }
    };
    permit.sent();
    let detector = Detector::default();
    let status = answer.status().as_u16();
    let headers: Vec<(String, String)> = answer
        .headers()
        .iter()
        .filter(|(name, _)| detector.is_relevant(name.as_str()))
        .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
        .collect();
    let kind = answer.headers().get("content-type").and_then(|kind| kind.to_str().ok());
    let wants_body = detector.wants_body(&args.url, status, kind);
    let body = if wants_body { answer.bytes().await.ok() } else { None };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let reading = detect(
        &detector,
        Response {
            status,
            url: Some(&args.url),
            now,
            headers: headers.iter().map(|(name, value)| (name.as_str(), value.as_str())),
            body: body.as_deref().filter(|body| body.len() <= LONGEST),
        },
    );
    permit.answered(&args.url, &reading)?;
    let why = limiter.explain(&args.url)?;
    let shown = match args.json {
        true => serde_json::to_string(&Probed {
            status,
            headers,
            asserted: reading.signals.iter().map(Asserted::from).collect(),
            rejected: reading.rejected,
            retry_after: reading.retry_after.map(|wait| wait.as_secs_f64()),
            then: Explained::from(&why),
        })?,
        false => words(status, &headers, &reading, &why.to_string()),
    };
    writeln!(io::stdout(), "{shown}")?;
    Ok(if reading.is_silent() { exit::FAILED } else { exit::OK })
}

/// The same for people.
fn words(status: u16, headers: &[(String, String)], reading: &Reading, why: &str) -> String {
    let mut told = format!("the answer is {status}");
    if headers.is_empty() {
        told += ", and none of its headers speaks of limits";
    }
    for (name, value) in headers {
        told += &format!("\n  {name}: {value}");
    }
    if !reading.signals.is_empty() {
        let mut table =
            titled(["what it says", "limit", "left", "reset in", "window", "counts by"]);
        for signal in &reading.signals {
            let number = |number: Option<u64>| number.map(|it| it.to_string()).unwrap_or_default();
            let name = signal.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
            table.add_row([
                format!("{}{name}", signal.dimension),
                number(signal.limit),
                number(signal.remaining),
                signal.reset.map(times::show).unwrap_or_default(),
                signal.window.map(|window| window.to_string()).unwrap_or_default(),
                counting(signal.counting).to_owned(),
            ]);
        }
        told += &format!("\n\n{}", text(table));
    }
    if let Some(wait) = reading.retry_after {
        told += &format!("\n\nit says to stay away for {}", times::show(wait));
    }
    format!("{told}\n\nfrom then on: {why}")
}
