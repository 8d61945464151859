//! The rules of choice, a function each.

use super::{Chosen, Cipher, Help, Network, Role, Traffic, Tune, Tuned};
use crate::Mode;
use std::time::Duration;

/// The least UDP payload that every path of QUIC carries (RFC 9000, section 14), in bytes.
const LEAST_PAYLOAD: u16 = 1200;
/// The most that a UDP datagram carries over IPv4 (RFC 9000, section 18.2), in bytes.
const MOST_PAYLOAD: u16 = 65_527;
/// Headers of IPv6 and UDP, in bytes. Those of IPv4 are shorter.
const HEADERS: u16 = 48;
/// The least MTU of IPv6 (RFC 8200, section 5), and that of Ethernet, in bytes.
const LEAST_MTU: u16 = 1280;
const ETHERNET_MTU: u16 = 1500;

/// The default of RFC 9000, section 18.2, and the best of SEC-QUIC.
const ACK_DELAY: Duration = Duration::from_millis(25);
/// The transport parameter has 14 bits, in milliseconds.
const MOST_ACK_DELAY: Duration = Duration::from_millis((1 << 14) - 1);

/// Initial windows in packets: of RFC 9002, section 7.2, and of Google's QUIC.
const INITIAL_WINDOW: u16 = 10;
const PACED_INITIAL_WINDOW: u16 = 32;
const LEAST_INITIAL_WINDOW: u16 = 2;
/// An object of this many bytes fits in the initial window of RFC 9002, with room for headers, tags
/// and the frames of HTTP/3.
const AT_ONCE: u64 = 10_000;

/// Before a sample (RFC 9002, section 6.2.2).
const INITIAL_RTT: Duration = Duration::from_millis(333);
/// A geostationary orbit adds 480 to 560 ms to the path on the ground.
const GEO_RTT: Duration = Duration::from_millis(700);
/// The first probe timeout is three times as long.
const LEAST_CHOSEN_RTT: Duration = Duration::from_millis(10);
const LEAST_INITIAL_RTT: Duration = Duration::from_millis(1);
const MOST_INITIAL_RTT: Duration = Duration::from_secs(10);

/// The stream window where the path is unknown, in bytes: 100 Mbit/s at a round trip of 1.3 s.
/// quiche's own limit, too.
const WINDOW: u64 = 16 << 20;
/// The stream window for small messages, in bytes.
const MESSAGES_WINDOW: u64 = 1 << 20;
const LEAST_WINDOW: u64 = 1 << 20;
const MOST_WINDOW: u64 = 64 << 20;
/// The largest window that the transport parameters carry, with room for the connection's.
const MOST_OWN_WINDOW: u64 = 1 << 60;

const BBR2: &str = "bbr2_gcongestion";

pub(super) fn choose(tune: &Tune) -> Tuned {
    let mode = mode(tune);
    let controller = controller(tune, mode.value);
    let pacing = pacing(tune, controller.value);
    let payload = payload(tune);
    Tuned {
        payload,
        discover_mtu: tune.payload.is_none(),
        cipher: cipher(),
        ack_delay: ack_delay(tune),
        controller,
        pacing,
        initial_window: initial_window(tune, controller.value, pacing.value, payload.value),
        initial_rtt: initial_rtt(tune),
        stream_window: window(tune),
        mode,
    }
}

fn payload(tune: &Tune) -> Chosen<u16> {
    let own = tune.payload.map(|bytes| bytes.clamp(LEAST_PAYLOAD, MOST_PAYLOAD));
    Chosen::own_or(own, || match tune.mtu {
        Some(mtu) => Chosen::new(
            mtu.max(LEAST_MTU) - HEADERS,
            "path MTU discovery finds what passes, and the interface carries no more",
        ),
        None => Chosen::new(
            ETHERNET_MTU - HEADERS,
            "path MTU discovery finds what passes, and few paths carry more",
        ),
    })
}

fn cipher() -> Chosen<Cipher> {
    match Cipher::preferred() {
        Cipher::Aes => {
            Chosen::new(Cipher::Aes, "the processor has AES, so BoringSSL puts it first")
        }
        Cipher::ChaCha20 => {
            Chosen::new(Cipher::ChaCha20, "the processor lacks AES, so BoringSSL puts this first")
        }
    }
}

fn ack_delay(tune: &Tune) -> Chosen<Duration> {
    let own = tune.ack_delay.map(|delay| delay.min(MOST_ACK_DELAY));
    Chosen::own_or(own, || {
        Chosen::new(ACK_DELAY, "RFC 9000 and SEC-QUIC have it, and quiche seldom waits so long")
    })
}

