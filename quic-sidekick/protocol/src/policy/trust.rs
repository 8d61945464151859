//! Whether the losses that a proxy reports are plausible, and what repairs may cost.
//!
//! A proxy that reports losses which did not happen makes the sender send packets twice, and the
//! sender cannot see what arrives at the destination. But it can compare: its own polls cross the
//! same near segment as the packets, and at least as many of them stay unanswered as packets are
//! lost. And what repairs may cost for long is bounded in any case. All flows that a proxy reports
//! count together, so that short ones are no way around this.

use super::is_last;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// While a proxy reports losses, it is polled with every so many packets.
const EVERY: u64 = 16;
/// So many polls must be expected to be lost before the proxy is judged.
const JUDGED: u64 = 16;
/// So long after the latest loss, the comparison ends.
const CLAIMED: Duration = Duration::from_secs(10);
/// A proxy is not believed if fewer than this part of those polls were lost. Losses come in bursts,
/// so the share of the polls varies more than that of the packets.
const PART: u64 = 4;
/// How long a proxy is not believed: at first, and at most. Each time is twice as long as the one
/// before. A proxy that was believed for as long begins with the first again.
const DISTRUST: Duration = Duration::from_secs(10);
const LONGEST_DISTRUST: Duration = Duration::from_secs(320);
/// Repairs may take this part of the programs' own bytes for long, as on a link that loses every
/// ninth packet.
const SHARE: usize = 8;
/// The part while as many polls are lost as packets, as on a link that loses every third. So many
/// polls must be expected to be lost before that counts, and half of them must be.
const SHARE_IF_CONFIRMED: usize = 2;
const CONFIRMED: u64 = 4;
/// What repairs may take beyond that, for a short time.
const SAVED: usize = 64 * 1024;
/// Bytes that the repairs of a new proxy may take at once. An impostor may name another address for
/// each flow.
const NEW: usize = 8 * 1024;
/// Second copies leave this much: losses come in bursts.
const RESERVED: usize = NEW;
/// So the repairs of all new proxies together may take this part of the programs' own bytes.
const NEW_SHARE: usize = 32;
/// Most proxies that are remembered.
const PROXIES: usize = 64;

/// What the flows of a proxy have sent and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Packets that left, with repairs.
    pub(super) packets: u64,
    /// Those that the proxy reported as lost.
    pub(super) lost: u64,
    /// Polls of the proxy, and the answers.
    pub(super) polls: u64,
    pub(super) answers: u64,
}

/// How far a proxy is believed.
#[derive(Debug)]
pub(super) struct Trust {
    /// The counts since the first loss that was reported since the latest judgement, and the time
    /// of the latest loss.
    since: Option<(Counts, Instant)>,
    /// Packets until the next poll.
    until_poll: u64,
    polled: Option<Instant>,
    /// As many polls were lost lately as packets: until then.
    confirmed_until: Option<Instant>,
    /// Bytes that repairs may take.
    budget: usize,
    /// Until when it is not believed, or since when it is again.
    until: Option<Instant>,
    /// How long it is not believed the next time.
    distrust: Duration,
    /// When one of its flows had a packet.
    used: Instant,
}

impl Trust {
    fn new(budget: usize, now: Instant) -> Self {
        Self {
            since: None,
            until_poll: EVERY,
            polled: None,
            confirmed_until: None,
            budget,
            until: None,
            distrust: DISTRUST,
            used: now,
        }
    }

    /// Notes packets of the programs, and what happened to them.
    pub(super) fn note(&mut self, counts: Counts, bytes: usize, now: Instant) {
        self.used = now;
        self.confirmed_until.take_if(|until| *until <= now);
        let is_confirmed = self.confirmed_until.is_some();
        let share = if is_confirmed { SHARE_IF_CONFIRMED } else { SHARE };
        self.budget = (self.budget + bytes / share).min(SAVED);
        self.until_poll = self.until_poll.saturating_sub(counts.packets);
        self.since.take_if(|(_, latest)| *latest + CLAIMED <= now);
        let begins = counts.lost > 0 && self.believes(now);
        match &mut self.since {
            Some((since, latest)) => {
                since.packets += counts.packets;
                since.lost += counts.lost;
                since.polls += counts.polls;
                since.answers += counts.answers;
                if counts.lost > 0 {
                    *latest = now;
                }
            }
            None if begins => {
                self.since = Some((Counts::default(), now));
            }
            None => {}
        }
        self.judge(now);
    }

