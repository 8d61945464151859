//! Real programs in namespaces and in real time, and what `sidekick-lab` does with programs.
//!
//! The programs are in the directory of `sidekick-lab`, where `make lab` puts them.
//! How much help comes in time depends on the machine. So not every change runs these tests: they
//! need a machine with little else to do. The program `smoke` has one test of each program that any
//! machine passes.
//!
//! | file | what it does |
//! |---|---|
//! | `agent.rs` | the agent beside unmodified programs |
//! | `audio.rs` | calls |
//! | `c_interface.rs` | the example in C |
//! | `exec.rs` | `sidekick-lab exec` with commands of the tests |
//! | `figures_page.rs` | the page of `sidekick-lab figures` in a browser |
//! | `forged_errors.rs` | forged ICMP errors for every socket |
//! | `lab.rs` | `sidekick-lab` with scripts in place of programs |
//! | `path.rs` | the emulated path and the model of its links |
//! | `restarts.rs` | a proxy that is restarted during uploads |
//! | `upload.rs` | uploads, and a download |

#![allow(clippy::unwrap_used, reason = "helpers of tests are outside what clippy takes for tests")]

#[path = "../support"]
mod support {
    pub(crate) mod enclosed;
    pub(crate) mod example_in_c;
    pub(crate) mod runs;
    pub(crate) mod scripts;
    pub(crate) mod survivors;
    pub(crate) mod transfers;
    pub(crate) mod unmodified;
}

mod agent;
mod audio;
mod c_interface;
mod exec;
mod figures_page;
mod forged_errors;
mod lab;
mod path;
mod restarts;
mod upload;
