//! Uploads whose datagrams are sent more than once, over lossy paths in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::early_loss::{assert_delivered, CONTROLLERS, MILLISECOND};
use crate::hooked::transfer::{self, instant, upload, Assist, Scenario, Unassisted};
use quiche::sidekick::with_repeated_handshakes;
use quiche::Connection;

/// The number of datagrams that a client keeps: more than are in flight.
const KEPT: usize = 700;

/// A proxy whose reports trigger packets to be sent again, one near round trip after they were
/// sent.
struct Reinjector {
    near_rtt: u64,
    kept: BTreeMap<u64, Vec<u8>>,
    /// Packet numbers to report, by time and a sequence number.
    reports: BTreeMap<(u64, u64), u64>,
    noted: u64,
    /// The number per 1000 packets that reached it but are reported anyway.
    wrong: u64,
    /// Whether only first attempts are reported.
    once: bool,
    random: u64,
    resent: usize,
}

impl Reinjector {
    fn new(scenario: &Scenario) -> Self {
        Self {
            near_rtt: 2 * scenario.near_delay,
            kept: BTreeMap::new(),
            reports: BTreeMap::new(),
            noted: 0,
            wrong: 0,
            once: false,
            random: !scenario.seed,
            resent: 0,
        }
    }
}

impl Assist for Reinjector {
    fn attach(&mut self, client: &mut Connection) {
        client.sidekick_log(1000);
        client.sidekick_keep_datagrams(KEPT);
    }

    fn sent(&mut self, client: &mut Connection, datagram: &[u8], now: u64, at_proxy: Option<u64>) {
        let next = client.sidekick_logged().first().copied();
        client.sidekick_clear_log();
        let Some(packet) = next else { return };
        let number = packet.packet_number;
        if packet.again {
            assert_eq!(self.kept[&number], datagram, "the same bytes as before");
        } else {
            self.kept.insert(number, datagram.to_vec());
        }
        let wrong = virtual_time::next_random(&mut self.random) % 1000 < self.wrong;
        if (at_proxy.is_none() || wrong) && !(self.once && packet.again) {
            self.noted += 1;
            self.reports.insert((now + self.near_rtt, self.noted), number);
        }
    }

    fn due(&self) -> Option<u64> {
        self.reports.keys().next().map(|(time, _)| *time)
    }

    fn act(&mut self, client: &mut Connection, now: u64) {
        while let Some(entry) = self.reports.first_entry().filter(|entry| entry.key().0 <= now) {
            let number = entry.remove();
            self.resent += usize::from(client.sidekick_resend(0, number, instant()));
        }
    }
}

#[test]
fn lost_datagrams_are_sent_again_and_quiche_sees_no_loss() {
    let (mut resent, mut lost, mut needless) = (0, 0, 0);
    for (controller, seed) in
        CONTROLLERS.into_iter().flat_map(|name| (0..5).map(move |seed| (name, seed)))
    {
        // No long queue, because a round trip that grows faster than its estimate ends a hold too
        // soon. And few packets at once, because quiche treats a packet that arrives after 128
        // later ones as a duplicate.
        let scenario = Scenario {
            near_loss: 100,
            rate: 5000,
            bytes: 150_000,
            ..Scenario::new(controller, seed)
        };
        let mut proxy = Reinjector::new(&scenario);
        let (outcome, client) = upload(&scenario, &mut proxy);
        assert_delivered(&outcome, &scenario);
        assert!(proxy.resent > 5, "{} sent again in {scenario:?}", proxy.resent);
        resent += proxy.resent;
        lost += outcome.lost;
        needless += client.sidekick_needless();
        assert_eq!(client.sidekick_early_lost_count(), 0);
        let (alone, _) = upload(&scenario, &mut Unassisted);
        assert!(outcome.finished < alone.finished, "{scenario:?}: {} alone", alone.finished);
    }
    // The receiver detects losses from before the end of the server's handshake.
    assert!(lost * 10 < resent, "{resent} were sent again, {lost} found end to end");
    // A round trip may be shorter than all earlier ones.
    assert!(needless <= 3, "{needless} of {resent} count as sent again in vain");
}

/// Without a report of the second attempt, the receiver's loss detection decides again.
#[test]
fn a_second_attempt_that_is_lost_is_found_end_to_end() {
    for (controller, seed) in CONTROLLERS.into_iter().zip(1..) {
        let scenario =
            Scenario { near_loss: 300, bytes: 200_000, ..Scenario::new(controller, seed) };
        let mut proxy = Reinjector { once: true, ..Reinjector::new(&scenario) };
        let (outcome, _) = upload(&scenario, &mut proxy);
        assert_delivered(&outcome, &scenario);
        assert!(proxy.resent > 30 && outcome.lost > 5, "{} and {}", proxy.resent, outcome.lost);
    }
}

