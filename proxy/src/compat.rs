//! Other proxies' wires, spoken in place of ours so that programs written for them can be run
//! against this proxy.

pub(crate) mod nsdi24;
