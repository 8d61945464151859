use super::{NearRtt, Sample};
use crate::testing::{Near, Simulation, configured};
use crate::{Assistance, ObserverConfig, SenderConfig};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn near(delay_ms: u32, loss_percent: u64) -> Near {
    Near { delay: delay_ms * MS, jitter: Duration::ZERO, loss_percent }
}

/// Sends a packet every millisecond, without loss. The near segment drops the messages of the first
/// `lost` milliseconds.
fn stream_while_messages_are_lost(s: &mut Simulation, millis: u32, lost: u32) {
    for ms in 0..millis {
        s.near.loss_percent = if ms < lost { 100 } else { 0 };
        s.send(Some(false));
        s.run(MS);
    }
}

/// A handshake of the connection needs the help soon.
#[test]
fn a_lost_first_hello_is_repeated_soon() {
    let mut s = Simulation::new(configured(), ObserverConfig::default(), near(1, 100), 3);
    s.run(5 * MS);
    s.near.loss_percent = 0;
    s.run(10 * MS);
    assert_eq!(s.sender.stats().epochs, 1);
}

/// After several HELLOs it is unclear which one RETRY and ACCEPT answer, and the next quACK does
/// not answer the first poll.
#[test]
fn the_near_rtt_is_measured_although_the_first_answer_is_lost() {
    for poll in [true, false] {
        let config = SenderConfig { poll, ..configured() };
        let mut s = Simulation::new(config, ObserverConfig::default(), near(1, 100), 3);
        stream_while_messages_are_lost(&mut s, 61, 59);
        stream_while_messages_are_lost(&mut s, 23, 20);
        assert_eq!(
            (s.sender.stats().epochs, s.sender.stats().polls),
            (1, 1),
            "ACCEPT has just arrived"
        );
        // The proxy receives the poll, and its answer is lost.
        stream_while_messages_are_lost(&mut s, 15, 5);
        assert_eq!(s.sender.near_rtt(), None);
        stream_while_messages_are_lost(&mut s, 1000, 0);
        assert_eq!(s.sender.assistance(), Assistance::Assisted);
        assert_eq!(s.sender.near_rtt(), Some(2 * MS), "polls: {poll}");
        assert_eq!(s.sender.stats().polls, 2, "polls: {poll}");
    }
}

/// Even if answers arrive late, a poll stays outstanding until its answer arrives.
#[test]
fn a_long_near_rtt_is_measured() {
    for delay in (50..=450).step_by(25) {
        let mut s = Simulation::new(configured(), ObserverConfig::default(), near(delay, 0), 3);
        stream_while_messages_are_lost(&mut s, 5000, 0);
        assert_eq!(s.sender.near_rtt(), Some(2 * delay * MS), "{delay} ms away");
        assert_eq!(s.sender.stats().epochs, 1, "{delay} ms away");
    }
}

