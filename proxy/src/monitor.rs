//! The pages of a running program for operators and their tools: metrics, health and status, over
//! HTTP.
//!
//! A thread of its own serves these pages. It asks the program's other threads by channels, so
//! requests cost them next to nothing. A [`subject`] is the source of all pages, and [`status`]
//! that of the proxy; [`ask`] fetches the status of another process.

pub(crate) mod ask;
mod connections;
pub(crate) mod exposition;
pub(crate) mod listener;
pub(crate) mod server;
pub(crate) mod status;
pub(crate) mod subject;
pub(crate) mod text;
