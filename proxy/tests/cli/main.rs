//! The programs without a network: command lines, files, packages and captures. No test depends on
//! the time that something takes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lines;
mod packaging;
#[path = "../common/programs.rs"]
#[allow(unreachable_pub, reason = "tests of daemons use this, too")]
mod programs;
mod reference;
mod replay;