fn mode(tune: &Tune) -> Chosen<Option<Mode>> {
    let own = match tune.help {
        Help::Choose => None,
        Help::Off => Some(None),
        Help::Mode(mode) => Some(Some(mode)),
    };
    Chosen::own_or(own, || match (tune.network, tune.role, tune.controller) {
        (Network::Wired, ..) => Chosen::new(None, "a wired network loses next to nothing"),
        (Network::Unknown, Role::Server, _) => {
            Chosen::new(None, "the lossy segment is seldom at the server")
        }
        // With a controller of the application, the choice is a mode that works with any.
        (.., Some(own)) if !Mode::Auto.suits(own) => {
            Chosen::new(Some(Mode::Receive), "it goes with any controller")
        }
        _ => Chosen::new(Some(Mode::Auto), "it chooses the repair by what it measures"),
    })
}

fn controller(tune: &Tune, mode: Option<Mode>) -> Chosen<&'static str> {
    Chosen::own_or(tune.controller, || match mode.and_then(Mode::congestion_control) {
        Some(name) if name != BBR2 => Chosen::new(name, "the Sidekick mode goes with it"),
        _ => Chosen::new(BBR2, "random losses do not slow it down"),
    })
}

fn pacing(tune: &Tune, controller: &str) -> Chosen<bool> {
    Chosen::own_or(tune.pacing, || match tune.object {
        // BBR2 would pace these packets over a third of a round trip.
        Some(bytes) if bytes <= AT_ONCE && controller == BBR2 => {
            Chosen::new(false, "the object fits in the initial window of RFC 9002")
        }
        _ => Chosen::new(true, "bursts overflow short queues, and BBR2 measures by its pace"),
    })
}

fn initial_window(tune: &Tune, controller: &str, paced: bool, payload: u16) -> Chosen<u16> {
    let own = tune.initial_window.map(|packets| packets.max(LEAST_INITIAL_WINDOW));
    Chosen::own_or(own, || {
        // quiche paces BBR2 alone.
        if !paced || controller != BBR2 {
            return Chosen::new(INITIAL_WINDOW, "RFC 9002 has it for what leaves in a burst");
        }
        match bandwidth_delay_product(tune).map(|bytes| bytes / u64::from(payload)) {
            Some(packets) if packets < PACED_INITIAL_WINDOW.into() => {
                let packets = u16::try_from(packets).unwrap_or(PACED_INITIAL_WINDOW);
                Chosen::new(packets.max(INITIAL_WINDOW), "the path holds no more")
            }
            _ => Chosen::new(PACED_INITIAL_WINDOW, "Google's QUIC has it, and BBR2 paces it"),
        }
    })
}

fn initial_rtt(tune: &Tune) -> Chosen<Duration> {
    let own = tune.initial_rtt.map(|rtt| rtt.clamp(LEAST_INITIAL_RTT, MOST_INITIAL_RTT));
    let known = tune.rtt.filter(|rtt| !rtt.is_zero());
    Chosen::own_or(own, || match (known, tune.network) {
        (Some(rtt), _) => Chosen::new(
            rtt.saturating_add(rtt / 4).clamp(LEAST_CHOSEN_RTT, MOST_INITIAL_RTT),
            "it is the expected round trip and a quarter, since BBR2 takes it for the minimum",
        ),
        (None, Network::Geo) => Chosen::new(GEO_RTT, "a geostationary path is that long"),
        _ => Chosen::new(INITIAL_RTT, "RFC 9002 has it for an unknown path"),
    })
}

fn window(tune: &Tune) -> Chosen<u64> {
    let own = tune.window.map(|bytes| bytes.min(MOST_OWN_WINDOW));
    Chosen::own_or(own, || match (bandwidth_delay_product(tune), tune.traffic) {
        (Some(bytes), _) => Chosen::new(
            bytes.saturating_mul(2).clamp(LEAST_WINDOW, MOST_WINDOW),
            "it is twice what the path holds, within 1 and 64 MiB",
        ),
        (None, Traffic::Messages) => Chosen::new(MESSAGES_WINDOW, "messages are small"),
        _ => Chosen::new(WINDOW, "it is room for 100 Mbit/s at any round trip up to 1.3 s"),
    })
}

/// The bytes that the path holds, if rate and round trip are known.
fn bandwidth_delay_product(tune: &Tune) -> Option<u64> {
    let rtt = match (tune.rtt, tune.network) {
        (Some(rtt), _) => rtt,
        (None, Network::Geo) => GEO_RTT,
        _ => return None,
    };
    let bits = u128::from(tune.rate?).saturating_mul(rtt.as_micros()) / 1_000_000;
    Some(u64::try_from(bits / 8).unwrap_or(u64::MAX))
}
