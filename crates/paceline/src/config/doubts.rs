//! What can be done, and is probably not meant.

use super::Config;
use super::finding::nearly;
use super::reader::Reader;
use super::sections::Places;
use crate::OnFailure;
use paceline_core::llm::{Price, Rules, provider_names};
use paceline_core::{Limit, Scope};
use std::ops::Range;

const DIMENSIONS: [&str; 5] = ["requests", "tokens", "input_tokens", "output_tokens", "usd"];

pub(super) fn raise(reader: &mut Reader<'_>, config: &Config, places: &Places) {
    storage(reader, config, places);
    for (i, scope) in config.scopes.iter().enumerate() {
        let (at, spans) = &places.scopes[i];
        endpoint(reader, &config.scopes[..i], scope, at);
        of_one(reader, &scope.1, spans, config);
    }
    widths(reader, config, places);
    models(reader, config, places);
}

fn storage(reader: &mut Reader<'_>, config: &Config, places: &Places) {
    let storage = config.storage.as_deref().unwrap_or("memory");
    let is_redis = storage.starts_with("redis") || storage.starts_with("unix:");
    if let (Some(at), false) = (&places.lease, is_redis) {
        let what = "a lease takes parts of a limit in Redis, and the storage is none";
        reader.wrong(
            at.clone(),
            "lease-without-redis",
            what,
            "take it out, or name a redis:// storage",
        );
    }
    if let Some(at) = &places.on_failure
        && storage == "memory"
        && config.on_failure != OnFailure::Open
    {
        let what = "on_failure says what to do without the storage, and memory is always there";
        reader.doubtful(at.clone(), "nothing-fails", what, "name a storage, or take it out");
    }
    let login = storage.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    if let (Some(at), Some((login, _))) = (&places.storage, login)
        && login.contains(':')
    {
        let help = "leave it out here, and set PACELINE_STORAGE where it runs";
        reader.doubtful(at.clone(), "password-in-file", "a password stands in this file", help);
    }
}

fn endpoint(
    reader: &mut Reader<'_>,
    before: &[(String, Vec<Limit>)],
    (endpoint, limits): &(String, Vec<Limit>),
    at: &Range<usize>,
) {
    let Ok(scope) = Scope::parse(endpoint) else { return };
    let is_same = |(other, _): &(String, _)| {
        Scope::parse(other).is_ok_and(|other| other.key() == scope.key())
    };
    if before.iter().any(is_same) {
        let help = "put its limits together, in one [[scope]]";
        reader.wrong(at.clone(), "same-endpoint", format!("{scope} is there already"), help);
    }
    if endpoint.contains(['?', '#']) {
        let help = format!("write {:?}", scope.to_string());
        reader.doubtful(
            at.clone(),
            "query-ignored",
            "what follows ? or # is no part of a scope",
            help,
        );
    }
    if endpoint.split_once("://").is_some_and(|(_, rest)| rest.contains('@')) {
        let help = format!("write {:?}; credentials go with requests", scope.to_string());
        reader.doubtful(at.clone(), "login-ignored", "a login is no part of a scope", help);
    }
    if let Some(rest) = scope.to_string().strip_prefix("http://")
        && !["127.", "localhost", "[::1]"].iter().any(|home| rest.starts_with(home))
    {
        let help = format!("write \"https://{rest}\", unless it is really spoken without TLS");
        reader.doubtful(
            at.clone(),
            "plain-http",
            "http:// and https:// are different scopes",
            help,
        );
    }
    if limits.is_empty() {
        let help = "give it limits, or take it out";
        reader.doubtful(at.clone(), "no-limits", format!("{scope} has no limits"), help);
    }
}

/// The limits of one scope, beside each other.
fn of_one(reader: &mut Reader<'_>, limits: &[Limit], spans: &[Range<usize>], config: &Config) {
    for (i, (limit, at)) in limits.iter().zip(spans).enumerate() {
        if limits[..i].iter().any(|it| limit.replaces(it)) {
            let what = format!("{} per {} is limited already", limit.dimension, limit.window);
            reader.wrong(at.clone(), "same-limit", what, "keep one, or give it another window");
        }
        if let Some(help) = nearly(limit.dimension.as_str(), &DIMENSIONS) {
            let what = format!("nothing spends {:?} by itself", limit.dimension.as_str());
            reader.doubtful(at.clone(), "odd-dimension", what, help);
        }
        if limit.burst > limit.units {
            let what = format!("a burst of {} is more than {limit} allows", limit.burst);
            let help = format!("a burst of at most {}, or a longer window", limit.units);
            reader.doubtful(at.clone(), "long-burst", what, help);
        }
        if limits
            .iter()
            .any(|it| it != limit && it.dimension == limit.dimension && is_within(it, limit))
        {
            let what = format!("{limit} never binds: another limit is always tighter");
            reader.doubtful(at.clone(), "never-binds", what, "take it out, or make it tighter");
        }
        let unit =
            limit.window.duration().checked_div(u32::try_from(limit.units).unwrap_or(u32::MAX));
        if let (Some(most), Some(unit)) = (config.max_wait, unit)
            && unit > most
        {
            let what =
                format!("{limit} brings a unit back in {unit:.0?}, and max_wait is {most:.0?}");
            let help = "raise max_wait: once it is used up, calls are refused rather than paced";
            reader.doubtful(at.clone(), "short-patience", what, help);
        }
    }
}

