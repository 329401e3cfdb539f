//! `paceline simulate`: what would happen, without sending anything.

mod args;
mod chart;
mod picture;
mod replay;
mod report;

pub use args::Settings;
pub use report::Report;

use crate::serve::{self, Site};
use crate::{Failure, exit};
use clap::{Args, FromArgMatches as _};
use paceline::simulate::{Advice, Outcome, Simulation};
use std::io::{self, Write as _};

/// How wide a chart is where nobody says how wide the terminal is.
const WIDTH: u16 = 80;

/// Foretell how long requests take under limits, without sending any
#[derive(Debug, Args)]
#[command(after_long_help = "\
The engine itself runs, on a clock of its own: what waits here waits in production, and for as long.

  paceline simulate --rpm 4410 --tpm 100000 --avg-tokens 2000 --requests 1000
  paceline simulate --limit 60/1m --server sliding --requests 300        the 429s of a strict server
  paceline simulate --rpm 500 --arrivals poisson:400/1m --latency 2s --workers 8 -n 5000
  paceline simulate --replay requests.jsonl --tpm 90000                  what came last week, as it came

JSON is an object: requests, answered, refused (by us), rejected (429s), failed (given up), finished
(seconds), binding and bounds (what everything waited for), waits (for limits) and delays (for workers,
too) with p50, p99, max and mean, limits with what was used, concurrency, advice, and a timeline of slots.
New names may be added.

Exit status: 0; 1 when a request would stay unanswered; 2 when the simulation makes no sense.")]
pub struct SimulateArgs {
    #[command(flatten)]
    settings: Settings,
    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Show it as a page with sliders, at an address of this machine
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    serve: bool,
    #[command(flatten)]
    site: Site,
}

impl SimulateArgs {
    /// Whether a page is asked for.
    pub(crate) const fn serves(&self) -> bool {
        self.serve
    }

    /// Where.
    pub(crate) fn site(self) -> Site {
        self.site
    }
}

/// Runs the command and tells the exit status.
///
/// # Errors
/// When the simulation makes no sense.
pub fn simulate(args: &SimulateArgs) -> Result<u8, Failure> {
    let simulation = args.settings.simulation()?;
    let (outcome, advice) = run(&simulation)?;
    let shown = match args.json {
        true => serde_json::to_string(&Report::new(&outcome, advice.as_ref()))?,
        false => {
            let (width, _) = crossterm::terminal::size().unwrap_or((WIDTH, 0));
            report::show(&simulation, &outcome, advice.as_ref(), width.min(2 * WIDTH))
        }
    };
    writeln!(io::stdout(), "{shown}")?;
    Ok(if outcome.answered == outcome.requests { exit::OK } else { exit::FAILED })
}

fn run(simulation: &Simulation) -> Result<(Outcome, Option<Advice>), Failure> {
    let outcome = simulation.run()?;
    let advice = simulation.advice(&outcome)?;
    Ok((outcome, advice))
}

/// Options of the command and their values; one without a value has an empty one.
pub type Pairs = Vec<(String, String)>;

/// Runs what is said in pairs of the command's options and their values, and tells the report as JSON.
///
/// # Errors
/// In words, what makes no sense.
pub fn from_pairs(pairs: &Pairs) -> Result<Report, Failure> {
    let (outcome, advice) = run(&parse(pairs)?.simulation()?)?;
    Ok(Report::new(&outcome, advice.as_ref()))
}

fn parse(pairs: &Pairs) -> Result<Settings, Failure> {
    let args = pairs.iter().map(|(name, value)| match value.is_empty() {
        true => format!("--{name}"),
        false => format!("--{name}={value}"),
    });
    let command = Settings::augment_args(clap::Command::new("simulate").no_binary_name(true));
    let command = command.disable_help_flag(true).disable_version_flag(true);
    let matches = command.try_get_matches_from(args).and_then(|it| Settings::from_arg_matches(&it));
    // The usage of a command line is no use elsewhere.
    matches.map_err(|error| {
        let text = error.to_string();
        let said = text.strip_prefix("error: ").unwrap_or(&text);
        let end = ["\n\nUsage", "\n\nFor more"].iter().filter_map(|end| said.find(end)).min();
        said[..end.unwrap_or(said.len())].into()
    })
}

/// What the page shows of what is said in pairs.
pub(crate) fn page(pairs: &Pairs, size: (u32, u32), dark: bool) -> Result<serve::Shown, Failure> {
    /// More would make a page that is moved by sliders slow.
    const MOST: u64 = 200_000;
    let settings = parse(pairs)?;
    if settings.reads_a_file() {
        return Err("a page reads no files; replay one on the command line".into());
    }
    let asked = settings.simulation()?;
    if asked.requests > MOST {
        return Err(
            format!("a page simulates at most {MOST} requests; the command line more").into()
        );
    }
    let (outcome, advice) = run(&asked)?;
    Ok(serve::Shown {
        figures: report::figures(&asked, &outcome, advice.as_ref()),
        picture: picture::draw(&asked, &outcome, size, dark)?,
        report: Report::new(&outcome, advice.as_ref()),
    })
}
