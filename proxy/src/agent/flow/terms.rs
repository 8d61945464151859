//! What the agent asks of a proxy for a flow, and when that changes.

use std::time::{Duration, Instant};

use sidekick_protocol::{Filter, Identification, Position, SenderConfig, Terms};

use super::super::kind::Kind;
use super::super::looks::Alike;
use super::HelpedFlow;

/// The proxy sends a quACK at most this long after the first unreported packet. So a repair leaves
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
/// After this many losses, the agent decides whether the link reorders packets.
const JUDGED: u64 = 64;
/// In a flow whose packets overtake each other, a missing packet counts as lost after this many
/// later ones, as in senders (RFC 9002, section 6.1.1).
const REORDERED: u32 = 3;
/// So many packets are compared with those before them, to see whether they can be told apart. They
/// cannot if more than half of them are alike.
const COMPARED: u32 = 16;
/// So many ends that are alike show that packets need another identifier.
const ENDS_ALIKE: u32 = 2;
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
pub(in super::super) fn bytes() -> u64 {
    for_flow(SenderConfig::default()).unanswered_bytes() as u64
}

impl HelpedFlow {
    /// Agrees on other terms with the proxy.
    pub(super) fn begin_again(&mut self, now: Instant) {
        self.sender.set_terms(terms(self.kind(), self.position));
        self.apply_order();
        self.reception = None;
        // The help begins again after a pause anyway.
        if self.rests_until.is_none() {
            self.sender.start(self.flow, now);
        }
    }

    /// Compares a packet with those before it that left (0) or arrived (1). If some ended alike,
    /// the whole of each identifies it from now on.
    pub(super) fn compare(&mut self, direction: usize, payload: &[u8], now: Instant) {
        let kind = if direction == 0 { self.kind() } else { self.arriving.kind };
        let Some(alike) = self.alike.get_mut(direction).filter(|_| kind.may_end_alike()) else {
            return;
        };
        alike.note(payload);
        let Alike { noted, repeated, same, .. } = *alike;
        if noted >= COMPARED {
            *alike = Alike::default();
        }
        if direction == 0 && noted >= COMPARED {
            self.are_the_same = same > COMPARED / 2;
        }
        if repeated >= ENDS_ALIKE && self.position != Position::Whole {
            self.position = Position::Whole;
            self.under_way.set_position(self.position);
            self.begin_again(now);
        }
    }

    /// Declares losses as early as the order of packets allows. Where they overtake each other, few
    /// quACKs do not show whether one is lost or late.
    pub(super) fn apply_order(&mut self) {
        let (threshold, frugal) =
            if self.reorders { (REORDERED, None) } else { (1, Some(frugal_after(self.kind()))) };
        self.sender.set_packet_threshold(threshold);
        self.sender.set_frugal(frugal);
    }

    /// Declares losses later from now on if more than a quarter of the last ones turned out to be
    /// late.
    pub(super) fn judge_losses(&mut self) {
        let stats = self.sender.stats();
        let (lost, turned_up) = (stats.early_lost - self.judged.0, stats.turned_up - self.judged.1);
        if lost >= JUDGED {
            self.judged = (stats.early_lost, stats.turned_up);
            if turned_up > lost / 4 {
                self.reorders = true;
                self.apply_order();
            }
        }
    }
}
