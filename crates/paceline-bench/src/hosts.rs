//! Host names to decide about, and an order to visit them in.

use paceline::{Limit, Limiter};

/// The `i`-th host, 28 bytes long.
pub(crate) fn host(i: usize) -> String {
    format!("api-{i:010}.example.co.uk")
}

/// The first `count` hosts.
pub(crate) fn hosts(count: usize) -> Vec<String> {
    (0..count).map(host).collect()
}

/// `0..count` in an order that no cache foresees, the same in every run.
pub(crate) fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for i in (1..count).rev() {
        // xorshift; what is left of a bias does no harm here.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(i, (random % (i as u64 + 1)) as usize);
    }
    order
}

/// A limit written in this program.
pub(crate) fn limit(text: &str) -> Limit {
    Limit::parse(text).expect("a limit")
}

/// A limiter where every host has that limit.
pub(crate) fn with_default(text: &str) -> Limiter {
    Limiter::builder().default_limits([limit(text)]).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_28_bytes_and_every_one_is_visited() {
        assert!([0, 999_999].iter().all(|i| host(*i).len() == 28));
        let mut order = shuffled(1000);
        assert_ne!(order, (0..1000).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..1000).collect::<Vec<_>>());
    }
}
