#![allow(missing_docs)]
use std::borrow::Cow;
#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub model: Option<Cow<'a, str>>,
    pub stream: bool,
    pub prompt: Prompt,
    pub output: Option<u64>,
}
#[derive(Debug, Clone, Copy)]
pub struct Prompt(u64);
impl<'a> Request<'a> {
    #[must_use]
    pub fn read(body: &'a [u8]) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_slice(body).ok()?;
        let t = crate::estimate::tokens(&value);
        let model = value.get("model").and_then(|m| m.as_str()).map(|m| Cow::Owned(m.to_owned()));
        value.as_object()?;
        Some(Self {
            model,
            stream: value.get("stream").and_then(serde_json::Value::as_bool).unwrap_or(false),
            prompt: Prompt(t.map_or(0, |t| t.input)),
            output: Some(t.map_or(0, |t| t.output)),
        })
    }
}
#[derive(Debug, Clone, Default)]
pub struct Calibration;
impl Calibration {
    #[must_use]
    pub fn input(&self, prompt: &Prompt) -> u64 {
        prompt.0
    }
    #[must_use]
    pub fn output(&self, asked: Option<u64>) -> u64 {
        asked.unwrap_or(16)
    }
    pub fn learn(&mut self, _prompt: &Prompt, _usage: &Usage) {}
}
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub input: u64,
    pub cached: u64,
    pub cache_written: u64,
    pub output: u64,
}
impl Usage {
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_slice(body).ok()?;
        Self::of(value.get("usage")?)
    }
    fn of(u: &serde_json::Value) -> Option<Self> {
        let n = |names: &[&str]| {
            names.iter().find_map(|n| u.get(*n).and_then(serde_json::Value::as_u64))
        };
        Some(Self {
            input: n(&["prompt_tokens", "input_tokens"])?,
            output: n(&["completion_tokens", "output_tokens"]).unwrap_or(0),
            ..Self::default()
        })
    }
}
#[derive(Debug, Default)]
pub struct Stream {
    buffer: Vec<u8>,
    usage: Option<Usage>,
    seen: u64,
    done: bool,
}
impl Stream {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        while let Some(at) = self.buffer.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.buffer.drain(..=at).collect();
            let line = line.strip_prefix(b"data: ").unwrap_or(&line);
            if line.starts_with(b"[DONE]") {
                self.done = true;
            }
            if let Ok(v) = serde_json::from_slice::<serde_json::Value>(line) {
                self.seen += 1;
                let kind = v.get("type").and_then(|it| it.as_str());
                self.done |= matches!(kind, Some("message_stop" | "response.completed"))
                    || v.get("done").and_then(serde_json::Value::as_bool) == Some(true);
                for u in [
                    v.get("usage"),
                    v.get("message").and_then(|m| m.get("usage")),
                    v.get("response").and_then(|m| m.get("usage")),
                ]
                .into_iter()
                .flatten()
                {
                    if let Some(u) = Usage::of(u) {
                        self.usage = Some(u);
                    } else if let (Some(x), Some(o)) = (
                        self.usage.as_mut(),
                        u.get("output_tokens").and_then(serde_json::Value::as_u64),
                    ) {
                        x.output = o;
                    }
                }
            }
        }
    }
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }
    #[must_use]
    pub fn output_seen(&self) -> u64 {
        self.seen
    }
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.done
    }
}
