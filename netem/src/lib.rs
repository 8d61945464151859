//! Path emulation and the lab: real programs over a path of two segments, which counts every loss.
//!
//! ```text
//! sender ns ── near relay ── proxy ns ── far relay ── receiver ns
//! ```
//!
//! - `units` and [`link`] are the model: one direction of a link, without I/O and without a
//!   clock;
//! - `pcap` writes what a link received and what it delivered;
//! - [`scenario`] describes a run;
//! - [`enclosure`], [`namespace`], [`topology`], `relay` and [`path`] build the path out of
//!   network namespaces, veth pairs and the link model (backend `user`), `tc` out of the kernel's
//!   own queueing disciplines (backend `tc`);
//! - [`programs`] starts the real programs, `run` does one run, [`report`] and `progress` show it,
//!   `demo` compares, `files` reads and writes files;
//! - [`figures`] runs every experiment in virtual time, and writes the results to one page;
//! - `predict` replays a recorded link under flows with and without help;
//! - `sweep` compares `auto` with the other senders over random topologies;
//! - [`command`] has the commands of `sidekick-lab`.

pub mod command;
mod demo;
pub mod enclosure;
pub mod figures;
mod files;
pub mod link;
pub mod namespace;
pub mod path;
mod pcap;
pub mod pool;
mod predict;
pub mod programs;
mod progress;
pub mod record;
mod relay;
pub mod report;
mod run;
pub mod scenario;
pub mod sim;
pub mod source;
mod sweep;
mod tc;
pub mod topology;
mod units;

/// These words as owned strings.
pub(crate) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[cfg(test)]
virtual_time::in_force!();
