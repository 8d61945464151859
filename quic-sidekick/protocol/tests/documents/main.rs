//! What is written beside the code: the pages, the specification, its vectors, and the dissector.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod dissector;
mod interop;
mod pages;
mod spec;
mod tshark;
mod vectors;