#[test]
fn needless_retransmissions_are_counted() {
    for (controller, seed) in CONTROLLERS.into_iter().zip(1..) {
        // Without a queue, so that all round trips are the shortest.
        let scenario =
            Scenario { rate: 125_000, bytes: 4_000_000, ..Scenario::new(controller, seed) };
        let mut proxy = Reinjector { wrong: 200, once: true, ..Reinjector::new(&scenario) };
        let (outcome, client) = upload(&scenario, &mut proxy);
        assert_delivered(&outcome, &scenario);
        let needless = usize::try_from(client.sidekick_needless()).unwrap();
        assert!(proxy.resent > 50 && needless <= proxy.resent, "{needless} of {}", proxy.resent);
        assert!(2 * needless > proxy.resent, "{needless} of {} in {scenario:?}", proxy.resent);
    }
}

#[test]
fn only_outstanding_packets_are_sent_again() {
    /// Counts the acknowledged packets.
    struct Asks(u64);
    impl Assist for Asks {
        fn attach(&mut self, client: &mut Connection) {
            client.sidekick_log(1000);
            client.sidekick_keep_datagrams(KEPT);
        }
        fn sent(&mut self, client: &mut Connection, datagram: &[u8], now: u64, _: Option<u64>) {
            let last = client.sidekick_logged().last().copied();
            client.sidekick_clear_log();
            let Some(packet) = last else { return };
            let number = packet.packet_number;
            assert!(!packet.again, "no call requested it");
            let kept = |number| client.sidekick_kept(0, number).map(|(datagram, _)| datagram.len());
            assert_eq!(kept(number), Some(datagram.len()));
            // After a second, less than the kept packets are in flight. quiche skips some numbers.
            let acknowledged = (now > 1000 * MILLISECOND).then(|| number - KEPT as u64 + 1);
            let acknowledged = acknowledged.filter(|number| kept(*number).is_some());
            self.0 += u64::from(acknowledged.is_some());
            let not_outstanding = [Some(number + 1), Some(u64::MAX), acknowledged];
            for number in not_outstanding.into_iter().flatten() {
                assert!(!client.sidekick_resend(0, number, instant()));
            }
            assert!(!client.sidekick_resend(1, number, instant()), "another path");
        }
    }
    for controller in CONTROLLERS {
        let scenario = Scenario { bytes: 3_000_000, ..Scenario::new(controller, 5) };
        let mut asks = Asks(0);
        let (outcome, _) = upload(&scenario, &mut asks);
        assert_delivered(&outcome, &scenario);
        assert!(asks.0 > 500, "{controller}: {} were acknowledged", asks.0);
    }
}

/// Enables repetition of the handshake, or does not.
struct Handshake(bool);

impl Assist for Handshake {
    fn begin(&mut self, client: &mut Connection) {
        client.sidekick_repeat_handshake(self.0);
    }
}

#[test]
fn a_handshake_is_repeated_until_it_is_confirmed() {
    let scenario = Scenario { bytes: 20_000, ..Scenario::new("cubic", 1) };
    let client_long = |repeat| {
        let (outcome, _) = upload(&scenario, &mut Handshake(repeat));
        assert_delivered(&outcome, &scenario);
        let round_trip = 60 * MILLISECOND;
        let of_client = outcome.datagrams.into_iter().filter(|(_, from_client, _)| *from_client);
        of_client
            .filter(|(at, ..)| *at < round_trip)
            .map(|(at, _, size)| (at, size))
            .collect::<Vec<_>>()
    };
    let once = client_long(false);
    assert!(!once.is_empty() && once.iter().all(|(at, _)| *at == 0), "{once:?}");
    let at = |ms| once.iter().map(move |(_, size)| (ms * MILLISECOND, *size));
    assert_eq!(client_long(true), at(0).chain(at(5)).chain(at(20)).collect::<Vec<_>>());
}

#[test]
fn small_uploads_do_not_wait_for_a_lost_first_flight() {
    let mean = |repeat| {
        let mut total = 0;
        for seed in 0..100 {
            let scenario = Scenario { bytes: 2000, near_loss: 200, ..Scenario::new("cubic", seed) };
            let (outcome, _) = upload(&scenario, &mut Handshake(repeat));
            assert_delivered(&outcome, &scenario);
            total += outcome.finished;
        }
        total / 100
    };
    let (once, repeated) = (mean(false), mean(true));
    assert!(repeated * 3 < once * 2, "{repeated} ns on average, {once} when nothing is repeated");
}

