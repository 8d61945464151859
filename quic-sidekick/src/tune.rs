//! Settings by context: one call sets a `quiche::Config` by what the application knows.
//!
//! The defaults of `quiche::Config` suit no path in particular. [`Tune`] takes what the application
//! knows of its role, its traffic and its network. It chooses the settings that decide the time of
//! a transfer, and reports each choice with its reason.
//!
//! ```
//! use quic_sidekick::tune::{Network, Tune};
//! use quic_sidekick::{Config, Driver, quiche};
//!
//! # fn main() -> quiche::Result<()> {
//! let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION)?;
//! config.set_application_protos(quiche::h3::APPLICATION_PROTOCOL)?;
//! let tuned = Tune { network: Network::Geo, ..Tune::client() }.apply(&mut config)?;
//! for choice in tuned.choices() {
//!     println!("{choice}"); // such as "initial RTT 700 ms: a geostationary path is that long"
//! }
//! config.set_max_ack_delay(10); // a setting after the call replaces the choice
//! let mode = tuned.mode(); // of the Sidekick
//! let sidekick: Option<Driver> = mode.map(|mode| Driver::new(Config::discover(mode)));
//! # let _ = sidekick;
//! # Ok(())
//! # }
//! ```
//!
//! The application's own decisions are fields, too. `Tune { controller: Some("cubic"), .. }` makes
//! all other choices go with CUBIC.
//!
//! # What the application still does
//! - *Don't Fragment.* `Tune` turns path MTU discovery on, which needs a socket whose datagrams no
//!   router fragments. On Linux set `IP_MTU_DISCOVER` to `IP_PMTUDISC_PROBE` first (RFC 8899,
//!   section 4). A send may then fail with `EMSGSIZE`. Ignore that: the probe counts as lost.
//! - *Other paths.* quiche 0.30 searches the first path alone, and sends [`Tuned::payload`] bytes
//!   after a migration. Call `Connection::revalidate_pmtu` after repeated probe timeouts, or set
//!   [`Tune::payload`] where clients migrate to narrower paths.
//! - *Pacing.* quiche states when a packet may leave. The event loop waits for that time
//!   ([`paced_until`]).
//! - *Buffers.* The buffer for a received datagram holds [`Tuned::payload`] bytes or more.
//! - *Acknowledgements.* quiche 0.30 acknowledges whenever the loop calls `Connection::send`. The
//!   declared ACK delay only states how long the peer should wait.
//! - *Controller.* Set another one by [`Tune::controller`]. Then the other choices go with it.
//! - *Streams.* The protocol decides how many streams the peer may open. `Tune` leaves that alone.

mod context;
mod rules;
#[cfg(feature = "tokio-quiche")]
mod tokio;

use std::fmt;
use std::time::{Duration, Instant};

use quiche::BufFactory;

use crate::Mode;
pub use context::{Cipher, Help, Network, ParseNetworkError, Role, Traffic};

/// Until when the next packet must wait, if it must. Ask before each `Connection::send`, and send
/// its result at once: quiche's BBR2 takes the time of that call as the time on the wire, so a loop
/// that obeys `SendInfo::at` in place of this misleads it.
///
/// quiche lets a packet leave 1 to 5 ms early (`Connection::max_release_into_future`). The wait
/// covers half of that. So packets leave in small bursts, and a timer of whole milliseconds does
/// not fall behind the rate.
///
/// ```
/// use quic_sidekick::{quiche, tune::paced_until};
/// # use std::time::Instant;
/// fn send(conn: &mut quiche::Connection, out: &mut [u8]) -> quiche::Result<Option<Instant>> {
///     loop {
///         let release = paced_until(conn, Instant::now());
///         if release.is_some() {
///             return Ok(release); // wait no longer than until then
///         }
///         match conn.send(out) {
///             Ok((len, info)) => { /* ... send out[..len] to info.to */ }
///             Err(quiche::Error::Done) => return Ok(None),
///             Err(error) => return Err(error),
///         }
///     }
/// }
/// ```
#[must_use]
pub fn paced_until<F: BufFactory>(conn: &quiche::Connection<F>, now: Instant) -> Option<Instant> {
    let release = conn.get_next_release_time()?.time(now)?;
    let early = conn.max_release_into_future();
    (release.saturating_duration_since(now) >= early).then(|| release - early / 2)
}

