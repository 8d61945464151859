//! The sender against a proxy on a simulated near segment.

mod adversity;
mod discovery;
mod flood;
mod missed;
mod order;
mod schedule;
mod short;
mod steady;
mod sums;
mod thousand;

use super::established::Established;
use super::handshaking::Handshaking;
use super::session::State;
use super::*;
use crate::testing::{Near, PROXY, Simulation, configured, key, proxy};
use crate::wire::{MAX_DATAGRAM_LEN, Message, Quack, ShortQuack, Words};
use crate::{ObserverConfig, Terms};
use std::num::NonZeroU16;

const MS: Duration = Duration::from_millis(1);

/// Access to the first session's state, and injection of a proxy's messages.
impl Sender {
    fn handshaking(&mut self) -> Option<&mut Handshaking> {
        match &mut self.sessions.first_mut()?.state {
            State::Handshaking(handshaking) => Some(handshaking),
            _ => None,
        }
    }

    fn established(&mut self) -> Option<&mut Established> {
        match &mut self.sessions.first_mut()?.state {
            State::Established(established) => Some(established),
            _ => None,
        }
    }

    /// The session's history.
    fn history(&mut self) -> &mut history::History {
        match &mut self.sessions[0].state {
            State::Closed => panic!("the session is closed"),
            State::Handshaking(handshaking) => &mut handshaking.history,
            State::Established(established) => &mut established.history,
        }
    }

    /// Handles a datagram of `len` bytes, as if from the proxy's address.
    fn inject_datagram(
        &mut self,
        datagram: Datagram<'_>,
        len: usize,
        now: Instant,
    ) -> Result<(), HandleError> {
        self.sessions[0].on_datagram(datagram, len, &mut self.effects, now)
    }

    /// Handles a message, as if from the proxy and sealed.
    fn inject(
        &mut self,
        message: Message<'_>,
        sequence: u32,
        len: usize,
        now: Instant,
    ) -> Result<(), HandleError> {
        let (state, mut context) = self.sessions[0].split(&mut self.effects, now);
        let State::Established(established) = state else {
            return Err(HandleError::OtherSession);
        };
        let outcome = established.on_message(message, sequence, len, &mut context);
        self.sessions[0].apply(&mut self.effects, now);
        outcome
    }
}

fn near(loss_percent: u64) -> Near {
    Near { delay: MS, jitter: Duration::ZERO, loss_percent }
}

fn simulation(near: Near, seed: u64) -> Simulation {
    Simulation::new(configured(), ObserverConfig::default(), near, seed)
}

/// A simulation whose first packets are reported.
fn assisted(near: Near, seed: u64) -> Simulation {
    let mut s = simulation(near, seed);
    for _ in 0..60_000 {
        s.send(Some(false));
        s.run(MS);
        if s.sender.assistance() == Assistance::Assisted {
            s.run(200 * MS);
            return s;
        }
    }
    panic!("seed {seed}: never assisted: {:?}", s.sender.stats());
}

