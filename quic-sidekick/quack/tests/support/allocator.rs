//! What something asks of the allocator: how often, and how much it holds in the end. For the tests
//! of all crates.

#![allow(dead_code, reason = "each test uses its own part of this")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Per thread, so that what the test runner does beside the test is not counted.
    /// Requests for memory.
    static REQUESTS: Cell<usize> = const { Cell::new(0) };
    /// Bytes asked for less bytes given back, while that is watched.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

fn note(bytes: isize) {
    if WATCHED.get() {
        LIVE.set(LIVE.get() + bytes);
    }
}

#[allow(
    unsafe_code,
    reason = "an allocator cannot be written without; it only counts and passes on"
)]
// SAFETY: every call goes unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        REQUESTS.set(REQUESTS.get() + 1);
        note(layout.size().cast_signed());
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-layout.size().cast_signed());
        // SAFETY: `pointer` came from `alloc` above with this `layout`, hence from the system's
        // allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `work` asks for memory.
pub(crate) fn requests_during(work: impl FnOnce()) -> usize {
    let before = REQUESTS.get();
    work();
    REQUESTS.get() - before
}

/// What `work` gives, and by how many bytes more is held after it than before.
pub(crate) fn held<T>(work: impl FnOnce() -> T) -> (T, isize) {
    let before = LIVE.get();
    WATCHED.set(true);
    let result = work();
    WATCHED.set(false);
    (result, LIVE.get() - before)
}
