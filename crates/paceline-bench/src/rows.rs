//! All rows, in the order of the table.

mod curve;
mod detect;
mod handle;
mod keyed;
mod llm;
pub(crate) mod memory;
mod metered;
mod waiters;

use crate::row::Row;

/// What measures one row, or a few that come from the same measurement.
type Bench = fn() -> Vec<Row>;

/// Every measurement with a name to ask for it.
pub(crate) const ALL: &[(&str, Bench)] = &[
    ("handle", handle::one_thread),
    ("handle 2 threads", handle::two_threads),
    ("handle two dimensions", handle::two_dimensions),
    ("key", keyed::a_thousand_keys),
    ("key 2 threads", keyed::two_threads),
    ("key million", keyed::a_million_keys),
    ("key permit", keyed::permits),
    ("memory", memory::live_and_idle),
    ("metered", metered::permits),
    ("detect", detect::all),
    ("llm", llm::all),
    ("waiters", waiters::ten_thousand),
    ("curve random keys", curve::random_keys),
    ("curve scopes", curve::scopes),
    ("curve limits", curve::limits),
    ("curve paths", curve::paths),
    ("curve waiters", curve::waiters),
];
