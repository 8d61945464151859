//! The programs as a user runs them, over loopback, and each of them against peers of these
//! tests.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod child;
mod endings;
mod first_flight;
mod hostile;
mod hostile_downloads;
mod hostile_servers;
mod https_records;
mod limits;
mod memory;
mod name_server;
mod paused_downloads;
mod peer;
mod programs;
mod qlog;
mod raw;
mod refusals;
mod refused_downloads;
mod relay;
mod transfers;
mod trust;