/// Whether what `tight` lets pass always fits into `wide`.
fn is_within(tight: &Limit, wide: &Limit) -> bool {
    let refilled = u128::from(tight.units) * u128::from(wide.window.as_nanos())
        / u128::from(tight.window.as_nanos());
    let most = if tight.strict { refilled } else { refilled + u128::from(tight.burst) };
    tight.window <= wide.window && most <= u128::from(wide.units)
}

/// Narrower scopes that allow more than those around them.
fn widths(reader: &mut Reader<'_>, config: &Config, places: &Places) {
    for (i, (endpoint, limits)) in config.scopes.iter().enumerate() {
        let Ok(scope) = Scope::parse(endpoint) else { continue };
        let around = config.scopes.iter().filter(|(other, _)| {
            Scope::parse(other).is_ok_and(|other| {
                other.key() != scope.key()
                    && scope.key().strip_prefix(other.key()).is_some_and(|it| it.starts_with('/'))
            })
        });
        for wider in around.flat_map(|(_, limits)| limits) {
            let more = |it: &Limit| {
                it.dimension == wider.dimension
                    && u128::from(it.units) * u128::from(wider.window.as_nanos())
                        > u128::from(wider.units) * u128::from(it.window.as_nanos())
            };
            if let Some(at) = limits.iter().position(more) {
                let what = format!("{} is more than {wider} of the scope around it", limits[at]);
                let help = "calls here do not count there; set also_parents = true, or lower it";
                reader.doubtful(places.scopes[i].1[at].clone(), "more-than-around", what, help);
                break;
            }
        }
    }
}

fn models(reader: &mut Reader<'_>, config: &Config, places: &Places) {
    let names = provider_names();
    let all: Vec<String> = config
        .rules
        .iter()
        .map(|(model, provider, _)| Rules::covered(model, provider.as_deref()))
        .collect();
    let unknown = |reader: &mut Reader<'_>, covers: &str, at: &Range<usize>| {
        if let Some(help) = covers.split_once(':').and_then(|(it, _)| nearly(it, &names)) {
            let what = format!("no provider of {covers:?} is known");
            reader.doubtful(at.clone(), "unknown-provider", what, help);
        }
        if let Some((provider, model)) = covers.split_once('/')
            && names.contains(&provider)
        {
            let what = format!("{covers:?} is one name here, not a provider's model");
            let help = format!("write \"{provider}:{model}\"");
            reader.doubtful(at.clone(), "slash-in-model", what, help);
        }
    };
    for (i, (_, _, rule)) in config.rules.iter().enumerate() {
        let (covers, at) = (&all[i], &places.rules[i]);
        unknown(reader, covers, at);
        if all[..i].contains(covers) {
            let help = "put them together: the last one is all that counts";
            reader.wrong(
                at.clone(),
                "same-rule",
                format!("a rule for {covers} is there already"),
                help,
            );
        }
        let metered = [rule.requests, rule.tokens, rule.input_tokens, rule.output_tokens];
        if metered.iter().all(Option::is_none) {
            let what = format!("{covers} is unlimited by that");
            let help = "give it requests_per_minute or tokens_per_minute, if that is not meant";
            reader.doubtful(at.clone(), "unlimited", what, help);
        }
        if rule.burst.is_some() && rule.requests.is_none() {
            let help = "add requests_per_minute, or take burst out";
            reader.doubtful(at.clone(), "burst-of-nothing", "burst is that of requests", help);
        }
    }
    for (i, (model, provider, ..)) in config.budgets.iter().enumerate() {
        let (covers, at) = (Rules::covered(model, provider.as_deref()), &places.budgets[i]);
        unknown(reader, &covers, at);
        let (provider, model) = covers.split_once(':').unwrap_or(("openai", &covers));
        let is_known = |it: &&str| Price::published(it, model).is_some();
        if !covers.contains('*')
            && Price::published(provider, model).is_none()
            && !names.iter().any(is_known)
        {
            let what =
                format!("no price of {model} is known, so its calls are refused under a budget");
            reader.doubtful(at.clone(), "no-price", what, "set one with set_price");
        }
    }
}
