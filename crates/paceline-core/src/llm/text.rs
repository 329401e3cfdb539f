//! How many tokens a text is likely to take.
//!
//! To cut a text as a tokenizer does takes its vocabulary and a hundred times as long. It is
//! nearly as good to weigh each byte by what comes before it: within a common word a letter weighs
//! little, where a word begins it weighs more, and most where letters follow one another that no
//! word has.

use super::json::{Json, Read};
use super::weights::{CLASSES, OLDER, WEIGHTS};

/// Parts of a token in which text is weighed.
pub(super) const GRAIN: u64 = 1024;

/// How the names of models start that are known to cut text as o200k does.
const NEWER: [&str; 8] = ["gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "gpt-oss", "o1", "o3", "o4"];

/// The weight of a text in [`GRAIN`]ths of a token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Weight {
    pub(super) ascii: u64,
    /// What is not ASCII, as o200k cuts it, and models of its time.
    pub(super) foreign: u64,
    /// The same, as cl100k does, which takes up to five times as much.
    pub(super) older: u64,
}

impl Weight {
    pub(super) fn add(&mut self, other: Self) {
        self.ascii = self.ascii.saturating_add(other.ascii);
        self.foreign = self.foreign.saturating_add(other.foreign);
        self.older = self.older.saturating_add(other.older);
    }

    /// Takes the model for one whose way to cut is known.
    pub(super) fn cut_for(&mut self, model: &str) {
        if NEWER.iter().any(|start| model.starts_with(start)) {
            self.older = self.foreign;
        }
    }

    /// Adds that many tokens.
    pub(super) fn add_tokens(&mut self, tokens: u64) {
        self.ascii = self.ascii.saturating_add(tokens.saturating_mul(GRAIN));
    }
}

/// Weighs the string that comes next.
pub(super) fn weigh(json: &mut Json<'_>) -> Read<Weight> {
    json.string_with(|bytes| {
        let mut scale = Scale::default();
        let length = scale.string(bytes)?;
        Some((scale.weight, length))
    })
}

/// Weighs a string that was read already, escapes as they stand.
pub(super) fn weigh_read(text: &[u8]) -> Weight {
    let mut scale = Scale::default();
    // Its closing quote is missing, as is known.
    let _ = scale.string(text);
    scale.weight
}

/// A text on the scale.
#[derive(Default)]
struct Scale {
    weight: Weight,
    /// The class of the byte before.
    before: usize,
}

impl Scale {
    #[inline]
    fn put_ascii(&mut self, bytes: &[u8]) {
        let (mut sum, mut before) = (0_u32, self.before);
        for byte in bytes {
            let class = usize::from(CLASSES[usize::from(*byte)]);
            sum = sum.wrapping_add(weight(before, class));
            before = class;
        }
        self.before = before;
        self.weight.ascii = self.weight.ascii.wrapping_add(u64::from(sum));
    }

    #[inline]
    fn put_any(&mut self, bytes: &[u8]) {
        if bytes.is_ascii() {
            return self.put_ascii(bytes);
        }
        let (mut ascii, mut foreign, mut older, mut before) = (0_u32, 0_u32, 0_u32, self.before);
        for byte in bytes {
            let class = usize::from(CLASSES[usize::from(*byte)]);
            if byte.is_ascii() {
                ascii = ascii.wrapping_add(weight(before, class));
            } else {
                foreign = foreign.wrapping_add(weight(before, class));
                older = older.wrapping_add(older_weight(before, class));
            }
            before = class;
        }
        self.before = before;
        for (sum, more) in [
            (&mut self.weight.ascii, ascii),
            (&mut self.weight.foreign, foreign),
            (&mut self.weight.older, older),
        ] {
            *sum = sum.wrapping_add(u64::from(more));
        }
    }

