//! What each part of the file may say.

use super::reader::{Node, Reader};
use super::{Config, Finding, doubts};
use crate::OnFailure;
use paceline_core::headers::{HeadersMap, Provider, Quota};
use paceline_core::llm::Rule;
use paceline_core::retry::{Replay, RetryConfig, Strategy};
use paceline_core::{Counting, Dimension, Limit, Scope, Window};
use paceline_store::Storage;
use std::ops::Range;
use toml::de::DeTable;

const KEYS: [&str; 14] = [
    "storage",
    "on_failure",
    "lease",
    "max_wait",
    "learn_first",
    "adaptive",
    "also_parents",
    "default_limits",
    "headers_map",
    "retry",
    "scope",
    "provider",
    "rule",
    "budget",
];
const LIMITS: &str = "[\"60/1m\"]";

/// Where the parts of a configuration stand, for whoever doubts them.
#[derive(Default)]
pub(super) struct Places {
    pub(super) max_wait: Option<Range<usize>>,
    pub(super) on_failure: Option<Range<usize>>,
    pub(super) lease: Option<Range<usize>>,
    pub(super) storage: Option<Range<usize>>,
    /// Of each scope: its endpoint and its limits.
    pub(super) scopes: Vec<(Range<usize>, Vec<Range<usize>>)>,
    pub(super) rules: Vec<Range<usize>>,
    pub(super) budgets: Vec<Range<usize>>,
}

pub(super) fn read(text: &str) -> (Config, Vec<Finding>) {
    let mut reader = Reader::new(text);
    let mut config = Config::default();
    let document = match DeTable::parse(text) {
        Ok(document) => document,
        Err(error) => {
            let span = error.span().unwrap_or_default();
            let what = error.message().to_owned();
            reader.wrong(span, "syntax", what, "see https://toml.io for how TOML is written");
            return (config, reader.findings);
        }
    };
    let mut places = Places::default();
    reader.document(document.get_ref(), &mut config, &mut places);
    doubts::raise(&mut reader, &config, &places);
    (config, reader.findings)
}

impl<'a> Reader<'a> {
    fn document(&mut self, table: &DeTable<'a>, config: &mut Config, places: &mut Places) {
        self.only(table, &KEYS);
        if let Some(node) = Self::get(table, "storage") {
            places.storage = Some(node.span());
            config.storage = self.storage(node);
        }
        if let Some(node) = Self::get(table, "on_failure") {
            let choices = [
                ("open", OnFailure::Open),
                ("closed", OnFailure::Closed),
                ("local", OnFailure::Local),
            ];
            places.on_failure = Some(node.span());
            config.on_failure = self.choice(node, &choices).unwrap_or_default();
        }
        if let Some(node) = Self::get(table, "lease") {
            places.lease = Some(node.span());
            config.lease = self.time(node);
        }
        if let Some(node) = Self::get(table, "max_wait") {
            places.max_wait = Some(node.span());
            config.max_wait = self.time(node);
        }
        for (key, to) in [
            ("learn_first", &mut config.learn_first),
            ("adaptive", &mut config.adaptive),
            ("also_parents", &mut config.also_parents),
        ] {
            if let Some(value) = Self::get(table, key).and_then(|node| self.boolean(node)) {
                *to = value;
            }
        }
        if let Some(node) = Self::get(table, "default_limits") {
            config.default_limits = self.limits(node).into_iter().map(|(limit, _)| limit).collect();
        }
        if let Some(node) = Self::get(table, "headers_map") {
            let example = "{ remaining = \"X-Calls-Left\" }";
            if let Some(table) = self.table(node, example) {
                self.only(table, &HEADERS);
                config.headers_map = self.headers(table);
            }
        }
        if let Some(node) = Self::get(table, "retry") {
            config.retry = self.table(node, "[retry]").map(|table| self.retry(table));
        }
        for (node, table) in self.each(table, "scope") {
            if let Some((scope, place)) = self.scope(node, table) {
                config.scopes.push(scope);
                places.scopes.push(place);
            }
        }
        for (node, table) in self.each(table, "provider") {
            config.providers.extend(self.provider(node, table));
        }
        for (node, table) in self.each(table, "rule") {
            if let Some(rule) = self.rule(node, table) {
                config.rules.push(rule);
                places.rules.push(node.span());
            }
        }
        for (node, table) in self.each(table, "budget") {
            if let Some(budget) = self.budget(node, table) {
                config.budgets.push(budget);
                places.budgets.push(node.span());
            }
        }
    }

