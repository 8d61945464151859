//! Sends lost datagrams again, unchanged: by the connection, or by the second uplink.

use quiche::sidekick::SentPacket;
use quiche::{BufFactory, Connection};
use sidekick_protocol::sender::RelayAs;
use sidekick_protocol::{Allowance, Sender};
use std::time::{Duration, Instant};

/// The most bytes that the budget saves up.
const MAX_ALLOWANCE: usize = 256 * 1024;
/// The connection has repaired or abandoned an older datagram.
const MAX_AGE: Duration = Duration::from_secs(2);
/// A datagram is not re-injected behind more later packets than this. quiche's receivers, and
/// others, drop a packet as a duplicate if it arrives behind 128 later ones.
const REORDERING_WINDOW: u16 = 100;

/// Datagrams that a second uplink may have to carry when the first falls silent: those of 200 ms at
/// 25 Mbit/s.
const KEPT_TO_CARRY: usize = 512;
/// The traffic class of what is relayed. The plugin does not know that of the application's socket.
pub(super) const UNMARKED: u8 = 0;

/// A budget for re-injection of the datagrams that the connection keeps.
#[derive(Debug)]
pub(super) struct Reinjection {
    allowance: Allowance,
    /// The highest packet number sent.
    latest: u64,
    /// Datagrams that the second uplink took in place of the connection.
    relayed: u64,
    /// Scratch of [`Reinjection::resend`], kept to avoid allocation.
    scratch_again: Vec<u64>,
    /// Scratch of [`Reinjection::resend`], kept to avoid allocation.
    scratch_late: Vec<u64>,
}

/// The outcome of [`Reinjection::resend`] for lost packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resent<'a> {
    /// The connection re-injects these, or the second uplink has taken them.
    pub(super) again: &'a [u64],
    /// These are too far behind, are no longer kept, or exceed the budget.
    pub(super) late: &'a [u64],
}

impl Default for Reinjection {
    fn default() -> Self {
        Self {
            allowance: Allowance::new(MAX_ALLOWANCE),
            latest: 0,
            relayed: 0,
            scratch_again: Vec::new(),
            scratch_late: Vec::new(),
        }
    }
}

impl Reinjection {
    /// Lets the connection keep the datagrams that may be re-injected, or carried.
    pub(super) fn attach<F: BufFactory>(conn: &mut Connection<F>, carries: bool) {
        let kept = 1 + usize::from(REORDERING_WINDOW);
        conn.sidekick_keep_datagrams(if carries { KEPT_TO_CARRY } else { kept });
    }

    /// Notes a packet of the connection's log.
    pub(super) fn on_sent(&mut self, packet: &SentPacket) {
        self.latest = self.latest.max(packet.packet_number);
        if !packet.again {
            self.allowance.earn(packet.size);
        }
    }

    /// The packet number after the latest.
    pub(super) fn next(&self) -> u64 {
        self.latest + 1
    }

    /// Datagrams that the second uplink repaired.
    pub(super) fn relayed(&self) -> u64 {
        self.relayed
    }

    /// Passes lost packets to the second uplink if that is of use, and otherwise to the connection,
    /// to re-inject them.
    pub(super) fn resend<F: BufFactory>(
        &mut self,
        conn: &mut Connection<F>,
        sender: &mut Sender,
        path_id: usize,
        lost: &[u64],
        now: Instant,
    ) -> Resent<'_> {
        self.scratch_again.clear();
        self.scratch_late.clear();
        for &packet_number in lost {
            let behind = self.latest.saturating_sub(packet_number) > u64::from(REORDERING_WINDOW);
            let kept = conn
                .sidekick_kept(path_id, packet_number)
                .filter(|(_, sent)| !behind && now.saturating_duration_since(*sent) <= MAX_AGE);
            let kept = kept.filter(|(datagram, _)| self.allowance.spend(datagram.len()));
            let Some(len) = kept.map(|(datagram, _)| datagram.len()) else {
                self.scratch_late.push(packet_number);
                continue;
            };
            let is_relayed = sender.repairs_by_second_link(now)
                && conn.sidekick_sends_elsewhere(path_id, packet_number, now)
                && conn.sidekick_kept(path_id, packet_number).is_some_and(|(datagram, _)| {
                    let (tag, class, confirm) = (packet_number, UNMARKED, false);
                    let relay = RelayAs { tag, again: None, class, wait_ms: 0, confirm };
                    sender.relay(relay, datagram, now)
                });
            self.relayed += u64::from(is_relayed);
            if is_relayed || conn.sidekick_resend(path_id, packet_number, now) {
                self.scratch_again.push(packet_number);
            } else {
                self.allowance.refund(len);
            }
        }
        Resent { again: &self.scratch_again, late: &self.scratch_late }
    }
}
