//! Tests of every feature of a link except the queue, the rate and the delay.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// Pops all packets. Returns each packet with its deadline.
fn drain(link: &mut Link<Packet>) -> Vec<(Packet, Duration)> {
    let mut arrived = Vec::new();
    while let Some(deadline) = link.poll_timeout() {
        match link.pop(deadline) {
            Some(packet) => arrived.push((packet, deadline)),
            None => assert!(
                link.poll_timeout().is_none_or(|next| next > deadline),
                "no progress at {deadline:?}"
            ),
        }
    }
    arrived
}

fn share(value: f64) -> Percent {
    Percent::new(value).unwrap()
}

#[test]
fn jitter_keeps_the_order_and_the_losses() {
    let calm = config(50, Some(20.0), 5.0, 1_000_000);
    let jittery =
        LinkConfig { jitter: Jitter { spread: 40 * MS, ..Jitter::default() }, ..calm.clone() };
    let packets: Vec<_> = (0..2000).map(|number| (number * MS, 1000)).collect();
    let (even, even_counters) = carry(calm, 3, &packets);
    let (uneven, counters) = carry(jittery, 3, &packets);
    let numbers = |arrived: &[(usize, Duration)]| {
        arrived.iter().map(|&(number, _)| number).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&even), numbers(&uneven), "the same packets in the same order");
    assert_eq!(even_counters, counters);
    assert!(even.iter().zip(&uneven).any(|(even, uneven)| even.1 < uneven.1));
    assert!(even.iter().zip(&uneven).any(|(even, uneven)| even.1 > uneven.1));
}

