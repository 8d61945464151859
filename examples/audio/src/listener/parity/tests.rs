use super::*;
use crate::source::RandomBytes;
use crate::{Listener, ListenerConfig, Talker, TalkerConfig};
use sidekick_protocol::{Addresses, MAX_DATAGRAM_LEN, Observer, ObserverConfig};
use std::collections::{BTreeMap, BTreeSet};

const MS: Duration = Duration::from_millis(1);
/// The one-way delay between the listener and the proxy. The talker is beside the proxy.
const NEAR: Duration = Duration::from_millis(30);
const INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
enum To {
    Listener,
    Adjacent,
    Proxy,
    Talker,
}

/// A call whose last hop loses the datagrams that a test selects.
struct Call {
    now: Instant,
    begin: Instant,
    talker: Talker,
    listener: Listener,
    proxy: Observer,
    flow: Flow,
    flight: BTreeMap<(Instant, u64), (To, Vec<u8>)>,
    order: u64,
    /// The places of media packets that are lost.
    lost: BTreeSet<u32>,
    /// The places of those that do not reach the proxy.
    lost_far: BTreeSet<u32>,
    media: u32,
    /// Whether the hop loses all PARITYs from now on.
    without_parity: bool,
}

fn proxy() -> SocketAddr {
    "192.0.2.254:5252".parse().unwrap()
}

fn adjacent() -> SocketAddr {
    "192.0.2.1:5000".parse().unwrap()
}

impl Call {
    #[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
    fn new(share: Option<f64>, lost: impl IntoIterator<Item = u32>) -> Self {
        let now = Instant::now();
        let talking = TalkerConfig { packets: 400, ..TalkerConfig::of_simulation(1) };
        let protected = share.map(|share| Protected {
            sender: sender_config(proxy()),
            share,
            interval: INTERVAL,
            seed: [7; 32],
        });
        let config = ListenerConfig { protected, ..ListenerConfig::default() };
        let observes = ObserverConfig {
            keep_bytes: 1 << 24,
            parity_percent: 200,
            ..ObserverConfig::default()
        };
        let mut observer = Observer::new(observes, [9; 32]).unwrap();
        observer.set_addresses(Addresses::announcing(0, proxy()));
        Self {
            now,
            begin: now,
            listener: Listener::new(config, talking.session.clone()).unwrap(),
            talker: Talker::new(talking, Box::new(RandomBytes::new(1, 240)), now).unwrap(),
            proxy: observer,
            flow: Flow {
                source: "192.0.2.1:5004".parse().unwrap(),
                destination: "198.51.100.7:4000".parse().unwrap(),
            },
            flight: BTreeMap::new(),
            order: 0,
            lost: lost.into_iter().collect(),
            lost_far: BTreeSet::new(),
            media: 0,
            without_parity: false,
        }
    }

    fn launch(&mut self, delay: Duration, to: To, datagram: &[u8]) {
        self.order += 1;
        self.flight.insert((self.now + delay, self.order), (to, datagram.to_vec()));
    }

    fn drain(&mut self) {
        let reverse = Flow { source: self.flow.destination, destination: self.flow.source };
        let mut datagram = Vec::new();
        while self.talker.poll_transmit(&mut datagram, self.now) {
            let is_media = crate::rtp::header(&datagram)
                .is_some_and(|header| header.ssrc == self.talker.sources().media);
            let place = self.media;
            self.media += u32::from(is_media);
            if is_media && self.lost_far.contains(&place) {
                continue;
            }
            self.proxy.keep(&reverse, 0, &datagram, self.now);
            if !is_media || !self.lost.contains(&place) {
                self.launch(NEAR, To::Listener, &datagram);
            }
        }
        while self.listener.poll_transmit(&mut datagram, self.now) {
            self.launch(NEAR, To::Talker, &datagram);
        }
        let mut message = [0; MAX_DATAGRAM_LEN];
        while let Some((_, len)) = self.listener.transmit_to_proxy(&mut message) {
            self.launch(NEAR, To::Proxy, &message[..len]);
        }
        while let Some(transmit) = self.proxy.poll_transmit(&mut message) {
            let message = &message[..transmit.size];
            if transmit.destination == self.flow.source {
                self.launch(NEAR, To::Listener, message);
            } else if !(self.without_parity && message[0] & 0x0f == 8) {
                self.launch(NEAR, To::Adjacent, message);
            }
        }
    }

    /// Runs until the time after the first packet left.
    fn run_until(&mut self, time: Duration) {
        let end = self.begin + time;
        loop {
            self.talker.on_timeout(self.now);
            self.listener.on_timeout(self.now);
            self.proxy.on_timeout(self.now);
            self.drain();
            let next = self.flight.first_key_value().map(|((at, _), _)| *at);
            let timers = [
                self.talker.poll_timeout(),
                self.listener.poll_timeout(),
                self.proxy.poll_timeout(),
            ];
            let all = timers.into_iter().chain([next]).flatten().min();
            let Some(now) = all.filter(|at| *at <= end) else { break };
            self.now = self.now.max(now);
            if next == Some(now)
                && let Some((_, (to, datagram))) = self.flight.pop_first()
            {
                self.arrive(&to, &datagram);
            }
        }
        self.now = end;
    }

