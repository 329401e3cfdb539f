//! What the body of a request asks for.

use super::Prompt;
use super::json::{Json, Malformed, Read};
use super::media::{Kind, Media};
use super::text;
use std::borrow::Cow;

/// What the body of an LLM request asks for, of whichever provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// The name of the model, where the body says it. (Gemini says it in the path.)
    pub model: Option<Cow<'a, str>>,
    /// Is the answer to come piece by piece?
    pub stream: bool,
    /// Everything that will be tokenised.
    pub prompt: Prompt,
    /// The longest answer asked for, all choices together; `None` where the body does not say.
    /// Zero where there is none, as for embeddings.
    pub output: Option<u64>,
}

impl<'a> Request<'a> {
    /// Reads a body, in one pass. `None` where it is not a JSON object.
    #[must_use]
    pub fn read(body: &'a [u8]) -> Option<Self> {
        let mut json = Json::new(body);
        let mut settings = Settings::default();
        let mut prompt = Prompt::default();
        let read = json.object(|json, key| settings.field(json, key, &mut prompt));
        read.and_then(|()| json.end()).ok()?;
        let model = settings.model.map(String::from_utf8_lossy);
        let embeds = settings.embeds
            || model.as_deref().is_some_and(|model| {
                ["embed", "moderation", "rerank"].iter().any(|word| model.contains(word))
            });
        let output = if embeds { Some(0) } else { settings.output() };
        prompt.open = output.is_none();
        Some(Self { model, stream: settings.stream, prompt, output })
    }
}

/// The most choices that count.
const CHOICES: u64 = 1_000;

/// What a body says beside its prompt.
#[derive(Debug, Default)]
struct Settings<'a> {
    model: Option<&'a [u8]>,
    stream: bool,
    longest: Option<u64>,
    choices: u64,
    /// Prompts that are completed apart from each other.
    prompts: u64,
    /// There is no answer.
    embeds: bool,
}

impl<'a> Settings<'a> {
    fn output(&self) -> Option<u64> {
        let choices = self.choices.clamp(1, CHOICES).saturating_mul(self.prompts.max(1));
        Some(self.longest?.saturating_mul(choices))
    }

    /// Reads a field of the body.
    fn field(&mut self, json: &mut Json<'a>, key: &[u8], prompt: &mut Prompt) -> Read<()> {
        match (key, json.peek()?) {
            (b"model", b'"') => self.model = Some(json.string()?),
            (b"stream", _) => {
                self.stream = json.peek()? == b't' && json.scalar()? == b"true" || {
                    json.skip()?;
                    false
                }
            }
            (
                b"max_tokens"
                | b"max_completion_tokens"
                | b"max_output_tokens"
                | b"maxOutputTokens"
                | b"max_new_tokens"
                | b"num_predict"
                | b"maxTokens"
                | b"max_tokens_to_sample",
                _,
            ) => self.longest = self.longest.max(json.count()?),
            (
                b"n" | b"candidateCount" | b"candidate_count" | b"num_generations" | b"best_of",
                _,
            ) => {
                self.choices = self.choices.max(json.count()?.unwrap_or(1));
            }
            (
                b"generationConfig" | b"generation_config" | b"options" | b"parameters"
                | b"inferenceConfig",
                b'{',
            ) => return json.object(|json, key| self.field(json, key, prompt)),
            (b"input" | b"prompt", b'[') => return self.inputs(json, key, prompt),
            (b"texts" | b"content" | b"requests", _) => {
                self.embeds = true;
                return prompt.read(json);
            }
            (
                b"messages"
                | b"input"
                | b"inputs"
                | b"prompt"
                | b"contents"
                | b"system"
                | b"systemInstruction"
                | b"system_instruction"
                | b"instructions"
                | b"suffix"
                | b"message"
                | b"chat_history"
                | b"preamble"
                | b"query"
                | b"conversation_history",
                _,
            ) => return prompt.read(json),
            (
                b"tools"
                | b"functions"
                | b"response_format"
                | b"text"
                | b"documents"
                | b"responseSchema"
                | b"response_schema"
                | b"responseJsonSchema"
                | b"format",
                b'{' | b'[',
            ) => return prompt.schema(json),
            (
                b"encoding_format"
                | b"dimensions"
                | b"input_type"
                | b"embedding_types"
                | b"outputDimensionality"
                | b"taskType",
                _,
            ) => {
                self.embeds = true;
                return json.skip();
            }
            _ => return json.skip(),
        }
        Ok(())
    }

