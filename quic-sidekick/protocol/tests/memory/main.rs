//! The memory of an observer, by an allocator that counts each thread's own use.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../quack/tests/support/allocator.rs"]
mod allocator;
mod half_a_day;
mod sessions;
