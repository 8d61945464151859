//! An HTTP/3 server on quiche alone, with one thread, one socket, and a loop. Cargo compiles it
//! twice, on stock quiche and on the hooked one.
//!
//! | file | what it does |
//! |---|---|
//! | `cli.rs` | the command line |
//! | `serve.rs` | the loop, and the assignment of datagrams to connections |
//! | `service.rs` | a connection's requests |
//! | `help.rs` | the interface between the loop and a Sidekick |
//! | `report.rs` | the output at the end of a connection |

pub(crate) mod cli;
pub(crate) mod help;
pub(crate) mod report;
pub(crate) mod serve;
pub(crate) mod service;
