//! What only bodies say. Each is read where a profile asks for it, and never by chance: it is
//! JSON or a code in XML, of a size that an error has, or nothing is learned.

use super::value::{self, Unit, seconds};
use super::vendor::is_throttling;
use super::{Counting, Headers, Reading, Signal};
use crate::{Dimension, Window};
use serde_json::Value;
use std::time::Duration;

/// No error is longer.
const LONGEST: usize = 256 * 1024;

fn json(body: &[u8]) -> Option<Value> {
    if body.len() > LONGEST {
        return None;
    }
    let parsed: Value = serde_json::from_slice(body).ok()?;
    // Some wrap their one error in a list.
    Some(match parsed {
        Value::Array(mut all) if !all.is_empty() => all.swap_remove(0),
        other => other,
    })
}

/// `insufficient_quota`: paid for no more, which waiting does not change (rule 25).
pub(super) fn openai(body: &[u8], _: &Headers<'_>, reading: &mut Reading) {
    const SPENT: [&str; 3] =
        ["insufficient_quota", "billing_hard_limit_reached", "billing_not_active"];
    let Some(json) = json(body) else { return };
    let error = &json["error"];
    reading.spent |= [&error["code"], &error["type"]]
        .into_iter()
        .filter_map(Value::as_str)
        .any(|code| SPENT.contains(&code));
}

/// The secondary limits: no header tells them from a missing permission. The documentation asks for
/// a minute at least.
pub(super) fn github(body: &[u8], headers: &Headers<'_>, reading: &mut Reading) {
    let Some(json) = json(body) else { return };
    let message = json["message"].as_str().unwrap_or_default();
    if message.contains("secondary rate limit") {
        reading.rejected = true;
        reading.reason = Some("secondary".into());
        let told = headers.get("retry-after").is_some();
        reading.retry_after = seconds(60).filter(|_| !told);
    }
}

/// `google.rpc.Status`: `RetryInfo` says how long, `QuotaFailure` which quota.
pub(super) fn google(body: &[u8], headers: &Headers<'_>, reading: &mut Reading) {
    let Some(json) = json(body) else { return };
    let Some(details) = json["error"]["details"].as_array() else { return };
    for detail in details.iter().take(16) {
        if let Some(delay) = detail["retryDelay"].as_str() {
            reading.retry_after = value::until(delay, headers.now, Unit::Told);
        }
        let violations = detail["violations"].as_array().map(Vec::as_slice).unwrap_or_default();
        for violation in violations.iter().take(16) {
            let Some(quota) = violation["quotaId"].as_str() else { continue };
            let spans = [("PerMinute", 60), ("PerDay", 86_400)];
            let span = spans.into_iter().find(|(word, _)| quota.contains(word));
            let dimension = match quota {
                _ if quota.contains("InputToken") => "input_tokens",
                _ if quota.contains("Token") => "tokens",
                _ => "requests",
            };
            let count = |text: &Value| text.as_str().and_then(value::count);
            reading.signals.push(Signal {
                dimension: Dimension::new(dimension).unwrap_or_default(),
                name: super::name::label(quota),
                limit: count(&violation["quotaValue"]).filter(|limit| *limit > 0),
                remaining: Some(0),
                window: span.and_then(|(_, secs)| Window::from_duration(seconds(secs)?)),
                ..Signal::default()
            });
            let model = violation["quotaDimensions"]["model"].as_str();
            reading.bucket = reading.bucket.take().or_else(|| super::name::label(model?));
        }
    }
}

/// `throttleStatus`: points of a bucket that refills by the second.
pub(super) fn shopify(body: &[u8], _: &Headers<'_>, reading: &mut Reading) {
    let Some(json) = json(body) else { return };
    let cost = &json["extensions"]["cost"];
    let number = |value: &Value| value::count(&value.to_string());
    let status = &cost["throttleStatus"];
    let rate = number(&status["restoreRate"]).filter(|rate| *rate > 0);
    let (Some(limit), Some(left), Some(rate)) =
        (number(&status["maximumAvailable"]), number(&status["currentlyAvailable"]), rate)
    else {
        return;
    };
    let refill = |units: u64| Duration::from_millis(units.saturating_mul(1_000) / rate);
    reading.signals.push(Signal {
        dimension: Dimension::new("points").unwrap_or_default(),
        limit: Some(limit).filter(|limit| *limit > 0),
        remaining: Some(left),
        reset: Some(refill(limit.saturating_sub(left))).filter(|reset| *reset <= value::LONGEST),
        window: Window::from_duration(refill(limit)),
        counting: Counting::Bucket,
        ..Signal::default()
    });
    let errors = json["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    if errors.iter().any(|error| error["extensions"]["code"] == "THROTTLED") {
        reading.rejected = true;
        let wanted = number(&cost["requestedQueryCost"]).unwrap_or(limit);
        let wait = refill(wanted.saturating_sub(left));
        reading.retry_after = Some(wait).filter(|wait| *wait <= value::LONGEST);
    }
}

