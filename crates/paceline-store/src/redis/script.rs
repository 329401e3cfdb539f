//! The scripts that a server runs.
//!
//! A server runs a script from its first line each time, so every function in it is made anew by each
//! call, and looks up each name that it uses from outside. Its constants were two thirds of the cost of
//! an admission. They have names for those who read the script; what is sent has their values instead.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The engine.
pub(super) static ENGINE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("engine.lua")));
/// What adds to the books.
pub(super) static TALLY: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("tally.lua")));

/// A script, as it is sent.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    /// The name by which a server knows it.
    pub(super) hash: String,
}

impl Script {
    fn new(script: &str) -> Self {
        let text = with_values(script);
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

/// The script without comments, and with values in place of the names in capitals that are declared on
/// lines such as `local TWO, FOUR = 2, 2 * TWO`.
fn with_values(script: &str) -> String {
    let mut values: HashMap<&str, String> = HashMap::new();
    let mut sent = String::with_capacity(script.len());
    for line in script.lines().filter(|line| !line.trim_start().starts_with("--")) {
        match constants(line) {
            Some((names, given)) => {
                for (name, value) in names.split(", ").zip(given.split(", ")) {
                    let value = format!("({})", replaced(value, &values));
                    values.insert(name, value);
                }
            }
            None => {
                sent.push_str(&replaced(line, &values));
                sent.push('\n');
            }
        }
    }
    sent
}

/// The names and values that a line declares, if all of the names are in capitals.
fn constants(line: &str) -> Option<(&str, &str)> {
    let (names, values) = line.strip_prefix("local ")?.split_once(" = ")?;
    names.split(", ").all(is_constant).then_some((names, values))
}

fn is_constant(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// A line with values in place of names.
fn replaced(line: &str, values: &HashMap<&str, String>) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = line;
    let mut made = String::with_capacity(line.len());
    while let Some(start) = rest.find(is_word) {
        let end = rest[start..].find(|c| !is_word(c)).map_or(rest.len(), |at| start + at);
        let word = &rest[start..end];
        made.push_str(&rest[..start]);
        made.push_str(values.get(word).map_or(word, String::as_str));
        rest = &rest[end..];
    }
    made.push_str(rest);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_sent_as_their_values() {
        let script =
            "-- About it.\nlocal TWO, FOUR = 2, 2 * TWO\nlocal x = TWO + x2[FOUR]\n  -- TWO\n";
        assert_eq!(with_values(script), "local x = (2) + x2[(2 * (2))]\n");
        assert!(!ENGINE.text.contains("LANES"), "a constant was left");
        assert!(!TALLY.text.contains("MOST"), "a constant was left");
    }
}
