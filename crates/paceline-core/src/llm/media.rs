//! The most tokens that images, sound and files take.

use super::json::{Json, Read};

/// What a file holds, as far as it matters to its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Image,
    Audio,
    Video,
    Text,
    /// A PDF, or nobody knows.
    Document,
}

/// An image of unknown size. OpenAI's tiles come to at most 1,445 (85 + 8 · 170) and its patches
/// to 1,536; Anthropic resizes what would take more than about 1,600; Gemini takes 1,120.
const IMAGE: u64 = 1_600;
/// An image that OpenAI is to see in low detail.
const LOW: u64 = 85;
/// A page of a PDF, which is read as text and as an image: up to 3,000 by Anthropic.
const PAGE: u64 = 3_000;
/// The longest documents that are taken have a hundred pages or so.
const DOCUMENT: u64 = 300_000;

/// How much more an image takes than that with some models, by the start of their names.
const FACTORS: [(&str, u64); 9] = [
    // 2,833 and 5,667 for each tile.
    ("gpt-4o-mini", 34),
    // 1,536 patches times 1.62, 2.46, 1.72, 1.2.
    ("gpt-4.1-mini", 2),
    ("gpt-4.1-nano", 3),
    ("gpt-5-mini", 2),
    ("gpt-5-nano", 3),
    ("gpt-5.", 2),
    ("o4-mini", 2),
    // 258 for each tile of 768 pixels.
    ("gemini-2", 3),
    // 4,784.
    ("claude-opus-4-7", 3),
];

/// How many times as much an image may take with that model.
pub(super) fn image_factor(model: &str) -> u64 {
    FACTORS.iter().find(|(start, _)| model.starts_with(start)).map_or(1, |(_, factor)| *factor)
}

impl Kind {
    /// By its MIME type, or by the short name of a format.
    pub(super) fn of(name: &[u8]) -> Self {
        let is = |prefix: &[u8]| {
            name.len() >= prefix.len() && name[..prefix.len()].eq_ignore_ascii_case(prefix)
        };
        match name {
            _ if is(b"image") => Self::Image,
            _ if is(b"audio") => Self::Audio,
            _ if is(b"video") => Self::Video,
            _ if is(b"text") => Self::Text,
            b"png" | b"jpeg" | b"jpg" | b"gif" | b"webp" => Self::Image,
            b"wav" | b"mp3" | b"flac" | b"ogg" | b"opus" | b"aac" | b"pcm16" => Self::Audio,
            b"mp4" | b"mov" | b"mkv" | b"webm" => Self::Video,
            _ => Self::Document,
        }
    }
}

/// What is known of an image, a sound or a file before it is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Media<'a> {
    kind: Kind,
    /// Bytes of base64.
    size: u64,
    low: bool,
    /// What stands where the bytes are expected.
    pub(super) data: &'a [u8],
}

impl<'a> Media<'a> {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, size: 0, low: false, data: b"" }
    }

    /// Reads a string: a data URL, base64, or where else it is.
    pub(super) fn string(&mut self, json: &mut Json<'a>) -> Read<()> {
        self.data = json.string()?;
        let url = self.data.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"data:"));
        if url {
            self.kind = Kind::of(&self.data[5..]);
        }
        let elsewhere = self.data.starts_with(b"http") || self.data.starts_with(b"gs:");
        self.size = if elsewhere { 0 } else { self.data.len() as u64 };
        Ok(())
    }

    /// Reads one field of what describes it.
    pub(super) fn field(&mut self, json: &mut Json<'a>, key: &[u8]) -> Read<()> {
        match (key, json.peek()?) {
            (b"url" | b"data" | b"file_data" | b"bytes" | b"image_url", b'"') => self.string(json),
            (b"media_type" | b"mime_type" | b"mimeType" | b"format", b'"') => {
                self.kind = Kind::of(json.string()?);
                Ok(())
            }
            (b"detail", b'"') => {
                self.low = json.string()? == b"low";
                Ok(())
            }
            (b"source" | b"image", b'{') => json.object(|json, key| self.field(json, key)),
            _ => json.skip(),
        }
    }

    /// Is it text that stands there as it is?
    pub(super) fn is_plain(&self) -> bool {
        self.kind == Kind::Text && !self.data.starts_with(b"data:")
    }

    pub(super) fn is_image(&self) -> bool {
        self.kind == Kind::Image
    }

    /// An upper bound of its tokens.
    pub(super) fn tokens(&self) -> u64 {
        let bytes = self.size / 4 * 3;
        match self.kind {
            Kind::Image if self.low => LOW,
            Kind::Image => IMAGE,
            // 32 a second (Gemini; OpenAI takes 10), and 4 kB a second is poor sound.
            Kind::Audio => (bytes / 125).max(32),
            // 300 a second (Gemini), of 120 kB.
            Kind::Video => (bytes / 400).max(300),
            Kind::Text => (bytes / 2).max(1),
            // A page of text takes 20 kB or so; where it takes less it is one page, or few.
            Kind::Document => (bytes / 8).clamp(PAGE, DOCUMENT),
        }
    }
}
