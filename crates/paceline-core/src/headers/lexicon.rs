//! Words and what they mean. Most words of a name are looked up in several tables and are in none of
//! them, so a table tells at once what it does not hold: by the length of a word and by the letters
//! at its ends.

use super::name::is;

/// More places than words, so that most words which are not there fall on an empty one.
const PLACES: usize = 128;

/// A table of words, compared without case.
pub(super) struct Lexicon<T: 'static> {
    words: &'static [(&'static str, T)],
    /// One more than the index of the word which belongs there, or which found its own place taken.
    places: [u8; PLACES],
}

impl<T: Copy> Lexicon<T> {
    /// At most half of the places are taken.
    pub(super) const fn new(words: &'static [(&'static str, T)]) -> Self {
        assert!(words.len() <= PLACES / 2, "too many words");
        let mut places = [0; PLACES];
        let mut index = 0;
        while index < words.len() {
            let mut at = place(words[index].0.as_bytes());
            while places[at] != 0 {
                at = (at + 1) % PLACES;
            }
            index += 1;
            places[at] = index as u8;
        }
        Self { words, places }
    }

    /// What a word means.
    pub(super) fn find(&self, word: &str) -> Option<T> {
        let mut at = place(word.as_bytes());
        loop {
            let index = usize::from(self.places[at]).checked_sub(1)?;
            let (known, meaning) = self.words.get(index)?;
            if is(known, word) {
                return Some(*meaning);
            }
            at = (at + 1) % PLACES;
        }
    }
}

/// Where a word belongs; the same for letters of either case.
const fn place(word: &[u8]) -> usize {
    let ([first, ..], [.., last]) = (word, word) else { return 0 };
    ((*first & 31) as usize * 7 + (*last & 31) as usize * 3 + word.len()) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: Lexicon<u8> = Lexicon::new(&[("one", 1), ("two", 2), ("ore", 3), ("three", 4)]);

    #[test]
    fn rule_8_words_are_found_whatever_their_case_and_others_are_not() {
        for (word, meaning) in [("one", 1), ("ONE", 1), ("Two", 2), ("ore", 3), ("threE", 4)] {
            assert_eq!(DIGITS.find(word), Some(meaning), "{word}");
        }
        for word in ["", "o", "owe", "on", "ones", "thr\u{e9}e"] {
            assert_eq!(DIGITS.find(word), None, "{word}");
        }
    }
}
