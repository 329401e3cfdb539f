//! What tokens cost.

use super::{Usage, family};
use crate::Amount;
use std::collections::HashMap;
use std::sync::LazyLock;

/// What a million tokens cost, in millionths of a dollar: so one token's price is that many millionths of a
/// millionth, and every sum stays whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Price {
    /// The prompt.
    pub input: u64,
    /// What of the prompt the provider read from its cache.
    pub cached: u64,
    /// What of the prompt it wrote to its cache.
    pub cache_written: u64,
    /// The answer.
    pub output: u64,
}

/// The published prices: provider, then model.
static PUBLISHED: LazyLock<HashMap<String, HashMap<String, [f64; 4]>>> = LazyLock::new(|| {
    #[derive(serde::Deserialize)]
    struct Table {
        prices: HashMap<String, HashMap<String, [f64; 4]>>,
    }
    let table: Result<Table, _> = serde_json::from_str(include_str!("prices.json"));
    table.map(|table| table.prices).unwrap_or_default()
});

impl Price {
    /// What the provider publishes for a model, or for its family; `None` where the table has neither. The
    /// table, `prices.json`, says from when it is and where it comes from.
    #[must_use]
    pub fn published(provider: &str, model: &str) -> Option<Self> {
        let models = PUBLISHED.get(provider)?;
        let mut names = std::iter::successors(Some(model), |name| family(name));
        names.find_map(|name| models.get(name)).copied().and_then(Self::of_dollars)
    }

    /// From dollars for a million tokens: prompt, read from cache, written to cache, answer. `None` when one
    /// is negative, no number, or beyond a million.
    #[must_use]
    pub fn of_dollars(dollars: [f64; 4]) -> Option<Self> {
        let [input, cached, cache_written, output] = dollars.map(|price| {
            let amount = Amount::from_f64(price).ok()?;
            (amount <= Amount::units(1_000_000)).then(|| amount.millionths())
        });
        Some(Self {
            input: input?,
            cached: cached?,
            cache_written: cache_written?,
            output: output?,
        })
    }

    /// What a call costs that uses so much, in dollars, rounded up to a millionth.
    #[must_use]
    pub fn of(&self, usage: &Usage) -> Amount {
        let fresh = usage.input.saturating_sub(usage.cached).saturating_sub(usage.cache_written);
        let parts = [
            (fresh, self.input),
            (usage.cached, self.cached),
            (usage.cache_written, self.cache_written),
            (usage.output, self.output),
        ];
        let sum: u128 = parts.iter().map(|(n, price)| u128::from(*n) * u128::from(*price)).sum();
        let millionths = sum.div_ceil(u128::from(Amount::UNIT));
        Amount::from_millionths(u64::try_from(millionths).unwrap_or(u64::MAX))
    }

    /// The most that so many tokens of a prompt and an answer can cost.
    #[must_use]
    pub fn at_most(&self, input: u64, output: u64) -> Amount {
        let dearest = Self { input: self.input.max(self.cached).max(self.cache_written), ..*self };
        dearest.of(&Usage { input, output, ..Usage::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_price_is_one_and_has_a_date_and_a_source() {
        let table: serde_json::Value = serde_json::from_str(include_str!("prices.json")).unwrap();
        let date: jiff::civil::Date = table["date"].as_str().unwrap().parse().unwrap();
        assert!(date.year() >= 2026 && table["source"].as_str().unwrap().len() > 20);
        assert!(PUBLISHED.len() >= 10);
        for (provider, models) in &*PUBLISHED {
            for model in models.keys() {
                assert!(Price::published(provider, model).is_some(), "{provider}:{model}");
            }
        }
    }

    #[test]
    fn a_snapshot_costs_what_its_family_does() {
        let price = Price::published("openai", "gpt-4o-2024-08-06").unwrap();
        assert_eq!(price, Price::of_dollars([2.5, 1.25, 2.5, 10.0]).unwrap());
        assert_eq!(Price::published("openai", "no-such-model"), None);
        assert_eq!(Price::published("nobody", "gpt-4o"), None);
    }

    #[test]
    fn rule_27_what_the_cache_served_costs_what_the_provider_takes_for_it() {
        let price = Price::of_dollars([3.0, 0.3, 3.75, 15.0]).unwrap();
        let usage = Usage { input: 1_000, cached: 600, cache_written: 100, output: 10 };
        // 300 at 3, 600 at 0.3, 100 at 3.75, 10 at 15 dollars a million: 900 + 180 + 375 + 150
        assert_eq!(price.of(&usage), Amount::from_millionths(1_605));
        assert_eq!(price.at_most(1_000, 10), Amount::from_millionths(3_750 + 150));
        assert_eq!(Price::of_dollars([-1.0, 0.0, 0.0, 0.0]), None);
        assert_eq!(Price::of_dollars([f64::NAN, 0.0, 0.0, 0.0]), None);
    }

    #[test]
    fn a_part_of_a_millionth_counts_as_one() {
        let price = Price::of_dollars([0.02, 0.02, 0.02, 0.0]).unwrap();
        assert_eq!(price.of(&Usage { input: 8, ..Usage::default() }), Amount::from_millionths(1));
        let absurd = Usage { input: u64::MAX, output: u64::MAX, ..Usage::default() };
        assert!(price.of(&absurd) >= Amount::units(1_000_000));
    }
}