    /// Weighs a string, from behind its opening quote. Says how long it is; `None` where its end
    /// is missing.
    fn string(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            // Most text is plain for long stretches, and there is nothing to look out for.
            while let Some(stretch) = bytes.get(at..).and_then(<[u8]>::first_chunk::<16>)
                && is_plain(stretch)
            {
                self.put_ascii(stretch);
                at += stretch.len();
            }
            let rest = bytes.get(at..)?;
            let rest = &rest[..rest.len().min(16)];
            let special = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
            self.put_any(&rest[..special.unwrap_or(rest.len())]);
            at += special.unwrap_or(rest.len());
            match bytes.get(at)? {
                b'"' => return Some(at),
                b'\\' => at += self.escape(&bytes[at..])?,
                _ => {}
            }
        }
    }

    /// Weighs what an escape stands for. Says how long it is.
    fn escape(&mut self, escape: &[u8]) -> Option<usize> {
        let stands_for = match escape.get(1)? {
            b'n' | b'r' => b'\n',
            b't' => b'\t',
            b'b' | b'f' => 0,
            b'u' => {
                let (code, length) = code_point(escape)?;
                self.put_any(code.encode_utf8(&mut [0; 4]).as_bytes());
                return Some(length);
            }
            itself => *itself,
        };
        self.put_ascii(&[stands_for]);
        Some(2)
    }
}

/// What a byte of one class weighs after one of another.
#[inline]
fn weight(before: usize, class: usize) -> u32 {
    u32::from(WEIGHTS[(before << 6 | class) % WEIGHTS.len()])
}

/// The same for what is not ASCII, as cl100k cuts it.
#[inline]
fn older_weight(before: usize, class: usize) -> u32 {
    u32::from(OLDER[(before << 4 | class & 15) % OLDER.len()])
}

/// Is it ASCII, with no quote and no escape?
#[inline]
fn is_plain(stretch: &[u8; 16]) -> bool {
    let special = |byte: u8| byte >= 0x80 || byte == b'"' || byte == b'\\';
    !stretch.iter().fold(false, |any, byte| any | special(*byte))
}

/// The character of `\u....`, or of a pair of them, and how long that is.
fn code_point(escape: &[u8]) -> Option<(char, usize)> {
    let unit = |from: usize| {
        let digits = escape.get(from..from + 6)?.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |sum, digit| Some(sum << 4 | char::from(*digit).to_digit(16)?))
    };
    let first = unit(0)?;
    if first >> 10 == 0xD800 >> 10
        && let Some(second) = unit(6).filter(|second| second >> 10 == 0xDC00 >> 10)
    {
        let code = 0x1_0000 + ((first & 0x3FF) << 10 | second & 0x3FF);
        return Some((char::from_u32(code)?, 12));
    }
    Some((char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 6))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(json: &str) -> Weight {
        weigh(&mut Json::new(json.as_bytes())).unwrap()
    }

    #[test]
    fn an_escape_weighs_what_it_stands_for() {
        let escaped = r#""a\u0062 \u4f60\u597d \ud83d\ude00 \u00e9 \/ \n""#;
        let plain = "a\u{62} \u{4f60}\u{597d} \u{1f600} \u{e9} / \n";
        assert_eq!(weight(escaped), weigh_read(plain.as_bytes()));
    }

    #[test]
    fn broken_escapes_are_malformed_and_lone_surrogates_are_not() {
        for broken in [r#""\"#, r#""\u12"#, r#""\u12"x"#, r#""\ug000""#, r#""abc"#] {
            assert!(weigh(&mut Json::new(broken.as_bytes())).is_err(), "{broken}");
        }
        assert!(weight(r#""\ud83d and \udc00""#).foreign > 0);
    }

    #[test]
    fn words_weigh_less_than_the_same_letters_in_no_order() {
        let words = weigh_read(b"the limit of the server is reached");
        let noise = weigh_read(b"hte mlitip fo eht rvserse si rcedahe");
        assert!(noise.ascii > words.ascii * 5 / 4, "{noise:?} {words:?}");
    }
}
