//! The Sidekick proxy: captures packets, counts those of the flows it was asked to count, and sends
//! quACKs.
//!
//! The proxy forwards nothing and alters nothing; the machine it runs on does the forwarding. The
//! way of a packet:
//!
//! 1. [`capture`]: the frame, as the kernel has put it into a ring; [`offload`] says whether it
//!    stands for many datagrams.
//! 2. [`packet`]: finds the UDP flow and payload in it, without copying.
//! 3. [`worker`]: the thread that serves the packet's source hands it to its own [`machine`], the
//!    [`sidekick_protocol::Observer`], and sends what that has to say.
//! 4. [`port`]: the UDP socket through which senders and proxy speak.
//!
//! Where another proxy's wire is to be spoken, what [`compat`] has is the machine. Packets that
//! were captured before come from a file instead: [`replay`].
//!
//! [`route`] says by which interface that leaves. [`path`] answers senders that look for a proxy,
//! and [`key`] keeps the key by which they know this one. When all is open, [`privileges`] that are
//! not needed any more are given up. [`daemon`] starts and ends all this, as [`signals`] say;
//! [`cli`], [`summary`] and [`monitor`] are what the operator sees.

pub mod addresses;
pub mod capture;
pub(crate) mod cli;
pub mod compat;
pub mod config;
pub mod daemon;
pub mod engine;
pub mod key;
pub mod monitor;
pub mod offload;
pub mod packet;
pub mod pool;
pub mod port;
pub mod privileges;
pub mod program;
pub mod raw_socket;
pub mod replay;
pub mod route;
mod runtime;
pub mod signals;
pub mod summary;
pub mod worker;