#[test]
fn jitter_that_reorders_delays_each_packet_by_itself() {
    let jitter = Jitter { spread: 40 * MS, reorders: true, ..Jitter::default() };
    let mut link = Link::new(LinkConfig { jitter, ..config(50, Some(8.0), 0.0, 1_000_000) }, 3, 0);
    for number in 0..500 {
        link.push(Duration::ZERO, Packet::new(number, 1000));
    }
    let arrived = drain(&mut link);
    assert_eq!(arrived.len(), 500);
    assert!(arrived.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    // Packet n leaves after n + 1 ms.
    let delays: Vec<_> = arrived
        .iter()
        .map(|(packet, at)| *at - Duration::from_millis(packet.number as u64 + 1))
        .collect();
    assert!(delays.iter().all(|delay| (10 * MS..=90 * MS).contains(delay)));
    assert!(
        delays.iter().any(|delay| *delay < 20 * MS) && delays.iter().any(|delay| *delay > 80 * MS)
    );
    let mut highest = 0;
    let overtaken = arrived.iter().filter(|(packet, _)| {
        highest = highest.max(packet.number);
        packet.number < highest
    });
    let overtaken = overtaken.count();
    assert!(overtaken > 300, "{overtaken}");
    let overtaking = link.counters().reordered;
    assert!((200..500).contains(&overtaking), "{overtaking}");
}

#[test]
fn a_packet_spared_the_delay_overtakes() {
    let mut link = Link::new(
        LinkConfig { reorder: share(10.0), ..config(20, Some(8.0), 0.0, 1_000_000) },
        5,
        0,
    );
    for number in 0..500 {
        link.push(Duration::ZERO, Packet::new(number, 1000));
    }
    let arrived = drain(&mut link);
    assert!(arrived.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    // Packet n leaves after n + 1 ms.
    let after = |ms: usize| Duration::from_millis(ms as u64);
    let early = arrived.iter().filter(|(packet, at)| *at == after(packet.number + 1)).count();
    let late = arrived.iter().filter(|(packet, at)| *at == after(packet.number + 21)).count();
    assert_eq!((early as u64, early + late), (link.counters().reordered, 500));
    assert!((20..90).contains(&early), "{early}");
}

#[test]
fn doubled_and_damaged_packets_are_counted_separately() {
    let doubling =
        LinkConfig { duplicate: share(20.0), corrupt: share(30.0), ..config(1, None, 0.0, 0) };
    let mut link = Link::new(doubling, 8, 0);
    for number in 0..1000 {
        link.push(Duration::ZERO, Packet::new(number, 100));
    }
    let arrived = drain(&mut link);
    let counters = link.counters();
    assert_eq!(arrived.len() as u64, 1000 + counters.duplicated);
    let mut damaged: Vec<_> = arrived
        .iter()
        .filter(|(packet, _)| packet.corrupted)
        .map(|(packet, _)| packet.number)
        .collect();
    damaged.dedup();
    assert_eq!(damaged.len() as u64, counters.corrupted);
    assert!(
        (140..260).contains(&counters.duplicated) && (230..370).contains(&counters.corrupted),
        "{counters:?}"
    );
}

#[test]
fn packets_in_an_outage_or_too_large_are_lost() {
    let outages = [Outage { from: 10 * MS, length: 5 * MS }].into_iter().collect();
    let mut link =
        Link::new(LinkConfig { outages, mtu_bytes: Some(1400), ..config(1, None, 0.0, 0) }, 1, 0);
    let verdicts: Vec<_> = [(9, 1414), (10, 1414), (14, 60), (15, 1414), (16, 1415)]
        .map(|(at, bytes)| link.push(at * MS, Packet::new(0, bytes)))
        .into();
    let expected = [
        Verdict::Accepted,
        Verdict::LostInOutage,
        Verdict::LostInOutage,
        Verdict::Accepted,
        Verdict::TooLarge,
    ];
    assert_eq!(verdicts, expected);
    let LinkCounters { lost_outage, lost_mtu, .. } = link.counters();
    assert_eq!((lost_outage, lost_mtu, link.counters().lost()), (2, 1, 3));
}

#[test]
fn the_queue_can_count_packets_and_the_line_more_than_the_frame() {
    let limits = LinkConfig {
        queue_packets: Some(3),
        overhead_bytes: 250,
        ..config(0, Some(8.0), 0.0, 65_000)
    };
    let (arrived, counters) = carry(limits, 1, &[(Duration::ZERO, 750); 9]);
    assert_eq!(arrived, [(0, MS), (1, 2 * MS), (2, 3 * MS), (3, 4 * MS)]);
    assert_eq!(counters.lost_queue, 5);
}

#[test]
fn a_policer_drops_before_the_queue_and_delays_nothing() {
    let policed = LinkConfig {
        policer: BitRate::from_mbit(8.0),
        policer_burst_bytes: 20_000,
        ..config(5, None, 0.0, 0)
    };
    // For ten seconds, 12 Mbit/s come to a policer of 8: 1000 bytes a millisecond.
    let packets: Vec<_> = (0..15_000).map(|number| (number * MS * 2 / 3, 1000)).collect();
    let (arrived, counters) = carry(policed, 1, &packets);
    assert!(arrived.iter().all(|&(number, at)| at == packets[number].0 + 5 * MS));
    assert!((10_018..=10_020).contains(&counters.delivered), "{counters:?}");
    assert_eq!(counters.lost_policer, 15_000 - counters.delivered);
    assert_eq!((counters.lost(), counters.congested()), (counters.lost_policer, counters.lost()));
}

#[test]
fn a_trace_takes_the_place_of_the_rate() {
    let trace = Trace::parse(std::path::Path::new("t"), "3\n3\n10\n").unwrap();
    let link =
        LinkConfig { trace: Some(std::sync::Arc::new(trace)), ..config(2, None, 0.0, 4 * 1514) };
    let mut link = Link::new(link, 1, 0);
    // Six full frames: two leave at 3 ms, and one at 10 ms. The queue holds four.
    for number in 0..6 {
        link.push(MS, Packet::new(number, 1514));
    }
    let arrived: Vec<_> =
        drain(&mut link).into_iter().map(|(packet, at)| (packet.number, at)).collect();
    assert_eq!(arrived, [(0, 5 * MS), (1, 5 * MS), (2, 12 * MS), (3, 15 * MS)]);
    assert_eq!(link.counters().lost_queue, 2);
}

#[test]
fn a_change_of_rate_and_delay_affects_waiting_packets_only() {
    let mut link = Link::new(config(10, Some(8.0), 0.0, 65_000), 1, 0);
    for number in 0..4 {
        link.push(Duration::ZERO, Packet::new(number, 1000));
    }
    // Packets 0 and 1 have begun by then. Packet 2 would arrive at 5 ms without packet 1.
    let changed = LinkConfig { delay: 2 * MS, ..config(0, Some(16.0), 0.0, 65_000) };
    link.set_config(MS + MS / 2, changed);
    let times: Vec<_> =
        drain(&mut link).into_iter().map(|(packet, at)| (packet.number, at)).collect();
    assert_eq!(times, [(0, 11 * MS), (1, 12 * MS), (2, 12 * MS), (3, 12 * MS)]);
}

#[test]
fn a_new_trace_does_not_give_away_room_of_the_past() {
    let with = |line: &str| {
        let trace = Trace::parse(std::path::Path::new("t"), line).unwrap();
        LinkConfig { trace: Some(std::sync::Arc::new(trace)), ..LinkConfig::default() }
    };
    let mut link = Link::new(with("50"), 1, 0);
    link.push(MS, Packet::new(0, 1000));
    link.set_config(9 * MS, with("4"));
    assert_eq!(link.poll_timeout(), Some(12 * MS));
}

/// Sends 1000 bytes each `gap` over 8 Mbit/s for ten seconds. Returns the counts, and the longest
/// time in the queue during the last five.
fn overload(queue: Discipline, ecn: bool, gap: Duration) -> (LinkCounters, Duration) {
    let limits = LinkConfig { queue, ecn, ..config(0, Some(8.0), 0.0, 260_000) };
    let mut link: Link<Packet> = Link::new(limits, 1, 0);
    let (mut sent, mut longest) = (Vec::new(), Duration::ZERO);
    let mut now = Duration::ZERO;
    while now < Duration::from_secs(10) {
        while let Some(deadline) = link.poll_timeout().filter(|&deadline| deadline <= now) {
            let Some(packet) = link.pop(deadline) else { continue };
            if deadline > Duration::from_secs(5) {
                longest = longest.max(deadline - sent[packet.number]);
            }
        }
        link.push(now, Packet { capable: true, ..Packet::new(sent.len(), 1000) });
        sent.push(now);
        now += gap;
    }
    (link.counters(), longest)
}

#[test]
fn active_queues_stay_shorter_than_a_full_one() {
    let codel = Discipline::CoDel(CoDelConfig::default());
    // The sender sends 3 % more than the link carries.
    let gap = Duration::from_micros(970);
    let (tail, full) = overload(Discipline::DropTail, false, gap);
    assert!(tail.lost_aqm == 0 && full > 200 * MS, "{tail:?} {full:?}");
    for queue in [Discipline::Red, codel] {
        let (counters, longest) = overload(queue, false, gap);
        assert!(
            counters.lost_queue == 0 && counters.lost_aqm > 200 && counters.marked == 0,
            "{queue:?} {counters:?}"
        );
        assert!(longest < 100 * MS, "{queue:?} {longest:?}");
        let (counters, _) = overload(queue, true, gap);
        assert!(counters.marked > 100, "{queue:?} {counters:?}");
    }
}

prop_compose! {
    fn any_way()(jitter_ms in 0_u64..30, normal: bool, reorders: bool, reorder in 0.0_f64..30.0, delay_ms in 0_u64..30, from in 0_u64..300) -> LinkConfig {
        let shape = if normal { JitterShape::Normal } else { JitterShape::Uniform };
        LinkConfig {
            delay: Duration::from_millis(delay_ms),
            jitter: Jitter { spread: Duration::from_millis(jitter_ms), shape, reorders },
            reorder: share(reorder),
            outages: [Outage { from: Duration::from_millis(from), length: 20 * MS }].into_iter().collect(),
            ..LinkConfig::default()
        }
    }
}

prop_compose! {
    fn anything()(
        way in any_way(),
        mbit in prop::option::of(0.5_f64..200.0),
        trace in prop::option::of(prop::collection::vec(1_u64..40, 1..6)),
        chances in [0.0_f64..30.0, 0.0_f64..30.0, 0.0_f64..30.0],
        model in prop_oneof![
            Just(LossModel::Independent),
            (0.0_f64..99.0).prop_map(|chance| LossModel::Correlated(share(chance))),
            (0.0_f64..50.0, 1.0_f64..100.0, 0.0_f64..100.0).prop_map(|(to_bad, to_good, bad_loss)| {
                LossModel::GilbertElliott { to_bad: share(to_bad), to_good: share(to_good), bad_loss: share(bad_loss) }
            }),
        ],
        queue in prop_oneof![
            Just(Discipline::DropTail),
            Just(Discipline::Red),
            Just(Discipline::CoDel(CoDelConfig { target: MS, interval: 10 * MS })),
        ],
        queue_bytes in 12_000_u64..100_000,
        queue_packets in prop::option::of(1_u64..80),
        overhead_bytes in 0_u64..100,
        policer in prop::option::of((0.5_f64..200.0, 1514_u64..20_000)),
        mtu_bytes in prop::option::of(576_u64..1600),
        ecn: bool,
    ) -> LinkConfig {
        let [loss, duplicate, corrupt] = chances.map(share);
        let trace = trace.map(|mut times| {
            times.sort_unstable();
            let text: String = times.iter().map(|time| format!("{time}\n")).collect();
            std::sync::Arc::new(Trace::parse(std::path::Path::new("t"), &text).unwrap())
        });
        let rate = mbit.and_then(BitRate::from_mbit);
        let policer_burst_bytes = policer.map_or(65_000, |(_, burst)| burst);
        let policer = policer.and_then(|(mbit, _)| BitRate::from_mbit(mbit));
        LinkConfig {
            rate, trace, loss, duplicate, corrupt, loss_model: model, queue, queue_bytes, queue_packets,
            overhead_bytes, mtu_bytes, ecn, policer, policer_burst_bytes, ..way
        }
    }
}

/// What a link with all features does to traffic. The configuration changes half way.
fn history(
    first: &LinkConfig,
    second: &LinkConfig,
    packets: &[(Duration, u64)],
    seed: u64,
) -> Result<(Vec<(Packet, Duration)>, LinkCounters), TestCaseError> {
    let mut link = Link::new(first.clone(), seed, 0);
    let mut arrived = Vec::new();
    for (number, &(now, bytes)) in packets.iter().enumerate() {
        // Time advances by deadlines, as in the simulator. Every deadline must make progress.
        while let Some(deadline) = link.poll_timeout().filter(|&deadline| deadline <= now) {
            match link.pop(deadline) {
                Some(packet) => arrived.push((packet, deadline)),
                None => prop_assert!(link.poll_timeout().is_none_or(|next| next > deadline)),
            }
        }
        if number == packets.len() / 2 {
            link.set_config(now, second.clone());
        }
        link.push(now, Packet { capable: number % 2 == 0, ..Packet::new(number, bytes) });
        let counters = link.counters();
        prop_assert_eq!(
            counters.packets + counters.duplicated,
            counters.delivered + counters.lost() + link.in_flight() as u64
        );
    }
    arrived.extend(drain(&mut link));
    prop_assert_eq!(link.in_flight(), 0);
    Ok((arrived, link.counters()))
}

proptest! {
    #[test]
    fn with_all_features_packets_are_conserved(
        first in anything(), second in anything(), packets in traffic(), seed: u64
    ) {
        let (arrived, counters) = history(&first, &second, &packets, seed)?;
        prop_assert_eq!(counters.packets + counters.duplicated, counters.delivered + counters.lost());
        prop_assert_eq!(counters.delivered, arrived.len() as u64);
        prop_assert_eq!(counters.delivered_bytes, arrived.iter().map(|(packet, _)| packet.bytes).sum::<u64>());
        prop_assert!(arrived.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        prop_assert!(arrived.iter().all(|(packet, at)| *at >= packets[packet.number].0));
        prop_assert!(arrived.iter().all(|(packet, _)| packet.capable || !packet.marked));
        if first.reorder.get() == 0.0 && second.reorder.get() == 0.0 {
            prop_assert!(arrived.windows(2).all(|pair| pair[0].0.number <= pair[1].0.number));
        }
        // A second run gives the same result.
        prop_assert_eq!((arrived, counters), history(&first, &second, &packets, seed)?);
    }

    #[test]
    fn nothing_else_changes_which_packets_are_lost_at_random(
        config in anything(), packets in traffic(), seed: u64
    ) {
        let bare = LinkConfig { loss: config.loss, loss_model: config.loss_model, ..LinkConfig::default() };
        let fates = |config: &LinkConfig| -> Vec<bool> {
            let mut link = Link::new(config.clone(), seed, 0);
            let mut push = |(number, &(now, bytes)): (usize, &(Duration, u64))| {
                link.push(now, Packet::new(number, bytes)) == Verdict::LostAtRandom
            };
            packets.iter().enumerate().map(&mut push).collect()
        };
        prop_assert_eq!(fates(&config), fates(&bare));
    }
}

fn fading(good: u64, bad: u64, rate: f64) -> Option<Fading> {
    let [good, bad] = [good, bad].map(Duration::from_millis);
    Some(Fading { good, bad, loss: share(100.0), rate: share(rate) })
}

/// The milliseconds at which a link that carries a packet every `every` ms loses one.
#[allow(clippy::cast_possible_truncation, reason = "below 20,000")]
fn lost_at(stream: u64, every: usize) -> Vec<usize> {
    let faded = LinkConfig { fading: fading(90, 10, 100.0), ..config(0, None, 0.0, 0) };
    let mut link = Link::new(faded, 7, stream);
    let lost = |at: &usize| {
        let now = *at as u32 * MS;
        link.push(now, Packet::new(*at, 1));
        link.pop(now).is_none()
    };
    (0..20_000).step_by(every).filter(lost).collect()
}

/// A flow that sends more loses more packets in one fade, and no more often.
#[test]
fn a_fade_takes_what_comes_in_its_time() {
    let all = lost_at(2, 1);
    assert!((1000..3000).contains(&all.len()), "{}", all.len());
    let fourth: Vec<_> = all.iter().copied().filter(|at| at.is_multiple_of(4)).collect();
    assert_eq!(lost_at(2, 4), fourth);
    assert_eq!(lost_at(3, 1), all, "the other direction");
    assert_ne!(lost_at(4, 1), all, "another segment");
}

#[test]
fn a_fade_can_slow_the_line_down_without_a_loss() {
    let packets: Vec<_> = vec![(Duration::ZERO, 1000); 1000];
    let slow = Some(Fading { loss: share(0.0), ..fading(50, 50, 25.0).unwrap() });
    let even = config(0, Some(8.0), 0.0, 10_000_000);
    let (fast, _) = carry(even.clone(), 1, &packets);
    let (faded, counters) = carry(LinkConfig { fading: slow, ..even }, 1, &packets);
    assert_eq!((fast.len(), faded.len(), counters.lost()), (1000, 1000, 0));
    // Half of the time at a quarter: 62.5 % of the rate.
    let times = faded[999].1.as_secs_f64() / fast[999].1.as_secs_f64();
    assert!((1.2..2.2).contains(&times), "{times}");
}

/// Each retry takes the line once more, and what comes behind it waits.
#[test]
fn retries_make_delay_of_loss_and_keep_the_order() {
    let packets: Vec<_> = (0..4000).map(|number| (number * MS, 1000)).collect();
    let lossy = config(5, Some(20.0), 20.0, 10_000_000);
    let retries = Some(Retries { most: 3, after: 8 * MS });
    let (plain, _) = carry(lossy.clone(), 1, &packets);
    let mut link = Link::new(LinkConfig { retries, ..lossy }, 1, 0);
    let mut arrived = Vec::new();
    for (number, &(now, bytes)) in packets.iter().enumerate() {
        while link.poll_timeout().is_some_and(|at| at < now) {
            let at = link.poll_timeout().unwrap();
            arrived.extend(link.pop(at).map(|packet: Packet| (packet.number, at)));
        }
        assert_eq!(link.push(now, Packet::new(number, bytes)), Verdict::Accepted);
    }
    arrived.extend(drain(&mut link).into_iter().map(|(packet, at)| (packet.number, at)));
    let counters = link.counters();
    assert!(plain.len() < 3400, "{}", plain.len());
    assert!(arrived.is_sorted());
    assert_eq!(arrived.len() as u64, counters.delivered);
    assert_eq!(counters.packets, counters.delivered + counters.lost());
    // One in 625 is lost four times in a row.
    assert!((1..=20).contains(&counters.lost_random), "{}", counters.lost_random);
    assert!((800..1200).contains(&counters.retried), "{}", counters.retried);
    let waits: Vec<Duration> = arrived.iter().map(|&(number, at)| at - packets[number].0).collect();
    let usual = Duration::from_micros(5400);
    assert!(waits.iter().all(|wait| *wait >= usual));
    let late = waits.iter().filter(|wait| **wait >= usual + 8 * MS).count();
    assert!((800..3000).contains(&late), "{late}");
}

#[test]
fn a_handover_drops_what_comes_and_changes_the_delay() {
    let handovers =
        Some(Handovers { every: 1000 * MS, outage: (100 * MS, 100 * MS), delay: 20 * MS });
    let packets: Vec<_> = (0..10_000).map(|number| (number * MS, 100)).collect();
    let (arrived, counters) =
        carry(LinkConfig { handovers, ..config(30, None, 0.0, 10_000_000) }, 1, &packets);
    assert!((900..=1000).contains(&counters.lost_outage), "{}", counters.lost_outage);
    assert_eq!(arrived.len() as u64 + counters.lost_outage, 10_000);
    let delay = |&(number, at): &(usize, Duration)| at - packets[number].0;
    let mut delays: Vec<_> = arrived.iter().map(delay).collect();
    assert!(delays.iter().all(|delay| (30 * MS..=50 * MS).contains(delay)));
    delays.sort_unstable();
    delays.dedup();
    // Packets in flight arrive in order, so a shorter delay begins by steps.
    assert!(delays.len() >= 10, "{delays:?}");
}

/// A late packet of a recording is overtaken, and no other, whatever its jitter.
#[test]
fn a_replay_keeps_the_order_of_all_but_late_packets() {
    let round_trips = |number: u64| format!("r 1000 {}\n", 30_000 + number * 7919 % 2000);
    let line = |number: u64| match number % 50 {
        7 => "u 0 1200 -\n",
        23 => "u 0 1200 +2500\n",
        _ => "u 0 1200\n",
    };
    let lines: String =
        (0..2000).map(|number| round_trips(number) + line(number)).collect::<Vec<_>>().concat();
    let trace = format!("sidekick-trace 1\n{lines}end 1000\n").parse().unwrap();
    let [up, _] = Replay::both(&trace);
    let packets: Vec<_> = (0..4000).map(|number| (number * MS, 1200)).collect();
    let replayed = LinkConfig { replay: Some(up), ..config(15, Some(50.0), 0.0, 100_000) };
    let (arrived, counters) = carry(replayed, 1, &packets);
    assert!((50..120).contains(&counters.lost_random), "{counters:?}");
    assert_eq!((counters.lost(), counters.packets), (counters.lost_random, 4000));
    assert_eq!(arrived.len() as u64 + counters.lost_random, 4000);
    assert!(arrived.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    let overtaken: Vec<usize> = arrived
        .iter()
        .enumerate()
        .filter(|(place, (number, _))| arrived[..*place].iter().any(|(other, _)| other > number))
        .map(|(_, (number, _))| *number)
        .collect();
    assert_eq!(overtaken.len() as u64, counters.reordered);
    assert!((70..=80).contains(&overtaken.len()), "{overtaken:?}");
    assert!(overtaken.windows(2).all(|pair| (50..=101).contains(&(pair[1] - pair[0]))));
    let delay = |&(number, at): &(usize, Duration)| at - packets[number].0;
    let (least, most) = (arrived.iter().map(delay).min(), arrived.iter().map(delay).max());
    assert!(least < Some(16 * MS) && most > Some(18 * MS), "{least:?} to {most:?}");
}
