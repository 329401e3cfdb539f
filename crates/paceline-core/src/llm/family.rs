//! Dated snapshots of models, which go by the rules and prices of their family (rule 16).

/// The name without its date: `gpt-4o` for `gpt-4o-2024-08-06`. `None` for a name that has none.
///
/// Providers write `-2024-08-06` (OpenAI), `-20240620` (Anthropic), `@20240620` (Google Cloud), `-0613` and
/// `-2407`, month and day or year and month, and `-latest` for whichever is current.
///
/// ```
/// use paceline_core::llm::family;
/// assert_eq!(family("gpt-4o-2024-08-06"), Some("gpt-4o"));
/// assert_eq!(family("claude-sonnet-4-20250514"), Some("claude-sonnet-4"));
/// assert_eq!(family("gpt-4o"), None);
/// ```
#[must_use]
pub fn family(model: &str) -> Option<&str> {
    let dated = |name: &'_ str| -> Option<usize> {
        let at = name.rfind(['-', '@'])?;
        let tail = &name[at + 1..];
        let digits = tail.bytes().all(|b| b.is_ascii_digit());
        let number = tail.parse::<u32>().ok().filter(|_| digits)?;
        let is_day = |month: u32, day: u32| (1..=12).contains(&month) && (1..=31).contains(&day);
        let is_date = match tail.len() {
            8 => number / 10_000 >= 2_000 && is_day(number / 100 % 100, number % 100),
            4 => is_day(number / 100, number % 100) || is_day(number % 100, number / 100),
            _ => false,
        };
        is_date.then_some(at)
    };
    if let Some(name) = model.strip_suffix("-latest") {
        return Some(name).filter(|name| !name.is_empty());
    }
    let spelled = |name: &'_ str| -> Option<usize> {
        let (at, date) = name.len().checked_sub(11).and_then(|at| Some((at, name.get(at..)?)))?;
        let mut parts = date.strip_prefix(['-', '@'])?.split('-');
        let lengths = [4, 2, 2].iter().all(|length| {
            let is_number =
                |it: &str| it.len() == *length && it.bytes().all(|b| b.is_ascii_digit());
            parts.next().is_some_and(is_number)
        });
        lengths.then_some(at)
    };
    spelled(model).or_else(|| dated(model)).map(|at| &model[..at]).filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_16_a_snapshot_is_of_its_family() {
        for (model, expected) in [
            ("gpt-4o-2024-08-06", Some("gpt-4o")),
            ("gpt-4o-mini-2024-07-18", Some("gpt-4o-mini")),
            ("claude-3-5-sonnet-20240620", Some("claude-3-5-sonnet")),
            ("claude-3-5-sonnet@20240620", Some("claude-3-5-sonnet")),
            ("claude-3-5-sonnet-latest", Some("claude-3-5-sonnet")),
            ("gpt-4-0613", Some("gpt-4")),
            ("gpt-3.5-turbo-1106", Some("gpt-3.5-turbo")),
            ("mistral-large-2407", Some("mistral-large")),
            ("gpt-4o", None),
            ("gpt-4-32k", None),
            ("text-embedding-3-small", None),
            ("llama-3-8192", None),
            ("claude-3-5-sonnet-99999999", None),
            ("größe-2024-08-06", Some("größe")),
            ("-latest", None),
            ("2024-08-06", None),
            ("", None),
        ] {
            assert_eq!(family(model), expected, "{model}");
        }
    }
}
