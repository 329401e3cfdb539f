//! What reading a response costs in allocations. A test binary of its own, for it brings
//! its allocator.
#![allow(unsafe_code)] // The trait of allocators asks for it.

use paceline_core::headers::{Detector, HeadersMap, Response, detect};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

struct Counted;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: whatever is asked is asked of the system's allocator, unchanged.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of this very method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

#[test]
fn a_response_with_nothing_to_say_allocates_nothing_and_a_common_one_little() {
    let map = HeadersMap { limit: Some("X-Calls".parse().unwrap()), ..HeadersMap::default() };
    let detector = Detector::default().map(map);
    let silent = [
        ("Content-Type", "application/json"),
        ("Content-Length", "1024"),
        ("Date", "Fri, 15 Jan 2027 08:00:00 GMT"),
        ("Server", "nginx"),
        ("Cache-Control", "no-store"),
        ("Strict-Transport-Security", "max-age=31536000"),
        ("X-Request-Id", "4fd2c0a2"),
        ("Vary", "Accept-Encoding"),
    ];
    assert_eq!(allocations(&detector, &silent), 0);
    let mut common = silent.to_vec();
    common.extend([
        ("X-RateLimit-Limit", "60"),
        ("X-RateLimit-Remaining", "59"),
        ("X-RateLimit-Reset", "1800000030"),
    ]);
    // The list of signals.
    assert_eq!(allocations(&detector, &common), 1);
}

/// How often one reading allocates.
fn allocations(detector: &Detector, headers: &[(&str, &str)]) -> usize {
    let (url, now) = (Some("https://api.example.com/v1"), Duration::from_secs(1_800_000_000));
    let headers = headers.iter().copied();
    let before = ALLOCATIONS.get();
    let reading = detect(detector, Response { status: 200, url, now, headers, body: None });
    let after = ALLOCATIONS.get();
    drop(reading);
    after - before
}
