//! The books in Redis: a hash for each scope and day, in the slot of the scope's host.

use super::batch::{Arguments, Garbled, tagged, untagged};
use crate::tally::{DAYS, begin_of};
use crate::{Day, Key, Tally};
use std::collections::HashMap;

/// What the names of the hashes begin with; the day follows.
pub(super) const BOOKS: &str = "paceline:tally:";

/// What adds to the books of a day. `instant` is 0 for the server's own.
pub(super) fn addition(
    instant: u64,
    day: Day,
    key: &Key,
    tally: &Tally,
) -> Result<Arguments, Garbled> {
    let sums = Tally::NAMES.into_iter().zip(tally.numbers()).filter(|(_, sum)| *sum > 0);
    let sums: Vec<_> = sums.collect();
    let packed = rmp_serde::to_vec(&(instant, begin_of(day), DAYS * 86_400, sums))?;
    Ok(Arguments { keys: vec![format!("{BOOKS}{day}:{}", tagged(key.as_str()))], packed })
}

/// The day and the scope of a hash.
pub(super) fn day_and_key(name: &str) -> Option<(Day, Key)> {
    let (day, tagged) = name.strip_prefix(BOOKS)?.split_once(':')?;
    Some((day.parse().ok()?, Key::new(&untagged(tagged)?)))
}

/// The tally in a hash.
pub(super) fn tally(fields: &HashMap<String, String>) -> Tally {
    let sum = |name| fields.get(name).and_then(|sum: &String| sum.parse().ok()).unwrap_or(0);
    Tally::from_numbers(Tally::NAMES.map(sum))
}
