//! `paceline usage`: the books of a store.

use super::report::{text, titled};
use super::{print, remark};
use crate::storage::StorageArgs;
use crate::{Failure, exit, times};
use clap::{Args, ValueEnum};
use comfy_table::CellAlignment;
use jiff::tz::Offset;
use jiff::{Span, Timestamp};
use paceline::{Day, Tally};
use serde::Serialize;
use std::collections::BTreeMap;
use std::str::FromStr;

/// Show what was sent, waited, refused and spent in the last 35 days
#[derive(Debug, Args)]
#[command(after_help = "\
Days are those of UTC. Running workers hand in what they count about once a second.

JSON is an object: since (the first day, or null), by (\"scope\" or \"day\"), rows and total. A row has
its scope or day, and as the total does: sent, waited (seconds), delayed, refused, rejected (the
429s), failed, cached, input_tokens, output_tokens and usd. New names may be added.

Exit status: 0, also when nothing was counted; 1 when the storage cannot be reached; 2 when the
command line makes no sense.")]
pub struct UsageArgs {
    /// Only scopes that begin so, such as openai: or api.example.com
    #[arg(value_name = "SCOPE-PREFIX")]
    prefix: Option<String>,
    /// From this day on, such as 2026-01-31; or so many days with today, such as 7d
    #[arg(long, value_name = "DATE|DAYS")]
    since: Option<Since>,
    /// What a row is
    #[arg(long, value_enum, default_value_t)]
    by: By,
    #[command(flatten)]
    storage: StorageArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is summed up in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum By {
    /// A scope, over all of its days
    #[default]
    Scope,
    /// A day, over all of its scopes
    Day,
}

/// The first day that counts.
#[derive(Debug, Clone, Copy)]
struct Since(Day);

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let days = text.strip_suffix('d').and_then(|days| days.parse::<i64>().ok());
        let day = match days {
            Some(days) if days > 0 => {
                today().saturating_sub(Span::new().days(days.min(10_000) - 1))
            }
            Some(_) => return Err("expected 1d or more".to_owned()),
            None => text.parse().map_err(|_| {
                "expected a date such as 2026-01-31, or a number of days such as 7d".to_owned()
            })?,
        };
        Ok(Self(day))
    }
}

fn today() -> Day {
    Offset::UTC.to_datetime(Timestamp::now()).date()
}

/// The books as programs see them.
#[derive(Debug, Serialize)]
struct Usage {
    since: Option<String>,
    by: By,
    rows: Vec<Row>,
    total: Sums,
}

#[derive(Debug, Serialize)]
struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<String>,
    #[serde(flatten)]
    sums: Sums,
}

/// What became of calls, with the names of [`Tally`]; waits in seconds.
#[derive(Debug, Serialize)]
struct Sums {
    sent: u64,
    waited: f64,
    delayed: u64,
    refused: u64,
    rejected: u64,
    failed: u64,
    cached: u64,
    input_tokens: u64,
    output_tokens: u64,
    usd: f64,
}

impl From<&Tally> for Sums {
    fn from(tally: &Tally) -> Self {
        Self {
            sent: tally.sent,
            waited: tally.waited.as_secs_f64(),
            delayed: tally.delayed,
            refused: tally.refused,
            rejected: tally.rejected,
            failed: tally.failed,
            cached: tally.cached,
            input_tokens: tally.input_tokens,
            output_tokens: tally.output_tokens,
            usd: tally.micro_usd as f64 / 1e6,
        }
    }
}

/// Runs the command and tells the exit status.
///
/// # Errors
/// When the storage is unusable or cannot be reached.
pub fn usage(args: &UsageArgs) -> Result<u8, Failure> {
    let books = args.storage.open_existing()?.usage()?;
    let (is_empty, mut rows, mut total) = (books.is_empty(), BTreeMap::new(), Tally::default());
    for (scope, day, tally) in books {
        if args.since.is_some_and(|Since(first)| day < first) || !args.concerns(&scope) {
            continue;
        }
        let row = match args.by {
            By::Scope => scope,
            By::Day => day.to_string(),
        };
        rows.entry(row).or_insert_with(Tally::default).add(&tally);
        total.add(&tally);
    }
    if args.json {
        let row = |(name, tally): (&String, &Tally)| {
            let (scope, day) = match args.by {
                By::Scope => (Some(name.clone()), None),
                By::Day => (None, Some(name.clone())),
            };
            Row { scope, day, sums: tally.into() }
        };
        let since = args.since.map(|Since(first)| first.to_string());
        let (rows, total) = (rows.iter().map(row).collect(), Sums::from(&total));
        print(&serde_json::to_string(&Usage { since, by: args.by, rows, total })?)?;
    } else if is_empty {
        remark("nothing was counted yet in this storage: its books are empty")?;
    } else if rows.is_empty() {
        remark("nothing was counted in these scopes and days")?;
    } else {
        print(&table(args.by, &rows, &total))?;
    }
    Ok(exit::OK)
}

impl UsageArgs {
    /// Whether a scope begins as was asked for; the `https://` of an endpoint may be left out.
    fn concerns(&self, scope: &str) -> bool {
        let Some(prefix) = self.prefix.as_deref() else { return true };
        let host = scope.strip_prefix("https://");
        scope.starts_with(prefix) || host.is_some_and(|host| host.starts_with(prefix))
    }
}

/// The books for people; as wide as the terminal at most.
fn table(by: By, rows: &BTreeMap<String, Tally>, total: &Tally) -> String {
    let name = match by {
        By::Scope => "scope",
        By::Day => "day",
    };
    let mut table =
        titled([name, "sent", "waited", "refused", "429s", "tokens in", "tokens out", "USD"]);
    let rows = rows.iter().map(|(name, tally)| (name.as_str(), tally));
    for (name, tally) in rows.chain([("total", total)]) {
        let waited =
            if tally.waited.is_zero() { "0s".to_owned() } else { times::show(tally.waited) };
        table.add_row([
            name,
            &tally.sent.to_string(),
            &waited,
            &tally.refused.to_string(),
            &tally.rejected.to_string(),
            &tally.input_tokens.to_string(),
            &tally.output_tokens.to_string(),
            &dollars(tally.micro_usd),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    text(table)
}

/// To the hundredth of a cent, for single calls cost no more than that.
fn dollars(micros: u64) -> String {
    let rounded = (micros + 50) / 100;
    format!("{}.{:04}", rounded / 10_000, rounded % 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dollar_is_told_to_the_hundredth_of_a_cent() {
        for (micros, text) in [
            (0, "0.0000"),
            (49, "0.0000"),
            (50, "0.0001"),
            (1_234_567, "1.2346"),
            (Tally::MOST, "9007199254.7410"),
        ] {
            assert_eq!(dollars(micros), text);
        }
    }

    #[test]
    fn since_is_a_day_or_so_many() {
        let today = today();
        assert_eq!("2026-01-31".parse::<Since>().unwrap().0.to_string(), "2026-01-31");
        // Midnight may pass meanwhile.
        assert!("1d".parse::<Since>().unwrap().0 >= today);
        assert!("7d".parse::<Since>().unwrap().0 >= today.saturating_sub(Span::new().days(6)));
        assert!(format!("{}d", i64::MAX).parse::<Since>().unwrap().0 < today);
        for bad in ["0d", "-1d", "7", "yesterday", "2026-02-30", "", "d"] {
            assert!(bad.parse::<Since>().unwrap_err().contains("expected"), "{bad}");
        }
    }
}
