//! How many tokens a text is likely to take.

use super::prompt::GRAIN;

/// Weighs the text of a JSON string, in [`GRAIN`]ths of a token, from behind its opening quote to
/// its closing one. Says the weight, and how many bytes it took.
pub(super) fn weigh(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut at = 0;
    loop {
        match bytes.get(at)? {
            b'"' => return Some((at as u64 * GRAIN / 3, at)),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Weighs the text of a JSON string that was read already.
pub(super) fn weigh_raw(text: &[u8]) -> u64 {
    text.len() as u64 * GRAIN / 3
}
