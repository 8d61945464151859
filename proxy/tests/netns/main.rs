//! Running daemons, each test in a network namespace of its own and in real time.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/frames.rs"]
mod frames;

mod agent;
mod agent_arriving;
mod agent_strangers;
mod drops;
mod flood;
mod keep;
mod markers;
mod observe;
mod oddities;
mod port;
mod privileges;
mod queue;
mod session;
mod start;
