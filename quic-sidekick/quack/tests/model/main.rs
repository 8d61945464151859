//! Sums and decoding, compared with plain models of both: for every instruction set, after any
//! steps, and with any losses.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod instruction_sets;
mod multiset;
mod steps;
#[path = "../support/mod.rs"]
mod support;
