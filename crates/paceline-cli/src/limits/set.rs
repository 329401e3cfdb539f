//! `paceline set`: declares limits.

use super::print;
use super::report::{Report, table};
use crate::storage::StorageArgs;
use crate::{Failure, exit};
use clap::Args;
use paceline::{Limit, Scope};

/// Declare limits of an endpoint; running workers follow within a second
#[derive(Debug, Args)]
#[command(after_help = "\
The same dimension and window replaces a limit and keeps what was used of it; another window is a
further limit, and both apply. To be rid of one, clear the endpoint and set those that stay.

Exit status: 0 when it is done; 1 when the storage cannot be reached; 2 when the command line makes
no sense.")]
pub struct SetArgs {
    /// A host or URL; the limits are those of everything below it too
    endpoint: String,
    /// Limits, such as 60/1m or tokens=90000/1m; all apply
    #[arg(required = true, value_name = "LIMIT")]
    limits: Vec<Limit>,
    /// How many may go back to back after a pause, with one limit; the limit itself unless given
    #[arg(long, value_name = "N")]
    burst: Option<u64>,
    /// Never exceed a limit in any span of its window: for providers that count exact windows
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    storage: StorageArgs,
    /// Print what now holds as JSON, with the names of Python's RateLimitStatus
    #[arg(long)]
    json: bool,
}

/// Runs the command and tells the exit status.
///
/// # Errors
/// When the endpoint, a limit or the storage is unusable, and nothing was set; when the storage
/// cannot be reached.
pub fn set(args: SetArgs) -> Result<u8, Failure> {
    let scope = Scope::parse(&args.endpoint)?.to_string();
    let limits = declared(args.limits, args.burst, args.strict)?;
    let limiter = args.storage.open()?;
    for limit in limits {
        limiter.set_limit(&scope, limit)?;
    }
    let held = limiter.status(&scope)?;
    let (scope, status) = held.ok_or("somebody else cleared it at the same moment")?;
    match args.json {
        true => print(&serde_json::to_string(&Report::new(&scope, &status))?)?,
        false => print(&table([(scope.as_str(), &status)]))?,
    }
    Ok(exit::OK)
}

/// The limits with what the options say of them, before any of them is set.
fn declared(limits: Vec<Limit>, burst: Option<u64>, strict: bool) -> Result<Vec<Limit>, Failure> {
    if burst.is_some() && limits.len() > 1 {
        return Err("--burst goes with one limit; set the others on their own".into());
    }
    let declare = |limit: Limit| {
        let limit = burst.map_or(Ok(limit.clone()), |burst| limit.with_burst(burst))?;
        if strict { limit.strict() } else { Ok(limit) }
    };
    Ok(limits.into_iter().map(declare).collect::<Result<_, paceline_core::Error>>()?)
}