/// A queue delays every packet, a radio link only some.
#[test]
#[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
fn a_queue_stands_while_no_packet_passes_without_delay() {
    let (now, mut rtt) = (std::time::Instant::now(), NearRtt::default());
    rtt.sample(Sample::Handshake(MS), now);
    assert_eq!(rtt.standing(), None, "a slow proxy is no queue");
    let mut sample = |time| {
        rtt.sample(Sample::Answer(time), now);
        rtt.standing()
    };
    assert_eq!(sample(2 * MS), Some(Duration::ZERO));
    let mut last = Some(Duration::ZERO);
    for _ in 0..16 {
        assert_eq!(last, Some(Duration::ZERO), "the shortest is among the last sixteen");
        last = sample(40 * MS);
    }
    assert_eq!(last, Some(38 * MS));
    assert_eq!(sample(3 * MS), Some(MS));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
fn a_queue_adds_nothing_to_the_jitter_for_long() {
    let (mut now, mut rtt) = (std::time::Instant::now(), NearRtt::default());
    let mut sample = |ms: u32| {
        now += 10 * MS;
        rtt.sample(Sample::Answer(ms * MS), now);
        rtt.jitter().map(Duration::from_nanos)
    };
    (0..16).for_each(|_| assert_eq!(sample(20), None, "too few samples"));
    assert_eq!(sample(20), Some(Duration::ZERO));
    // A queue fills up to 24 ms and drains, in turns.
    let queued = (0..500).map(|i| sample(20 + if i % 50 < 25 { i % 25 } else { 0 }));
    let queued = queued.last().unwrap().unwrap();
    assert!(queued < MS, "{queued:?}");
    // A radio link delays the packets by 0 to 8 ms. The mean difference of two uniform delays is
    // 8/3 ms.
    let radio = (0..4000).map(|i| sample(20 + i * 7 % 9)).last().unwrap().unwrap();
    assert!((2 * MS..=5 * MS).contains(&radio), "{radio:?}");
}

/// Whether a queue grows after these samples, in milliseconds.
#[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
fn grows(samples: &[u32]) -> bool {
    let (mut now, mut rtt) = (std::time::Instant::now(), NearRtt::default());
    for ms in samples {
        now += 10 * MS;
        rtt.sample(Sample::Answer(*ms * MS), now);
    }
    rtt.queue_grows()
}

#[test]
fn a_queue_grows_beyond_half_the_near_rtt_and_the_jitter() {
    // A longer queue stood there more than three seconds before, so neither of these fills it.
    let full = [100; 3];
    let steady = [20; 340];
    for (late, expected) in [([34, 34, 34], false), ([35, 35, 35], true), ([35, 20, 35], false)] {
        assert_eq!(grows(&[&steady[..], &full, &steady, &late].concat()), expected, "{late:?}");
    }
    // A radio link delays the packets by 0 to 8 ms, in no order.
    let radio: Vec<u32> = (0..400).map(|i| 20 + i * 7 % 9).collect();
    for (late, expected) in [([44, 44, 44], false), ([60, 60, 60], true)] {
        assert_eq!(grows(&[&full[..], &radio, &late].concat()), expected, "{late:?}");
    }
}

/// On a long near segment, even a full queue adds less than half of the round trip.
#[test]
fn a_queue_grows_near_its_greatest_length() {
    let (empty, full) = ([60; 40], [84; 20]);
    assert!(!grows(&[&empty[..], &full].concat()), "slow start may have filled it");
    // A sample every 10 ms.
    let later = [60; 300];
    for (late, expected) in [([84; 3], true), ([78; 3], true), ([77; 3], false), ([60; 3], false)] {
        let samples = [&empty[..], &full, &later, &late].concat();
        assert_eq!(grows(&samples), expected, "{late:?}");
    }
    // Delays within 12 ms and an eighth show no full queue.
    for (most, expected) in [(79, false), (80, true)] {
        let samples = [&empty[..], &[most; 3], &later, &[most; 3]].concat();
        assert_eq!(grows(&samples), expected, "{most} ms");
    }
    // A single delayed packet shows none, either.
    assert!(!grows(&[&empty[..], &[60, 84, 60], &later, &[84; 3]].concat()));
    // A radio that delays the packets by 0 to 8 ms, in no order.
    let radio: Vec<u32> = (0..400).map(|i| 60 + i * 7 % 9).collect();
    assert!((0..400).all(|until| !grows(&radio[..until])));
    for (late, expected) in [([84; 3], false), ([96; 3], true)] {
        let samples = [&radio[..], &late, &radio, &late].concat();
        assert_eq!(grows(&samples), expected, "{late:?}");
    }
}

/// A few sparse samples do not distinguish a radio from a queue.
#[test]
#[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
fn no_queue_is_full_before_the_jitter_is_known() {
    let (mut now, mut rtt) = (std::time::Instant::now(), NearRtt::default());
    for ms in [[60; 3], [84; 3], [60; 3], [60; 3], [84; 3]].concat() {
        now += 400 * MS;
        rtt.sample(Sample::Answer(ms * MS), now);
    }
    assert_eq!(rtt.jitter(), None);
    assert!(!rtt.queue_grows());
}

/// A longer path looks like a queue until the shorter samples are too old.
#[test]
fn a_longer_path_is_no_queue_for_long() {
    let after = |count| grows(&[&[60; 40][..], &vec![90; count]].concat());
    assert!(after(400));
    assert!(!after(2000));
}
