//! What both ends of a call have in common: how a program drives them, and their errors.

use sidekick_protocol::sender::HandleError as ProxyError;
use sidekick_protocol::{Flow, Route, Sender};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use thiserror::Error;

/// The shortest interval between packets.
pub const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// The longest interval between packets.
pub const MAX_INTERVAL: Duration = Duration::from_secs(1);
/// The longest playout limit.
pub(crate) const MAX_PLAYOUT_LIMIT: Duration = Duration::from_secs(60);

/// An end of a call.
///
/// # Order of calls
/// Call [`handle_input`](Self::handle_input) for each datagram of the stream's socket,
/// [`handle_proxy`](Self::handle_proxy) for each of the adjacent socket, and
/// [`on_timeout`](Self::on_timeout) at [`poll_timeout`](Self::poll_timeout). After each, send what
/// [`poll_transmit`](Self::poll_transmit) and [`transmit_to_proxy`](Self::transmit_to_proxy)
/// return, until both have no more. Continue until [`is_finished`](Self::is_finished).
///
/// A talker knows the listener's address, and calls [`follow`](Self::follow) at first. A listener
/// answers to the source of the last datagram that was [`Handled::New`], and calls it for each.
pub trait End {
    /// Handles a datagram from the other end.
    ///
    /// # Errors
    /// [`Refused`] states why it changed only a counter. No error requires an action.
    fn handle_input(&mut self, datagram: &[u8], now: Instant) -> Result<Handled, Refused>;

    /// Asks the proxy for help with the flow from this end to the other, if it is configured. The
    /// proxy must see the flow's source port; the source address may be unspecified. The same flow
    /// again changes nothing.
    fn follow(&mut self, flow: Flow, now: Instant);

    /// Handles a datagram that arrived at the adjacent socket from the address `from`.
    ///
    /// # Errors
    /// As [`sidekick_protocol::Sender::handle_input`]. No error requires an action.
    fn handle_proxy(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        now: Instant,
    ) -> Result<(), ProxyError>;

    /// When [`End::on_timeout`] is due.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Serves the timers that are due at `now`.
    fn on_timeout(&mut self, now: Instant);

    /// Replaces the contents of `out` by the next datagram for the other end, which leaves at
    /// `now`. False if there is none.
    fn poll_transmit(&mut self, out: &mut Vec<u8>, now: Instant) -> bool;

    /// Writes the next datagram for the proxy to `out`, which has at least
    /// [`sidekick_protocol::MAX_DATAGRAM_LEN`] bytes. Returns its destination and length; send it
    /// from the adjacent socket. `None` if there is none.
    fn transmit_to_proxy(&mut self, out: &mut [u8]) -> Option<(SocketAddr, usize)>;

    /// Ends this end's part: a talker's after the packets sent so far, a listener's with one BYE.
    fn stop(&mut self, now: Instant);

    /// Whether the stream is over. Then send only what still waits.
    fn is_finished(&self) -> bool;

    /// The number of packets played so far. A talker plays none.
    fn played(&self) -> u64 {
        0
    }
}

/// The datagram of [`End::transmit_to_proxy`].
pub(crate) fn to_proxy(sender: &mut Sender, out: &mut [u8]) -> Option<(SocketAddr, usize)> {
    let transmit = sender.poll_transmit(out)?;
    // The proxy's address is known, so no marker has to discover it along the path.
    (transmit.route == Route::Session).then_some((transmit.destination, transmit.size))
}

/// The result of a datagram that SRTP accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// It is new: its source is the other end's address.
    New,
    /// It is a proxy's, which answers along the path.
    Proxy,
    /// It repeats an earlier one, byte for byte. Anyone on the path can do that, so its source may
    /// not be the other end's.
    Repeated,
}

/// Why a datagram changed nothing but a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refused {
    /// It is too short, or neither RTP nor RTCP.
    #[error("malformed")]
    Malformed,
    /// Its authentication tag is wrong, or it is a replay.
    #[error("forged or replayed")]
    Forged,
    /// It is our own. It would be authentic, because both directions have the same key.
    #[error("our own packet")]
    Own,
    /// Its SSRC exceeds the limit.
    #[error("beyond the limit of SSRCs")]
    TooManySources,
    /// It belongs to another stream than the listener's first, or has another payload type; or it
    /// is media, which a listener does not send.
    #[error("a packet of another stream")]
    OtherStream,
    /// Its sequence number is too far from those of its stream.
    #[error("a sequence number too far from those of its stream")]
    Implausible,
}

/// Why an end cannot be configured so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The interval is out of range.
    #[error("packets must be {} to {} ms apart", MIN_INTERVAL.as_millis(), MAX_INTERVAL.as_millis())]
    Interval,
    /// There is nothing to send.
    #[error("a stream must have at least one packet")]
    Empty,
    /// A payload type is not dynamic (RFC 3551, section 6), or both are equal.
    #[error("payload types must be different ones from 96 to 127")]
    PayloadType,
    /// The playout limit is out of range.
    #[error("the playout limit must be 1 ms to {} s", MAX_PLAYOUT_LIMIT.as_secs())]
    PlayoutLimit,
    /// The share of parity is out of range.
    #[error("the share of parity must be above 0, and at most 1")]
    Share,
    /// The cipher rejects the key.
    #[error("SRTP rejects the key: {0}")]
    Key(String),
}
