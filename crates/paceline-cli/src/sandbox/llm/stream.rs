//! Server-sent events.

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use futures_util::stream;
use serde_json::Value;
use std::convert::Infallible;

/// Events that carry data only, and OpenAI's end mark.
pub(super) fn unnamed(events: &[Value]) -> Response<Body> {
    let events = events.iter().map(|event| format!("data: {event}\n\n"));
    respond(events.chain(["data: [DONE]\n\n".to_owned()]).collect())
}

/// Events named after their `type`.
pub(super) fn named(events: &[Value]) -> Response<Body> {
    let event = |event: &Value| {
        let name = event["type"].as_str().unwrap_or_default();
        format!("event: {name}\ndata: {event}\n\n")
    };
    respond(events.iter().map(event).collect())
}

fn respond(events: Vec<String>) -> Response<Body> {
    let events = stream::iter(events.into_iter().map(Ok::<_, Infallible>));
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::super::super::{Config, plan::Plan};
    use super::super::{Ask, Endpoint};

    #[tokio::test]
    async fn responses_and_messages_stream_the_events_their_sdks_know() {
        for (endpoint, first, last) in [
            (Endpoint::Responses, "response.created", "response.completed"),
            (Endpoint::Messages, "message_start", "message_stop"),
        ] {
            let ask = Ask::read(endpoint, br#"{"stream": true, "max_tokens": 9}"#).expect("valid");
            let answered = ask.answer(1, &Plan::new(&Config::default()).expect("a plan"));
            let body = axum::body::to_bytes(answered.response.into_body(), 1 << 20).await;
            let text = String::from_utf8(body.expect("events").to_vec()).expect("text");
            let names = text.lines().filter_map(|line| line.strip_prefix("event: "));
            let names: Vec<_> = names.collect();
            assert_eq!((names.first(), names.last()), (Some(&first), Some(&last)));
            assert!(names.iter().any(|name| name.ends_with("delta")));
        }
    }
}