/// The application's knowledge and its own decisions.
///
/// The first fields are facts. What is unknown stays `None` or the enum's default, and the choices
/// are then right for any path. The other fields are decisions of the application, which replace
/// the choices; `None` chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tune {
    /// The end of the connection.
    pub role: Role,
    /// The traffic of the connection.
    pub traffic: Traffic,
    /// Bytes that this end sends in all, if that is one object.
    pub object: Option<u64>,
    /// The network that this end is attached to.
    pub network: Network,
    /// The round trip to the peer, as measured before or expected.
    pub rtt: Option<Duration>,
    /// The rate of the path's bottleneck, in bits per second.
    pub rate: Option<u64>,
    /// The MTU of the interface, in bytes of an IP packet. 1280 to 65535; others are clamped.
    pub mtu: Option<u16>,
    /// Whether and how the connection uses a Sidekick.
    pub help: Help,

    /// The congestion controller, by quiche's name.
    pub controller: Option<&'static str>,
    /// The largest UDP payload, in bytes. 1200 to 65527; others are clamped. Discovery is off then.
    pub payload: Option<u16>,
    /// The ACK delay that this end declares. Less than 2^14 ms (RFC 9000, section 18.2), in whole
    /// milliseconds.
    pub ack_delay: Option<Duration>,
    /// Whether packets are paced.
    pub pacing: Option<bool>,
    /// The initial congestion window, in packets. At least 2.
    pub initial_window: Option<u16>,
    /// The round trip to assume until one is measured. 1 ms to 10 s; others are clamped. The first
    /// probe timeout is about three times as long (RFC 9002, section 6.2).
    pub initial_rtt: Option<Duration>,
    /// Bytes that the peer may send on a stream ahead of what the application reads. The connection
    /// gets half as much again.
    pub window: Option<u64>,
}

impl Tune {
    /// A client of which nothing else is known.
    #[must_use]
    pub fn client() -> Self {
        Self::of(Role::Client)
    }

    /// A server of which nothing else is known.
    #[must_use]
    pub fn server() -> Self {
        Self::of(Role::Server)
    }

    fn of(role: Role) -> Self {
        Self {
            role,
            traffic: Traffic::default(),
            object: None,
            network: Network::default(),
            rtt: None,
            rate: None,
            mtu: None,
            help: Help::default(),
            controller: None,
            payload: None,
            ack_delay: None,
            pacing: None,
            initial_window: None,
            initial_rtt: None,
            window: None,
        }
    }

    /// Chooses the settings, and sets none.
    #[must_use]
    pub fn choose(&self) -> Tuned {
        rules::choose(self)
    }

    /// Chooses the settings, and sets them. Call it before the application's own settings, which
    /// then replace the choices. It turns path MTU discovery on unless [`Tune::payload`] is set, so
    /// set `IP_MTU_DISCOVER` on the socket first, and ignore `EMSGSIZE`.
    ///
    /// # Errors
    /// quiche has no controller of the name in [`Tune::controller`]. The config is unchanged then.
    pub fn apply(&self, config: &mut quiche::Config) -> quiche::Result<Tuned> {
        let tuned = self.choose();
        tuned.apply(config)?;
        Ok(tuned)
    }
}

/// The choices; see [`Tune::choose`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuned {
    payload: Chosen<u16>,
    discover_mtu: bool,
    cipher: Chosen<Cipher>,
    ack_delay: Chosen<Duration>,
    controller: Chosen<&'static str>,
    pacing: Chosen<bool>,
    initial_window: Chosen<u16>,
    initial_rtt: Chosen<Duration>,
    stream_window: Chosen<u64>,
    mode: Chosen<Option<Mode>>,
}

impl Tuned {
    /// Sets a config by the choices, all but the cipher and the Sidekick mode.
    ///
    /// # Errors
    /// quiche has no controller of that name. The config is unchanged then.
    pub fn apply(&self, config: &mut quiche::Config) -> quiche::Result<()> {
        // The only one that can fail comes first.
        config.set_cc_algorithm_name(self.controller())?;
        config.enable_pacing(self.pacing());
        config.set_initial_congestion_window_packets(self.initial_window().into());
        config.set_initial_rtt(self.initial_rtt());
        config.set_max_send_udp_payload_size(self.payload().into());
        config.set_max_recv_udp_payload_size(self.payload().into());
        config.discover_pmtu(self.discovers_mtu());
        config.set_max_ack_delay(self.ack_delay_ms());
        config.set_initial_max_stream_data_bidi_local(self.stream_window());
        config.set_initial_max_stream_data_bidi_remote(self.stream_window());
        config.set_initial_max_stream_data_uni(self.stream_window());
        config.set_max_stream_window(self.stream_window());
        config.set_initial_max_data(self.connection_window());
        config.set_max_connection_window(self.connection_window());
        Ok(())
    }

