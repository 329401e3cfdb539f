//! Which headers are worth a look, told by their names alone and quickly: responses have dozens of
//! headers, and bindings copy the values of those that pass.

/// Four letters of every word that the names of families hold.
const KEYWORDS: [&[u8; 4]; 9] =
    [b"limi", b"retr", b"quot", b"usag", b"used", b"rema", b"thro", b"mbx-", b"buck"];

/// Names without such a word.
const EXACT: [&str; 7] = [
    "date",
    "x-rl",
    "x-ttl",
    "grpc-status",
    "x-amzn-errortype",
    "mediawiki-api-error",
    "x-ms-deployment-name",
];

/// For each byte, where in the keywords it stands: the masks of a bit-parallel search, which looks
/// for all keywords at once and at each byte but once.
const MASKS: [u64; 128] = {
    let mut masks = [0; 128];
    let mut word = 0;
    while word < KEYWORDS.len() {
        let mut place = 0;
        while place < 4 {
            let byte = KEYWORDS[word][place];
            let bit = 1 << (4 * word + place);
            masks[byte as usize] |= bit;
            masks[byte.to_ascii_uppercase() as usize] |= bit;
            place += 1;
        }
        word += 1;
    }
    masks
};
const FIRSTS: u64 = 0x1111_1111_1111_1111;
const LASTS: u64 = FIRSTS << 3;

/// Longer names are no family's.
pub(super) const LONGEST_NAME: usize = 96;

/// Whether a header of that name may say anything of limits.
pub(super) fn is_relevant(name: &str) -> bool {
    // Names are ASCII (RFC 9110 §5.1).
    if name.len() > LONGEST_NAME || !name.is_ascii() {
        return false;
    }
    let mut state = 0;
    for byte in name.bytes() {
        state = (state << 1 | FIRSTS) & MASKS[usize::from(byte & 127)];
        if state & LASTS != 0 {
            return true;
        }
    }
    EXACT.iter().any(|exact| exact.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_8_common_names_are_passed_over_and_those_of_families_are_not() {
        for name in [
            "content-type",
            "Content-Length",
            "server",
            "cache-control",
            "set-cookie",
            "vary",
            "strict-transport-security",
            "x-request-id",
            "cf-ray",
            "alt-svc",
            "etag",
            "",
            "limi",
        ] {
            assert_eq!(is_relevant(name), name == "limi", "{name}");
        }
        for name in [
            "X-RateLimit-Limit",
            "RATELIMIT",
            "retry-after",
            "RetryAfter",
            "Date",
            "X-Rl",
            "X-App-Usage",
            "X-MBX-ORDER-COUNT-1D",
            "x-remaining-today",
            "X-Throttling-Control",
            "Sforce-Limit-Info",
            "grpc-retry-pushback-ms",
            "X-LS-API-Bucket-Level",
        ] {
            assert!(is_relevant(name), "{name}");
        }
        assert!(!is_relevant(&"X-RateLimit-".repeat(700)));
    }
}
