//! Which limits a model has: the user's rules, else what is documented of the provider (rules 16 and 30).

use super::family;
use crate::{Error, Limit, Origin, Window};
use std::collections::BTreeMap;

/// A template: each model that it covers gets a bucket of its own. Without any limit it says that there is
/// none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rule {
    /// Requests per minute.
    pub requests: Option<u64>,
    /// Tokens per minute, prompt and answer together.
    pub tokens: Option<u64>,
    /// Tokens of prompts per minute, where a provider meters them apart.
    pub input_tokens: Option<u64>,
    /// Tokens of answers per minute.
    pub output_tokens: Option<u64>,
    /// How many requests go at once; a whole minute's unless said otherwise.
    pub burst: Option<u64>,
}

impl Rule {
    /// So many requests per minute and nothing else.
    const fn requests(units: u64) -> Self {
        let (tokens, input_tokens, output_tokens, burst) = (None, None, None, None);
        Self { requests: Some(units), tokens, input_tokens, output_tokens, burst }
    }

    /// The limits that it stands for, of that origin.
    ///
    /// # Errors
    /// [`Error::Units`] for a limit or burst of 0 or beyond counting.
    pub fn limits(&self, origin: Origin) -> Result<Vec<Limit>, Error> {
        let named = [
            ("requests", self.requests),
            ("tokens", self.tokens),
            ("input_tokens", self.input_tokens),
            ("output_tokens", self.output_tokens),
        ];
        let mut limits = Vec::new();
        for (dimension, units) in named {
            let Some(units) = units else { continue };
            let limit = Limit { origin, ..Limit::new(dimension, units, Window::MINUTE)? };
            limits.push(match self.burst {
                Some(burst) if dimension == "requests" => limit.with_burst(burst)?,
                _ => limit,
            });
        }
        Ok(limits)
    }
}

/// What is documented for accounts of the first tier, per model: provider, requests per minute.
///
/// OpenAI: <https://platform.openai.com/docs/guides/rate-limits>, tier 1. Anthropic:
/// <https://docs.anthropic.com/en/api/rate-limits>, tier 1.
const DOCUMENTED: [(&str, u64); 2] = [("openai", 500), ("anthropic", 50)];

/// Rules by what they cover: `openai:gpt-4o`, `gpt-4o`, `openai:*`, `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules(BTreeMap<String, Rule>);

impl Rules {
    /// What a rule covers, as it is called here: of one provider only, if one is given.
    #[must_use]
    pub fn covered(model: &str, provider: Option<&str>) -> String {
        match provider {
            Some(provider) => format!("{provider}:{model}"),
            None => model.to_owned(),
        }
    }

    /// Sets a rule, in place of one that covers the same.
    ///
    /// # Errors
    /// [`Error::Units`] for a limit or burst of 0 or beyond counting.
    pub fn set(&mut self, covers: String, rule: Rule) -> Result<(), Error> {
        rule.limits(Origin::Configured)?;
        self.0.insert(covers, rule);
        Ok(())
    }

    /// Removes a rule; tells whether there was one.
    pub fn remove(&mut self, covers: &str) -> bool {
        self.0.remove(covers).is_some()
    }

    /// The rule for a model, and whose it is: the first that covers it, the narrowest first.
    ///
    /// ```
    /// use paceline_core::Origin;
    /// use paceline_core::llm::{Rule, Rules};
    ///
    /// let mut rules = Rules::default();
    /// rules.set("gpt-4o".into(), Rule { requests: Some(60), ..Rule::default() })?;
    /// assert_eq!(rules.find("openai", "gpt-4o-2024-08-06").0.requests, Some(60));
    /// let (rule, origin) = rules.find("anthropic", "claude-sonnet-5");
    /// assert_eq!((rule.requests, origin), (Some(50), Origin::Registry));
    /// # Ok::<(), paceline_core::Error>(())
    /// ```
    #[must_use]
    pub fn find(&self, provider: &str, model: &str) -> (Rule, Origin) {
        let families = std::iter::successors(Some(model), |name| family(name));
        let names = families.flat_map(|name| [format!("{provider}:{name}"), name.to_owned()]);
        let mut covering = names.chain([format!("{provider}:*"), "*".to_owned()]);
        if let Some(rule) = covering.find_map(|name| self.0.get(&name)) {
            return (*rule, Origin::Configured);
        }
        let documented = DOCUMENTED.iter().find(|(name, _)| *name == provider);
        (documented.map_or(Rule::default(), |(_, units)| Rule::requests(*units)), Origin::Registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rpm(units: u64) -> Rule {
        Rule::requests(units)
    }

    #[test]
    fn rule_16_the_first_rule_that_covers_a_model_governs() {
        let mut rules = Rules::default();
        let found = |rules: &Rules, provider: &str, model: &str| rules.find(provider, model).0;
        for (covers, units) in [
            ("*", 1),
            ("openai:*", 2),
            ("gpt-4o", 3),
            ("openai:gpt-4o", 4),
            ("gpt-4o-2024-08-06", 5),
            ("openai:gpt-4o-2024-08-06", 6),
        ] {
            rules.set(covers.into(), rpm(units)).unwrap();
            assert_eq!(found(&rules, "openai", "gpt-4o-2024-08-06"), rpm(units), "{covers}");
        }
        assert_eq!(found(&rules, "openai", "gpt-4o"), rpm(4));
        assert_eq!(found(&rules, "azure", "gpt-4o"), rpm(3));
        assert_eq!(found(&rules, "openai", "o3"), rpm(2));
        assert_eq!(found(&rules, "mistral", "large"), rpm(1));
        assert!(rules.remove("openai:gpt-4o") && !rules.remove("openai:gpt-4o"));
        assert_eq!(found(&rules, "openai", "gpt-4o"), rpm(3));
    }

    #[test]
    fn rule_16_a_rule_without_limits_means_unlimited() {
        let mut rules = Rules::default();
        rules.set("gpt-4o".into(), Rule::default()).unwrap();
        let (rule, origin) = rules.find("openai", "gpt-4o");
        assert!(rule.limits(origin).unwrap().is_empty());
        assert_eq!(origin, Origin::Configured);
    }

    #[test]
    fn rule_30_two_providers_have_defaults_and_others_none() {
        let rules = Rules::default();
        assert_eq!(rules.find("openai", "gpt-4o"), (rpm(500), Origin::Registry));
        assert_eq!(rules.find("anthropic", "claude"), (rpm(50), Origin::Registry));
        assert_eq!(rules.find("azure", "gpt-4o").0, Rule::default());
    }

    #[test]
    fn a_limit_of_nothing_is_refused() {
        let mut rules = Rules::default();
        assert!(rules.set("*".into(), rpm(0)).is_err());
        let burst = Rule { burst: Some(0), ..rpm(60) };
        assert!(rules.set("*".into(), burst).is_err());
        assert_eq!(rules, Rules::default());
    }
}
