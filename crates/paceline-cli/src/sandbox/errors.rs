//! Errors in the shape that each provider gives them.

use super::headers::Family;
use super::llm::Endpoint;
use super::plan::NamedLimit;
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use paceline_core::provider::{Refusal, Standing};
use serde_json::{Value, json};

/// Whose error body to imitate.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    OpenAi,
    Anthropic,
    GitHub,
    Plain,
}

impl Shape {
    /// LLM endpoints have a provider of their own; elsewhere the header family tells whom we play.
    pub(super) fn of(endpoint: Option<Endpoint>, family: Family) -> Self {
        match (endpoint, family) {
            (Some(Endpoint::Messages), _) | (None, Family::Anthropic) => Self::Anthropic,
            (Some(_), _) | (None, Family::Openai) => Self::OpenAi,
            (None, Family::Github) => Self::GitHub,
            (None, Family::Ietf | Family::Legacy | Family::None) => Self::Plain,
        }
    }

    /// An error; `kind` and `code` are OpenAI's, the others derive theirs from the status.
    fn error(self, status: StatusCode, kind: &str, code: Option<&str>, message: &str) -> Value {
        match self {
            Self::OpenAi => json!({
                "error": {"message": message, "type": kind, "param": null, "code": code}
            }),
            Self::Anthropic => {
                let kind = match status {
                    StatusCode::BAD_REQUEST => "invalid_request_error",
                    StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
                    StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
                    _ => "api_error",
                };
                json!({"type": "error", "error": {"type": kind, "message": message}})
            }
            Self::GitHub => json!({
                "message": message, "status": status.as_str(),
                "documentation_url": "https://docs.github.com/rest",
            }),
            Self::Plain => json!({"error": message}),
        }
    }

    /// The request itself is wrong; it was not counted.
    pub(super) fn invalid(self, status: StatusCode, message: &str) -> Response<Body> {
        json_response(status, &self.error(status, "invalid_request_error", None, message))
    }

    /// A failure on the server's side.
    pub(super) fn fault(self, status: StatusCode) -> Response<Body> {
        let message = "The sandbox failed on purpose (--error-rate).";
        json_response(status, &self.error(status, "server_error", None, message))
    }

    /// The request is over `limit`.
    pub(super) fn limited(
        self,
        refusal: Refusal,
        limit: &NamedLimit,
        standing: Standing,
        requested: u64,
    ) -> Response<Body> {
        let dimension = limit.spec.dimension.as_str();
        let kind = if dimension == "requests" { "requests" } else { "tokens" };
        let units = limit.spec.limit.units();
        let told = match self {
            Self::GitHub => "API rate limit exceeded",
            _ => "Rate limit reached",
        };
        let advice = match refusal.wait {
            Some(wait) => format!("Try again in {:.3}s.", wait.as_secs_f64()),
            None => "A single request this large is never admitted.".to_owned(),
        };
        let message = format!(
            "{told} on {dimension} per {}: limit {units}, remaining {}, requested {requested}. {advice}",
            limit.spec.window_text(),
            standing.remaining,
        );
        let status = StatusCode::TOO_MANY_REQUESTS;
        json_response(status, &self.error(status, kind, Some("rate_limit_exceeded"), &message))
    }
}

pub(super) fn json_response(status: StatusCode, value: &impl serde::Serialize) -> Response<Body> {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
