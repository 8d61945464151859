//! An audio-like flow: small packets at a constant rate, played in their order at the other end.
//!
//! A [`Talker`] sends a packet every 20 ms. A [`Listener`] plays them in order, and asks for one that is missing with a
//! NACK as soon as a later one has come. A packet behind a lost one therefore waits, end to end, for about a round trip:
//! that wait is the *de-jitter latency*, from a packet's arrival until all before it have arrived. With a Sidekick proxy on
//! the path the talker learns from quACKs what was lost on the near segment and sends exactly those datagrams again, often
//! before the listener can miss them; NACKs remain for what is lost behind the proxy. It is how `sidekick_protocol` is used
//! with a transport other than QUIC: datagrams stay as they are, and the listener knows nothing of the proxy.
//!
//! | module | what it holds |
//! |---|---|
//! | [`wire`] | the datagrams |
//! | [`talker`] | the sending end: the schedule, repetitions, Sidekick |
//! | [`listener`] | the receiving end: the de-jitter buffer, NACKs, round-trip time |
//! | [`report`] | what both tell about themselves |
//! | [`edge`] | clock, signals and sockets of the programs; nothing else here does I/O |
//!
//! Both ends are state machines without a clock or sockets, so that the programs `audio-send` and `audio-receive` and a
//! simulation in virtual time run the same code. What they keep is bounded whatever comes in.
//!
//! ```
//! use audio::{Listener, ListenerConfig, Talker, TalkerConfig};
//! # #[allow(clippy::disallowed_methods)]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut now = std::time::Instant::now();
//! let mut talker = Talker::new(TalkerConfig { packets: 50, ..TalkerConfig::default() }, now)?;
//! let mut listener = Listener::new(ListenerConfig::default())?;
//! let mut datagram = Vec::new();
//! while !talker.is_finished() {
//!     talker.on_deadline(now);
//!     listener.on_deadline(now);
//!     // A network that loses and delays nothing.
//!     while talker.transmit(&mut datagram, now) {
//!         listener.handle(&datagram, now)?;
//!     }
//!     while listener.transmit(&mut datagram) {
//!         talker.handle(&datagram, now)?;
//!     }
//!     now = [talker.next_deadline(), listener.next_deadline()].into_iter().flatten().min().unwrap_or(now);
//! }
//! assert_eq!((listener.report().played, listener.report().dejitter_ms.max), (50, 0.0));
//! # Ok(())
//! # }
//! ```

pub mod edge;
pub mod listener;
pub mod report;
pub mod talker;
pub mod wire;

pub use listener::{Listener, ListenerConfig};
pub use report::{ListenerReport, TalkerReport};
pub use talker::{Reinject, Talker, TalkerConfig};