    /// Reads what may be several prompts apart: texts or tokens, which are completed one by one,
    /// or embedded.
    fn inputs(&mut self, json: &mut Json<'a>, key: &[u8], prompt: &mut Prompt) -> Read<()> {
        let mut apart = 0;
        json.array(|json| {
            let first = json.peek()?;
            if key == b"input" {
                self.embeds |= first != b'{';
            } else {
                apart += u64::from(matches!(first, b'"' | b'['));
            }
            prompt.read(json)
        })?;
        self.prompts = self.prompts.max(apart);
        Ok(())
    }
}

impl Prompt {
    /// Reads messages and what they are made of.
    fn read(&mut self, json: &mut Json<'_>) -> Read<()> {
        match json.peek()? {
            b'"' if json.starts_with(b"data:") => self.media(json, Kind::Document),
            b'"' => self.text(json),
            b'[' => json.array(|json| self.read(json)),
            b'{' => json.object(|json, key| self.part(json, key)),
            b'0'..=b'9' => {
                self.tokens = self.tokens.saturating_add(1);
                json.skip()
            }
            _ => json.skip(),
        }
    }

    /// Reads a field of a message, or of a part of one.
    fn part(&mut self, json: &mut Json<'_>, key: &[u8]) -> Read<()> {
        match (key, json.peek()?) {
            (b"role" | b"call_id" | b"tool_use_id", _) => {
                self.messages = self.messages.saturating_add(1);
                json.skip()
            }
            (
                b"type" | b"id" | b"tool_call_id" | b"cache_control" | b"status" | b"index"
                | b"signature" | b"thoughtSignature" | b"thought_signature" | b"metadata"
                | b"annotations" | b"logprobs" | b"detail" | b"citations" | b"model",
                _,
            ) => json.skip(),
            (b"function" | b"functionCall" | b"functionResponse", _) => {
                self.messages = self.messages.saturating_add(1);
                self.read(json)
            }
            (b"input" | b"args" | b"response" | b"arguments" | b"data" | b"json", b'{' | b'[') => {
                self.schema(json)
            }
            (b"image_url" | b"image" | b"input_image", b'{' | b'"') => {
                self.media(json, Kind::Image)
            }
            (b"input_audio" | b"audio" | b"audio_url", b'{' | b'"') => {
                self.media(json, Kind::Audio)
            }
            (b"video_url" | b"video", b'{' | b'"') => self.media(json, Kind::Video),
            (b"document_url" | b"file_data" | b"file_id" | b"file_url", b'"')
            | (
                b"source" | b"file" | b"inlineData" | b"inline_data" | b"fileData" | b"file_data"
                | b"document",
                b'{',
            ) => self.media(json, Kind::Document),
            (b"images", b'[') => json.array(|json| self.media(json, Kind::Image)),
            _ => self.read(json),
        }
    }

    fn text(&mut self, json: &mut Json<'_>) -> Read<()> {
        self.text.add(text::weigh(json)?);
        Ok(())
    }

    /// Reads JSON that is tokenised as it stands, or nearly so. Its punctuation takes a token for
    /// each value.
    fn schema(&mut self, json: &mut Json<'_>) -> Read<()> {
        self.text.add_tokens(1);
        match json.peek()? {
            b'"' => self.text(json),
            b'[' => json.array(|json| self.schema(json)),
            b'{' => json.object(|json, key| {
                self.text.add(text::weigh_read(key));
                self.schema(json)
            }),
            _ => {
                let digits = json.scalar()?.len() as u64;
                self.text.add_tokens(digits.div_ceil(3));
                Ok(())
            }
        }
    }

    /// Reads an image, a sound or a file.
    fn media(&mut self, json: &mut Json<'_>, kind: Kind) -> Read<()> {
        let mut media = Media::new(kind);
        match json.peek()? {
            b'"' => media.string(json)?,
            b'{' => json.object(|json, key| match key {
                b"content" => self.read(json),
                _ => media.field(json, key),
            })?,
            _ => return Err(Malformed),
        }
        if media.is_plain() {
            self.text.add(text::weigh_read(media.data));
        } else {
            self.media = self.media.saturating_add(media.tokens());
        }
        Ok(())
    }
}
