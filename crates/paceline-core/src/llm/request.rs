//! What the body of a request asks for.

use super::Prompt;
use super::json::{self, Json, Read};
use super::media;
use super::walk::Reader;
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
        let mut prompt = Prompt::default();
        let settings = Settings::read(body, &mut prompt).ok()?;
        let model = settings.model.map(json::resolved);
        let name = model.as_deref().unwrap_or_default();
        let embeds = ["embed", "moderation", "rerank"].iter().any(|word| name.contains(word));
        let output = settings.output().or((settings.embeds || embeds).then_some(0));
        prompt.open = output.is_none();
        prompt.images = prompt.images.saturating_mul(media::image_factor(name));
        prompt.text.cut_for(name);
        Some(Self { model, stream: settings.stream, prompt, output })
    }
}

/// The most choices that count.
const CHOICES: u64 = 1_000;

/// What a body says beside its prompt.
#[derive(Debug, Default)]
pub(super) struct Settings<'a> {
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
    /// Reads a body. The prompt goes to its reader.
    pub(super) fn read(body: &'a [u8], prompt: &mut impl Reader) -> Read<Self> {
        let (mut json, mut settings) = (Json::new(body), Self::default());
        json.object(|json, key| settings.field(json, key, prompt))?;
        json.end()?;
        Ok(settings)
    }

    fn output(&self) -> Option<u64> {
        let choices = self.choices.clamp(1, CHOICES).saturating_mul(self.prompts.max(1));
        Some(self.longest?.saturating_mul(choices))
    }

    /// Reads a field of the body.
    fn field(&mut self, json: &mut Json<'a>, key: &[u8], prompt: &mut impl Reader) -> Read<()> {
        match (key, json.peek()?) {
            (b"model", b'"') => self.model = Some(json.string()?),
            (b"stream", _) => self.stream = json.flag()?,
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
                return prompt.content(json);
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
            ) => return prompt.content(json),
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
    fn inputs(&mut self, json: &mut Json<'a>, key: &[u8], prompt: &mut impl Reader) -> Read<()> {
        let mut apart = 0;
        json.array(|json| {
            let first = json.peek()?;
            if key == b"input" {
                self.embeds |= first != b'{';
            } else {
                apart += u64::from(matches!(first, b'"' | b'['));
            }
            prompt.content(json)
        })?;
        self.prompts = self.prompts.max(apart);
        Ok(())
    }
}
