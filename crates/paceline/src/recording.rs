//! Answers that are written down as they pass by, and kept when all of them came.

use paceline_core::llm::Stream;
use paceline_store::Answer;
use serde::de::IgnoredAny;
use serde_bytes::ByteBuf;

/// How an event begins that tells of a failure.
const FAILURES: [&str; 4] =
    ["event: error", "data: {\"error\"", "event: response.failed", "event:error"];
/// A longer answer is none of a model.
const LONGEST: usize = 8 << 20;

/// Writes an answer down as it passes by, and tells at its end whether it is whole.
#[derive(Debug)]
pub struct Recording {
    answer: Answer,
    kind: Kind,
    is_lost: bool,
}

#[derive(Debug)]
enum Kind {
    /// Events, the last of which says that it is.
    Events(Box<Stream>),
    /// One document, which reads as one when all of it is there.
    Document,
    /// Sound and whatever else, which says how long it is.
    Long(usize),
}

impl Recording {
    /// Begins with the head of an answer; `None` for one that is not to be kept, whatever follows.
    #[must_use]
    pub fn begin(head: Answer) -> Option<Self> {
        if head.status != 200 {
            return None;
        }
        let header = |wanted: &[u8]| {
            let mut headers = head.headers.iter();
            let (_, value) = headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
            Some(String::from_utf8_lossy(value).to_ascii_lowercase())
        };
        let kind = header(b"content-type").unwrap_or_default();
        let is = |names: &[&str]| names.iter().any(|name| kind.contains(name));
        let kind = if is(&["event-stream", "ndjson", "jsonl", "json-seq"]) {
            Kind::Events(Box::default())
        } else if is(&["json"]) {
            Kind::Document
        } else {
            let is_plain = header(b"content-encoding").is_none_or(|it| it == "identity");
            Kind::Long(header(b"content-length").filter(|_| is_plain)?.parse().ok()?)
        };
        Some(Self { answer: head, kind, is_lost: false })
    }

    /// The next part of the body, decoded.
    pub fn push(&mut self, part: &[u8]) {
        let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
        if self.is_lost || self.answer.body.len() + part.len() > LONGEST {
            (self.is_lost, self.answer.body) = (true, ByteBuf::new());
            return;
        }
        self.answer.body.extend_from_slice(part);
        self.answer.parts.push(length);
        if let Kind::Events(stream) = &mut self.kind {
            stream.push(part);
        }
    }

    /// There is no more of it: the answer, if all of it came.
    #[must_use]
    pub fn end(self) -> Option<Answer> {
        let body = &self.answer.body;
        let is_whole = match &self.kind {
            Kind::Events(stream) => stream.is_complete() && !tells_of_failure(body),
            Kind::Document => serde_json::from_slice::<IgnoredAny>(body).is_ok(),
            Kind::Long(length) => body.len() == *length,
        };
        (is_whole && !self.is_lost).then_some(self.answer)
    }
}

/// A line break within an event's text is written as two letters, so this is no text of a model.
fn tells_of_failure(events: &[u8]) -> bool {
    let mut lines = events.split(|byte| *byte == b'\n');
    lines.any(|line| FAILURES.iter().any(|begins| line.starts_with(begins.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(status: u16, headers: &[(&str, &str)], parts: &[&str]) -> Option<Answer> {
        let headers =
            headers.iter().map(|(name, value)| (ByteBuf::from(*name), ByteBuf::from(*value)));
        let head = Answer { status, headers: headers.collect(), ..Answer::default() };
        let mut recording = Recording::begin(head)?;
        parts.iter().for_each(|part| recording.push(part.as_bytes()));
        recording.end()
    }

    #[test]
    fn an_answer_is_kept_when_all_of_it_came() {
        let json = [("Content-Type", "application/json; charset=utf-8")];
        let answer = whole(200, &json, &["{\"a\"", ": 1}"]).unwrap();
        assert_eq!((answer.parts, answer.body.into_vec()), (vec![4, 4], b"{\"a\": 1}".to_vec()));
        assert!(whole(200, &json, &["{\"a\""]).is_none());
        for status in [201, 202, 204, 302, 400, 404, 429, 500, 529] {
            assert!(whole(status, &json, &["{}"]).is_none(), "{status}");
        }
        let sound = [("content-type", "audio/mpeg"), ("content-length", "3")];
        assert!(whole(200, &sound, &["abc"]).is_some());
        assert!(whole(200, &sound, &["ab"]).is_none());
        assert!(whole(200, &sound[..1], &["abc"]).is_none());
        let long = "x".repeat(LONGEST / 2);
        assert!(whole(200, &json, &["\"", &long, "\""]).is_some());
        assert!(whole(200, &json, &["\"", &long, &long, "\""]).is_none());
    }

    #[test]
    fn a_stream_is_kept_when_its_end_was_seen() {
        let events = [("content-type", "text/event-stream")];
        let is_kept = |parts: &[&str]| whole(200, &events, parts).is_some();
        assert!(is_kept(&["data: {\"id\": 1}\n\nda", "ta: [DONE]\n\n"]));
        assert!(!is_kept(&["data: {\"id\": 1}\n\n", "data: {\"id\""]));
        assert!(!is_kept(&[]));
        assert!(!is_kept(&["data: {\"error\": {}}\n\n", "data: [DONE]\n\n"]));
        assert!(!is_kept(&["event: error\ndata: {}\n\n", "data: [DONE]\n\n"]));
        assert!(is_kept(&["event: message_stop\ndata: {\"type\": \"message_stop\"}\n\n"]));
        assert!(!is_kept(&["event: message_start\ndata: {\"type\": \"message_start\"}\n\n"]));
        let completed = "data: {\"type\": \"response.completed\", \"response\": {}}\n\n";
        assert!(is_kept(&["event: response.completed\n", completed]));
        let lines = [("content-type", "application/x-ndjson")];
        assert!(whole(200, &lines, &["{\"done\": false}\n", "{\"done\": true}\n"]).is_some());
        assert!(whole(200, &lines, &["{\"done\": false}\n"]).is_none());
    }
}
