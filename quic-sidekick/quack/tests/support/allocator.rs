//! Measures use of the allocator: requests, and bytes held in the end and at most. For the tests of
//! all crates.

#![allow(dead_code, reason = "each test uses a part of this")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Per thread, to exclude the test runner's other threads.
    /// Requests for memory.
    static REQUESTS: Cell<usize> = const { Cell::new(0) };
    /// Bytes allocated less bytes freed, while measured.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    /// The most of these since [`peak_of`] began.
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

fn note(bytes: isize) {
    if WATCHED.get() {
        let live = LIVE.get() + bytes;
        LIVE.set(live);
        PEAK.set(PEAK.get().max(live));
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

/// The number of allocation requests of `work`.
pub(crate) fn requests_during(work: impl FnOnce()) -> usize {
    let before = REQUESTS.get();
    work();
    REQUESTS.get() - before
}

/// The result of `work`, and by how many bytes it increases the memory held.
pub(crate) fn held<T>(work: impl FnOnce() -> T) -> (T, isize) {
    let before = LIVE.get();
    WATCHED.set(true);
    let result = work();
    WATCHED.set(false);
    (result, LIVE.get() - before)
}

/// The result of `work`, whose allocations count as those of a measured part.
pub(crate) fn watched<T>(work: impl FnOnce() -> T) -> T {
    switched(true, work)
}

/// The result of `work`, whose allocations do not count, within a measured part.
pub(crate) fn unwatched<T>(work: impl FnOnce() -> T) -> T {
    switched(false, work)
}

fn switched<T>(watch: bool, work: impl FnOnce() -> T) -> T {
    let before = WATCHED.replace(watch);
    let result = work();
    WATCHED.set(before);
    result
}

/// The result of `work`, and the most bytes that its watched parts held at a time.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, isize) {
    LIVE.set(0);
    PEAK.set(0);
    let result = work();
    (result, PEAK.get())
}
