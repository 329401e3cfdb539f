//! Where in a body there is something to tokenise.

use super::Prompt;
use super::json::{Json, Malformed, Read};
use super::media::{Kind, Media};
use super::text;

/// Takes in what will be tokenised.
pub(super) trait Reader {
    /// A string comes next.
    fn text(&mut self, json: &mut Json<'_>) -> Read<()>;
    /// A string that was read already, escapes as they stand.
    fn text_read(&mut self, text: &[u8]);
    /// Marks of JSON, and numbers in it.
    fn marks(&mut self, tokens: u64);
    /// A message, a call of a tool or its result.
    fn message(&mut self);
    /// An image, a sound or a file.
    fn medium(&mut self, medium: &Media<'_>);
    /// A token given as such.
    fn token(&mut self);

    /// Reads messages and what they are made of.
    fn content(&mut self, json: &mut Json<'_>) -> Read<()> {
        match json.peek()? {
            b'"' if json.starts_with(b"data:") => self.media(json, Kind::Document),
            b'"' => self.text(json),
            b'[' => json.array(|json| self.content(json)),
            b'{' => {
                let mut kind = Kind::Document;
                json.object(|json, key| match (key, json.peek()?) {
                    (b"type", b'"') => {
                        kind = Kind::of(json.string()?);
                        Ok(())
                    }
                    (b"source", b'{') => self.media(json, kind),
                    _ => self.part(json, key),
                })
            }
            b'0'..=b'9' => {
                self.token();
                json.skip()
            }
            _ => json.skip(),
        }
    }

    /// Reads a field of a message, or of a part of one.
    fn part(&mut self, json: &mut Json<'_>, key: &[u8]) -> Read<()> {
        match (key, json.peek()?) {
            (b"role" | b"call_id" | b"tool_use_id", _) => {
                self.message();
                json.skip()
            }
            (
                b"type" | b"id" | b"tool_call_id" | b"cache_control" | b"status" | b"index"
                | b"signature" | b"thoughtSignature" | b"thought_signature" | b"metadata"
                | b"annotations" | b"logprobs" | b"detail" | b"citations" | b"model",
                _,
            ) => json.skip(),
            (b"function" | b"functionCall" | b"functionResponse", _) => {
                self.message();
                self.content(json)
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
                b"file" | b"inlineData" | b"inline_data" | b"fileData" | b"file_data" | b"document",
                b'{',
            ) => self.media(json, Kind::Document),
            (b"images", b'[') => json.array(|json| self.media(json, Kind::Image)),
            _ => self.content(json),
        }
    }

    /// Reads JSON that is tokenised as it stands, or nearly so. Its punctuation takes a token for
    /// each value.
    fn schema(&mut self, json: &mut Json<'_>) -> Read<()> {
        self.marks(1);
        match json.peek()? {
            b'"' => self.text(json),
            b'[' => json.array(|json| self.schema(json)),
            b'{' => json.object(|json, key| {
                self.text_read(key);
                self.schema(json)
            }),
            _ => {
                let digits = json.scalar()?.len() as u64;
                self.marks(digits.div_ceil(3));
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
                b"content" => self.content(json),
                _ => media.field(json, key),
            })?,
            _ => return Err(Malformed),
        }
        if media.is_plain() {
            self.text_read(media.data);
        } else {
            self.medium(&media);
        }
        Ok(())
    }
}

impl Reader for Prompt {
    fn text(&mut self, json: &mut Json<'_>) -> Read<()> {
        self.text.add(text::weigh(json)?);
        Ok(())
    }

    fn text_read(&mut self, text: &[u8]) {
        self.text.add(text::weigh_read(text));
    }

    fn marks(&mut self, tokens: u64) {
        self.text.add_tokens(tokens);
    }

    fn message(&mut self) {
        self.messages = self.messages.saturating_add(1);
    }

    fn medium(&mut self, medium: &Media<'_>) {
        let sum = if medium.is_image() { &mut self.images } else { &mut self.files };
        *sum = sum.saturating_add(medium.tokens());
    }

    fn token(&mut self) {
        self.tokens = self.tokens.saturating_add(1);
    }
}
