//! The wire format of the proxy that was published with "Sidekick: In-Network Assistance for
//! Secure End-to-End Transport Protocols" (NSDI '24).
//!
//! The format has no sessions. The proxy counts every captured datagram of every flow, and sends
//! quACKs to one configured address. Any UDP datagram at the proxy's own port resets the sums.
//! Nothing is authenticated.
//!
//! [`observer`] is the state machine, without I/O and clock. [`wire`] is the message. [`engine`]
//! connects the state machine with a [`worker`](crate::worker), as [`settings`] ask.

pub(crate) mod engine;
pub(crate) mod observer;
pub mod settings;
pub(crate) mod wire;
