//! What a response reports that a call has spent.

use super::json::{Json, Malformed, Read};

/// The tokens that one call has spent, as its provider counted them.
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The whole prompt, with what came from a cache.
    pub input: u64,
    /// What of the prompt was read from the provider's cache.
    pub cached: u64,
    /// What of the prompt was written to the provider's cache.
    pub cache_written: u64,
    /// The answer, all choices together, with the reasoning that is billed and not shown.
    pub output: u64,
}

impl Usage {
    /// Reads the body of an answer: OpenAI and those who speak like it, Anthropic, Gemini, Cohere,
    /// Bedrock, Ollama. `None` where it reports nothing, or is not JSON.
    ///
    /// ```
    /// use paceline_core::llm::Usage;
    ///
    /// let answer = br#"{"usage": {"input_tokens": 9, "cache_read_input_tokens": 90, "output_tokens": 5}}"#;
    /// let usage = Usage::read(answer).unwrap();
    /// assert_eq!((usage.input, usage.cached, usage.output), (99, 90, 5));
    /// assert_eq!(Usage::read(b"{}"), None);
    /// ```
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        let mut json = Json::new(body);
        let mut report = Report::default();
        // Gemini streams an array of answers where it is not asked for events.
        let read = match json.peek().ok()? {
            b'[' => json.array(|json| report.body(json)),
            _ => report.body(&mut json),
        };
        read.and_then(|()| json.end()).ok()?;
        report.usage()
    }
}

/// What was reported so far: providers that stream tell the prompt first and the answer last.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Report {
    /// The prompt, with what came from a cache.
    prompt: Option<u64>,
    /// The prompt, but for what has to do with a cache.
    fresh: Option<u64>,
    /// What was read from a cache.
    read: Option<u64>,
    /// The same, where it does not count as part of the prompt.
    read_beside: Option<u64>,
    written: Option<u64>,
    answer: Option<u64>,
    /// Reasoning that does not count as part of the answer.
    thoughts: Option<u64>,
    /// What tools brought, where it does not count as part of the prompt.
    tools: Option<u64>,
    total: Option<u64>,
}

impl Report {
    pub(super) fn usage(&self) -> Option<Usage> {
        let Self { prompt, fresh, answer, total, .. } = *self;
        prompt.or(fresh).or(answer).or(total)?;
        let some = Option::unwrap_or_default;
        let beside = some(self.read_beside).saturating_add(some(self.written));
        let whole = prompt.or(fresh.map(|fresh| fresh.saturating_add(beside)));
        let answered = answer.map(|answer| answer.saturating_add(some(self.thoughts)));
        let input = whole
            .unwrap_or_else(|| some(total).saturating_sub(some(answered)))
            .saturating_add(some(self.tools));
        // Some leave reasoning out of the answer, though not out of the total.
        let output = some(answered).max(some(total).saturating_sub(input));
        let cached = some(self.read.or(self.read_beside));
        Some(Usage { input, cached, cache_written: some(self.written), output })
    }

    /// Reads an answer, or an event of a stream.
    fn body(&mut self, json: &mut Json<'_>) -> Read<()> {
        if json.peek()? != b'{' {
            return Err(Malformed);
        }
        json.object(|json, key| if self.field(json, key)? { Ok(()) } else { json.skip() })
    }

    /// Reads a field of an answer or an event, if it reports anything.
    pub(super) fn field(&mut self, json: &mut Json<'_>, key: &[u8]) -> Read<bool> {
        match (key, json.peek()?) {
            (b"usage" | b"usageMetadata" | b"usage_metadata" | b"meta", b'{') => {
                self.counts(json)?;
            }
            (b"response" | b"message" | b"x_groq", b'{') => self.body(json)?,
            (b"prompt_eval_count", _) => self.prompt = json.count()?.or(self.prompt),
            (b"eval_count", _) => self.answer = json.count()?.or(self.answer),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads an object of counts.
    fn counts(&mut self, json: &mut Json<'_>) -> Read<()> {
        json.object(|json, key| {
            let place = match key {
                b"prompt_tokens"
                | b"promptTokenCount"
                | b"prompt_token_count"
                | b"total_input_tokens" => &mut self.prompt,
                b"input_tokens" | b"inputTokens" => &mut self.fresh,
                b"completion_tokens"
                | b"output_tokens"
                | b"outputTokens"
                | b"candidatesTokenCount"
                | b"candidates_token_count"
                | b"total_output_tokens" => &mut self.answer,
                b"thoughtsTokenCount" | b"thoughts_token_count" | b"total_thought_tokens" => {
                    &mut self.thoughts
                }
                b"toolUsePromptTokenCount"
                | b"tool_use_prompt_token_count"
                | b"total_tool_use_tokens" => &mut self.tools,
                b"cached_tokens"
                | b"cachedContentTokenCount"
                | b"cached_content_token_count"
                | b"prompt_cache_hit_tokens"
                | b"total_cached_tokens" => &mut self.read,
                b"cache_read_input_tokens" | b"cacheReadInputTokens" => &mut self.read_beside,
                b"cache_creation_input_tokens" | b"cacheWriteInputTokens" => &mut self.written,
                b"total_tokens" | b"totalTokens" | b"totalTokenCount" | b"total_token_count" => {
                    &mut self.total
                }
                b"prompt_tokens_details" | b"input_tokens_details" | b"tokens"
                    if json.peek()? == b'{' =>
                {
                    return self.counts(json);
                }
                // What Cohere bills can be less than what it read, which comes beside it.
                b"billed_units" if json.peek()? == b'{' => {
                    let mut billed = Self::default();
                    billed.counts(json)?;
                    self.fresh = self.fresh.or(billed.fresh);
                    self.answer = self.answer.or(billed.answer);
                    return Ok(());
                }
                _ => return json.skip(),
            };
            if let Some(count) = json.count()? {
                *place = Some(count);
            }
            Ok(())
        })
    }
}
