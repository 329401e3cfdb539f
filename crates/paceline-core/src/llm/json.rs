//! A reader of JSON that goes over a body once and copies nothing.
//!
//! A parser in general use makes a string of each string. Here most of a body is text that is only
//! weighed, so whoever reads it takes it from the bytes as they stand.

use memchr::{memchr, memchr2};
use std::borrow::Cow;

/// The bytes are not JSON, or nest deeper than anybody means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// What was read.
pub(super) type Read<T> = Result<T, Malformed>;

/// How deep values may nest. The reader calls itself, so this bounds its stack.
const DEEPEST: u8 = 128;

/// The text of a string that was read, its escapes resolved.
pub(super) fn resolved(read: &[u8]) -> Cow<'_, str> {
    let escaped = memchr(b'\\', read).map(|_| [b"\"", read, b"\""].concat());
    let resolved = escaped.and_then(|quoted| serde_json::from_slice(&quoted).ok());
    resolved.map_or_else(|| String::from_utf8_lossy(read), Cow::Owned)
}

/// A place in a body.
#[derive(Debug, Clone)]
pub(super) struct Json<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u8,
}

impl<'a> Json<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, depth: 0 }
    }

    /// The first byte of what comes next.
    #[inline]
    pub(super) fn peek(&mut self) -> Read<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(byte) => return Ok(*byte),
                None => return Err(Malformed),
            }
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Read<()> {
        if self.peek()? != byte {
            return Err(Malformed);
        }
        self.at += 1;
        Ok(())
    }

    /// Nothing but white space may follow.
    pub(super) fn end(&mut self) -> Read<()> {
        if self.peek().is_ok() { Err(Malformed) } else { Ok(()) }
    }

    /// Reads an object. `each` is given a key, escapes as they stand, and reads its value.
    pub(super) fn object(
        &mut self,
        mut each: impl FnMut(&mut Self, &'a [u8]) -> Read<()>,
    ) -> Read<()> {
        self.nested(b'{', b'}', |json| {
            let key = json.string()?;
            json.expect(b':')?;
            each(json, key)
        })
    }

    /// Reads an array. `each` reads an element.
    pub(super) fn array(&mut self, each: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        self.nested(b'[', b']', each)
    }

    fn nested(
        &mut self,
        open: u8,
        close: u8,
        mut each: impl FnMut(&mut Self) -> Read<()>,
    ) -> Read<()> {
        self.expect(open)?;
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Malformed);
        }
        if self.peek()? == close {
            self.at += 1;
        } else {
            loop {
                each(self)?;
                let byte = self.peek()?;
                self.at += 1;
                if byte == close {
                    break;
                }
                if byte != b',' {
                    return Err(Malformed);
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads a string: what stands between its quotes, escapes as they stand.
    pub(super) fn string(&mut self) -> Read<&'a [u8]> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            let rest = self.bytes.get(self.at..).ok_or(Malformed)?;
            let found = memchr2(b'"', b'\\', rest).ok_or(Malformed)?;
            if rest[found] == b'"' {
                let text = &self.bytes[start..self.at + found];
                self.at += found + 1;
                return Ok(text);
            }
            self.at += found + 2;
        }
    }

    /// Reads a string by a reader of one's own, which is given the bytes after the quote and says
    /// how many of them came before the closing one.
    #[inline]
    pub(super) fn string_with<T>(
        &mut self,
        read: impl FnOnce(&'a [u8]) -> Option<(T, usize)>,
    ) -> Read<T> {
        self.expect(b'"')?;
        let (value, length) = read(&self.bytes[self.at..]).ok_or(Malformed)?;
        self.at += length + 1;
        Ok(value)
    }

    /// Does a string come next that begins so?
    #[inline]
    pub(super) fn starts_with(&self, prefix: &[u8]) -> bool {
        self.bytes.get(self.at + 1..).is_some_and(|rest| rest.starts_with(prefix))
    }

    /// Reads a number, `true`, `false` or `null`.
    pub(super) fn scalar(&mut self) -> Read<&'a [u8]> {
        let first = self.peek()?;
        let rest = &self.bytes[self.at..];
        let part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        let word = &rest[..rest.iter().position(|byte| !part(byte)).unwrap_or(rest.len())];
        let number = first == b'-' || first.is_ascii_digit();
        if !number && !matches!(word, b"true" | b"false" | b"null") {
            return Err(Malformed);
        }
        self.at += word.len();
        Ok(word)
    }

    /// Reads a value as a count: a number from zero on, rounded down. Anything else is none.
    pub(super) fn count(&mut self) -> Read<Option<u64>> {
        if !matches!(self.peek()?, b'0'..=b'9' | b'-') {
            self.skip()?;
            return Ok(None);
        }
        let word = self.scalar()?;
        let whole = word.split(|byte| *byte == b'.').next().unwrap_or_default();
        let digits = |word: &[u8]| {
            word.iter().try_fold(0_u64, |sum, byte| {
                let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
                Some(sum.saturating_mul(10).saturating_add(digit))
            })
        };
        Ok(digits(whole))
    }

    /// Reads a value as a flag. Anything but `true` is false.
    pub(super) fn flag(&mut self) -> Read<bool> {
        if self.peek()? == b't' {
            Ok(self.scalar()? == b"true")
        } else {
            self.skip().map(|()| false)
        }
    }

    /// Passes over a value.
    pub(super) fn skip(&mut self) -> Read<()> {
        match self.peek()? {
            b'{' => self.object(|json, _| json.skip()),
            b'[' => self.array(Self::skip),
            b'"' => self.string().map(drop),
            _ => self.scalar().map(drop),
        }
    }
}
