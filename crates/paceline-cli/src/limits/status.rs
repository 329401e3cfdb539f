//! `paceline status`: one scope.

use super::report::{Report, table};
use super::{print, remark, scope};
use crate::storage::StorageArgs;
use crate::{Failure, exit};
use clap::Args;

/// Show the limits that govern an endpoint, and what is left of them
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 when something is known there; 1 when nothing is, or the storage cannot be reached;
2 when the command line makes no sense.")]
pub struct StatusArgs {
    /// A host or URL; the narrowest scope with a limit is shown
    endpoint: String,
    #[command(flatten)]
    storage: StorageArgs,
    /// Print JSON, with the names of Python's RateLimitStatus
    #[arg(long)]
    json: bool,
}

/// Runs the command and tells the exit status.
///
/// # Errors
/// When the endpoint or the storage is unusable, or the storage cannot be reached.
pub fn status(args: &StatusArgs) -> Result<u8, Failure> {
    let asked = scope(&args.endpoint)?;
    let limiter = args.storage.open_existing()?;
    let Some((governing, status)) = limiter.status(&args.endpoint)? else {
        remark(&format!("nothing is known of {asked}, or of anything above it"))?;
        return Ok(exit::FAILED);
    };
    match args.json {
        true => print(&serde_json::to_string(&Report::new(&governing, &status))?)?,
        false => print(&table([(governing.as_str(), &status)]))?,
    }
    Ok(exit::OK)
}
