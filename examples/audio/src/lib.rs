//! A call over a bad first hop: Opus in RTP (RFC 3550) under SRTP (RFC 3711), with repairs where
//! the losses are.
//!
//! A [`Talker`] sends a packet every 20 ms. A [`Listener`] plays them in order. When a later packet
//! arrives, it requests a missing one by a NACK (RFC 4585), and the talker retransmits it (RFC
//! 4588). So a packet behind a lost one waits for about a round trip, end to end. This wait is the
//! *de-jitter delay*: from a packet's arrival until all before it have arrived.
//!
//! With a Sidekick proxy on the path, the talker learns from quACKs what the near segment lost. It
//! re-injects exactly those datagrams, often before the listener can miss them. NACKs repair what
//! is lost behind the proxy. This shows `sidekick_protocol` with a transport other than QUIC.
//! Datagrams stay unchanged, so any RTP receiver accepts them.
//!
//! If the lossy hop is the listener's, the listener asks the proxy there for parity
//! ([`listener::Protected`]). It then rebuilds lost packets without a round trip.
//!
//! | module | contents |
//! |---|---|
//! | [`session`] | what both ends agree on: a session description (SDP) |
//! | [`end`] | how a program drives either end, and their errors |
//! | [`rtp`], `rtcp`, [`srtp`] | the packets, and their protection |
//! | [`source`], [`player`] | Opus of a tone or a WAV file, or random bytes; and the WAV file of the receiver |
//! | [`talker`] | the sending end: schedule, retransmissions, Sidekick |
//! | [`listener`] | the receiving end: de-jitter buffer, NACKs, reports, parity |
//! | [`quality`], [`report`], [`hgrm`] | the quality of a call, and the reports of both ends |
//! | [`edge`] | clock, signals and sockets of the programs; all I/O |
//!
//! The feature `programs`, on by default, has what only the two programs need: sound, session
//! descriptions and I/O. Without it, a call carries random bytes.
//!
//! Both ends are state machines without clock and sockets. The programs `audio-send` and
//! `audio-receive` and a simulation in virtual time run the same code. Its state is bounded, and it
//! uses only what SRTP authenticates. A listener must begin within a talker's first 32,000 packets,
//! because it cannot infer the upper bits of later sequence numbers (RFC 3711, section 3.3.1).
//!
//! ```
//! use audio::{End as _, Listener, ListenerConfig, Talker, TalkerConfig};
//! use audio::source::random_bytes;
//! # #[allow(clippy::disallowed_methods)]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut now = std::time::Instant::now();
//! let config = TalkerConfig { packets: 50, ..TalkerConfig::of_simulation(1) };
//! let mut listener = Listener::new(ListenerConfig::default(), config.session.clone())?;
//! let mut talker = Talker::new(config, random_bytes(1, 240), now)?;
//! let mut datagram = Vec::new();
//! while !talker.is_finished() {
//!     talker.on_timeout(now);
//!     listener.on_timeout(now);
//!     // A network that loses and delays nothing.
//!     while talker.poll_transmit(&mut datagram, now) {
//!         listener.handle_input(&datagram, now)?;
//!     }
//!     while listener.poll_transmit(&mut datagram, now) {
//!         talker.handle_input(&datagram, now)?;
//!     }
//!     let next = [talker.poll_timeout(), listener.poll_timeout()].into_iter().flatten().min();
//!     now = next.unwrap_or(now);
//! }
//! assert_eq!((listener.report().played, listener.report().dejitter_ms.max), (50, 0.0));
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "programs")]
pub mod edge;
pub mod end;
pub mod hgrm;
pub mod listener;
mod ntp;
#[cfg(feature = "programs")]
pub mod player;
pub mod quality;
pub mod report;
mod rtcp;
pub mod rtp;
pub mod session;
pub mod source;
pub mod srtp;
pub mod talker;
#[cfg(test)]
mod testing;

pub use end::{End, Handled};
pub use listener::{Listener, ListenerConfig};
pub use report::{ListenerReport, TalkerReport};
pub use session::Session;
pub use talker::{Reinject, Talker, TalkerConfig};