    /// The tables of a list such as `[[scope]]`.
    fn each<'t>(
        &mut self,
        table: &'t DeTable<'a>,
        key: &str,
    ) -> Vec<(&'t Node<'a>, &'t DeTable<'a>)> {
        let Some(node) = Self::get(table, key) else { return Vec::new() };
        let example = format!("[[{key}]]");
        let nodes = self.list(node, &example).iter();
        nodes.filter_map(|node| Some((node, self.table(node, &example)?))).collect()
    }

    fn storage(&mut self, node: &Node<'a>) -> Option<String> {
        let text = self.string(node, "\"redis://localhost:6379/0\"")?;
        match text.parse::<Storage>() {
            Ok(_) => Some(text.to_owned()),
            Err(error) => {
                let said = error.to_string();
                let (what, expected) = said.split_once("; ").unwrap_or((&said, "see the docs"));
                self.wrong(node.span(), "bad-storage", what, expected);
                None
            }
        }
    }

    fn limits(&mut self, node: &Node<'a>) -> Vec<(Limit, Range<usize>)> {
        let nodes = self.list(node, LIMITS).iter();
        nodes.filter_map(|node| Some((self.limit(node)?, node.span()))).collect()
    }

    /// `"60/1m"` or `{ limit = "60/1m", burst = 5 }`.
    fn limit(&mut self, node: &Node<'a>) -> Option<Limit> {
        const LONG: &str = "\"60/1m\" or { limit = \"60/1m\", burst = 5 }";
        let Some(table) = node.get_ref().as_table() else { return self.plain_limit(node, LONG) };
        self.only(table, &["limit", "burst", "strict"]);
        let Some(plain) = Self::get(table, "limit") else {
            self.missing(node.span(), "limit", "\"60/1m\"");
            return None;
        };
        let limit = self.plain_limit(plain, "\"60/1m\"")?;
        let burst = Self::get(table, "burst");
        let units = burst.and_then(|node| self.whole(node, 1..=Limit::MOST));
        let strict = Self::get(table, "strict").and_then(|node| self.boolean(node));
        match (units, strict) {
            (Some(_), Some(true)) => {
                let span = burst.map_or_else(|| node.span(), Node::span);
                let help = "take one of them out: a strict limit is its own burst";
                self.wrong(span, "strict-burst", "strict and burst exclude each other", help);
                None
            }
            (Some(units), _) => limit.with_burst(units).ok(),
            (None, Some(true)) => limit.strict().ok(),
            (None, _) => Some(limit),
        }
    }

    fn plain_limit(&mut self, node: &Node<'a>, example: &str) -> Option<Limit> {
        let text = self.string(node, example)?;
        match Limit::parse(text) {
            Ok(limit) => Some(limit),
            Err(error) => {
                let kind = match error {
                    paceline_core::Error::Window(_) => "bad-window",
                    paceline_core::Error::Dimension(_) => "bad-dimension",
                    _ => "bad-limit",
                };
                self.refuse(node, kind, &error);
                None
            }
        }
    }

    /// Says what the engine says of a value: what it is, and what was expected.
    fn refuse(&mut self, node: &Node<'a>, kind: &'static str, error: &paceline_core::Error) {
        let said = error.to_string();
        let at = said.find("expected").unwrap_or(said.len());
        let (what, expected) = said.split_at(at);
        let expected = if expected.is_empty() { "see the docs" } else { expected };
        self.wrong(node.span(), kind, what.trim_end_matches([':', ';', ' ']), expected);
    }

    #[allow(clippy::type_complexity)] // The scope, and where its parts stand.
    fn scope(
        &mut self,
        node: &Node<'a>,
        table: &DeTable<'a>,
    ) -> Option<((String, Vec<Limit>), (Range<usize>, Vec<Range<usize>>))> {
        self.only(table, &["endpoint", "limits"]);
        let limits = Self::get(table, "limits").map(|node| self.limits(node));
        if limits.is_none() {
            self.missing(node.span(), "limits", LIMITS);
        }
        let Some(place) = Self::get(table, "endpoint") else {
            self.missing(node.span(), "endpoint", "\"api.example.com\"");
            return None;
        };
        let endpoint = self.string(place, "\"api.example.com\"")?;
        if let Err(error) = Scope::parse(endpoint) {
            self.refuse(place, "bad-endpoint", &error);
            return None;
        }
        let (limits, spans) = limits?.into_iter().unzip();
        Some(((endpoint.to_owned(), limits), (place.span(), spans)))
    }

    fn retry(&mut self, table: &DeTable<'a>) -> RetryConfig {
        self.only(
            table,
            &[
                "max_retries",
                "strategy",
                "base_delay",
                "max_delay",
                "backoff_factor",
                "retry_on_status",
                "jitter",
                "replay",
                "budget",
            ],
        );
        let mut retry = RetryConfig::default();
        let get = |key| Self::get(table, key);
        if let Some(most) = get("max_retries").and_then(|node| self.whole(node, 0..=1_000)) {
            retry.max_retries = u32::try_from(most).unwrap_or(u32::MAX);
        }
        if let Some(strategy) = get("strategy").and_then(|node| self.choice(node, &Strategy::NAMES))
        {
            retry.strategy = strategy;
        }
        if let Some(replay) = get("replay").and_then(|node| self.choice(node, &Replay::NAMES)) {
            retry.replay = replay;
        }
        if let Some(delay) = get("base_delay").and_then(|node| self.time(node)) {
            retry.base_delay = delay;
        }
        if let Some(delay) = get("max_delay").and_then(|node| self.time(node)) {
            retry.max_delay = delay;
        }
        if let Some(factor) = get("backoff_factor").and_then(|node| self.number(node, 1.0..=100.0))
        {
            retry.backoff_factor = factor;
        }
        if let Some(jitter) = get("jitter").and_then(|node| self.number(node, 0.0..=1.0)) {
            retry.jitter = jitter;
        }
        if let Some(share) = get("budget").and_then(|node| self.number(node, 0.0..=1.0)) {
            // At most a thousand thousandths: nothing is cut off.
            retry.budget = (share * 1_000.0).round() as u16;
        }
        if let Some(node) = get("retry_on_status") {
            let statuses = self.list(node, "[429, 503, 504]").iter();
            let statuses = statuses.filter_map(|node| self.whole(node, 100..=599));
            retry.retry_on_status = statuses.filter_map(|it| u16::try_from(it).ok()).collect();
        }
        retry
    }

    fn provider(&mut self, node: &Node<'a>, table: &DeTable<'a>) -> Option<Provider> {
        let Some(place) = Self::get(table, "hosts") else {
            self.missing(node.span(), "hosts", "[\"api.example.com\"]");
            return None;
        };
        let nodes = self.list(place, "[\"api.example.com\"]").iter();
        let hosts: Vec<Box<str>> =
            nodes.filter_map(|node| self.host(node)).map(Into::into).collect();
        let mut quotas = Vec::new();
        for (name, node) in table.iter().filter(|(name, _)| name.get_ref() != "hosts") {
            match Dimension::new(name.get_ref()) {
                Ok(dimension) => quotas.extend(self.quota(dimension, node)),
                Err(error) => {
                    let what = error.to_string();
                    self.wrong(name.span(), "bad-dimension", what, "name what it meters");
                }
            }
        }
        if quotas.is_empty() && table.len() == 1 {
            let help = "add requests = { limit = \"X-Limit\", remaining = \"X-Left\" }";
            self.wrong(node.span(), "missing-key", "it is not said what it states", help);
        }
        Some(Provider { hosts, quotas })
    }

    /// A host, not a URL.
    fn host<'t>(&mut self, node: &'t Node<'a>) -> Option<&'t str> {
        let host = self.string(node, "\"api.example.com\"")?;
        if host.is_empty() || host.contains(['/', '?', '#', ' ']) {
            let what = format!("{host:?} is no host");
            let help = "write the name alone, such as \"api.example.com\" or \"*.example.com\"";
            self.wrong(node.span(), "bad-host", what, help);
            return None;
        }
        Some(host)
    }

    fn quota(&mut self, dimension: Dimension, node: &Node<'a>) -> Option<Quota> {
        let example = "{ limit = \"X-Limit\", remaining = \"X-Left\" }";
        let table = self.table(node, example)?;
        self.only(table, &["limit", "remaining", "reset", "retry_after", "window", "counting"]);
        let headers = self.headers(table);
        if headers == HeadersMap::default() {
            let help = format!("say in which, such as {example}");
            self.wrong(node.span(), "no-header", "it is stated in no header", help);
        }
        let countings = [("window", Counting::Fixed), ("bucket", Counting::Bucket)];
        let counting = Self::get(table, "counting").and_then(|it| self.choice(it, &countings));
        let window = Self::get(table, "window").and_then(|node| self.time(node));
        Some(Quota {
            dimension,
            headers,
            counting: counting.unwrap_or_default(),
            window: window.and_then(Window::from_duration),
            ..Quota::default()
        })
    }

    fn headers(&mut self, table: &DeTable<'a>) -> HeadersMap {
        let [limit, remaining, reset, retry_after] = HEADERS.map(|key| {
            let node = Self::get(table, key)?;
            let name = self.string(node, "\"X-RateLimit-Limit\"")?;
            match name.parse() {
                Ok(name) => Some(name),
                Err(error) => {
                    self.refuse(node, "bad-header", &error);
                    None
                }
            }
        });
        HeadersMap { limit, remaining, reset, retry_after }
    }

    /// The model and the provider that a rule or a budget is for.
    fn covered(
        &mut self,
        node: &Node<'a>,
        table: &DeTable<'a>,
    ) -> Option<(String, Option<String>)> {
        let Some(place) = Self::get(table, "model") else {
            self.missing(node.span(), "model", "\"gpt-4o\"");
            return None;
        };
        let model = self.string(place, "\"gpt-4o\"")?.to_owned();
        if model.is_empty() {
            let help = "name a model, \"openai:*\" for all of a provider, or \"*\" for all";
            self.wrong(place.span(), "bad-model", "the model has no name", help);
            return None;
        }
        let provider = Self::get(table, "provider");
        let provider = provider.and_then(|node| self.string(node, "\"openai\""));
        Some((model, provider.map(str::to_owned)))
    }

    fn rule(
        &mut self,
        node: &Node<'a>,
        table: &DeTable<'a>,
    ) -> Option<(String, Option<String>, Rule)> {
        const KEYS: [&str; 7] = [
            "model",
            "provider",
            "requests_per_minute",
            "tokens_per_minute",
            "input_tokens_per_minute",
            "output_tokens_per_minute",
            "burst",
        ];
        self.only(table, &KEYS);
        let [requests, tokens, input_tokens, output_tokens, burst] =
            [KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]].map(|key| {
                Self::get(table, key).and_then(|node| self.whole(node, 1..=Limit::MOST))
            });
        let rule = Rule { requests, tokens, input_tokens, output_tokens, burst };
        let (model, provider) = self.covered(node, table)?;
        Some((model, provider, rule))
    }

    fn budget(
        &mut self,
        node: &Node<'a>,
        table: &DeTable<'a>,
    ) -> Option<(String, Option<String>, u64, Window)> {
        self.only(table, &["model", "provider", "usd", "per"]);
        let usd = Self::get(table, "usd");
        if usd.is_none() {
            self.missing(node.span(), "usd", "10");
        }
        let usd = usd.and_then(|node| self.whole(node, 1..=Limit::MOST));
        let per = Self::get(table, "per").map(|node| self.time(node));
        let day = Window::parse("1d").ok();
        let per = per.map_or(day, |per| per.and_then(Window::from_duration));
        let (model, provider) = self.covered(node, table)?;
        Some((model, provider, usd?, per?))
    }
}

const HEADERS: [&str; 4] = ["limit", "remaining", "reset", "retry_after"];
