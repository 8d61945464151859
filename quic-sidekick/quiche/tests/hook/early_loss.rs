//! Uploads with early loss, over lossy paths in virtual time.

use std::collections::BTreeMap;

use crate::hooked::transfer::{instant, payload, upload, Assist, Outcome, Scenario, Unassisted};
use quiche::sidekick::{Reaction, SentPacket, HEAD_LEN};
use quiche::Connection;

pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const CONTROLLERS: [&str; 4] = ["reno", "cubic", "cubic-rfc9438", "bbr2_gcongestion"];
const REACTIONS: [Reaction; 3] =
    [Reaction::Loss, Reaction::NearLoss { ratio: 1.0 / 6.0 }, Reaction::Neutered];

/// A proxy that reports the packets that did not reach it, one near round trip after they were
/// sent. It may be wrong.
struct Proxy {
    reaction: Reaction,
    near_rtt: u64,
    /// Packets to report, by time and a sequence number.
    reports: BTreeMap<(u64, u64), SentPacket>,
    /// The number per 1000 packets that reached it but are reported anyway.
    wrong: u64,
    random: u64,
    declared: usize,
}

impl Proxy {
    fn new(scenario: &Scenario, reaction: Reaction) -> Self {
        Self {
            reaction,
            near_rtt: 2 * scenario.near_delay,
            reports: BTreeMap::new(),
            wrong: 0,
            random: !scenario.seed,
            declared: 0,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        virtual_time::next_random(&mut self.random) % below
    }
}

impl Assist for Proxy {
    fn attach(&mut self, client: &mut Connection) {
        client.sidekick_log(1000);
    }

    fn sent(&mut self, client: &mut Connection, datagram: &[u8], now: u64, at_proxy: Option<u64>) {
        let next = client.sidekick_logged().first().copied();
        client.sidekick_clear_log();
        let Some(packet) = next else { return };
        let head = &datagram[..HEAD_LEN.min(datagram.len())];
        assert_eq!(packet.head[..head.len()], *head, "the log and the wire agree");
        let wrong = at_proxy.is_some() && self.random(1000) < self.wrong;
        if at_proxy.is_none() || wrong {
            let number = self.reports.len() as u64 + now;
            self.reports.insert((now + self.near_rtt, number), packet);
        }
    }

    fn due(&self) -> Option<u64> {
        self.reports.keys().next().map(|(time, _)| *time)
    }

    fn act(&mut self, client: &mut Connection, now: u64) {
        while let Some(entry) = self.reports.first_entry().filter(|entry| entry.key().0 <= now) {
            let packet = entry.remove();
            let numbers = [packet.packet_number];
            self.declared +=
                client.sidekick_early_lost(packet.path_id, &numbers, self.reaction, instant());
        }
    }
}

#[track_caller]
pub(crate) fn assert_delivered(outcome: &Outcome, scenario: &Scenario) {
    assert!(outcome.received == payload(scenario.bytes), "the data differ in {scenario:?}");
}

#[test]
fn near_losses_are_repaired_before_the_receiver_reports_them() {
    for controller in CONTROLLERS {
        for (reaction, seed) in REACTIONS.into_iter().zip(1..) {
            let scenario = Scenario { near_loss: 50, ..Scenario::new(controller, seed) };
            let mut proxy = Proxy::new(&scenario, reaction);
            let (outcome, client) = upload(&scenario, &mut proxy);
            assert_delivered(&outcome, &scenario);
            assert!(proxy.declared > 20, "{} early losses in {scenario:?}", proxy.declared);
            assert_eq!(client.sidekick_early_lost_count(), proxy.declared as u64);
            assert_eq!(client.sidekick_spurious(), 0, "{scenario:?}");
            assert_eq!(client.sidekick_dropped(), 0);
            // The receiver detects only losses from before the end of the handshake.
            assert!(outcome.lost <= 2, "{} losses found end to end in {scenario:?}", outcome.lost);
        }
    }
}

#[test]
fn path_aware_controllers_are_faster_than_unaware_ones() {
    for (controller, reaction) in [
        ("cubic-rfc9438", Reaction::NearLoss { ratio: 1.0 / 6.0 }),
        ("bbr2_gcongestion", Reaction::Neutered),
    ] {
        let scenario = Scenario { near_loss: 80, ..Scenario::new(controller, 11) };
        let (alone, _) = upload(&scenario, &mut Unassisted);
        let (unaware, _) = upload(&scenario, &mut Proxy::new(&scenario, Reaction::Loss));
        let (aware, _) = upload(&scenario, &mut Proxy::new(&scenario, reaction));
        println!(
            "{controller}: {} alone, {} unaware, {} aware",
            alone.finished, unaware.finished, aware.finished
        );
        assert!(
            aware.finished < unaware.finished && aware.finished < alone.finished,
            "{controller}"
        );
    }
}

#[test]
fn wrong_reports_cost_time_but_no_data() {
    for controller in CONTROLLERS {
        for (reaction, seed) in REACTIONS.into_iter().zip(1..) {
            // A queue that never overflows: every report is wrong.
            let scenario = Scenario { queue: 10_000_000, ..Scenario::new(controller, seed) };
            let mut proxy = Proxy { wrong: 100, ..Proxy::new(&scenario, reaction) };
            let (outcome, client) = upload(&scenario, &mut proxy);
            assert_delivered(&outcome, &scenario);
            let spurious = usize::try_from(client.sidekick_spurious()).unwrap();
            // Packets are acknowledged a round trip after they were sent, so the last ones are not
            // yet.
            let open = proxy.declared.checked_sub(spurious).expect("no more than were declared");
            assert!(
                proxy.declared > 50 && open < 20,
                "{spurious} of {} in {scenario:?}",
                proxy.declared
            );
        }
    }
}

/// Any mixture of loss, reordering, and right, wrong, repeated and invalid reports, with any
/// reaction.
struct Chaos {
    proxy: Proxy,
    past: Vec<SentPacket>,
}

impl Assist for Chaos {
    fn attach(&mut self, client: &mut Connection) {
        let capacity = 1 + usize::try_from(self.proxy.random(50)).unwrap();
        client.sidekick_log(capacity);
    }

