//! A streamed answer, as it passes by.

use super::json::{Json, Malformed, Read};
use super::text::{self, Weight};
use super::usage::Report;
use super::{Calibration, Prompt, Usage};
use memchr::memchr2;

/// The longest event that is read. A longer one is passed over: what ends a stream is short.
const LONGEST: usize = 1 << 20;

/// Reads a streamed answer: server-sent events, or JSON that comes object by object (lines, or
/// the elements of an array).
///
/// ```
/// let mut stream = paceline_core::llm::Stream::new();
/// stream.push(b"data: {\"choices\": [{\"delta\": {\"content\": \"Hello\"}}]}\n\nda");
/// assert!(stream.output_seen() >= 1 && stream.usage().is_none());
/// stream.push(b"ta: {\"choices\": [], \"usage\": {\"prompt_tokens\": 9, \"completion_tokens\": 1}}\n\n");
/// stream.push(b"data: [DONE]\n\n");
/// assert_eq!(stream.usage().unwrap().input, 9);
/// assert!(stream.is_complete());
/// ```
#[derive(Debug, Default)]
pub struct Stream {
    framing: Framing,
    /// What came of an event that is not complete.
    held: Vec<u8>,
    answer: Answer,
}

/// How events are told apart.
#[derive(Debug, Default)]
enum Framing {
    #[default]
    Unknown,
    Events(Lines),
    Objects(Objects),
}

/// Server-sent events, line by line.
#[derive(Debug, Default)]
struct Lines {
    /// The line that comes is longer than is read.
    skips: bool,
    /// Bytes of `held` that are the data of the event so far; the rest is a line.
    data: usize,
    /// A line ended in a carriage return, which a line feed may complete.
    returned: bool,
}

/// Objects of JSON, one after the other.
#[derive(Debug, Default)]
struct Objects {
    depth: u32,
    quoted: bool,
    escaped: bool,
    skips: bool,
}

impl Stream {
    /// One that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads on. Chunks may be split anywhere.
    pub fn push(&mut self, mut bytes: &[u8]) {
        if matches!(self.framing, Framing::Unknown) {
            // White space, a byte order mark and the start of an array say nothing.
            let says = |byte: &u8| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | b'[' | 0x80..);
            let Some(first) = bytes.iter().position(says) else { return };
            bytes = &bytes[first..];
            self.framing = match bytes[0] {
                b'{' => Framing::Objects(Objects::default()),
                _ => Framing::Events(Lines::default()),
            };
        }
        match &mut self.framing {
            Framing::Unknown => {}
            Framing::Events(lines) => lines.push(bytes, &mut self.held, &mut self.answer),
            Framing::Objects(objects) => objects.push(bytes, &mut self.held, &mut self.answer),
        }
    }

    /// What was reported last, the parts of a report that came apart put together.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.answer.report.usage()
    }

    /// An upper estimate of the tokens of the answer so far, from its text, for streams that end
    /// without a report.
    #[must_use]
    pub fn output_seen(&self) -> u64 {
        let Answer { text, pieces, .. } = self.answer;
        let prompt = Prompt { text, ..Prompt::default() };
        // A piece is a token, or several.
        Calibration::default().input(&prompt).max(pieces)
    }

    /// Was the end marker seen?
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.answer.complete
    }
}

impl Lines {
    fn push(&mut self, mut bytes: &[u8], held: &mut Vec<u8>, answer: &mut Answer) {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.returned) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', bytes) else {
                self.hold(bytes, held);
                return;
            };
            self.returned = bytes[end] == b'\r';
            if held.len() == self.data && !self.skips {
                self.line(&bytes[..end], held, answer);
            } else {
                self.hold(&bytes[..end], held);
                let line = held.split_off(self.data);
                if !std::mem::take(&mut self.skips) {
                    self.line(&line, held, answer);
                }
            }
            bytes = &bytes[end + 1..];
        }
    }

    fn hold(&mut self, bytes: &[u8], held: &mut Vec<u8>) {
        self.skips |= held.len() + bytes.len() > LONGEST;
        if self.skips {
            held.truncate(self.data);
        } else {
            held.extend_from_slice(bytes);
        }
    }

    /// Reads a line: a field, or the end of the event.
    fn line(&mut self, line: &[u8], held: &mut Vec<u8>, answer: &mut Answer) {
        if line.is_empty() {
            answer.event(held);
            held.clear();
            self.data = 0;
        } else if let Some(data) = line.strip_prefix(b"data:") {
            let data = data.strip_prefix(b" ").unwrap_or(data);
            if self.data == 0 && data.trim_ascii() == b"[DONE]" {
                answer.complete = true;
            } else if held.len() + data.len() <= LONGEST {
                held.extend_from_slice(data);
                held.push(b'\n');
                self.data = held.len();
            }
        }
    }
}

