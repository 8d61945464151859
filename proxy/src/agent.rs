//! An agent helps the UDP flows of programs that know nothing of it.
//!
//! It captures what leaves by an interface, looks for a proxy on the path of each flow, and sends
//! again what was lost before the proxy, byte for byte.
//!
//! `program`, `cli`, `status`, `exposition` and `show` are for the operator, as those of the proxy.

mod cli;
pub(crate) mod config;
pub(crate) mod daemon;
pub mod exposition;
pub(crate) mod filter;
pub(crate) mod program;
pub(crate) mod report;
mod show;
pub(crate) mod status;
