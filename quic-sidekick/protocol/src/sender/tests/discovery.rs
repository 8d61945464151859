//! The sender discovers proxies, loses them and discovers them again.

use super::*;
use crate::testing::{Near, Simulation, proxy};
use crate::wire::MAX_DATAGRAM_LEN;
use crate::wire::discovery::Marker;
use crate::{Addresses, Observer, ObserverConfig, Route, SecretKey};

const MS: Duration = Duration::from_millis(1);

fn discovering(near: Near, seed: u64) -> Simulation {
    Simulation::new(SenderConfig::default(), ObserverConfig::default(), near, seed)
}

fn near(delay_ms: u32, loss_percent: u64) -> Near {
    Near { delay: delay_ms * MS, jitter: Duration::ZERO, loss_percent }
}

fn translated(port: u16) -> Flow {
    Flow {
        source: SocketAddr::from(([203, 0, 113, 5], port)),
        destination: "198.51.100.7:443".parse().unwrap(),
    }
}

#[test]
fn a_proxy_on_the_path_is_found_within_a_few_near_rtts() {
    let mut s = discovering(near(5, 0), 1);
    // Marker, HELLO and POLL, each with its answer; then a quACK 30 ms after the first counted
    // packet.
    s.stream(3 * 10 + 30 + 10, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    let (proxy, key) = s.sender.proxy().unwrap();
    assert_eq!((proxy, key), (PROXY.parse().unwrap(), s.proxy.as_ref().unwrap().public_key()));
    s.stream(60_000, MS);
    assert_eq!(s.sender.stats().markers, 3, "no more markers than necessary");
    let lost = s.send(Some(true));
    s.stream(40, MS);
    assert_eq!(s.declared.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [lost]);
}

/// The round trip is longer than the intervals of HELLOs, so it is unclear which HELLO an answer
/// belongs to.
#[test]
fn the_first_estimate_of_a_long_near_rtt_is_at_least_half_of_it() {
    for delay in [15, 30, 55, 100, 290] {
        let mut s = discovering(near(delay, 0), 1);
        let rough = loop {
            s.stream(1, MS);
            let mut established = s.sender.sessions.iter().filter_map(|it| it.established());
            if let Some(established) = established.next() {
                break established.near_rtt.rough_at_most();
            }
        };
        let rtt = 2 * delay * MS;
        assert!((rtt / 2..=rtt + MS).contains(&rough), "{rough:?} of {rtt:?}");
    }
}

/// The NAT translates the flow and the adjacent socket, and admits only answers.
#[test]
fn a_proxy_beyond_a_nat_is_found() {
    let mut s = discovering(near(5, 0), 2);
    s.open = false;
    s.translated = Some(translated(31_000));
    s.peer = "203.0.113.5:31001".parse().unwrap();
    s.stream(200, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
}

#[test]
fn proxies_are_found_despite_heavy_loss() {
    for seed in 0..100 {
        let mut s = discovering(near(5, 30), seed);
        for _ in 0..30_000 {
            s.send(None);
            s.run(MS);
            if s.sender.assistance() == Assistance::Assisted {
                break;
            }
        }
        assert_eq!(
            s.sender.assistance(),
            Assistance::Assisted,
            "seed {seed}: {:?}",
            s.sender.stats()
        );
    }
}

#[test]
fn without_a_proxy_markers_become_rare() {
    let mut s = discovering(near(5, 0), 3);
    s.proxy = None;
    s.stream(10_000, MS);
    assert_eq!(s.sender.assistance(), Assistance::Unassisted(Reason::NotFound));
    let before = s.sender.stats().markers;
    s.run(600_000 * MS);
    assert!(before <= 9 && s.sender.stats().markers - before <= 14, "{:?}", s.sender.stats());
}

/// SPEC.md, section 7.9: a NAT that loses its mappings assigns another port to the flow.
#[test]
fn a_rebound_flow_is_assisted_again() {
    let mut s = discovering(near(5, 0), 4);
    s.open = false;
    s.translated = Some(translated(31_000));
    s.stream(500, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    s.translated = Some(translated(32_000));
    s.peer = "203.0.113.5:32001".parse().unwrap();
    s.stream(2000, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted, "{:?}", s.sender.stats());
    let false_alarms = s.false_alarms().len();
    assert!(false_alarms <= 16, "{false_alarms}");
    let lost = s.send(Some(true));
    s.stream(50, MS);
    assert_eq!(s.declared.last().map(|(tag, _)| *tag), Some(lost));
    assert!(s.proxy.as_ref().unwrap().sessions() <= 2);
}

#[test]
fn a_restarted_proxy_is_found_again_within_a_second() {
    for seed in 0..20 {
        let mut s = discovering(near(5, 2), seed);
        s.stream(2000, MS);
        assert_eq!(s.sender.assistance(), Assistance::Assisted, "seed {seed}");
        s.proxy = Some(proxy(ObserverConfig::default(), seed + 1000));
        s.stream(1000, MS);
        assert_eq!(
            s.sender.assistance(),
            Assistance::Assisted,
            "seed {seed}: {:?}",
            s.sender.stats()
        );
        assert_eq!(s.false_alarms(), [0; 0], "seed {seed}");
    }
}

/// SPEC.md, section 7.7: the reason why the sender left the proxy decides.
#[test]
fn markers_are_quick_only_after_the_first_loss_of_a_proxy() {
    let gone = |leave: &dyn Fn(&mut Simulation), reason| {
        let mut s = discovering(near(5, 0), 10);
        s.stream(500, MS);
        assert_eq!(s.sender.assistance(), Assistance::Assisted, "{reason}");
        leave(&mut s);
        s.stream(3000, MS);
        let before = s.sender.stats().markers;
        s.stream(20_000, MS);
        assert_eq!(s.sender.last_reason, Some(reason));
        (s.sender.stats().markers - before, s)
    };
    let ends_the_session = |s: &mut Simulation| {
        s.proxy.as_mut().unwrap().close();
        s.send(None);
        s.proxy = None;
    };
    let (markers, mut s) = gone(&ends_the_session, Reason::ProxyLost);
    assert_eq!(markers, 25, "one every 800 ms");
    s.proxy = Some(proxy(ObserverConfig::default(), 99));
    s.stream(1000, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);

    // The path changed: the proxy is not expected back.
    let (markers, _) = gone(&|s| s.on_path = false, Reason::NotOnPath);
    assert!(markers <= 4, "{markers}");

    // The proxy ends the session, answers the next marker, and then disappears.
    let fails_twice = |s: &mut Simulation| {
        s.proxy.as_mut().unwrap().close();
        s.stream(18, MS);
        s.proxy = None;
    };
    let (markers, _) = gone(&fails_twice, Reason::NoAnswer);
    assert!(markers <= 10, "{markers}");
}

#[test]
fn only_the_pinned_proxy_is_accepted() {
    for (pinned, found) in [([6; 32], true), ([9; 32], false)] {
        let config =
            SenderConfig { key: Some(SecretKey(pinned).public()), ..SenderConfig::default() };
        let observer =
            ObserverConfig { key: Some(SecretKey([6; 32])), ..ObserverConfig::default() };
        let mut s = Simulation::new(config, observer, near(5, 0), 5);
        s.stream(3000, MS);
        assert_eq!(s.sender.assistance() == Assistance::Assisted, found);
        assert_eq!(s.proxy.as_ref().unwrap().stats().sessions_opened > 0, found);
        let hellos = s.proxy.as_ref().unwrap().stats().hellos;
        assert!(hellos < 10, "{hellos} HELLOs in three seconds");
    }
}

/// An attacker off the path has not seen the marker.
#[test]
fn an_answer_without_a_marker_is_rejected() {
    let mut s = discovering(near(5, 0), 6);
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    let now = s.now;
    s.proxy = None;
    s.stream(20, MS);
    for guess in 0..=255 {
        let answer = Answer {
            handle: [0; HANDLE_LEN],
            nonce: [guess; 16],
            proxy: "203.0.113.66:5252".parse().unwrap(),
            flow: s.flow,
            cookie: crate::wire::Cookie([1; 20]),
        };
        let len = answer.emit(&mut buffer).unwrap();
        assert_eq!(s.sender.handle_on_path(&buffer[..len], now), Err(HandleError::Forged));
        assert_eq!(
            s.sender.handle_input(answer.proxy, &buffer[..len], now),
            Err(HandleError::Forged)
        );
    }
    assert_eq!(s.sender.sessions.len(), 0);
    assert_eq!(s.sender.stats().forged, 512);
}

/// Two proxies on one path. Packets reach the first, then the second.
struct Chain {
    sender: Sender,
    proxies: [(SocketAddr, Observer); 2],
    /// The percentage of packets lost before each.
    loss: [u32; 2],
    /// The one-way delay from the previous node.
    delay: [Duration; 2],
    flow: Flow,
    now: Instant,
    random: Numbers,
    /// Datagrams in flight: when they arrive, to or from which proxy, and whether along the path.
    in_flight: Vec<(Instant, InFlight, Vec<u8>)>,
    declared: Vec<u64>,
    lost: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum InFlight {
    Path(usize),
    To(usize),
    From(usize),
    Answer,
}

impl Chain {
    fn new(loss: [u32; 2]) -> Self {
        let s = discovering(near(1, 0), 7);
        let addresses: [SocketAddr; 2] =
            ["203.0.113.1:5252", "203.0.113.2:5252"].map(|a| a.parse().unwrap());
        let proxies = [0, 1].map(|i| {
            let mut observer = Observer::new(ObserverConfig::default(), [i; 32]).unwrap();
            observer.set_addresses(Addresses::announcing(0, addresses[usize::from(i)]));
            (addresses[usize::from(i)], observer)
        });
        let mut sender = Sender::new(SenderConfig::default(), [8; 32]);
        sender.set_adjacent_port(5000);
        sender.start(s.flow, s.now);
        let delay = [2 * MS, 8 * MS];
        let (flow, now, random) = (s.flow, s.now, Numbers::new([9; 32]));
        Self {
            sender,
            proxies,
            loss,
            delay,
            flow,
            now,
            random,
            in_flight: Vec::new(),
            declared: Vec::new(),
            lost: 0,
        }
    }

    fn one_way(&self, proxy: usize) -> Duration {
        self.delay[..=proxy].iter().sum()
    }

    fn passes(&mut self, proxy: usize) -> bool {
        let chance = self.random.next_u32() % 100;
        chance >= self.loss[proxy]
    }

    fn drain(&mut self) {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        while let Some(transmit) = self.sender.poll_transmit(&mut buffer) {
            let bytes = buffer[..transmit.size].to_vec();
            if transmit.route == Route::Session {
                let to = usize::from(transmit.destination == self.proxies[1].0);
                self.in_flight.push((self.now + self.one_way(to), InFlight::To(to), bytes));
            } else {
                self.in_flight.push((self.now + self.delay[0], InFlight::Path(0), bytes));
            }
        }
        for from in 0..2 {
            while let Some(transmit) = self.proxies[from].1.poll_transmit(&mut buffer) {
                let on_path = matches!(transmit.route, Route::Path { .. });
                let kind = if on_path { InFlight::Answer } else { InFlight::From(from) };
                let at = self.now + self.one_way(from);
                self.in_flight.push((at, kind, buffer[..transmit.size].to_vec()));
            }
        }
        let mut lost = Vec::new();
        self.sender.drain_lost(&mut lost);
        self.declared.extend(lost.iter().map(|lost| lost.tag));
    }

    fn stream(&mut self, packets: u64) {
        let peer: SocketAddr = "192.0.2.1:5000".parse().unwrap();
        for tag in 0..packets {
            let mut payload = [0x40; 300];
            self.random.fill(&mut payload[21..]);
            self.sender.on_sent(tag, Payload::whole(&payload), self.now);
            self.in_flight.push((self.now + self.delay[0], InFlight::Path(0), payload.to_vec()));
            let until = self.now + MS;
            while self.now < until {
                self.drain();
                self.now += MS / 10;
                let now = self.now;
                let mut arrived: Vec<_> = Vec::new();
                self.in_flight.retain(|entry| {
                    let still = entry.0 > now;
                    if !still {
                        arrived.push(entry.clone());
                    }
                    still
                });
                for (_, kind, bytes) in arrived {
                    match kind {
                        InFlight::Path(proxy) if self.passes(proxy) => {
                            let flow = self.flow;
                            self.proxies[proxy].1.observe(&flow, 0, Payload::whole(&bytes), now);
                            if proxy == 0 {
                                self.in_flight.push((
                                    now + self.delay[1],
                                    InFlight::Path(1),
                                    bytes,
                                ));
                            }
                        }
                        InFlight::Path(_) => self.lost += u64::from(Marker::parse(&bytes).is_err()),
                        InFlight::To(proxy) => {
                            let _ = self.proxies[proxy].1.handle_input(peer, &bytes, now);
                        }
                        InFlight::From(proxy) => {
                            let _ = self.sender.handle_input(self.proxies[proxy].0, &bytes, now);
                        }
                        InFlight::Answer => {
                            let _ = self.sender.handle_on_path(&bytes, now);
                        }
                    }
                }
                self.sender.on_timeout(now);
                self.proxies.iter_mut().for_each(|(_, proxy)| proxy.on_timeout(now));
            }
        }
        self.drain();
    }
}

/// SPEC.md, section 7.8.
#[test]
fn the_nearest_of_several_proxies_that_see_the_losses_is_selected() {
    for (loss, kept) in [([4, 0], 0), ([0, 4], 1), ([2, 2], 1), ([12, 1], 0)] {
        let mut chain = Chain::new(loss);
        chain.stream(3000);
        let choice = chain.sender.selection().unwrap_or_else(|| panic!("{loss:?}: no choice"));
        assert_eq!(
            (choice.proxy, choice.candidates),
            (chain.proxies[kept].0, 2),
            "{loss:?}: {choice}"
        );
        assert!(
            matches!(choice.reason, SelectionReason::Nearest { saw, most } if saw * 10 >= most * 8),
            "{loss:?}: {choice}"
        );
        assert_eq!(chain.sender.proxy().map(|(proxy, _)| proxy), Some(choice.proxy));
        assert_eq!(chain.proxies[1 - kept].1.sessions(), 0, "{loss:?}: the other session ended");
        let once: std::collections::BTreeSet<_> = chain.declared.iter().collect();
        assert_eq!(once.len(), chain.declared.len(), "{loss:?}: each loss is reported once");
    }
}

/// A caller need not take them after each input.
#[test]
fn losses_wait_until_the_caller_takes_them() {
    let (mut selector, now) = (ProxySelector::default(), Chain::new([0, 0]).now);
    let of = |tag| Lost::new(tag, now, 0);
    let mut lost = vec![of(1), of(2)];
    selector.deduplicate(&mut lost, 0, 2);
    lost.extend([of(2), of(3)]);
    selector.deduplicate(&mut lost, 2, 2);
    assert_eq!(lost.iter().map(|lost| lost.tag).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn the_farthest_of_several_proxies_without_losses_is_selected() {
    let mut chain = Chain::new([0, 0]);
    chain.stream(12_000);
    let choice = chain.sender.selection().unwrap();
    assert_eq!((choice.proxy, choice.reason), (chain.proxies[1].0, SelectionReason::Farthest));
}

/// A proxy answers the marker and then disappears, or is unreachable at the address that it
/// announces.
#[test]
fn a_proxy_that_answers_only_markers_does_not_block_the_search() {
    let mut s = discovering(near(5, 0), 8);
    s.stream(12, MS);
    let silent = s.proxy.take();
    assert!(silent.is_some_and(|proxy| proxy.stats().markers > 0));
    s.stream(20_000, MS);
    assert_ne!(s.sender.assistance(), Assistance::Seeking);
    assert!(s.sender.stats().markers > 6, "{:?}", s.sender.stats());
    s.proxy = Some(proxy(ObserverConfig::default(), 9));
    s.stream(60_000, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
}

/// The sender discovers a farther proxy later, and compares both by the losses from then on.
#[test]
fn losses_before_the_comparison_do_not_count() {
    let mut chain = Chain::new([0, 6]);
    // The farther proxy does not answer at first.
    let address = chain.proxies[1].0;
    chain.proxies[1].1 = Observer::new(ObserverConfig::default(), [1; 32]).unwrap();
    chain.loss = [6, 0];
    chain.stream(1500);
    assert_eq!(chain.sender.proxy().map(|(proxy, _)| proxy), Some(chain.proxies[0].0));
    chain.loss = [0, 6];
    chain.proxies[1].1.set_addresses(Addresses::announcing(0, address));
    let now = chain.now;
    chain.sender.search.begin(now);
    chain.stream(3000);
    let choice = chain.sender.selection().unwrap();
    assert_eq!(choice.proxy, address, "{choice}");
}
