//! `paceline list`: every scope.

use super::report::{Report, everything, table};
use super::{print, remark};
use crate::storage::StorageArgs;
use crate::{Failure, exit};
use clap::Args;

/// Show every endpoint with its limits, and what is left of them
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0, also for an empty list; 1 when the storage cannot be reached; 2 when the command line
makes no sense.")]
pub struct ListArgs {
    #[command(flatten)]
    storage: StorageArgs,
    /// Print a JSON array, with the names of Python's RateLimitStatus
    #[arg(long)]
    json: bool,
}

/// Runs the command and tells the exit status.
///
/// # Errors
/// When the storage is unusable or cannot be reached.
pub fn list(args: &ListArgs) -> Result<u8, Failure> {
    let scopes = everything(&args.storage.open_existing()?)?;
    let scopes = scopes.iter().map(|(scope, status)| (scope.as_str(), status));
    if args.json {
        let reports: Vec<_> = scopes.map(|(scope, status)| Report::new(scope, status)).collect();
        print(&serde_json::to_string(&reports)?)?;
    } else if scopes.len() == 0 {
        remark("nothing is known yet")?;
    } else {
        print(&table(scopes))?;
    }
    Ok(exit::OK)
}