/// The datagrams that a connection has to send.
fn flight(from: &mut Connection) -> Vec<(Vec<u8>, quiche::SendInfo)> {
    let mut datagrams = Vec::new();
    let mut buffer = [0; 1500];
    while let Ok((len, info)) = from.send(&mut buffer) {
        datagrams.push((buffer[..len].to_vec(), info));
    }
    datagrams
}

fn hand_over(datagrams: &mut [(Vec<u8>, quiche::SendInfo)], to: &mut Connection) {
    for (datagram, info) in datagrams {
        to.recv(datagram, quiche::RecvInfo { from: info.from, to: info.to }).unwrap();
    }
}

/// The client's Finished may share a datagram with its acknowledgement of the server's hello. That
/// datagram begins with an Initial packet, which the server no longer needs.
#[test]
fn a_finished_behind_an_initial_packet_is_repeated() {
    let world = virtual_time::World::enter(1).unwrap();
    let (mut client, mut server) = transfer::ends("cubic");
    client.sidekick_repeat_handshake(true);
    hand_over(&mut flight(&mut client), &mut server);
    world.set(Duration::from_millis(60));
    hand_over(&mut flight(&mut server), &mut client);
    assert!(client.is_established());
    let said = flight(&mut client);
    let (finished, _) = &said[0];
    assert_eq!(finished[0] >> 4, 0b1100, "an Initial packet");
    assert_eq!(said.iter().filter(|(datagram, _)| datagram == finished).count(), 2);
    for ms in [80, 140] {
        world.set(Duration::from_millis(ms));
        client.on_timeout();
        let again = flight(&mut client);
        assert!(again.iter().any(|(datagram, _)| datagram == finished), "{ms} ms");
    }
}

/// A server without the client's Finished has no keys for the client's requests, and drops them.
#[test]
fn no_request_waits_for_a_lost_finished() {
    let world = virtual_time::World::enter(1).unwrap();
    let (mut client, mut server) = transfer::ends("cubic");
    client.sidekick_repeat_handshake(true);
    hand_over(&mut flight(&mut client), &mut server);
    world.set(Duration::from_millis(60));
    hand_over(&mut flight(&mut server), &mut client);
    client.stream_send(0, b"a request", true).unwrap();
    let mut said = flight(&mut client);
    said.remove(0);
    hand_over(&mut said, &mut server);
    assert!(server.is_established());
    assert_eq!(server.readable().collect::<Vec<_>>(), [0]);
}

/// A server without an acknowledgement doubles the time before it retransmits its answer. So the
/// client's acknowledgement of a part of the answer must arrive, although the client can read the
/// server's hello.
#[test]
fn the_acknowledgement_of_a_partial_answer_is_repeated() {
    let world = virtual_time::World::enter(1).unwrap();
    let (mut client, mut server) = transfer::ends("cubic");
    client.sidekick_repeat_handshake(true);
    hand_over(&mut flight(&mut client), &mut server);
    let mut answer = flight(&mut server);
    assert!(answer.len() > 1, "the certificate fills more than one datagram");
    world.set(Duration::from_millis(60));
    answer.pop();
    hand_over(&mut answer, &mut client);
    assert!(!client.is_established());
    let said: Vec<_> = flight(&mut client).into_iter().map(|(datagram, _)| datagram).collect();
    assert!(!said.is_empty());
    for ms in [65, 80, 140] {
        world.set(Duration::from_millis(ms));
        client.on_timeout();
        let again: Vec<_> = flight(&mut client).into_iter().map(|(datagram, _)| datagram).collect();
        assert!(said.iter().all(|datagram| again.contains(datagram)), "{ms} ms");
    }
}

#[test]
fn clients_can_repeat_their_handshake_from_the_beginning() {
    let first_timeout = || {
        let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap();
        config.set_application_protos(&[b"test"]).unwrap();
        let (local, peer) = (([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into());
        let id = quiche::ConnectionId::from_ref(&[1; 16]);
        let mut client = quiche::connect(None, &id, local, peer, &mut config).unwrap();
        client.send(&mut [0; 1500]).unwrap();
        client.timeout_instant().unwrap().saturating_duration_since(instant())
    };
    let world = virtual_time::World::enter(1).unwrap();
    world.set(Duration::from_secs(1));
    assert!(first_timeout() > Duration::from_millis(900));
    assert_eq!(with_repeated_handshakes(first_timeout), Duration::from_millis(5));
    assert!(first_timeout() > Duration::from_millis(900));
}