    fn judge(&mut self, now: Instant) {
        let Some((Counts { packets, lost, polls, answers }, latest)) = self.since else { return };
        let expected = polls.saturating_mul(lost) / packets.max(1);
        let unanswered = polls.saturating_sub(answers);
        if expected >= CONFIRMED {
            // The answer to the latest poll may be under way.
            let is_confirmed = 2 * unanswered.saturating_sub(1) >= expected;
            self.confirmed_until = is_confirmed.then(|| latest + CLAIMED);
        }
        if expected < JUDGED {
            return;
        }
        self.since = None;
        if unanswered < expected / PART {
            if self.until.is_some_and(|until| until + self.distrust <= now) {
                self.distrust = DISTRUST;
            }
            self.until = Some(now + self.distrust);
            self.distrust = (2 * self.distrust).min(LONGEST_DISTRUST);
        }
    }

    /// Whether what the proxy reports is believed.
    pub(super) fn believes(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// Whether to poll the proxy now. `spacing`: the shortest time between two polls, so that the
    /// answer to one shows whether the other was lost.
    pub(super) fn wants_poll(&mut self, spacing: Duration, now: Instant) -> bool {
        let is_due = self.since.is_some()
            && self.until_poll == 0
            && self.polled.is_none_or(|polled| polled + spacing <= now);
        if is_due {
            (self.until_poll, self.polled) = (EVERY, Some(now));
        }
        is_due
    }

    /// Returns the bytes of a repair that did not leave.
    pub(super) fn refund(&mut self, len: usize) {
        self.budget = (self.budget + len).min(SAVED);
    }

    /// Spends the bytes of a repair with this name. Returns false, and spends
    /// nothing, if they are too many. A second copy leaves some for the first copies of others.
    pub(super) fn spend(&mut self, name: u64, len: usize) -> bool {
        let reserved = if is_last(name) { RESERVED } else { 0 };
        let left = self.budget.checked_sub(len).filter(|left| *left >= reserved);
        self.budget = left.unwrap_or(self.budget);
        left.is_some()
    }
}

/// How far each proxy is believed, by the flows of one agent or one socket together.
#[derive(Debug)]
pub struct Trusts {
    proxies: HashMap<SocketAddr, Trust>,
    /// What the repairs of new ones may take at once.
    new: usize,
}

impl Default for Trusts {
    fn default() -> Self {
        Self { proxies: HashMap::new(), new: SAVED }
    }
}

impl Trusts {
    /// Notes bytes of the programs.
    pub(super) fn note(&mut self, bytes: usize) {
        self.new = (self.new + bytes / NEW_SHARE).min(SAVED);
    }