impl Objects {
    fn push(&mut self, bytes: &[u8], held: &mut Vec<u8>, answer: &mut Answer) {
        let mut start = 0;
        for (at, byte) in bytes.iter().enumerate() {
            if std::mem::take(&mut self.escaped) {
                continue;
            }
            match byte {
                b'\\' if self.quoted => self.escaped = true,
                b'"' if self.depth > 0 => self.quoted = !self.quoted,
                _ if self.quoted => {}
                b'{' => {
                    if self.depth == 0 {
                        start = at;
                    }
                    self.depth = self.depth.saturating_add(1);
                }
                b'}' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.hold(&bytes[start..=at], held);
                        if !std::mem::take(&mut self.skips) {
                            answer.event(held);
                        }
                        held.clear();
                    }
                }
                _ => {}
            }
        }
        if self.depth > 0 {
            self.hold(&bytes[start..], held);
        }
    }

    fn hold(&mut self, bytes: &[u8], held: &mut Vec<u8>) {
        self.skips |= held.len() + bytes.len() > LONGEST;
        if self.skips {
            held.clear();
        } else {
            held.extend_from_slice(bytes);
        }
    }
}

/// What the events said.
#[derive(Debug, Default)]
struct Answer {
    report: Report,
    /// Pieces of the answer that held any text, and what they weigh.
    pieces: u64,
    text: Weight,
    complete: bool,
}

impl Answer {
    /// Reads one event. What is not understood says nothing.
    fn event(&mut self, data: &[u8]) {
        let mut json = Json::new(data);
        if json.peek() == Ok(b'{') {
            let _ = json.object(|json, key| self.field(json, key));
        }
    }

    fn field(&mut self, json: &mut Json<'_>, key: &[u8]) -> Read<()> {
        match (key, json.peek()?) {
            (b"type", b'"') => {
                self.complete |= matches!(
                    json.string()?,
                    b"message_stop"
                        | b"response.completed"
                        | b"response.incomplete"
                        | b"response.failed"
                        | b"message-end"
                        | b"stream-end"
                );
            }
            (b"done" | b"is_finished", b't') => {
                self.complete |= json.scalar()? == b"true";
            }
            // A piece of the answer, and Cohere's last event has the usage in the same place.
            (b"delta", b'{') => json.object(|json, key| self.piece(json, key))?,
            (b"choices" | b"candidates", b'[') => json.array(|json| match json.peek()? {
                b'{' => json.object(|json, key| match key {
                    b"finishReason" if json.peek()? == b'"' => {
                        self.complete = true;
                        json.skip()
                    }
                    b"delta" | b"text" | b"content" | b"message" => self.text(json, key),
                    _ if self.report.field(json, key)? => Ok(()),
                    _ => json.skip(),
                }),
                _ => Err(Malformed),
            })?,
            // OpenAI's responses, Ollama's completions, and Anthropic's first piece of a block.
            (b"delta" | b"response", b'"') | (b"content_block", b'{') => {
                return self.text(json, key);
            }
            // Ollama's answer, or the frame in which Anthropic's begins.
            (b"message", b'{') => json.object(|json, key| self.piece(json, key))?,
            _ if self.report.field(json, key)? => {}
            _ => return json.skip(),
        }
        Ok(())
    }

    /// Reads a field of a piece: its text, or what is reported.
    fn piece(&mut self, json: &mut Json<'_>, key: &[u8]) -> Read<()> {
        if key == b"usage" && self.report.field(json, key)? {
            return Ok(());
        }
        self.text(json, key)
    }

    /// Weighs the text of a piece.
    fn text(&mut self, json: &mut Json<'_>, key: &[u8]) -> Read<()> {
        match (key, json.peek()?) {
            (
                b"role" | b"id" | b"type" | b"index" | b"finish_reason" | b"finishReason"
                | b"stop_reason" | b"stop_sequence" | b"model" | b"logprobs" | b"signature"
                | b"thoughtSignature" | b"encrypted_content" | b"citations" | b"annotations",
                _,
            ) => json.skip(),
            (_, b'"') => {
                let weight = text::weigh(json)?;
                self.pieces = self.pieces.saturating_add(u64::from(weight != Weight::default()));
                self.text.add(weight);
                Ok(())
            }
            (_, b'{') => json.object(|json, key| self.text(json, key)),
            (_, b'[') => json.array(|json| self.text(json, key)),
            _ => json.skip(),
        }
    }
}
