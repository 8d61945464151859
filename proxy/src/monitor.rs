//! What operators and their tools see of a running proxy: metrics, health and status, over HTTP.
//!
//! A thread of its own serves these pages. It asks the workers by their command channels, so
//! requests cost the counting of packets next to nothing. [`status`] is the source of all pages.
//! [`ask`] fetches the status of another process.

pub(crate) mod ask;
pub(crate) mod exposition;
pub(crate) mod listener;
pub(crate) mod server;
pub(crate) mod status;
