//! Everything in virtual time. A test's outcome depends on its seeds alone. So these tests may run
//! beside anything, and on any machine.
//!
//! The modules named `full` have the tests that take long and do not mean the same with fewer
//! seeds. Every change runs the others, with `--skip full::`. `support/seeds.rs` describes how to
//! choose the seeds.
//!
//! | file | what it does |
//! |---|---|
//! | `adversity.rs` | uploads with mixtures of faults |
//! | `backend.rs` | the guarantees that readers of the simulator's figures need |
//! | `calls.rs` | calls: waits, and the bytes that help costs |
//! | `congestion.rs` | congestion that delays nothing |
//! | `download_adversity.rs` | downloads with mixtures of faults |
//! | `downloads.rs` | downloads from unmodified servers |
//! | `faults.rs` | uploads with one fault after the other |
//! | `figures.rs` | `sidekick-lab figures` as a program |
//! | `lies.rs` | uploads past a lying proxy |
//! | `links.rs` | links as they are |
//! | `measure.rs` | what an agent measures of a link, and what its trace predicts |
//! | `packrat.rs` | the networks of Packrat |
//! | `parity.rs` | downloads and uploads past a proxy that is far away |
//! | `satellites.rs` | a satellite between two proxies |
//! | `sweep.rs` | `sidekick-lab sweep` as a program |
//! | `tables.rs` | the goodput of every sender by loss |
//! | `tune.rs` | `quic_sidekick::tune` |

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are outside what clippy takes for tests")]

#[path = "../support"]
#[macro_use]
mod support {
    pub(crate) mod adversity;
    pub(crate) mod jobs;
    pub(crate) mod measured;
    pub(crate) mod seeds;
    #[macro_use]
    pub(crate) mod table;
}

mod adversity;
mod backend;
mod calls;
mod congestion;
mod download_adversity;
mod downloads;
mod faults;
mod figures;
mod lies;
mod links;
mod measure;
mod packrat;
mod parity;
mod satellites;
mod sockets;
mod sweep;
mod tables;
mod tune;
mod uplinks;

virtual_time::in_force!();
