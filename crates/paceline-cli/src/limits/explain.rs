//! `paceline explain`: why a call is paced as it is.

use super::print;
use super::report::Report;
use crate::storage::StorageArgs;
use crate::{Failure, exit};
use clap::Args;
use paceline::Explanation;
use serde::Serialize;

/// Tell which limit governs an endpoint, and why that one
#[derive(Debug, Args)]
#[command(after_help = "\
JSON is an object: endpoint, words, governing (null where nothing governs) and wider, with the names of
Python's RateLimitStatus.

Exit status: 0 when something governs; 1 when nothing does, or the storage cannot be reached; 2 when the
command line makes no sense.")]
pub struct ExplainArgs {
    /// A host or URL
    endpoint: String,
    #[command(flatten)]
    storage: StorageArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// An explanation as programs see it.
#[derive(Debug, Serialize)]
pub(crate) struct Explained {
    endpoint: String,
    words: String,
    governing: Option<Report>,
    wider: Vec<Report>,
}

impl From<&Explanation> for Explained {
    fn from(why: &Explanation) -> Self {
        let mut reports = why.scopes.iter().map(|(scope, status)| Report::new(scope, status));
        Self {
            endpoint: why.endpoint.clone(),
            words: why.to_string(),
            governing: reports.next(),
            wider: reports.collect(),
        }
    }
}

/// Runs the command and tells the exit status.
///
/// # Errors
/// When the endpoint or the storage is unusable, or the storage cannot be reached.
pub fn explain(args: &ExplainArgs) -> Result<u8, Failure> {
    super::scope(&args.endpoint)?;
    let why = args.storage.open_existing()?.explain(&args.endpoint)?;
    match args.json {
        true => print(&serde_json::to_string(&Explained::from(&why))?)?,
        false => print(&why.to_string())?,
    }
    Ok(if why.scopes.is_empty() { exit::FAILED } else { exit::OK })
}
