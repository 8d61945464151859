//! A call over a bad first hop: Opus in RTP (RFC 3550) under SRTP (RFC 3711), repaired where it is
//! lost.
//!
//! A [`Talker`] sends a packet every 20 ms. A [`Listener`] plays them in order, and asks for one
//! that is missing with a NACK (RFC 4585) as soon as a later one has come; the talker answers with
//! a retransmission (RFC 4588). A packet behind a lost one therefore waits, end to end, for about a
//! round trip: that wait is the *de-jitter latency*, from a packet's arrival until all before it
//! have arrived. With a Sidekick proxy on the path the talker learns from quACKs what was lost on
//! the near segment and sends exactly those datagrams again, often before the listener can miss
//! them; NACKs remain for what is lost behind the proxy. It is how `sidekick_protocol` is used with
//! a transport other than QUIC: datagrams stay as they are, and any receiver of RTP understands
//! them without having heard of the proxy.
//!
//! | module | what it holds |
//! |---|---|
//! | [`session`] | what both ends agree on beforehand: a session description (SDP) |
//! | [`rtp`], [`rtcp`], [`srtp`] | the packets, and their protection |
//! | [`source`], [`player`] | what is said: Opus from a tone or a WAV file, or random bytes; and the WAV file that is heard |
//! | [`talker`] | the sending end: the schedule, repetitions, Sidekick |
//! | [`listener`] | the receiving end: the de-jitter buffer, NACKs, reports |
//! | [`quality`], [`report`], [`hgrm`] | what a call is worth, and what both ends tell about themselves |
//! | [`edge`] | clock, signals and sockets of the programs; nothing else here does I/O |
//!
//! Both ends are state machines without a clock or sockets, so that the programs `audio-send` and
//! `audio-receive` and a simulation in virtual time run the same code. What they keep is bounded
//! whatever comes in, and nothing is looked at that SRTP has not let in. A listener has to be there
//! within a talker's first 32,000 packets, for those tell the upper bits of their numbers to nobody
//! who comes later (RFC 3711, section 3.3.1).
//!
//! ```
//! use audio::{Listener, ListenerConfig, Talker, TalkerConfig};
//! use audio::source::RandomBytes;
//! # #[allow(clippy::disallowed_methods)]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut now = std::time::Instant::now();
//! let config = TalkerConfig { packets: 50, ..TalkerConfig::of_simulation(1) };
//! let mut listener = Listener::new(ListenerConfig::default(), config.session.clone())?;
//! let mut talker = Talker::new(config, Box::new(RandomBytes::new(1, 240)), now)?;
//! let mut datagram = Vec::new();
//! while !talker.is_finished() {
//!     talker.on_timeout(now);
//!     listener.on_timeout(now);
//!     // A network that loses and delays nothing.
//!     while talker.poll_transmit(&mut datagram, now) {
//!         listener.handle_input(&datagram, now)?;
//!     }
//!     while listener.poll_transmit(&mut datagram) {
//!         talker.handle_input(&datagram, now)?;
//!     }
//!     now = [talker.poll_timeout(), listener.poll_timeout()].into_iter().flatten().min().unwrap_or(now);
//! }
//! assert_eq!((listener.report().played, listener.report().dejitter_ms.max), (50, 0.0));
//! # Ok(())
//! # }
//! ```

pub mod edge;
mod error;
pub mod hgrm;
pub mod listener;
mod ntp;
pub mod player;
pub mod quality;
pub mod report;
pub mod rtcp;
pub mod rtp;
pub mod session;
pub mod source;
pub mod srtp;
pub mod talker;

pub use error::{ConfigError, HandleError};
pub use listener::{Listener, ListenerConfig};
pub use report::{ListenerReport, TalkerReport};
pub use session::Session;
pub use talker::{Reinject, Talker, TalkerConfig};