    fn sent(&mut self, client: &mut Connection, datagram: &[u8], now: u64, at_proxy: Option<u64>) {
        if self.past.len() < 5000 {
            self.past.extend(client.sidekick_logged());
            client.sidekick_clear_log();
        } else {
            self.proxy.sent(client, datagram, now, at_proxy);
        }
        if self.proxy.random(8) == 0 {
            self.report(client);
        }
    }

    fn due(&self) -> Option<u64> {
        self.proxy.due()
    }

    fn act(&mut self, client: &mut Connection, now: u64) {
        self.proxy.act(client, now);
        self.report(client);
    }
}

impl Chaos {
    fn report(&mut self, client: &mut Connection) {
        let reaction = match self.proxy.random(5) {
            0 => Reaction::Loss,
            1 => Reaction::Neutered,
            2 => Reaction::NearLoss { ratio: f64::from_bits(self.proxy.random(u64::MAX)) },
            _ => Reaction::NearLoss { ratio: 0.2 },
        };
        let mut numbers = Vec::new();
        for _ in 0..self.proxy.random(6) {
            let recent = self.past.len().saturating_sub(1 + self.proxy.random(40) as usize);
            let number = self.past.get(recent).map_or(0, |packet| packet.packet_number);
            numbers.push(if self.proxy.random(10) == 0 {
                self.proxy.random(u64::MAX)
            } else {
                number
            });
        }
        let path_id = if self.proxy.random(20) == 0 { usize::MAX } else { 0 };
        client.sidekick_early_lost(path_id, &numbers, reaction, instant());
    }
}

#[test]
fn any_sequence_of_reports_delivers() {
    for seed in 0..160 {
        let mut random = seed;
        let mut draw = |below| virtual_time::next_random(&mut random) % below;
        let controller = CONTROLLERS[usize::try_from(seed).unwrap() % CONTROLLERS.len()];
        let scenario = Scenario {
            bytes: 20_000 + usize::try_from(draw(200_000)).unwrap(),
            near_loss: draw(150),
            far_loss: draw(60),
            ack_loss: draw(60),
            near_delay: draw(20) * MILLISECOND,
            far_delay: draw(60) * MILLISECOND,
            jitter: draw(2) * draw(30) * MILLISECOND,
            rate: 200 + draw(2000),
            queue: 10_000 + draw(90_000),
            ..Scenario::new(controller, seed)
        };
        println!("{scenario:?}");
        let mut chaos = Chaos { proxy: Proxy::new(&scenario, Reaction::Loss), past: Vec::new() };
        let (outcome, _) = upload(&scenario, &mut chaos);
        assert_delivered(&outcome, &scenario);
    }
}
