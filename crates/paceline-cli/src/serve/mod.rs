//! Pages at an address of this machine: the simulator, and what Prometheus scrapes.

mod metrics;

use crate::simulate::{self, Pairs, Report};
use crate::storage::StorageArgs;
use crate::{Failure, exit};
use axum::extract::{Query, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory as _};
use metrics::Exporter;
use serde::Serialize;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpListener;
use url::form_urlencoded::Serializer;

/// Nothing is loaded from elsewhere, and nothing is sent there.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Where pages are served.
#[derive(Debug, Args)]
pub struct Site {
    /// Port of the page; 0 takes any free one
    #[arg(long, value_name = "N", default_value_t = 8428, help_heading = "Output")]
    port: u16,
    /// Do not open the page in a browser
    #[arg(long, help_heading = "Output")]
    no_open: bool,
}

/// Serve the simulator as a page, and the metrics of a shared storage, at an address of this machine
#[derive(Debug, Args)]
#[command(after_help = "\
With --metrics, /metrics tells in the format of OpenMetrics, which Prometheus reads, what is left of
each limit, how long scopes are held, and what became of calls: all that workers on the storage count.")]
pub struct ServeArgs {
    /// Serve what is in the storage at /metrics
    #[arg(long)]
    metrics: bool,
    #[command(flatten)]
    storage: StorageArgs,
    #[command(flatten)]
    site: Site,
}

/// Serves until it is told to stop.
///
/// # Errors
/// When the port is taken, or the storage is unusable.
pub async fn serve(args: ServeArgs) -> Result<u8, Failure> {
    let exporter = match args.metrics {
        true => {
            let limiter = tokio::task::block_in_place(|| args.storage.open())?;
            Some(Arc::new(Exporter::new(limiter)))
        }
        false => None,
    };
    run(args.site, String::new(), exporter).await
}

/// What the page shows of a simulation.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    /// What people look at.
    pub(crate) figures: Vec<(&'static str, String)>,
    /// An SVG.
    pub(crate) picture: String,
    /// What programs look at.
    pub(crate) report: Report,
}

/// Serves the simulator until it is told to stop. `link` is what the first page shows.
///
/// # Errors
/// When the port is taken.
pub(crate) async fn page(site: Site, link: String) -> Result<u8, Failure> {
    run(site, link, None).await
}

async fn run(site: Site, link: String, exporter: Option<Arc<Exporter>>) -> Result<u8, Failure> {
    let addr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), site.port);
    let listener = TcpListener::bind(addr).await.map_err(|error| {
        format!("cannot listen on {addr}: {error}; try another --port (0 takes any free one)")
    })?;
    let url = format!("http://{}/{link}", listener.local_addr()?);
    writeln!(io::stdout(), "the page is at {url}")?;
    if exporter.is_some() {
        writeln!(io::stdout(), "the metrics are at {url}metrics")?;
    }
    io::stdout().flush()?;
    if !site.no_open && io::stdout().is_terminal() {
        // Where there is no browser the address is enough.
        drop(open::that_detached(&url));
    }
    let port = listener.local_addr()?.port();
    let stop = crate::sandbox::interrupted();
    axum::serve(listener, router(port, exporter)).with_graceful_shutdown(stop).await?;
    Ok(exit::OK)
}

/// What the page has to show what was said on the command line: the same options, in its address.
pub(crate) fn link(said: &ArgMatches) -> String {
    let command = crate::Cli::command();
    let known =
        command.find_subcommand("simulate").into_iter().flat_map(clap::Command::get_arguments);
    let mut pairs = Serializer::new(String::new());
    for arg in known.filter(|arg| !matches!(arg.get_id().as_str(), "serve" | "port" | "no_open")) {
        let id = arg.get_id().as_str();
        let Some(name) = arg.get_long() else { continue };
        if said.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        if !arg.get_action().takes_values() {
            pairs.append_pair(name, "");
            continue;
        }
        for value in said.get_raw(id).into_iter().flatten() {
            pairs.append_pair(name, &value.to_string_lossy());
        }
    }
    match pairs.finish() {
        none if none.is_empty() => none,
        some => format!("?{some}"),
    }
}

fn router(port: u16, exporter: Option<Arc<Exporter>>) -> Router {
    let pages = Router::new()
        .route("/", get(|| async { file("text/html", include_str!("page/index.html")) }))
        .route("/page.css", get(|| async { file("text/css", include_str!("page/page.css")) }))
        .route("/page.js", get(|| async { file("text/javascript", include_str!("page/page.js")) }))
        .route("/simulate", get(answer));
    let pages = match exporter {
        Some(exporter) => pages.route("/metrics", get(move || scrape(exporter))),
        None => pages,
    };
    pages.layer(from_fn_with_state(port, at_home))
}

async fn scrape(exporter: Arc<Exporter>) -> Response {
    let told =
        tokio::task::spawn_blocking(move || exporter.text().map_err(|error| error.to_string()));
    match told.await.map_err(|error| error.to_string()).and_then(|told| told) {
        Ok(text) => ([(CONTENT_TYPE, metrics::KIND)], text).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error).into_response(),
    }
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let kind = HeaderValue::from_static(kind);
    ([(CONTENT_TYPE, kind), (CONTENT_SECURITY_POLICY, POLICY)], text).into_response()
}

/// Answers only who asks for this machine by its own name: another site could give its name our address.
async fn at_home(State(port): State<u16>, request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let ours = ["127.0.0.1", "localhost", "[::1]"].map(|name| format!("{name}:{port}"));
    if !host.is_some_and(|host| ours.iter().any(|name| name == host)) {
        return (StatusCode::MISDIRECTED_REQUEST, "this is a page of the machine itself\n")
            .into_response();
    }
    let mut response = next.run(request).await;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A simulation: the command's options, and how the picture is to look.
async fn answer(Query(asked): Query<Pairs>) -> Response {
    let (of_picture, pairs): (Pairs, Pairs) = asked
        .into_iter()
        .partition(|(name, _)| matches!(name.as_str(), "width" | "height" | "dark"));
    let number = |name: &str| {
        let value = of_picture.iter().find(|(known, _)| known == name);
        value.and_then(|(_, value)| value.parse::<u32>().ok())
    };
    let size = (number("width").unwrap_or(800), number("height").unwrap_or(480));
    let size = (size.0.clamp(240, 2_400), size.1.clamp(240, 1_600));
    let dark = number("dark") == Some(1);
    let work = move || simulate::page(&pairs, size, dark).map_err(|error| error.to_string());
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(shown)) => Json(shown).into_response(),
        Ok(Err(error)) => refuse(StatusCode::BAD_REQUEST, &error),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn refuse(status: StatusCode, error: &str) -> Response {
    (status, Json(serde_json::json!({ "error": error }))).into_response()
}
