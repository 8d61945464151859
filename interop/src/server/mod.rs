//! An HTTP/3 server on quiche alone: one thread, one socket, and a loop. It is compiled twice, on
//! stock quiche and on the hooked one.
//!
//! | file | what it does |
//! |---|---|
//! | `cli.rs` | the command line |
//! | `serve.rs` | the loop, and which connection a datagram belongs to |
//! | `service.rs` | a connection's requests |
//! | `help.rs` | what a loop does for a Sidekick, if it has one |
//! | `report.rs` | what is printed when a connection has ended |

pub(crate) mod cli;
pub(crate) mod help;
pub(crate) mod report;
pub(crate) mod serve;
pub(crate) mod service;