/// `{"__type":"...#ThrottlingException"}`, `<Code>SlowDown</Code>`.
pub(super) fn aws(body: &[u8], _: &Headers<'_>, reading: &mut Reading) {
    let parsed = json(body);
    let code = parsed.as_ref().and_then(|json| json["__type"].as_str().or(json["code"].as_str()));
    let xml = || {
        let text = std::str::from_utf8(body.get(..body.len().min(LONGEST))?).ok()?;
        text.split_once("<Code>")?.1.split_once("</Code>").map(|(code, _)| code)
    };
    let code = code.or_else(xml).and_then(|code| code.rsplit('#').next());
    reading.rejected |= code.is_some_and(is_throttling);
}

/// `retCode` 10006: too many visits, 10018: by this address.
pub(super) fn bybit(body: &[u8], _: &Headers<'_>, reading: &mut Reading) {
    let Some(json) = json(body) else { return };
    reading.rejected |= matches!(json["retCode"].as_u64(), Some(10_006 | 10_018));
}

#[cfg(test)]
mod tests {
    use super::super::tests::said;
    use super::super::{Detector, Reading, Response, detect};
    use std::time::Duration;

    fn read(status: u16, url: &str, headers: &[(&str, &str)], body: &str) -> Reading {
        let (now, headers) = (Duration::from_secs(1_800_000_000), headers.iter().copied());
        let (url, body) = (Some(url), Some(body.as_bytes()));
        detect(&Detector::default(), Response { status, url, now, headers, body })
    }

    #[test]
    fn rule_25_a_spent_quota_is_told_by_the_body() {
        let url = "https://api.openai.com/v1/chat/completions";
        let body = |code| format!(r#"{{"error":{{"type":"x","code":"{code}"}}}}"#);
        assert!(read(429, url, &[], &body("insufficient_quota")).spent);
        assert!(!read(429, url, &[], &body("rate_limit_exceeded")).spent);
        assert!(!read(429, "https://api.example", &[], &body("insufficient_quota")).spent);
    }

    #[test]
    fn a_secondary_limit_of_github_waits_a_minute() {
        let url = "https://api.github.com/repos/o/r/issues";
        let body = r#"{"message":"You have exceeded a secondary rate limit. Please wait."}"#;
        let reading = read(403, url, &[], body);
        assert_eq!((reading.rejected, reading.retry_after), (true, Some(Duration::from_secs(60))));
        let told = read(403, url, &[("Retry-After", "7")], body);
        assert_eq!(told.retry_after, Some(Duration::from_secs(7)));
        assert!(!read(403, url, &[], r#"{"message":"Must have admin rights"}"#).rejected);
    }

    #[test]
    fn gemini_names_the_quota_and_the_wait() {
        let body = r#"{"error":{"code":429,"details":[
            {"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[
                {"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier",
                 "quotaDimensions":{"model":"gemini-2.5-pro"},"quotaValue":"250"}]},
            {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}"#;
        let url = "https://generativelanguage.googleapis.com/v1beta/models/x:generateContent";
        let reading = read(429, url, &[], body);
        let name = "GenerateRequestsPerDayPerProjectPerModel-FreeTier";
        assert_eq!(said(&reading), [format!("requests {name} 250 0 - 1d")]);
        assert_eq!(reading.retry_after, Some(Duration::from_millis(34_500)));
        assert_eq!(reading.bucket.as_deref(), Some("gemini-2.5-pro"));
    }

    #[test]
    fn shopify_refuses_a_query_with_status_200() {
        let body = r#"{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}],
            "extensions":{"cost":{"requestedQueryCost":752,"actualQueryCost":null,"throttleStatus":
            {"maximumAvailable":2000.0,"currentlyAvailable":312.0,"restoreRate":100.0}}}}"#;
        let url = "https://acme.myshopify.com/admin/api/2024-10/graphql.json";
        let reading = read(200, url, &[], body);
        assert_eq!(said(&reading), ["points - 2000 312 16.88s 20s"]);
        assert_eq!(reading.retry_after, Some(Duration::from_millis(4_400)));
    }

    #[test]
    fn codes_tell_throttling_from_other_errors() {
        let url = "https://dynamodb.eu-west-1.amazonaws.com/";
        let code = |code| format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}"}}"#);
        assert!(read(400, url, &[], &code("ThrottlingException")).rejected);
        assert!(!read(400, url, &[], &code("ValidationException")).rejected);
        let xml = "<Error><Code>SlowDown</Code><Message>x</Message></Error>";
        assert!(read(503, "https://s3.amazonaws.com/b", &[], xml).rejected);
        let bybit = "https://api.bybit.com/v5/order/create";
        assert!(read(200, bybit, &[], r#"{"retCode":10006}"#).rejected);
        assert!(!read(200, bybit, &[], r#"{"retCode":0}"#).rejected);
    }

    #[test]
    fn rule_8_a_hostile_body_teaches_nothing() {
        let deep = "[".repeat(100_000);
        for url in ["https://api.openai.com", "https://acme.myshopify.com/graphql.json"] {
            for body in [&*deep, "", "\0", "{\"error\":7}", "{\"extensions\":{\"cost\":[]}}"] {
                let reading = read(200, url, &[], body);
                assert!(reading.signals.is_empty() && !reading.rejected && !reading.spent);
            }
        }
    }
}
