//! An agent helps the UDP flows of programs that know nothing of it.
//!
//! It captures what leaves by an interface, looks for a proxy on the path of each flow, and sends
//! again what was lost before the proxy, byte for byte.

pub mod config;
pub mod filter;
pub mod report;
