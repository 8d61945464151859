//! The decoder, compared with Gaussian elimination over the whole history of a flow, with an ideal
//! code, and with itself when any input arrives.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod elimination;
mod hostile;
mod ratio;
#[path = "../support/mod.rs"]
mod support;
