//! Prompts counted by the tokenizer itself. Feature `tiktoken`: it brings the vocabularies of
//! OpenAI's models, some ten megabytes, and takes about a hundred times as long as an estimate.

use super::json::{self, Json, Read};
use super::media::Media;
use super::request::Settings;
use super::walk::Reader;
use tiktoken_rs::{CoreBPE, bpe_for_model};

/// What frames each message: two marks and its role. One more is not told from the text.
const FRAME: u64 = 4;
/// The opening of the answer.
const OPENING: u64 = 3;

/// The tokens of a request's prompt. `None` where the tokenizer of that model is not known, the
/// body is no JSON object, or what it takes cannot be counted: images, sound, files.
///
/// Text and messages are counted as OpenAI does. How it writes schemas of tools is not published;
/// they are counted as JSON, which takes more.
#[must_use]
pub fn count(model: &str, body: &[u8]) -> Option<u64> {
    let mut tally = Tally { bpe: bpe_for_model(model).ok()?, tokens: 0, messages: 0, media: false };
    Settings::read(body, &mut tally).ok()?;
    let Tally { tokens, messages, media, .. } = tally;
    let frames = if messages > 0 { messages * FRAME + OPENING } else { 0 };
    (!media).then_some(tokens + frames)
}

/// Counts as it reads.
struct Tally {
    bpe: &'static CoreBPE,
    tokens: u64,
    messages: u64,
    media: bool,
}

impl Reader for Tally {
    fn text(&mut self, json: &mut Json<'_>) -> Read<()> {
        self.text_read(json.string()?);
        Ok(())
    }

    fn text_read(&mut self, text: &[u8]) {
        let text = json::resolved(text);
        self.tokens += self.bpe.count_ordinary(&text) as u64;
    }

    fn marks(&mut self, tokens: u64) {
        self.tokens += tokens;
    }

    fn message(&mut self) {
        self.messages += 1;
    }

    fn medium(&mut self, _: &Media<'_>) {
        self.media = true;
    }

    fn token(&mut self) {
        self.tokens += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_cannot_be_counted_is_not() {
        assert_eq!(count("claude-sonnet-4", br#"{"messages": []}"#), None);
        assert_eq!(count("gpt-4o", b"no JSON"), None);
        let image = json!({"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "https://a.example/cat.png"}}]}]});
        assert_eq!(count("gpt-4o", image.to_string().as_bytes()), None);
        assert_eq!(count("text-embedding-3-small", br#"{"input": [[1, 2], [3]]}"#), Some(3));
    }
}
