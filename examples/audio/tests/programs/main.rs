//! The real programs, in real time: with each other, with ffmpeg, and under attack.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod calls;
#[path = "../../../h3-upload/tests/end_to_end/closed_port.rs"]
mod closed_port;
mod ffmpeg;
mod forged_errors;
#[path = "../../../../proxy/tests/common/namespace.rs"]
#[allow(unreachable_pub, reason = "the tests of the proxy use this, too")]
mod namespace;
