//! Values of a TOML document, each with its place; what is none is found, and reading goes on.

use super::finding::{Finding, help};
use std::ops::{Range, RangeInclusive};
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(super) type Node<'a> = Spanned<DeValue<'a>>;

pub(super) struct Reader<'a> {
    text: &'a str,
    pub(super) findings: Vec<Finding>,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, findings: Vec::new() }
    }

    pub(super) fn wrong(
        &mut self,
        span: Range<usize>,
        kind: &'static str,
        what: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.findings.push(Finding::new(self.text, &span, kind, what.into(), help.into()));
    }

    pub(super) fn doubtful(
        &mut self,
        span: Range<usize>,
        kind: &'static str,
        what: impl Into<String>,
        help: impl Into<String>,
    ) {
        let found = Finding::new(self.text, &span, kind, what.into(), help.into());
        self.findings.push(Finding { is_error: false, ..found });
    }

    /// The value of a key, if the table has it.
    pub(super) fn get<'t>(table: &'t DeTable<'a>, key: &str) -> Option<&'t Node<'a>> {
        table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    /// Finds keys that are not known.
    pub(super) fn only(&mut self, table: &DeTable<'a>, known: &[&str]) {
        for (name, _) in table {
            if !known.contains(&name.get_ref().as_ref()) {
                let what = format!("unknown key {:?}", name.get_ref());
                self.wrong(name.span(), "unknown-key", what, help(name.get_ref(), known));
            }
        }
    }

    pub(super) fn missing(&mut self, span: Range<usize>, key: &str, example: &str) {
        let what = format!("{key} is missing");
        self.wrong(span, "missing-key", what, format!("add {key} = {example}"));
    }

    fn kind(&mut self, node: &Node<'a>, expected: &str, example: &str) {
        let what = format!("expected {expected}, not {}", article(node.get_ref().type_str()));
        self.wrong(node.span(), "wrong-type", what, format!("write it such as {example}"));
    }

    pub(super) fn table<'t>(
        &mut self,
        node: &'t Node<'a>,
        example: &str,
    ) -> Option<&'t DeTable<'a>> {
        let table = node.get_ref().as_table();
        if table.is_none() {
            self.kind(node, "a table", example);
        }
        table
    }

    pub(super) fn list<'t>(&mut self, node: &'t Node<'a>, example: &str) -> &'t [Node<'a>] {
        match node.get_ref() {
            DeValue::Array(list) => list,
            _ => {
                self.kind(node, "a list", example);
                &[]
            }
        }
    }

    pub(super) fn string<'t>(&mut self, node: &'t Node<'a>, example: &str) -> Option<&'t str> {
        let text = node.get_ref().as_str();
        if text.is_none() {
            self.kind(node, "a text", example);
        }
        text
    }

    pub(super) fn boolean(&mut self, node: &Node<'a>) -> Option<bool> {
        let value = node.get_ref().as_bool();
        if value.is_none() {
            self.kind(node, "true or false", "true");
        }
        value
    }

    /// A whole number in a range.
    pub(super) fn whole(&mut self, node: &Node<'a>, within: RangeInclusive<u64>) -> Option<u64> {
        let DeValue::Integer(number) = node.get_ref() else {
            self.kind(node, "a whole number", &within.start().to_string());
            return None;
        };
        let digits = number.as_str().replace('_', "");
        let value = u64::from_str_radix(&digits, number.radix());
        match value.ok().filter(|value| within.contains(value)) {
            Some(value) => Some(value),
            None => {
                let help = format!("expected {} to {}", within.start(), within.end());
                self.wrong(node.span(), "bad-number", format!("{digits} is out of range"), help);
                None
            }
        }
    }

    /// A number in a range, with or without a fraction.
    pub(super) fn number(&mut self, node: &Node<'a>, within: RangeInclusive<f64>) -> Option<f64> {
        let digits = match node.get_ref() {
            DeValue::Integer(number) => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => {
                self.kind(node, "a number", &within.start().to_string());
                return None;
            }
        };
        match digits.replace('_', "").parse().ok().filter(|value| within.contains(value)) {
            Some(value) => Some(value),
            None => {
                let help = format!("expected {} to {}", within.start(), within.end());
                self.wrong(node.span(), "bad-number", format!("{digits} is out of range"), help);
                None
            }
        }
    }

    /// A span: `"30s"`, or a number of seconds.
    pub(super) fn time(&mut self, node: &Node<'a>) -> Option<Duration> {
        let Some(text) = node.get_ref().as_str() else {
            let seconds = self.number(node, 0.0..=1e9)?;
            return Duration::try_from_secs_f64(seconds).ok();
        };
        match paceline_core::Window::parse(text) {
            Ok(window) => Some(window.duration()),
            Err(error) => {
                let said = error.to_string();
                let (what, expected) = said.split_once(": ").unwrap_or((&said, ""));
                self.wrong(node.span(), "bad-window", what, expected);
                None
            }
        }
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&mut self, node: &Node<'a>, choices: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let said = self.string(node, &format!("{:?}", names[0]))?;
        let chosen = choices.iter().find(|(name, _)| *name == said);
        if chosen.is_none() {
            let what = format!("unknown choice {said:?}");
            self.wrong(node.span(), "bad-choice", what, help(said, &names));
        }
        chosen.map(|(_, choice)| *choice)
    }
}

fn article(kind: &str) -> String {
    let vowel = kind.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {kind}", if vowel { "an" } else { "a" })
}
