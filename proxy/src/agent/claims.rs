//! Whether the losses that a proxy reports are plausible, and what repairs may cost.
//!
//! A proxy that reports losses which did not happen makes the agent send packets twice, and the
//! agent cannot see what arrives at the destination. But it can compare: its own polls cross the
//! same near segment as the flow's packets, and at least as many of them stay unanswered as packets
//! are lost. And what repairs may cost for long is bounded in any case.

use std::time::{Duration, Instant};

/// While a proxy reports losses, the agent polls it with every so many packets.
const EVERY: u64 = 16;
/// So many polls must be expected to be lost before the agent judges the proxy.
const JUDGED: u64 = 16;
/// So long after the latest loss, the comparison ends.
const CLAIMED: Duration = Duration::from_secs(10);
/// A proxy is not believed if fewer than this part of those polls were lost. Losses come in bursts,
/// so the share of the polls varies more than that of the packets.
const PART: u64 = 4;
/// Repairs may take this part of the program's own bytes for long, as on a link that loses every
/// ninth packet.
const SHARE: usize = 8;
/// What repairs may take beyond that, for a short time.
const SAVED: usize = 256 * 1024;

/// Counts of a flow since it began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Packets that left, with repairs.
    pub(super) packets: u64,
    /// Those that the proxy reported as lost.
    pub(super) lost: u64,
    /// Polls of the proxy, and the answers.
    pub(super) polls: u64,
    pub(super) answers: u64,
}

/// Compares the losses that a proxy reports with those of the agent's own polls.
#[derive(Debug)]
pub(super) struct Claims {
    /// The counts at the first loss that was reported since the latest judgement, and the time of
    /// the latest loss.
    since: Option<(Counts, Instant)>,
    /// Packets until the next poll.
    until_poll: u64,
    polled: Option<Instant>,
    /// Bytes that repairs may take.
    budget: usize,
}

impl Default for Claims {
    fn default() -> Self {
        Self { since: None, until_poll: EVERY, polled: None, budget: SAVED }
    }
}

impl Claims {
    /// Notes a packet of the program.
    pub(super) fn on_packet(&mut self, len: usize) {
        self.budget = (self.budget + len / SHARE).min(SAVED);
        self.until_poll = self.until_poll.saturating_sub(1);
    }

    /// Whether to poll the proxy now. `spacing`: the shortest time between two polls, so that the
    /// answer to one shows whether the other was lost.
    pub(super) fn wants_poll(&mut self, spacing: Duration, now: Instant) -> bool {
        self.since.take_if(|(_, latest)| *latest + CLAIMED <= now);
        let is_due = self.since.is_some()
            && self.until_poll == 0
            && self.polled.is_none_or(|polled| polled + spacing <= now);
        if is_due {
            (self.until_poll, self.polled) = (EVERY, Some(now));
        }
        is_due
    }

    /// Notes losses that the proxy reported. Returns false if it is not to be believed.
    pub(super) fn on_losses(&mut self, counts: Counts, now: Instant) -> bool {
        let Some((since, latest)) = &mut self.since else {
            self.since = Some((counts, now));
            return true;
        };
        *latest = now;
        let polls = counts.polls.saturating_sub(since.polls);
        let packets = counts.packets.saturating_sub(since.packets).max(1);
        let expected = polls.saturating_mul(counts.lost.saturating_sub(since.lost)) / packets;
        if expected < JUDGED {
            return true;
        }
        let answers = counts.answers.saturating_sub(since.answers);
        *since = counts;
        polls.saturating_sub(answers) >= expected / PART
    }

    /// Spends the bytes of a repair. Returns false, and spends nothing, if they are too many.
    pub(super) fn spend(&mut self, len: usize) -> bool {
        let left = self.budget.checked_sub(len);
        self.budget = left.unwrap_or(self.budget);
        left.is_some()
    }

    /// Forgets what was compared, because another proxy may report the flow from now on.
    pub(super) fn begin_again(&mut self) {
        (self.since, self.polled) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::clock;

    #[test]
    fn a_proxy_is_believed_if_polls_are_lost_like_packets() {
        for (lost_percent, polls_lost_percent, believed) in
            [(1, 1, true), (10, 10, true), (10, 4, true), (10, 1, false), (50, 0, false)]
        {
            let mut claims = Claims::default();
            let mut counts = Counts::default();
            let mut judged = true;
            for packet in 1..100_000_u64 {
                claims.on_packet(1200);
                counts.packets += 1;
                if claims.wants_poll(Duration::ZERO, clock()) {
                    counts.polls += 1;
                    counts.answers += u64::from(counts.polls % 100 >= polls_lost_percent);
                }
                if packet % 100 < lost_percent {
                    counts.lost += 1;
                    judged &= claims.on_losses(counts, clock());
                }
            }
            assert_eq!(judged, believed, "{lost_percent} {polls_lost_percent}");
        }
    }

    #[test]
    fn repairs_take_an_eighth_for_long() {
        let mut claims = Claims::default();
        let (mut sent, mut spent) = (0, 0);
        for _ in 0..10_000 {
            claims.on_packet(1000);
            sent += 1000;
            spent += if claims.spend(1000) { 1000 } else { 0 };
            assert!(spent <= SAVED + sent / SHARE, "{spent} of {sent}");
        }
        assert!(spent + 2000 > SAVED + sent / SHARE, "{spent} of {sent}");
    }

    #[test]
    fn polls_follow_losses_and_packets() {
        let (mut claims, now) = (Claims::default(), clock());
        let spacing = Duration::from_millis(5);
        let pass = |claims: &mut Claims| (0..EVERY).for_each(|_| claims.on_packet(9));
        pass(&mut claims);
        assert!(!claims.wants_poll(spacing, now), "no loss");
        claims.on_losses(Counts::default(), now);
        assert!(claims.wants_poll(spacing, now));
        assert!(!claims.wants_poll(spacing, now + spacing), "no packet");
        pass(&mut claims);
        assert!(!claims.wants_poll(spacing, now + spacing / 2));
        assert!(claims.wants_poll(spacing, now + spacing));
        pass(&mut claims);
        assert!(!claims.wants_poll(spacing, now + CLAIMED), "no loss for long");
    }
}
