//! The sender against proxies, networks and callers that misbehave.

use super::rtt::NearRtt;
use super::*;
use crate::sender::established::probe::SILENCE;
use crate::testing::{NONE, Near, PEER, Simulation, configured, exchange, proxy};
use crate::wire::{MAX_DATAGRAM_LEN, Message, Quack, SessionNumber, Words};
use crate::{Filter, Identification, Observed, ObserverConfig, Position, Terms};
use std::num::NonZeroU16;

const MS: Duration = Duration::from_millis(1);

fn near(delay_ms: u32) -> Near {
    Near { delay: delay_ms * MS, jitter: Duration::ZERO, loss_percent: 0 }
}

fn simulation(near: Near) -> Simulation {
    Simulation::new(configured(), ObserverConfig::default(), near, 3)
}

fn assisted(near: Near) -> Simulation {
    let mut s = simulation(near);
    s.stream(1000, MS);
    s.run(2000 * MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    s
}

/// Injects a message, as if from the proxy and sealed.
fn inject(s: &mut Simulation, message: Message<'_>, sequence: u32) -> Result<(), HandleError> {
    let now = s.now;
    let outcome = s.sender.inject(message, sequence, 100, now);
    s.sender.settle(now);
    outcome
}

/// A sender in epoch 1 of a proxy that is silent from then on.
fn established(near: Near, kept_sums: u8) -> Simulation {
    let max_threshold = kept_sums.min(40);
    let observer = ObserverConfig { kept_sums, max_threshold, ..ObserverConfig::default() };
    let mut s = Simulation::new(configured(), observer, near, 3);
    // HELLO, RETRY, HELLO, ACCEPT.
    s.run(4 * near.delay);
    assert!(s.sender.established().is_some());
    s.proxy = None;
    s
}

fn send(s: &mut Simulation) -> u32 {
    s.send(Some(false));
    s.sender.history().pending.back().unwrap().identifier
}

#[test]
fn sessions_do_not_accumulate_at_a_proxy_off_the_path() {
    let mut s = simulation(near(1));
    s.on_path = false;
    for second in 0..120 {
        s.stream(1000, MS);
        let sessions = s.proxy.as_ref().unwrap().sessions();
        assert!(sessions <= 1, "{sessions} sessions for one flow after {second} s");
    }
    let stats = s.proxy.as_ref().unwrap().stats();
    let hellos = stats.hellos - stats.unproven;
    assert!(hellos < 12, "{hellos} HELLOs in two minutes");
}

#[test]
fn a_proxy_that_restarts_and_dies_does_not_assist() {
    let mut s = assisted(near(1));
    s.proxy = None;
    let session = s.sender.established().unwrap();
    let unknown = Datagram::UnknownSession { session: session.remote_number };
    let now = s.now;
    s.sender.inject_datagram(unknown, 5, now).unwrap();
    s.stream(20_000, MS);
    assert_eq!(s.sender.assistance(), Assistance::Unassisted(Reason::NoAnswer));
}

#[test]
fn an_interval_that_the_wire_cannot_carry_is_rounded() {
    let terms = Terms { every: Some(Duration::from_secs_f64(1.0 / 33.0)), ..Terms::default() };
    let config = SenderConfig { terms, ..configured() };
    let mut s = Simulation::new(config, ObserverConfig::default(), near(1), 3);
    s.stream(1000, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
}

#[test]
fn a_slow_flow_on_a_long_near_segment_keeps_its_epoch() {
    for (delay, spacing) in
        [(300, 100), (300, 150), (300, 200), (300, 260), (400, 300), (130, 90), (250, 5)]
    {
        let mut s = simulation(near(delay));
        s.stream(400, spacing * MS);
        let stats = s.sender.stats();
        assert!(stats.epochs <= 2, "{delay} ms away, every {spacing} ms: {stats:?}");
        assert_eq!(s.false_alarms(), [0; 0], "{delay} ms away, every {spacing} ms");
    }
}

#[test]
fn a_burst_lost_after_an_idle_period_does_not_end_the_session() {
    let mut s = assisted(near(5));
    s.run(10_000 * MS);
    for _ in 0..32 {
        s.send(Some(true));
    }
    s.run(30 * MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
}

#[test]
fn a_slow_flow_that_leaves_the_path_is_not_declared_lost() {
    for spacing in [1, 5, 20, 100] {
        let mut s = assisted(near(1));
        s.on_path = false;
        s.stream(usize::try_from(4000 / spacing).unwrap(), spacing * MS);
        let false_alarms = s.false_alarms().len();
        assert!(false_alarms <= 16, "every {spacing} ms: {false_alarms}");
        assert_eq!(
            s.sender.assistance(),
            Assistance::Unassisted(Reason::NotOnPath),
            "every {spacing} ms"
        );
    }
}

#[test]
fn a_flow_that_moves_to_another_interface_is_counted_there() {
    let mut s = assisted(near(1));
    s.interface = 5;
    s.stream(4000, MS);
    s.run(100 * MS);
    let from = s.send(Some(true));
    s.stream(100, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    assert_eq!(s.overlooked(from), [0; 0]);
}

#[test]
fn answers_with_too_few_sums_are_not_requested_repeatedly() {
    let mut s = established(near(1), 80);
    let ids: Vec<u32> = (0..60).map(|_| send(&mut s)).collect();
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    let sums = [5; 10];
    for sequence in 1..=2000 {
        s.now += MS;
        let now = s.now;
        s.sender.on_timeout(now);
        let mut token = 0;
        if let Some(poll) = s.sender.established().and_then(|session| session.queue.poll.as_ref()) {
            token = poll.token;
        }
        while s.sender.poll_transmit(&mut buffer).is_some() {}
        if token != 0 {
            let (first, last) = (ids[0], ids[59]);
            let sums = Words::new(&sums);
            let quack = Quack { epoch: 1, token, age_us: 0, first, last, count: 20, sums };
            let _ = inject(&mut s, Message::Quack(quack), sequence);
        }
    }
    assert!(s.sender.stats().polls < 100, "{:?}", s.sender.stats());
}

/// A proxy may delay its answers. But a claimed waiting time cannot make the near RTT shorter than
/// it is.
#[test]
fn a_claimed_waiting_time_does_not_shrink_the_near_rtt() {
    for age_us in [u32::MAX, 39_999, 40_001] {
        let mut s = established(near(20), 20);
        let mut seen = sidekick_quack::PowerSums::new(20).unwrap();
        let mut first = None;
        for sequence in 0..60 {
            let last = send(&mut s);
            let first = *first.get_or_insert(last);
            seen.insert(last);
            s.now += 40 * MS;
            let words: Vec<u32> = seen.sums().collect();
            let sums = Words::new(&words);
            let quack =
                Quack { epoch: 1, token: 0, age_us, first, last, count: seen.count(), sums };
            inject(&mut s, Message::Quack(quack), sequence).unwrap();
        }
        assert!(s.sender.near_rtt().unwrap() >= 39 * MS, "{age_us}: {:?}", s.sender.near_rtt());
    }
}

#[test]
fn a_bye_precedes_the_next_session() {
    let mut s = assisted(near(5));
    let (flow, now) = (s.flow, s.now);
    s.sender.stop();
    s.sender.start(flow, now);
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    let mut sessions = Vec::new();
    while let Some(transmit) = s.sender.poll_transmit(&mut buffer) {
        let proxy = s.proxy.as_mut().unwrap();
        let message = &buffer[..transmit.size];
        let _ = proxy.handle_input(PEER.parse::<SocketAddr>().unwrap(), message, now);
        sessions.push(proxy.sessions());
    }
    assert_eq!(sessions, [0, 0], "BYE ends the old session; HELLO without a cookie begins none");
}

#[test]
fn migration_ends_one_session_and_begins_another() {
    let mut s = assisted(near(5));
    s.flow.source.set_port(4001);
    let (flow, now) = (s.flow, s.now);
    s.sender.start(flow, now);
    s.stream(1000, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    assert_eq!(s.proxy.as_ref().unwrap().sessions(), 1);
}

#[test]
fn a_refused_sender_backs_off() {
    let mut s = simulation(near(1));
    let full = ObserverConfig { max_sessions: 1, ..ObserverConfig::default() };
    let mut proxy = proxy(full, 3);
    let mut other = Sender::new(configured(), [9; 32]);
    let now = s.now;
    other.start(s.flow, now);
    exchange(&mut other, &mut proxy, "203.0.113.1:1", now);
    s.proxy = Some(proxy);
    s.stream(50_000, MS);
    assert_eq!(s.sender.assistance(), Assistance::Unassisted(Reason::ProxyFull));
    let stats = *s.proxy.unwrap().stats();
    let hellos = stats.hellos - stats.unproven;
    assert!(hellos < 10, "{hellos} HELLOs in 50 s");
}

#[test]
fn a_long_good_period_is_no_credit_for_lies() {
    let mut s = assisted(near(1));
    s.sender.distrust.record_declared(100_000);
    let mut lies = 0;
    while s.sender.assistance() == Assistance::Assisted {
        s.sender.distrust.record_declared(1);
        s.sender.on_spurious(1);
        lies += 1;
    }
    assert!(lies < 128, "{lies} wrong reports in a row");
}

#[test]
fn ipv4_mapped_addresses_equal_ipv4_ones() {
    let mut s = simulation(near(1));
    let mut proxy = proxy(ObserverConfig::default(), 1);
    let mapped = Flow {
        source: "[::ffff:192.0.2.1]:4000".parse().unwrap(),
        destination: "[::ffff:198.51.100.7]:443".parse().unwrap(),
    };
    let now = s.now;
    s.sender.start(mapped, now);
    exchange(&mut s.sender, &mut proxy, "[::ffff:192.0.2.1]:5000", now);
    assert_eq!(proxy.observe(&s.flow, 0, Payload::whole(&[0x40; 30]), now), Observed::Counted);
}

/// An attacker that knows the session's number claims that the proxy no longer holds the session.
#[test]
fn a_claim_that_the_session_is_unknown_is_verified() {
    let mut s = assisted(near(5));
    let stats = s.sender.stats();
    for _ in 0..100 {
        claim(&mut s);
        s.stream(10, MS);
    }
    let after = s.sender.stats();
    assert_eq!((after.epochs, s.proxy.as_ref().unwrap().stats().hellos), (stats.epochs, 2));
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    // The claims continue for a second: one doubt at its beginning, one at its end. One more POLL
    // asks for all sums.
    assert!(after.polls - stats.polls <= 3, "{} polls", after.polls - stats.polls);
    // If the claim is true, no authentic message arrives.
    s.stream(1000, MS);
    s.proxy = Some(proxy(ObserverConfig::default(), 77));
    s.stream(300, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    assert_eq!(s.proxy.as_ref().unwrap().sessions(), 1);
}

/// Injects the claim that the session is unknown. An attacker that knows the number can forge it.
fn claim(s: &mut Simulation) {
    let Some(session) = s.sender.established() else { return };
    let (unknown, now) = (Datagram::UnknownSession { session: session.remote_number }, s.now);
    let _ = s.sender.inject_datagram(unknown, 5, now);
}

/// Counts polls over a period, without claims and with one for each packet.
#[test]
fn a_flood_of_claims_that_the_session_is_unknown_causes_two_polls_a_second() {
    for delay in [1, 5, 50] {
        let polls = [false, true].map(|forged| {
            let mut s = assisted(near(delay));
            s.stream(1000, MS);
            let (before, epochs) = (s.sender.stats().polls, s.sender.stats().epochs);
            for _ in 0..1000 {
                if forged {
                    claim(&mut s);
                }
                s.stream(1, MS);
            }
            assert_eq!(
                (s.sender.assistance(), s.sender.stats().epochs),
                (Assistance::Assisted, epochs)
            );
            s.sender.stats().polls - before
        });
        assert!(polls[1] <= polls[0] + 2, "{delay} ms: {} instead of {}", polls[1], polls[0]);
    }
}

/// A false claim precedes a true one. The later the restart, the shorter is the rest of the
/// interval between doubts.
#[test]
fn a_restart_after_a_false_claim_is_detected_soon() {
    for (after, flooded) in
        [0, 100, 500, 900, 1100].into_iter().flat_map(|ms| [(ms, false), (ms, true)])
    {
        let mut s = assisted(near(5));
        s.stream(1000, MS);
        claim(&mut s);
        s.stream(after, MS);
        s.proxy = Some(proxy(ObserverConfig::default(), 77));
        let restarted = s.now;
        while s.proxy.as_ref().unwrap().sessions() == 0 {
            let waited = s.now.saturating_duration_since(restarted);
            assert!(waited < SILENCE + 200 * MS, "{after} ms, flooded {flooded}: {waited:?}");
            if flooded {
                claim(&mut s);
            }
            s.stream(1, MS);
        }
        s.stream(100, MS);
        assert_eq!(s.sender.assistance(), Assistance::Assisted, "{after} ms, flooded {flooded}");
    }
}

#[test]
fn a_claim_that_the_session_is_unknown_outlives_lost_answers() {
    let mut ended = 0;
    for seed in 0..100 {
        let mut s = Simulation::new(configured(), ObserverConfig::default(), near(5), seed);
        s.near.loss_percent = 30;
        s.stream(3000, MS);
        let epochs = s.sender.stats().epochs;
        if let Some(session) = s.sender.established() {
            let (unknown, now) =
                (Datagram::UnknownSession { session: session.remote_number }, s.now);
            s.sender.inject_datagram(unknown, 5, now).unwrap();
            s.stream(300, MS);
            ended += s.sender.stats().epochs - epochs;
        }
    }
    assert!(ended <= 20, "{ended} of 100 sessions were ended by a datagram of five bytes");
}

#[test]
fn an_attacker_that_did_not_see_the_hello_cannot_answer_it() {
    let mut s = simulation(near(5));
    let session = s.sender.handshaking().unwrap().number;
    let cookie = crate::wire::Cookie([1; 20]);
    let now = s.now;
    for guess in 0..=255 {
        for datagram in [
            Datagram::Retry { session, echo: [guess; 8], cookie },
            Datagram::Refuse { session, echo: [guess; 8], why: crate::wire::Refusal::Full },
        ] {
            let outcome = s.sender.inject_datagram(datagram, 33, now);
            assert_eq!(outcome, Err(HandleError::OtherSession));
        }
        let handshake = [guess; 111];
        let accept = Datagram::Accept { session, handshake: &handshake };
        assert_eq!(s.sender.inject_datagram(accept, 116, now), Err(HandleError::Forged));
    }
    s.stream(200, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted, "the forged answers change nothing");
}

/// Two proxies behind one address, for example, reject each other's cookies, and answer each HELLO
/// by a RETRY.
#[test]
fn only_the_first_retry_triggers_a_hello_at_once() {
    let mut s = simulation(near(5));
    s.proxy = None;
    let mut hellos = 0;
    for round in 0..1000u32 {
        let now = s.now;
        if let Some(handshaking) = s.sender.handshaking() {
            let mut buffer = [0; MAX_DATAGRAM_LEN];
            handshaking.hello_waits = true;
            let len = s.sender.poll_transmit(&mut buffer).unwrap().size;
            let Ok(Datagram::Hello(hello)) = Datagram::parse(&buffer[..len]) else { panic!() };
            let (session, echo) = (hello.session, hello.echo());
            let mut cookie = crate::wire::Cookie([1; 20]);
            cookie.0[..4].copy_from_slice(&round.to_be_bytes());
            let retry = Datagram::Retry { session, echo, cookie };
            let _ = s.sender.inject_datagram(retry, 33, now);
            let handshaking = s.sender.handshaking().unwrap();
            hellos += u32::from(handshaking.hello_waits);
            handshaking.hello_waits = false;
        }
        s.run(MS);
    }
    assert_eq!(hellos, 1);
}

/// A proxy must not grant more than requested.
#[test]
fn terms_that_exceed_the_requested_ones_are_rejected() {
    use crate::keys::Responder;
    use crate::wire::{Accept, Pattern};
    let asked = Terms::default();
    for granted in [
        Terms { threshold: 21, ..asked },
        Terms { every: Some(29 * MS), ..asked },
        Terms { every_packets: NonZeroU16::new(7), ..asked },
        Terms { every: None, ..asked },
        Terms {
            identification: Identification { position: Position::End, ..asked.identification },
            ..asked
        },
        Terms {
            identification: Identification { filter: Filter::All, ..asked.identification },
            ..asked
        },
    ] {
        let mut s = simulation(near(1));
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let now = s.now;
        s.sender.handshaking().unwrap().hello_waits = true;
        let len = s.sender.poll_transmit(&mut buffer).unwrap().size;
        let Ok(Datagram::Hello(hello)) = Datagram::parse(&buffer[..len]) else { panic!() };
        let (key, number) = (crate::SecretKey([1; 32]), hello.session);
        let (responder, _) =
            Responder::read(Pattern::Unpinned, &key, number, &hello.flow, [2; 32], hello.handshake)
                .unwrap();
        let accept =
            Accept { session: SessionNumber(5), terms: granted, kept_sums: 128, orders: false };
        let (_, message) = responder.finish(&accept).unwrap();
        let accept = Datagram::Accept { session: number, handshake: message.bytes() };
        let outcome = s.sender.inject_datagram(accept, 116, now);
        assert_eq!(outcome, Err(HandleError::Impossible), "{granted:?}");
        assert_eq!(s.sender.granted(), None);
        assert_eq!(s.sender.assistance(), Assistance::Unassisted(Reason::TermsRefused));
    }
}

/// A proxy whose quACKs never decode does not cause epoch after epoch.
#[test]
fn a_proxy_with_undecodable_quacks_is_given_up() {
    let mut s = assisted(near(1));
    let mut sequence = 1 << 20;
    for _ in 0..2000 {
        send(&mut s);
        s.run(MS);
        sequence += 1;
        if let Some(session) = s.sender.established() {
            let (epoch, sums) = (session.epoch.number, [sequence; 20]);
            let quack = Quack {
                epoch,
                token: 0,
                age_us: 0,
                first: 1,
                last: 2,
                count: 3,
                sums: Words::new(&sums),
            };
            let _ = inject(&mut s, Message::Quack(quack), sequence);
            if is_renewing(&mut s) {
                let _ = inject(&mut s, Message::Epoch { epoch: epoch + 1 }, sequence + 1);
                sequence += 1;
            }
        }
        if s.sender.assistance() == Assistance::Unassisted(Reason::Unintelligible) {
            assert_eq!(s.declared, []);
            let undecodable = s.sender.stats().undecodable;
            assert!(undecodable <= 12, "{undecodable} quACKs did not decode until then");
            return;
        }
    }
    panic!("{} after {:?}", s.sender.assistance(), s.sender.stats());
}

fn is_renewing(s: &mut Simulation) -> bool {
    s.sender.established().is_some_and(|session| session.is_renewing())
}

/// A wildcard socket does not know the source address of its datagrams.
#[test]
fn a_wildcard_source_has_the_destinations_family() {
    let mut s = simulation(near(1));
    let any = Flow { source: "[::]:4000".parse().unwrap(), destination: s.flow.destination };
    let (mut proxy, now) = (proxy(ObserverConfig::default(), 1), s.now);
    s.sender.start(any, now);
    exchange(&mut s.sender, &mut proxy, PEER, now);
    assert_eq!(proxy.observe(&s.flow, 0, Payload::whole(&[0x40; 30]), now), Observed::Counted);
}

#[test]
fn without_polls_and_timed_quacks_silence_proves_nothing() {
    let terms = Terms { every_packets: NonZeroU16::new(32), every: None, ..Terms::default() };
    let config = SenderConfig { terms, poll: false, ..configured() };
    let mut s = Simulation::new(config, ObserverConfig::default(), near(1), 3);
    s.stream(600, 100 * MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    assert_eq!(s.sender.stats().epochs, 1);
}

/// The sums of an ordinary quACK identify 20 packets. The proxy's kept sums identify this burst.
#[test]
fn a_hundred_losses_in_a_row_need_no_new_epoch() {
    let mut s = Simulation::new(configured(), ObserverConfig::default(), near(10), 4);
    s.stream(200, MS);
    for _ in 0..100 {
        s.send(Some(true));
        s.run(MS / 10);
    }
    s.stream(200, MS);
    assert_eq!(s.overlooked(200), NONE);
    assert_eq!(s.false_alarms(), NONE);
    assert_eq!(s.sender.stats().epochs, 1);
    let slowest = s.declared.iter().map(|(_, after)| *after).max();
    // Three near RTTs after the end of the burst, and the longest wait for a timed quACK.
    assert!(slowest.is_some_and(|after| after < 10 * MS + 60 * MS + 30 * MS), "{slowest:?}");
}

/// The work for a quACK grows with the new packets and those that were missing before. It does not
/// grow with the duration of the flow.
#[test]
fn a_quack_costs_what_has_changed() {
    let mut s = Simulation::new(configured(), ObserverConfig::default(), near(1), 5);
    s.near.loss_percent = 2;
    for thousand in 1..=8 {
        let before = s.sender.established().map_or(0, |session| session.reconciler.work);
        s.stream(1000, MS);
        let candidates = (s.sender.established().unwrap().reconciler.work - before)
            / usize::from(Terms::default().threshold);
        // If no packet is missing, one sum decides, which is little work.
        assert!((300..700).contains(&candidates), "{candidates} candidates in thousand {thousand}");
    }
}

/// The work that a forged quACK causes: candidates times sums, over all attempts to decode it.
#[test]
fn a_forged_quack_costs_a_bounded_amount_of_work() {
    for packets in [200, 1000, 8000] {
        let mut s = established(near(1), 255);
        let ids: Vec<u32> = (0..packets).map(|_| send(&mut s)).collect();
        let sums = [5; 255];
        for missing in [1, 10, 127] {
            let sequence = missing;
            let count = u32::try_from(packets).unwrap() - 8 - missing;
            let (first, last) = (ids[8], ids[packets - 9]);
            let quack = Quack {
                epoch: 1,
                token: 0,
                age_us: 0,
                first,
                last,
                count,
                sums: Words::new(&sums),
            };
            let before = s.sender.established().unwrap().reconciler.work;
            let _ = inject(&mut s, Message::Quack(quack), sequence);
            let work = s.sender.established().unwrap().reconciler.work - before;
            // The first attempt, the budget of further ones, and the one that exceeds it. At most
            // 128 sums of a quACK count.
            assert!(work <= (1 << 19) + 2 * 8200 * 128, "{packets} packets: {work}");
        }
    }
}

#[test]
fn a_late_answer_to_a_request_for_an_epoch_is_ignored() {
    let mut s = established(near(1), 80);
    let now = s.now;
    let epoch = |epoch| Message::Epoch { epoch };
    s.sender.established().unwrap().renew(now);
    assert_eq!(inject(&mut s, epoch(1), 2), Err(HandleError::Outdated));
    assert_eq!(inject(&mut s, epoch(2), 3), Ok(()));
    s.sender.established().unwrap().renew(now);
    assert_eq!(inject(&mut s, epoch(1), 4), Err(HandleError::Outdated));
    assert_eq!(inject(&mut s, epoch(2), 5), Err(HandleError::Outdated));
    assert_eq!(inject(&mut s, epoch(3), 6), Ok(()));
}

#[test]
fn an_older_quack_is_ignored() {
    let mut s = established(near(1), 80);
    for (sequence, outcome) in [
        (5, Ok(())),
        (9, Ok(())),
        (7, Err(HandleError::Outdated)),
        (9, Err(HandleError::Outdated)),
        (10, Ok(())),
    ] {
        let sums = Words::new(&[0]);
        let quack = Quack { epoch: 1, token: 0, age_us: 0, first: 0, last: 0, count: 0, sums };
        assert_eq!(inject(&mut s, Message::Quack(quack), sequence), outcome, "{sequence}");
    }
}

/// A connection sends its packets before or after the sender finds the proxy, and then is idle.
#[test]
fn an_idle_flow_polls_rarely_and_keeps_its_proxy() {
    for packets in [1, 3, 40] {
        let mut s = simulation(near(1));
        for _ in 0..packets {
            s.send(Some(false));
        }
        s.run(15_000 * MS);
        assert!(s.sender.stats().polls < 10, "{packets} before: {:?}", s.sender.stats());
        assert_eq!(s.sender.stats().epochs, 1, "{packets} before: {:?}", s.sender.assistance());
        s.stream(100, MS);
        assert_eq!(s.sender.assistance(), Assistance::Assisted, "{packets} before");
        for _ in 0..packets {
            s.send(None);
        }
        let polls = s.sender.stats().polls;
        s.run(15_000 * MS);
        assert!(s.sender.stats().polls < polls + 10, "{packets} after: {:?}", s.sender.stats());
        assert_eq!(s.sender.assistance(), Assistance::Assisted, "{packets} after");
    }
}

#[test]
fn a_proxy_that_reports_but_never_answers_is_polled_once_a_second() {
    let mut s = established(near(1), 80);
    // This is the state after a retransmission of the HELLO.
    s.sender.established().unwrap().near_rtt = NearRtt::default();
    let mut seen = sidekick_quack::PowerSums::new(20).unwrap();
    let mut first = None;
    for sequence in 0..2000 {
        let last = send(&mut s);
        let first = *first.get_or_insert(last);
        seen.insert(last);
        s.run(30 * MS);
        let words: Vec<u32> = seen.sums().collect();
        let sums = Words::new(&words);
        let quack = Quack { epoch: 1, token: 0, age_us: 0, first, last, count: seen.count(), sums };
        inject(&mut s, Message::Quack(quack), sequence).unwrap();
    }
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    assert_eq!(s.sender.near_rtt(), None);
    assert!((60..66).contains(&s.sender.stats().polls), "{} in a minute", s.sender.stats().polls);
}
