//! Path emulation and the lab: real programs over a two-segment path whose every loss is known.
//!
//! ```text
//! sender ns ── near relay ── proxy ns ── far relay ── receiver ns
//! ```
//!
//! - [`units`] and [`link`] are the model: one direction of a link, without I/O and without a clock;
//! - [`scenario`] says what is run;
//! - [`enclosure`], [`namespace`], [`topology`], [`relay`] and [`path`] build the path out of network namespaces, veth pairs and
//!   the link model (backend `user`), [`tc`] out of the kernel's own queueing disciplines (backend `tc`);
//! - [`programs`] starts the real programs, [`run`] does one run, [`report`] and [`progress`] tell of it, [`demo`]
//!   compares.

pub mod demo;
pub mod enclosure;
pub mod link;
pub mod namespace;
pub mod path;
pub mod programs;
pub mod progress;
pub mod relay;
pub mod report;
pub mod run;
pub mod scenario;
pub mod source;
pub mod tc;
pub mod topology;
pub mod units;
