//! What the agent asks of a proxy for a flow.

use std::time::Duration;

use sidekick_protocol::{Filter, Identification, Position, SenderConfig, Terms};

use super::kind::Kind;

/// The proxy sends a quACK at most this long after the first unreported packet, so a repair leaves
/// this long and a near RTT after the packets that follow the lost one.
const QUACK_INTERVAL: Duration = Duration::from_millis(1);
/// Losses that a quACK can identify: at 1 Gbit/s, a fifth of the packets of that time.
const THRESHOLD: u8 = 20;
/// The same for calls, which get a quACK for each packet or two. Larger quACKs would be as long as
/// the packets.
const THRESHOLD_OF_CALLS: u8 = 4;
/// Packets without a loss before the agent asks for fewer quACKs, of a flow whose sender slows down
/// after losses: enough for the beginning of its slow start.
const SLOW_START: u32 = 64;
/// The same for other flows.
const FEW: u32 = 8;
/// Packets that a flow remembers until a proxy accepts: at 1 Gbit/s those of 11 ms.
const UNANSWERED: usize = 1024;

/// The configuration of a flow's sender, apart from its terms.
pub(super) fn for_flow(config: SenderConfig) -> SenderConfig {
    SenderConfig { keep: None, unanswered: UNANSWERED, ..config }
}

/// The terms for a flow of this kind, whose packets have their identifier there.
pub(super) fn terms(kind: Kind, position: Position) -> Terms {
    let threshold = if kind == Kind::Rtp { THRESHOLD_OF_CALLS } else { THRESHOLD };
    let every = Some(QUACK_INTERVAL);
    let identification = Identification { position, filter: Filter::All };
    Terms { threshold, every_packets: None, every, identification }
}

/// Packets of a flow of this kind that must arrive without a loss before the agent asks for fewer
/// quACKs.
pub(super) fn frugal_after(kind: Kind) -> u32 {
    if kind.slows_down() { SLOW_START } else { FEW }
}

/// Bytes that a flow takes beside its copies, until a proxy accepts.
pub(super) fn bytes() -> u64 {
    for_flow(SenderConfig::default()).unanswered_bytes() as u64
}