    /// That of a proxy. If there are too many, it forgets the one that was used longest ago.
    pub(super) fn of(&mut self, proxy: SocketAddr, now: Instant) -> &mut Trust {
        let Self { proxies, new } = self;
        if proxies.len() >= PROXIES && !proxies.contains_key(&proxy) {
            let oldest = proxies.iter().min_by_key(|(_, trust)| trust.used);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                proxies.remove(&oldest);
            }
        }
        proxies.entry(proxy).or_insert_with(|| {
            let budget = NEW.min(*new);
            *new -= budget;
            Trust::new(budget, now)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn clock() -> Instant {
        Instant::now()
    }

    const PACKET: Counts = Counts { packets: 1, lost: 0, polls: 0, answers: 0 };

    #[test]
    fn a_proxy_is_believed_if_polls_are_lost_like_packets() {
        for (lost_percent, polls_lost_percent, believed) in
            [(1, 1, true), (10, 10, true), (10, 4, true), (10, 1, false), (50, 0, false)]
        {
            let now = clock();
            let mut trust = Trust::new(SAVED, now);
            let (mut polls, mut believes) = (0, true);
            for packet in 1..100_000_u64 {
                let mut counts = PACKET;
                if trust.wants_poll(Duration::ZERO, now) {
                    polls += 1;
                    counts.polls = 1;
                    counts.answers = u64::from(polls % 100 >= polls_lost_percent);
                }
                counts.lost = u64::from(packet % 100 < lost_percent);
                trust.note(counts, 1200, now);
                believes &= trust.believes(now);
            }
            assert_eq!(believes, believed, "{lost_percent} {polls_lost_percent}");
            assert!(trust.believes(now + DISTRUST));
        }
    }

    #[test]
    fn each_lie_costs_more() {
        let mut now = clock();
        let mut trust = Trust::new(SAVED, now);
        let lie = |trust: &mut Trust, now| {
            for _ in 0..1000 {
                let polls = u64::from(trust.wants_poll(Duration::ZERO, now));
                trust.note(Counts { lost: 1, polls, answers: polls, ..PACKET }, 9, now);
            }
        };
        for seconds in [10, 20, 40, 80, 160, 320, 320] {
            lie(&mut trust, now);
            now += Duration::from_secs(seconds);
            assert!(!trust.believes(now - Duration::from_millis(1)), "{seconds}");
            assert!(trust.believes(now), "{seconds}");
        }
        now += LONGEST_DISTRUST;
        lie(&mut trust, now);
        assert!(trust.believes(now + DISTRUST), "it was believed for long");
    }

    #[test]
    fn repairs_take_an_eighth_for_long() {
        let now = clock();
        let mut trust = Trust::new(SAVED, now);
        let (mut sent, mut spent) = (0, 0);
        for _ in 0..10_000 {
            trust.note(PACKET, 1000, now);
            sent += 1000;
            spent += if trust.spend(1, 1000) { 1000 } else { 0 };
            assert!(spent <= SAVED + sent / SHARE, "{spent} of {sent}");
        }
        assert!(spent + 2000 > SAVED + sent / SHARE, "{spent} of {sent}");
    }

    /// On a link that loses 15 %, an eighth repairs not even the losses of repairs.
    #[test]
    fn repairs_take_more_while_polls_are_lost_like_packets() {
        for (polls_lost_percent, least, most) in [(15, 0.4, 0.5), (5, 0.12, 0.14)] {
            let now = clock();
            let mut trust = Trust::new(NEW, now);
            let (mut polls, mut spent) = (0_u64, 0);
            let packets = 20_000_u64;
            for packet in 0..packets {
                let mut counts = Counts { lost: u64::from(packet % 100 < 15), ..PACKET };
                if trust.wants_poll(Duration::ZERO, now) {
                    polls += 1;
                    counts.polls = 1;
                    // Spread evenly.
                    let lost =
                        polls * polls_lost_percent / 100 > (polls - 1) * polls_lost_percent / 100;
                    counts.answers = u64::from(!lost);
                }
                trust.note(counts, 1000, now);
                spent += u32::from(trust.spend(1, 1000));
            }
            let part = f64::from(spent) / packets as f64;
            assert!((least..=most).contains(&part), "{polls_lost_percent} %: {part}");
            // Without losses it ends, whether or not the proxy was just judged.
            trust.note(PACKET, 0, now + CLAIMED);
            assert!(trust.confirmed_until.is_none());
        }
    }

    /// Of the first packets, each repair is sent twice.
    #[test]
    fn second_copies_take_nothing_from_first_ones() {
        for (every, least, most) in [(25, 8, 8), (10, 1, 10)] {
            let now = clock();
            let mut trust = Trust::new(NEW, now);
            let mut second = 0;
            for packet in 1..=200 {
                trust.note(PACKET, 1200, now);
                if packet % every == 0 {
                    assert!(trust.spend(packet, 1200), "{packet}");
                    second += u32::from(trust.spend(crate::policy::last_name(packet), 1200));
                }
            }
            assert!((least..=most).contains(&second), "{every}: {second}");
        }
    }

    #[test]
    fn polls_follow_losses_and_packets() {
        let now = clock();
        let mut trust = Trust::new(SAVED, now);
        let spacing = Duration::from_millis(5);
        let pass = |trust: &mut Trust, now| trust.note(Counts { packets: EVERY, ..PACKET }, 9, now);
        pass(&mut trust, now);
        assert!(!trust.wants_poll(spacing, now), "no loss");
        trust.note(Counts { packets: 0, lost: 1, ..PACKET }, 0, now);
        assert!(trust.wants_poll(spacing, now));
        assert!(!trust.wants_poll(spacing, now + spacing), "no packet");
        pass(&mut trust, now);
        assert!(!trust.wants_poll(spacing, now + spacing / 2));
        assert!(trust.wants_poll(spacing, now + spacing));
        pass(&mut trust, now + CLAIMED);
        assert!(!trust.wants_poll(spacing, now + CLAIMED), "no loss for long");
    }

    #[test]
    fn another_address_for_each_flow_takes_little_more() {
        let (mut trusts, now) = (Trusts::default(), clock());
        let (mut sent, mut spent) = (0, 0);
        for number in 0..1000_u16 {
            let proxy = SocketAddr::from(([192, 0, 2, 1], number));
            for _ in 0..150 {
                trusts.note(600);
                let trust = trusts.of(proxy, now);
                trust.note(Counts { lost: 1, ..PACKET }, 600, now);
                sent += 600;
                spent += if trust.spend(1, 600) { 600 } else { 0 };
            }
        }
        assert!(spent <= SAVED + sent / SHARE + sent / NEW_SHARE, "{spent} of {sent}");
    }

    #[test]
    fn proxies_are_remembered_up_to_a_limit() {
        let (mut trusts, now) = (Trusts::default(), clock());
        for number in 0..1000_u16 {
            let proxy = SocketAddr::from(([192, 0, 2, 1], number));
            trusts.of(proxy, now + Duration::from_millis(number.into()));
            assert!(trusts.proxies.len() <= PROXIES);
        }
    }
}
