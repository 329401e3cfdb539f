//! `paceline clear`: forgets scopes.

use super::{print, scope};
use crate::storage::StorageArgs;
use crate::{Failure, exit};
use clap::Args;
use serde_json::json;

/// Forget limits, levels, holds and what was learned
#[derive(Debug, Args)]
#[command(after_help = "\
A worker that declared a limit itself, such as paceline batch --limit, declares it again.

Exit status: 0 when it is done, also when nothing was known; 1 when the storage cannot be reached;
2 when the command line makes no sense.")]
pub struct ClearArgs {
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    storage: StorageArgs,
    /// Print how many scopes were cleared as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct What {
    /// A host or URL: it and everything below it
    endpoint: Option<String>,
    /// Everything in the storage
    #[arg(long)]
    all: bool,
}

/// Runs the command and tells the exit status.
///
/// # Errors
/// When the endpoint or the storage is unusable, or the storage cannot be reached.
pub fn clear(args: &ClearArgs) -> Result<u8, Failure> {
    let scope = args.what.endpoint.as_deref().map(scope).transpose()?;
    let cleared = args.storage.open_existing()?.clear(scope.as_deref())?;
    if args.json {
        print(&json!({ "cleared": cleared }).to_string())?;
        return Ok(exit::OK);
    }
    let scopes = if cleared == 1 { "scope" } else { "scopes" };
    match scope {
        Some(scope) => print(&format!("cleared {cleared} {scopes} at and below {scope}"))?,
        None => print(&format!("cleared {cleared} {scopes}"))?,
    }
    Ok(exit::OK)
}
