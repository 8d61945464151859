//! The wire formats of other proxies, for programs that were written for these proxies.

pub(crate) mod nsdi24;