    fn arrive(&mut self, to: &To, datagram: &[u8]) {
        let now = self.now;
        match to {
            To::Listener => {
                let _ = self.listener.handle_input(datagram, now);
                self.listener.follow(self.flow, now);
            }
            To::Adjacent => {
                let _ = self.listener.handle_proxy(proxy(), datagram, now);
            }
            To::Proxy => {
                let _ = self.proxy.handle_input(adjacent(), datagram, now);
            }
            To::Talker => {
                self.proxy.observe(&self.flow, 0, Payload::whole(datagram), now);
                let _ = self.talker.handle_input(datagram, now);
            }
        }
    }

    fn nacks(&self) -> u64 {
        self.listener.report().nacks.packets
    }
}

/// When the packet with this number leaves.
fn leaves(packet: u32) -> Duration {
    packet * INTERVAL
}

#[test]
fn a_lost_packet_is_rebuilt_before_it_is_requested() {
    let lost: Vec<_> = (50..350).step_by(7).collect();
    // A NACK and its answer take a round trip.
    for (share, rebuilt, nacks, waits) in [(Some(1.0), 43, 0, 0.0..1.0), (None, 0, 43, 59.0..61.0)]
    {
        let mut call = Call::new(share, lost.clone());
        call.run_until(leaves(400) + 2000 * MS);
        let report = call.listener.report();
        assert!(report.complete && call.listener.is_finished());
        assert_eq!((report.played, report.late, report.nacks.packets), (400, 0, nacks));
        assert_eq!(report.parity.as_ref().map_or(0, |parity| parity.rebuilt), rebuilt);
        let longest = report.dejitter_ms.max;
        assert!(waits.contains(&longest), "{longest} ms");
    }
}

#[test]
fn a_nack_waits_for_parity_while_some_arrives() {
    let mut call = Call::new(Some(0.5), [100, 140, 180]);
    call.run_until(leaves(100) - MS);
    assert!(call.listener.report().parity.unwrap().received > 20);
    call.without_parity = true;
    // The loss shows when the next packet arrives.
    let shows = leaves(101) + NEAR;
    call.run_until(shows + 2 * INTERVAL + SLACK - MS);
    assert_eq!(call.nacks(), 0, "parity may still arrive");
    call.run_until(shows + 2 * INTERVAL + SLACK);
    assert_eq!(call.nacks(), 1);
    // No parity has arrived for a long time.
    call.run_until(leaves(141) + NEAR - MS);
    assert_eq!(call.nacks(), 1);
    call.run_until(leaves(141) + NEAR);
    assert_eq!(call.nacks(), 2);
    // Parity arrives again when the windows no longer contain these losses.
    call.run_until(leaves(160));
    call.without_parity = false;
    call.run_until(leaves(200));
    let report = call.listener.report();
    assert_eq!((report.nacks.packets, report.parity.unwrap().rebuilt), (2, 1));
}

#[test]
fn a_nack_of_a_loss_before_the_proxy_waits_only_for_a_list() {
    let mut call = Call::new(Some(0.5), []);
    call.lost_far = [100, 120, 121, 300].into();
    // A list arrives with this packet or the next one.
    for (packet, nacks) in [(101, 1), (122, 3), (301, 4)] {
        call.run_until(leaves(packet) + NEAR - MS);
        assert!(call.nacks() < nacks, "{packet}");
        call.run_until(leaves(packet + 1) + NEAR);
        assert_eq!(call.nacks(), nacks, "{packet}");
    }
    call.run_until(leaves(400) + 2000 * MS);
    let report = call.listener.report();
    assert_eq!((report.played, report.late, report.nacks.packets), (400, 0, 4));
    assert_eq!(report.parity.unwrap().rebuilt, 0);
}

#[test]
fn a_refused_datagram_begins_no_gap() {
    // The proxy did not list the refused datagram, so no list shows what passed after it.
    for refused in [&[0x80; 200][..], b"no packet"] {
        let mut call = Call::new(Some(0.5), []);
        call.lost_far = [100].into();
        call.run_until(leaves(99) + NEAR + MS);
        assert!(call.listener.handle_input(refused, call.now).is_err());
        call.run_until(leaves(102) + NEAR);
        assert_eq!(call.nacks(), 1, "{refused:?}");
    }
}

#[test]
fn a_burst_is_requested_at_once() {
    let mut call = Call::new(Some(0.5), [100, 120, 121, 122, 123]);
    call.run_until(leaves(103) + NEAR);
    assert_eq!((call.nacks(), call.listener.played()), (0, 104));
    // The necessary repair symbols take longer than a round trip. The first was with a lost packet.
    call.run_until(leaves(124) + NEAR);
    assert_eq!(call.nacks(), 3);
}

#[test]
fn parity_lasts_as_long_as_the_call() {
    let mut call = Call::new(Some(0.5), []);
    call.run_until(leaves(390));
    let parity = call.listener.report().parity.unwrap();
    // The first parity follows after a few round trips.
    assert!((170..=200).contains(&parity.received), "{parity:?}");
    assert!(call.listener.report().packets.rejected == 0, "an answer is no packet");
}

#[test]
fn a_share_is_part_of_one() {
    for (share, fits) in [(0.0, false), (f64::NAN, false), (1.1, false), (1.0, true), (0.01, true)]
    {
        let sender = sender_config(proxy());
        let protected = Some(Protected { sender, share, interval: INTERVAL, seed: [7; 32] });
        let config = ListenerConfig { protected, ..ListenerConfig::default() };
        assert_eq!(Listener::new(config, TalkerConfig::of_simulation(1).session).is_ok(), fits);
    }
}
