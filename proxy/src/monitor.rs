//! What operators and their tools see of a running proxy: metrics, health and status, over HTTP.
//!
//! A thread of its own serves these pages. It asks the workers by their command channels, so
//! requests cost the counting of packets next to nothing. [`status`] is the source of all pages.
//! [`ask`] fetches the status of another process.

pub mod ask;
pub mod exposition;
pub mod listener;
pub mod server;
pub mod status;
