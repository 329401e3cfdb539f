//! `paceline status`, `list`, `set` and `clear`: the limits of a shared store, seen and changed from
//! outside while workers live by them; and `usage`, its books.

mod clear;
mod explain;
mod list;
mod report;
mod set;
mod status;
mod usage;

pub use clear::{ClearArgs, clear};
pub(crate) use explain::Explained;
pub use explain::{ExplainArgs, explain};
pub use list::{ListArgs, list};
pub(crate) use report::{everything, text, titled, totals, utilization};
pub use set::{SetArgs, set};
pub use status::{StatusArgs, status};
pub use usage::{UsageArgs, usage};

use crate::Failure;
use paceline::Scope;
use std::io::{self, Write as _};

/// An endpoint as the store knows it.
fn scope(endpoint: &str) -> Result<String, Failure> {
    Ok(Scope::parse(endpoint)?.to_string())
}

fn print(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

/// Tells a person what is not worth a line of output.
fn remark(text: &str) -> io::Result<()> {
    writeln!(io::stderr(), "paceline: {text}")
}