#[test]
fn a_lossless_flow_is_assisted_without_declared_losses() {
    let mut s = simulation(near(0), 1);
    s.stream(1000, MS);
    s.run(500 * MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    assert_eq!(s.declared, []);
    assert_eq!(s.sender.stats().undecodable, 0);
    assert!(s.sender.history().is_empty(), "every packet was reported");
    // The packets that passed before the first epoch are exceptions.
    let known = s.received.len();
    assert!(
        (950..=1000).contains(&known) && s.received.contains(&999),
        "{known} are known to have been received"
    );
    assert_eq!(s.sender.near_rtt(), Some(2 * MS));
    // One quACK per 30 ms, and a few polls at the beginning and the end.
    assert!((30..45).contains(&s.sender.stats().quacks_received), "{:?}", s.sender.stats());
}

#[test]
fn every_loss_is_detected_and_nothing_else() {
    for percent in [1, 4, 15, 30] {
        let mut renewals = 0;
        for seed in 0..60 {
            let mut s = assisted(near(percent), seed);
            let from = s.send(Some(false));
            let epochs = s.sender.stats().epochs;
            s.stream(1500, MS);
            s.run(2000 * MS);
            assert_eq!(s.false_alarms(), [0; 0], "seed {seed}, {percent} %");
            let renewed = s.sender.stats().epochs - epochs;
            // The end-to-end mechanism covers the unreported packets of an ended epoch.
            if renewed == 0 {
                assert_eq!(
                    s.overlooked(from),
                    [0; 0],
                    "seed {seed}, {percent} %: {:?}",
                    s.sender.stats()
                );
            }
            renewals += renewed;
        }
        assert!(
            renewals == 0 || percent == 30 && renewals < 6,
            "{percent} %: {renewals} new epochs in 60 runs"
        );
    }
}

#[test]
fn a_loss_in_the_middle_is_detected_with_the_next_quack() {
    let mut s = assisted(near(0), 7);
    s.stream(10, MS);
    let lost = s.send(Some(true));
    s.stream(60, MS);
    let [(tag, after)] = s.declared[..] else { panic!("{:?}", s.declared) };
    assert_eq!(tag, lost);
    assert!(after <= 30 * MS + 4 * MS + 2 * MS, "{after:?}");
}

/// SPEC.md, section 7.4: about 1.1 near RTT and one near RTT.
#[test]
fn a_lost_last_packet_is_detected_after_two_near_rtts() {
    let mut s = assisted(Near { delay: 10 * MS, ..near(0) }, 8);
    s.stream(50, MS);
    s.run(200 * MS);
    let lost = s.send(Some(true));
    s.run(100 * MS);
    let [(tag, after)] = s.declared[..] else { panic!("{:?}", s.declared) };
    assert_eq!(tag, lost);
    assert!((41 * MS..45 * MS).contains(&after), "{after:?}");
}

#[test]
fn a_proxy_that_does_not_answer_costs_little_memory() {
    for (wanted, most) in [(0, 1), (300, 300), (8192, 8192), (9000, 8192)] {
        let config = SenderConfig { unanswered: wanted, ..configured() };
        let mut s = simulation(near(0), 4);
        s.sender = Sender::new(config, key(4));
        s.near.loss_percent = 100;
        s.sender.start(s.flow, s.now);
        s.stream(10_000, MS / 100);
        assert_eq!(s.sender.history().pending.len(), most);
        assert!(s.sender.history().pending.capacity() <= most.next_power_of_two().max(4));
        // The sender sends HELLOs less and less often. It forgets packets that an epoch cannot
        // begin with.
        s.run(Duration::from_secs(600));
        assert_eq!(s.sender.history().pending.capacity(), 0);
        s.near.loss_percent = 0;
        s.stream(100, Duration::from_secs(1));
        assert_eq!(s.sender.assistance(), Assistance::Assisted);
    }
}

#[test]
fn without_polls_a_lost_last_packet_is_not_detected() {
    let config = SenderConfig { poll: false, ..configured() };
    let mut s = Simulation::new(config, ObserverConfig::default(), near(0), 9);
    s.stream(100, MS);
    s.send(Some(true));
    s.run(500 * MS);
    assert_eq!(s.declared, []);
}

#[test]
fn packets_that_cannot_overtake_are_lost_with_the_next_quack_and_no_poll() {
    let terms = Terms { every_packets: NonZeroU16::new(2), every: None, ..Terms::default() };
    let config = SenderConfig { terms, poll: false, packet_threshold: 1, ..configured() };
    let mut s = Simulation::new(config, ObserverConfig::default(), near(0), 15);
    s.stream(20, 20 * MS);
    let mut waits = Vec::new();
    for _ in 0..2 {
        s.stream(1, 20 * MS);
        let lost = s.send(Some(true));
        s.run(20 * MS);
        s.stream(4, 20 * MS);
        let (tag, waited) = s.declared.pop().unwrap();
        assert_eq!(tag, lost);
        waits.push(waited);
    }
    waits.sort();
    assert_eq!(
        waits,
        [22 * MS, 42 * MS],
        "the packet after the lost one brings a quACK, or the one after that"
    );
    assert_eq!(s.false_alarms(), [0; 0]);
}

#[test]
fn reordering_of_two_packets_is_no_loss() {
    for seed in 0..40 {
        let jitter = Near { delay: 5 * MS, jitter: 2 * MS, loss_percent: 0 };
        let mut s = assisted(jitter, seed);
        s.stream(1000, MS);
        s.run(500 * MS);
        assert_eq!(s.false_alarms(), [0; 0], "seed {seed}");
    }
}

#[test]
fn strong_reordering_causes_some_false_alarms_but_ends_no_session() {
    for seed in 0..20 {
        let jitter = Near { delay: 5 * MS, jitter: 12 * MS, loss_percent: 2 };
        let mut s = assisted(jitter, seed);
        let from = s.send(Some(false));
        s.stream(1000, MS);
        s.run(1000 * MS);
        let share = s.false_alarms().len();
        assert!(share < 100, "seed {seed}: {share} of 1000 packets");
        // All of these arrived, a few of them too late for the sender to recognise.
        let turned_up = usize::try_from(s.sender.stats().turned_up).unwrap();
        assert!(turned_up <= share && turned_up + 4 >= share, "seed {seed}: {turned_up} {share}");
        assert!(s.overlooked(from).len() < 10, "seed {seed}: {:?}", s.overlooked(from));
        assert_eq!(s.sender.assistance(), Assistance::Assisted, "seed {seed}");
    }
}

#[test]
fn more_missing_than_the_threshold_requests_more_sums() {
    let mut s = assisted(near(0), 10);
    let from = s.send(Some(false));
    for _ in 0..30 {
        s.send(Some(true));
    }
    s.stream(100, MS);
    s.run(200 * MS);
    assert_eq!(s.overlooked(from), [0; 0]);
    assert_eq!(s.sender.stats().epochs, 1);
    assert!(s.sender.stats().undecodable >= 1);
}

#[test]
fn more_missing_than_the_kept_sums_begins_a_new_epoch() {
    let mut s = assisted(near(0), 11);
    for _ in 0..200 {
        s.send(Some(true));
    }
    s.stream(100, MS);
    let epochs = s.sender.stats().epochs;
    assert!(epochs >= 2, "{:?}", s.sender.stats());
    let from = s.send(Some(true));
    s.stream(100, MS);
    s.run(200 * MS);
    assert_eq!(s.overlooked(from), [0; 0], "the new epoch works");
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    assert_eq!(s.sender.stats().epochs, epochs);
}

#[test]
fn quacks_by_number_of_packets() {
    let terms = Terms { every_packets: NonZeroU16::new(4), every: None, ..Terms::default() };
    let config = SenderConfig { terms, ..configured() };
    let mut s = Simulation::new(config, ObserverConfig::default(), near(0), 12);
    s.stream(400, MS);
    s.run(100 * MS);
    let quacks = s.sender.stats().quacks_received;
    assert!((98..110).contains(&quacks), "{quacks}");
}

#[test]
fn the_sender_reports_that_no_proxy_answers() {
    let mut s = simulation(near(0), 13);
    s.proxy = None;
    s.stream(8000, MS);
    assert_eq!(s.sender.assistance(), Assistance::Unassisted(Reason::NoAnswer));
    assert_eq!(s.declared, []);
}

#[test]
fn a_proxy_off_the_path_is_detected() {
    let mut s = simulation(near(0), 14);
    s.on_path = false;
    s.stream(3000, MS);
    assert_eq!(s.sender.assistance(), Assistance::Unassisted(Reason::NotOnPath));
    assert_eq!(s.declared, []);
    // Once it is on the path, assistance begins within a minute.
    s.on_path = true;
    s.stream(60_000, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
}

#[test]
fn the_flow_leaves_the_path() {
    let mut s = assisted(near(0), 15);
    s.stream(100, MS);
    s.on_path = false;
    // A whole window, sent at once, bypasses the proxy.
    for _ in 0..50 {
        s.send(Some(false));
    }
    s.run(3000 * MS);
    assert_eq!(s.sender.assistance(), Assistance::Unassisted(Reason::NotOnPath));
    assert_eq!(s.declared, [], "no packet is declared lost");
}

#[test]
fn a_dead_proxy_is_detected_and_a_returning_one_assists() {
    let mut s = assisted(near(0), 16);
    s.stream(100, MS);
    s.proxy = None;
    s.stream(1500, MS);
    assert_eq!(s.sender.assistance(), Assistance::Unassisted(Reason::ProxyLost));
    assert_eq!(s.declared, []);
    s.proxy = Some(proxy(ObserverConfig::default(), 99));
    s.stream(30_000, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
}

/// The proxy is absent for up to half a minute. It is configured or discovered.
#[test]
fn a_returning_proxy_assists_within_a_second() {
    for (seed, config) in
        (0..30).flat_map(|seed| [(seed, configured()), (seed, SenderConfig::default())])
    {
        let mut s = Simulation::new(config, ObserverConfig::default(), near(0), seed);
        s.stream(300, MS);
        assert_eq!(s.sender.assistance(), Assistance::Assisted, "seed {seed}");
        s.proxy = None;
        s.stream(1100 + 950 * usize::try_from(seed).unwrap(), MS);
        assert_eq!(s.sender.assistance(), Assistance::Unassisted(Reason::ProxyLost), "seed {seed}");
        s.proxy = Some(proxy(ObserverConfig::default(), 99));
        s.stream(1000, MS);
        assert_eq!(s.sender.assistance(), Assistance::Assisted, "seed {seed}");
    }
}

#[test]
fn a_restarted_proxy_assists_at_once() {
    let mut s = assisted(near(0), 17);
    s.stream(100, MS);
    s.proxy = Some(proxy(ObserverConfig::default(), 99));
    s.stream(1000, MS);
    s.run(100 * MS);
    assert_eq!(s.declared, []);
    let lost = s.send(Some(true));
    s.stream(50, MS);
    assert_eq!(s.declared.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [lost]);
}

#[test]
fn an_authentic_bye_ends_the_session() {
    let mut s = assisted(near(0), 18);
    s.proxy.as_mut().unwrap().close();
    s.run(10 * MS);
    s.send(None);
    s.run(10 * MS);
    assert_eq!(s.sender.assistance(), Assistance::Unassisted(Reason::ProxyLost));
}

#[test]
fn the_status_of_a_flow_outlasts_its_end() {
    let mut s = assisted(near(0), 18);
    s.sender.stop();
    s.send(None);
    s.run(10 * MS);
    assert_eq!((s.sender.assistance(), s.sender.near_rtt()), (Assistance::Assisted, Some(2 * MS)));
    assert_eq!((s.sender.poll_timeout(), s.proxy.as_ref().unwrap().sessions()), (None, 0));
    let flow = s.flow;
    s.sender.start(flow, s.now);
    assert_eq!((s.sender.assistance(), s.sender.near_rtt()), (Assistance::Seeking, None));
    s.sender.abandon();
    assert_eq!(s.sender.assistance(), Assistance::Unassisted(Reason::NoSocket));
}

#[test]
fn wrong_reports_end_the_assistance_for_good() {
    let mut s = assisted(near(0), 19);
    s.sender.distrust.record_declared(40);
    s.sender.on_spurious(16);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    s.sender.on_spurious(1);
    assert_eq!(s.sender.assistance(), Assistance::Unassisted(Reason::StoodDown));
    s.stream(100, MS);
    let flow = s.flow;
    s.sender.start(flow, s.now);
    assert_eq!(s.sender.assistance(), Assistance::Unassisted(Reason::StoodDown));
    assert_eq!((s.sender.poll_timeout(), s.proxy.unwrap().sessions()), (None, 0));
}

#[test]
fn malformed_and_foreign_datagrams_change_nothing() {
    let mut s = assisted(near(0), 20);
    let stats = s.sender.stats();
    let now = s.now;
    let proxy = PROXY.parse().unwrap();
    let mut handle = |from, datagram: &[u8]| s.sender.handle_input(from, datagram, now);
    assert!(matches!(
        handle(proxy, b"nonsense"),
        Err(HandleError::Malformed(ParseError::Version(6)))
    ));
    assert!(matches!(
        handle(proxy, &[0x1f, 0, 0, 0, 0]),
        Err(HandleError::Malformed(ParseError::Type(15)))
    ));
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    let unknown = Datagram::UnknownSession { session: crate::wire::SessionNumber(7) };
    let len = unknown.emit(&mut buffer).unwrap();
    assert_eq!(handle(proxy, &buffer[..len]), Err(HandleError::OtherSession));
    assert_eq!(
        handle("192.0.2.254:5253".parse().unwrap(), &buffer[..len]),
        Err(HandleError::Stranger)
    );
    let expected = SenderStats {
        malformed: stats.malformed + 1,
        other_version: stats.other_version + 1,
        ..stats
    };
    assert_eq!(s.sender.stats(), expected);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
}

/// The proxy seals any message in any state. Nothing panics, and memory stays bounded.
#[test]
fn a_hostile_proxy_cannot_break_the_sender() {
    for seed in 0..200 {
        let mut s = simulation(near(5), seed);
        let mut random = Numbers::new(key(seed));
        let mut sequence = 1 << 20;
        for _ in 0..300 {
            s.send(None);
            let epoch = match s.sender.established() {
                Some(session) if random.next_u32().is_multiple_of(2) => session.epoch.number,
                _ => random.token(),
            };
            let count = random.next_u32() % 400;
            let latest = s.sender.history().pending.back().copied();
            let id = |random: &mut Numbers| match latest {
                Some(entry) if random.next_u32().is_multiple_of(2) => entry.identifier,
                _ => random.next_u32(),
            };
            let (first, last) = (id(&mut random), id(&mut random));
            let sums: Vec<u32> =
                (0..=random.next_u32() % 30).map(|_| random.next_u32() % 4_294_967_291).collect();
            let (token, age_us) = (random.token(), random.next_u32());
            let message = match random.next_u32() % 45 {
                0 => Message::Bye,
                1..4 => Message::Epoch { epoch },
                4 => Message::NewEpoch { epoch },
                40.. => Message::ShortQuack(ShortQuack {
                    count: token,
                    last: crate::wire::low(last),
                    sums: Words::new(&sums),
                }),
                _ => Message::Quack(Quack {
                    epoch,
                    token,
                    age_us,
                    first,
                    last,
                    count,
                    sums: Words::new(&sums),
                }),
            };
            sequence += 1;
            let now = s.now;
            let _ = s.sender.inject(message, sequence, 100, now);
            s.sender.settle(now);
            s.run(Duration::from_micros((random.next_u32() % 40_000).into()));
            assert!(s.sender.history().pending.len() <= history::MAX_PENDING, "seed {seed}");
        }
    }
}
