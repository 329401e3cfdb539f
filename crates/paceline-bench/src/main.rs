//! The Rust rows of `make bench`: what paceline costs, side by side with its peers.
//!
//! Prints one JSON object a line, a row each, for `benches/run.py` to put in one table with the
//! rows of the other languages. With words on the command line only the rows run whose name
//! contains one of them.
//!
//! A new row is one function that returns it and one entry in [`rows::ALL`].

mod hosts;
mod process;
mod race;
mod row;
mod rows;

use std::io::Write;

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [probe, name] = &words[..]
        && probe == process::PROBE
    {
        return process::answer(&rows::memory::probe(name));
    }
    let chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(&**word));
    for (_, bench) in rows::ALL.iter().filter(|(name, _)| chosen(name)) {
        for row in bench() {
            let mut out = std::io::stdout().lock();
            serde_json::to_writer(&mut out, &row)?;
            writeln!(out)?;
            out.flush()?;
        }
    }
    Ok(())
}
