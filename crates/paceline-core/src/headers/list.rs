//! Lists with parameters: structured fields (RFC 9651), and what is sent in their place.

use sfv::{BareItem, Dictionary, List, ListEntry, Parameters, Parser};

/// More members and parameters than any server means: the rest is not looked at.
const MOST: usize = 64;

/// One member of a list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Member {
    /// What stands before the parameters, numbers and quoted strings alike. Of several the last:
    /// `"fixed window";"api"` is how one well-known host names a policy.
    pub(super) item: Option<String>,
    /// Keys in lower case, and what they are set to; the last of a repeated key counts.
    params: Vec<(String, String)>,
}

impl Member {
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.params.iter().rev().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }
}

/// The members of a list such as `"burst";q=10;w=1, "day";q=1000;w=86400` or `10, 10;w=1`; a
/// dictionary such as `limit=10, remaining=5` gives one member for each key.
pub(super) fn members(text: &str) -> Vec<Member> {
    if let Ok(list) = Parser::new(text).parse::<List>() {
        let items = list.iter().filter_map(|entry| match entry {
            ListEntry::Item(item) => Some(item),
            ListEntry::InnerList(_) => None,
        });
        let known = |item: &sfv::Item| Member {
            item: written(&item.bare_item),
            params: params(&item.params),
        };
        return items.take(MOST).map(known).collect();
    }
    lenient(text)
}

/// One member with the keys of a dictionary, such as `limit=10, remaining=5`.
pub(super) fn dictionary(text: &str) -> Member {
    let mut all = Member::default();
    if let Ok(dictionary) = Parser::new(text).parse::<Dictionary>() {
        for (key, entry) in dictionary.iter().take(MOST) {
            if let ListEntry::Item(item) = entry {
                all.params.extend(written(&item.bare_item).map(|value| (key.to_string(), value)));
                // Some part the keys by semicolons.
                all.params.extend(params(&item.params));
            }
        }
    } else {
        all.params = lenient(text).into_iter().flat_map(|member| member.params).collect();
    }
    all
}

fn params(params: &Parameters) -> Vec<(String, String)> {
    let pair = |(key, value): (&sfv::Key, &BareItem)| Some((key.to_string(), written(value)?));
    params.iter().take(MOST).filter_map(pair).collect()
}

fn written(item: &BareItem) -> Option<String> {
    match item {
        BareItem::Integer(number) => Some(number.to_string()),
        BareItem::Decimal(number) => Some(number.to_string()),
        BareItem::String(text) => Some(text.as_str().to_owned()),
        BareItem::Token(token) => Some(token.as_str().to_owned()),
        BareItem::ByteSequence(_)
        | BareItem::Boolean(_)
        | BareItem::Date(_)
        | BareItem::DisplayString(_) => None,
    }
}

/// The same, with parameters set apart by blanks, repeated items, empty parts, key bytes that are
/// not quite base64.
fn lenient(text: &str) -> Vec<Member> {
    let mut members = Vec::new();
    for part in split(text, |c| c == ',').take(MOST) {
        let mut member = Member::default();
        for word in split(part, |c| c == ';' || c == ' ' || c == '\t').take(MOST) {
            match word.split_once('=').filter(|(key, _)| !key.starts_with('"')) {
                Some((key, value)) => {
                    let key = key.trim().to_ascii_lowercase();
                    member.params.push((key, unquoted(value).to_owned()));
                }
                None if !word.is_empty() => member.item = Some(unquoted(word).to_owned()),
                None => {}
            }
        }
        if member != Member::default() {
            members.push(member);
        }
    }
    members
}

/// Splits where `at` says so outside of quotes, and trims.
pub(super) fn split(text: &str, at: impl Fn(char) -> bool) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let parts = text.split(move |c: char| {
        quoted ^= c == '"';
        !quoted && at(c)
    });
    parts.map(str::trim)
}

fn unquoted(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_8_lists_are_read_by_the_letter_and_else_leniently() {
        for text in [
            r#""a b";q=10;w=1, "c";q=20;w=60"#,
            r#""a b"; q=10; w=1; , "c"; q=20 w=60;"#,
            r#""x";"a b";q=10;w=1, "c";q=20;w=60;pk=:sdfjLJUOUH==:"#,
        ] {
            let list = members(text);
            assert_eq!(list.len(), 2, "{text}");
            assert_eq!(list[0].item.as_deref(), Some("a b"), "{text}");
            assert_eq!((list[0].get("q"), list[1].get("w")), (Some("10"), Some("60")), "{text}");
        }
    }

    #[test]
    fn rule_8_commas_in_quotes_part_nothing() {
        let list = members(r#"100, 100;w=60;comment="sliding, per key; not strict" 5"#);
        assert_eq!(list.len(), 2);
        assert_eq!(list[1].get("w"), Some("60"));
    }

    #[test]
    fn rule_8_of_a_repeated_key_the_last_counts() {
        assert_eq!(dictionary("remaining=50, reset=5, remaining=3").get("remaining"), Some("3"));
        assert_eq!(members(r#""d";r=5;r=2"#)[0].get("r"), Some("2"));
    }
}
