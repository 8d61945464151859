//! From the frame to the sums, and from the sums to the quACK: nothing asks for memory.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

#[path = "common/frames.rs"]
mod frames;

use frames::Frames;
use sidekick_protocol::Terms;
use sidekick_proxy::packet::{self, Link};
use sidekick_proxy::replay::Replay;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

thread_local! {
    /// Per thread, so that what the test runner does beside the test is not counted.
    static REQUESTS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[allow(unsafe_code, reason = "an allocator cannot be written without; it only counts and passes on")]
// SAFETY: every call goes unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        REQUESTS.with(|requests| requests.set(requests.get() + 1));
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above with this `layout`, hence from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
#[allow(clippy::disallowed_methods, reason = "any instant will do for a start")]
fn nothing_is_allocated_once_the_sessions_are_open() {
    let terms = Terms { every_packets: NonZeroU16::new(32), ..Terms::default() };
    let mut replay = Replay::new(1000, terms, Instant::now()).unwrap();
    let mut round = |turn: u64| {
        let frames = Frames::new(100_000, 1000, turn);
        let before = REQUESTS.get();
        // Ten microseconds from packet to packet: quACKs fall due by time, too.
        for (number, (bytes, len)) in (0..).zip(frames.iter()) {
            let found = packet::parse(Link::Ethernet, bytes, len);
            replay.take(found, Some(Duration::from_micros(10 * (turn * 100_000 + number))));
        }
        (REQUESTS.get() - before, *replay.stats())
    };
    let (opening, _) = round(0);
    assert!(opening > 1000, "the instrument works: a session takes memory");
    let (requests, stats) = round(1);
    assert_eq!((requests, stats.counted, stats.sessions_opened), (0, 200_000, 1000));
    assert!(stats.quacks_sent > 6000, "{stats:?}");
}