    /// The largest UDP payload to send and to receive, in bytes. With
    /// [discovery](Self::discovers_mtu), the bound of the search.
    #[must_use]
    pub fn payload(&self) -> u16 {
        self.payload.value
    }

    /// Whether quiche searches for the largest payload that passes, from 1200 bytes on.
    #[must_use]
    pub fn discovers_mtu(&self) -> bool {
        self.discover_mtu
    }

    /// The AEAD that BoringSSL prefers on this processor.
    #[must_use]
    pub fn cipher(&self) -> Cipher {
        self.cipher.value
    }

    /// The ACK delay that this end declares.
    #[must_use]
    pub fn ack_delay(&self) -> Duration {
        self.ack_delay.value
    }

    /// The same in milliseconds, as the transport parameter has it.
    #[must_use]
    pub fn ack_delay_ms(&self) -> u64 {
        u64::try_from(self.ack_delay().as_millis()).unwrap_or(u64::MAX)
    }

    /// The congestion controller, by quiche's name.
    #[must_use]
    pub fn controller(&self) -> &'static str {
        self.controller.value
    }

    /// Whether packets are paced.
    #[must_use]
    pub fn pacing(&self) -> bool {
        self.pacing.value
    }

    /// The initial congestion window, in packets.
    #[must_use]
    pub fn initial_window(&self) -> u16 {
        self.initial_window.value
    }

    /// The round trip to assume until one is measured.
    #[must_use]
    pub fn initial_rtt(&self) -> Duration {
        self.initial_rtt.value
    }

    /// Bytes that the peer may send on a stream ahead of what the application reads.
    #[must_use]
    pub fn stream_window(&self) -> u64 {
        self.stream_window.value
    }

    /// The same for all streams together.
    #[must_use]
    pub fn connection_window(&self) -> u64 {
        let stream = self.stream_window();
        stream.saturating_add(stream / 2)
    }

    /// The Sidekick mode for [`Config`](crate::Config); `None` for a plain connection.
    #[must_use]
    pub fn mode(&self) -> Option<Mode> {
        self.mode.value
    }

    /// Every choice with its reason.
    pub fn choices(&self) -> impl Iterator<Item = Choice> + use<> {
        list(self).into_iter()
    }
}

#[cfg(test)]
mod tests;

/// The reason for a choice of the application itself.
const OWN: &str = "the application decided so";

/// A value, and why it was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chosen<T> {
    value: T,
    reason: &'static str,
}

impl<T> Chosen<T> {
    fn new(value: T, reason: &'static str) -> Self {
        Self { value, reason }
    }

    /// The application's own decision, or else what `choose` returns.
    fn own_or(own: Option<T>, choose: impl FnOnce() -> Self) -> Self {
        own.map_or_else(choose, |value| Self::new(value, OWN))
    }
}

/// One choice: a setting, its value with the unit, and the reason. `Display` writes them as a
/// sentence without its full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The setting.
    pub setting: &'static str,
    /// Its value, with the unit.
    pub value: String,
    /// Why.
    pub reason: &'static str,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.setting, self.value, self.reason)
    }
}

/// Every choice, in the order of the documentation.
fn list(tuned: &Tuned) -> [Choice; 10] {
    let bound = if tuned.discover_mtu { "up to " } else { "" };
    [
        choice("UDP payload", tuned.payload, |bytes| format!("{bound}{bytes} bytes")),
        choice("cipher", tuned.cipher, |cipher| cipher.to_string()),
        choice("ACK delay", tuned.ack_delay, milliseconds),
        choice("controller", tuned.controller, str::to_owned),
        choice("pacing", tuned.pacing, |on| if on { "on" } else { "off" }.to_owned()),
        choice("initial window", tuned.initial_window, |packets| format!("{packets} packets")),
        choice("initial RTT", tuned.initial_rtt, milliseconds),
        choice("stream window", tuned.stream_window, |bytes| format!("{bytes} bytes")),
        choice(
            "connection window",
            Chosen::new(tuned.connection_window(), "half as much again as a stream's"),
            |bytes| format!("{bytes} bytes"),
        ),
        choice("Sidekick", tuned.mode, |mode| {
            mode.map_or_else(|| "off".to_owned(), |mode| mode.to_string())
        }),
    ]
}

fn choice<T>(setting: &'static str, chosen: Chosen<T>, value: impl Fn(T) -> String) -> Choice {
    Choice { setting, value: value(chosen.value), reason: chosen.reason }
}

fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
