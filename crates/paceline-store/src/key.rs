//! The key of a scope, kept inside its table slot when it is short.

use std::fmt;

/// What fits beside the length in 32 bytes: most hosts do, and their buckets then cost no
/// allocation and no second cache miss.
const INLINE: usize = 30;

/// An immutable string of 32 bytes, inline up to 30.
#[derive(Clone)]
pub struct Key(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE] },
    Boxed(Box<str>),
}

impl Key {
    /// The key with that text.
    #[must_use]
    #[inline]
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; INLINE];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(inline), Ok(len)) => {
                inline.copy_from_slice(text.as_bytes());
                Self(Repr::Inline { len, bytes })
            }
            _ => Self(Repr::Boxed(text.into())),
        }
    }

    /// Its bytes, which are UTF-8.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Repr::Boxed(text) => text.as_bytes(),
        }
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_text_inline_or_not() {
        assert_eq!(size_of::<Key>(), 32);
        for len in [0, 1, 29, 30, 31, 300] {
            let text = "k".repeat(len);
            assert_eq!(Key::new(&text).as_str(), text);
        }
    }
}
