//! The programs as a user runs them, over loopback, and the broker against peers of these tests.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod assistance;
// The path of the uploader's tests, which has a proxy.
#[path = "../../../h3-upload/tests/end_to_end/relay.rs"]
mod assisted_path;
// The children of the uploader's tests.
#[path = "../../../h3-upload/tests/end_to_end/child.rs"]
mod child;
mod endings;
mod hostile;
// The client of the uploader's tests.
#[allow(dead_code, reason = "these tests need a part of it")]
#[path = "../../../h3-upload/tests/end_to_end/peer.rs"]
mod http_peer;
mod many;
mod peer;
mod programs;
mod publish_subscribe;
mod reconnections;
mod relay;
