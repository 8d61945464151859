use std::time::{Duration, Instant};

use super::*;
use proptest::prelude::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
fn epoch() -> Instant {
    Instant::now()
}

fn any_packet() -> impl Strategy<Value = Packet> {
    let fate = prop_oneof![
        Just(Fate::Arrived),
        Just(Fate::Lost),
        (1..1_000_000_u64).prop_map(|by| Fate::Late(Duration::from_micros(by))),
    ];
    (0..60_000_000_u64, any::<u16>(), fate).prop_map(|(at, bytes, fate)| Packet {
        at: Duration::from_micros(at),
        bytes,
        fate,
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        up in prop::collection::vec(any_packet(), 0..50),
        down in prop::collection::vec(any_packet(), 0..50),
        took in prop::collection::vec((0..60_000_000_u64, 0..1_000_000_u64), 0..9),
    ) {
        let micros = Duration::from_micros;
        let trips = took.into_iter().map(|(at, took)| RoundTrip { at: micros(at), took: micros(took) });
        let trace = Trace::new(up, down, trips.collect(), Duration::from_secs(60));
        let mut text = Vec::new();
        trace.write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        prop_assert_eq!(text.parse::<Trace>().unwrap(), trace);
    }

    #[test]
    fn any_text_is_a_trace_or_a_sentence(text in "(sidekick-trace 1\n)?([ude] ?[0-9]{0,30} ?[0-9]{0,9}( [-+][0-9]{0,3})?\n|end [0-9]\n|\\PC{0,9}\n){0,9}") {
        if let Err(error) = text.parse::<Trace>() {
            prop_assert!(error.to_string().starts_with("line "));
        }
    }
}

/// Whatever the packets hold, their times, lengths and fates alone are written.
#[test]
fn a_trace_has_no_address_and_no_byte_of_a_packet() {
    let (now, mut watch, mut recorder) = (epoch(), Watch::default(), Recorder::begin(epoch()));
    for name in 0..9 {
        watch.on_left(name, 1000, &mut recorder, now + ms(name));
        watch.on_fate(name, name % 2 == 0, &mut recorder);
        watch.on_round_trip(ms(name), &mut recorder, now + ms(name));
    }
    let mut text = Vec::new();
    recorder.end(now + ms(20)).write(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    for line in text.lines().skip(1) {
        let words: Vec<_> = line.split(' ').collect();
        let (kind, numbers) = words.split_first().unwrap();
        assert!(["u", "d", "r", "end"].contains(kind), "{line}");
        assert!(numbers.len() <= 3, "{line}");
        assert!(
            numbers
                .iter()
                .all(|it| *it == "-" || it.trim_start_matches('+').parse::<u64>().is_ok())
        );
    }
}

#[test]
fn a_malformed_trace_gives_a_sentence() {
    for (text, said) in [
        ("", "line 1 of the trace: expected end: the file was cut off"),
        ("sidekick-trace 2\n", "line 1 of the trace: expected \"sidekick-trace 1\", as measure"),
        ("sidekick-trace 1\nu 5 1200\n", "line 3 of the trace: expected end"),
        ("sidekick-trace 1\nu x 1200\n", "line 2 of the trace: \"x\" is no number of micro"),
        ("sidekick-trace 1\nu 1 70000\n", "\"70000\" is no length of a payload"),
        ("sidekick-trace 1\nu 1 9 ?\n", "expected - or + and microseconds, not \"?\""),
        ("sidekick-trace 1\nu 1 9 - -\n", "has more than four words"),
        ("sidekick-trace 1\nz 1 9\n", "is neither a packet nor a round trip"),
        ("sidekick-trace 1\nend 99999999999999\n", "is no number of microseconds"),
        ("sidekick-trace 1\nend 1\nu 1 9\n", "nothing follows end"),
    ] {
        let error = text.parse::<Trace>().unwrap_err().to_string();
        assert!(error.contains(said), "{text:?}: {error}");
    }
}

/// What a link does to the packets of a direction, each a millisecond after the one before.
fn direction(fates: &str) -> Vec<Packet> {
    let fate = |letter| match letter {
        '-' => Fate::Lost,
        'l' => Fate::Late(ms(3)),
        _ => Fate::Arrived,
    };
    let packet = |(at, letter)| Packet { at: ms(at), bytes: 1250, fate: fate(letter) };
    (0..).zip(fates.chars()).map(packet).collect()
}

#[test]
fn a_summary_has_loss_runs_and_outages() {
    let fates =
        format!("{}--{}{}{}", "a".repeat(40), "a".repeat(40), "-".repeat(200), "al".repeat(9));
    let trips = (0..).zip([10, 14, 12]).map(|(at, took)| RoundTrip { at: ms(at), took: ms(took) });
    let trace = Trace::new(direction(&fates), Vec::new(), trips.collect(), ms(300));
    let Summary { up, down, near_rtt_ms, .. } = trace.summary();
    assert_eq!((up.packets, up.lost, down.packets), (300, 202, 0));
    assert!((up.run_packets - 101.0).abs() < 1e-9 && (up.run_ms - 101.0).abs() < 1e-9, "{up:?}");
    assert_eq!((up.outages, up.longest_outage_ms), (1, 200.0));
    let runs: Vec<_> = up.runs.iter().map(|run| run.count).collect();
    assert_eq!(runs, [0, 1, 0, 0, 0, 0, 0, 1]);
    assert_eq!((up.late_percent, up.late_ms), (3.0, 3.0));
    // 80 packets arrived in the busiest 100 ms.
    assert!((up.peak_mbit_s - 8.0).abs() < 0.2, "{up:?}");
    let trips = near_rtt_ms.unwrap();
    assert_eq!((trips.least, trips.median, trips.jitter), (10.0, 12.0, 4.0));
}

/// Whether the loss is another in a part of the recording is a question of how many runs it has.
#[test]
fn a_change_of_the_link_shows_and_chance_does_not() {
    let loses = |every: usize, of: usize| -> String {
        (0..of).map(|at| if at % every == 0 { '-' } else { 'a' }).collect()
    };
    let change = |fates: &str| {
        let length = ms(fates.len() as u64);
        Trace::new(direction(fates), Vec::new(), Vec::new(), length).summary().change
    };
    assert_eq!(change(&loses(50, 60_000)), None);
    let changes = format!("{}{}", loses(100, 50_000), loses(10, 10_000));
    let Change { direction, from, to, loss_percent, otherwise_percent } = change(&changes).unwrap();
    assert_eq!(direction, Direction::Up);
    assert_eq!((from, to), (50.0, 60.0));
    assert!((loss_percent - 10.0).abs() < 0.1 && (otherwise_percent - 1.0).abs() < 0.1);
    // A single long outage may happen in any part.
    let outage = format!("{}{}{}", loses(100, 30_000), "-".repeat(2000), loses(100, 28_000));
    assert_eq!(change(&outage), None);
}

/// Packets of a direction that a proxy lists, and what the link does to each.
struct Down {
    watch: Watch,
    recorder: Recorder,
    now: Instant,
}

impl Down {
    fn begin() -> Self {
        let now = epoch();
        Self { watch: Watch::default(), recorder: Recorder::begin(now), now }
    }

    fn arrives(&mut self, identifier: u32, at: u64) {
        self.watch.on_arrival(identifier, 1200, &self.recorder, self.now + ms(at));
    }

    fn list(&mut self, names: std::ops::Range<u32>, at: u64) {
        let first = names.start.wrapping_sub(7);
        let names: Vec<_> = names.collect();
        self.watch.on_list(first, &names, &mut self.recorder, self.now + ms(at));
    }

    fn end(mut self) -> Vec<Packet> {
        self.watch.settle(&mut self.recorder, None);
        self.recorder.end(self.now + ms(5000)).down
    }
}

fn fates(packets: &[Packet]) -> Vec<(u64, Fate)> {
    packets.iter().map(|it| (it.at.as_millis().try_into().unwrap(), it.fate)).collect()
}

#[test]
fn lists_show_what_arrived_late_or_not_at_all() {
    let mut down = Down::begin();
    for (identifier, at) in [(0, 10), (1, 20), (4, 50), (3, 55), (5, 60)] {
        down.arrives(identifier, at);
    }
    down.list(0..6, 61);
    down.arrives(6, 70);
    // This one comes after its list.
    down.list(4..9, 80);
    down.arrives(7, 90);
    down.arrives(8, 91);
    use Fate::{Arrived, Late, Lost};
    let want = [
        (10, Arrived),
        (20, Arrived),
        (30, Lost),
        (50, Late(ms(5))),
        (50, Arrived),
        (60, Arrived),
        (70, Arrived),
        (90, Arrived),
        (91, Arrived),
    ];
    assert_eq!(fates(&down.end()), want);
}

/// In an outage the lists are lost, too.
#[test]
fn positions_that_no_list_names_were_lost_in_the_longest_silence() {
    let mut down = Down::begin();
    for (identifier, at) in [(0, 10), (1, 20), (2, 30), (3, 40), (18, 180), (19, 190), (20, 200)] {
        down.arrives(identifier, at);
    }
    down.list(0..2, 21);
    down.list(20..21, 201);
    let packets = down.end();
    let lost: Vec<_> = packets.iter().filter(|it| it.fate == Fate::Lost).collect();
    assert_eq!((packets.len(), lost.len()), (21, 14));
    assert!(lost.iter().all(|it| (ms(40)..ms(180)).contains(&it.at)), "{lost:?}");
}

proptest! {
    /// Lists come as anyone may send them, and every packet is recorded once at most.
    #[test]
    fn hostile_lists_record_nothing_twice(
        events in prop::collection::vec((any::<bool>(), any::<u32>(), 0..70_u32), 0..60),
    ) {
        let mut down = Down::begin();
        let (mut arrived, mut at) = (0, 0);
        for (is_list, first, len) in events {
            at += 100;
            if is_list {
                let list: Vec<_> = (0..len).collect();
                let first = if first % 2 == 0 { first } else { first % 200 };
                down.watch.on_list(first, &list, &mut down.recorder, down.now + ms(at));
            } else {
                down.arrives(len, at);
                arrived += 1;
            }
        }
        let packets = down.end();
        prop_assert!(packets.iter().filter(|it| it.fate != Fate::Lost).count() <= arrived);
    }
}

#[test]
fn reports_tell_what_became_of_packets_that_left() {
    let (now, mut watch) = (epoch(), Watch::default());
    let mut recorder = Recorder::begin(now);
    for name in 5..9 {
        watch.on_left(name, 1000, &mut recorder, now + ms(name));
    }
    // One is reported twice, and one under the name of a repair.
    for (name, is_lost) in [(6, true), (5, false), (6, false), (u64::MAX, true), (8, false)] {
        watch.on_fate(name, is_lost, &mut recorder);
    }
    let up = recorder.end(now + ms(20)).up;
    assert_eq!(fates(&up), [(5, Fate::Arrived), (6, Fate::Lost), (8, Fate::Arrived)]);
}

/// The session may end before a report tells that they were lost.
#[test]
fn what_left_while_nothing_came_was_lost() {
    let (now, mut watch) = (epoch(), Watch::default());
    let mut recorder = Recorder::begin(now);
    let near = ms(20);
    for name in 0..100 {
        let at = now + ms(10 * name);
        watch.on_left(name, 1000, &mut recorder, at);
        // Nothing comes from 200 to 800 ms, as the link is out from 190 to 790 ms.
        if !(20..80).contains(&name) {
            watch.on_heard(near, &mut recorder, at);
            watch.on_fate(name, false, &mut recorder);
        }
    }
    watch.settle_left(true, &mut recorder, Some(now + ms(5000)));
    let none = recorder.up.iter().filter(|it| it.fate == Fate::Lost).count();
    assert_eq!(none, 0, "their reports may still come");
    watch.settle_left(true, &mut recorder, None);
    let up = recorder.end(now + ms(5000)).up;
    let lost: Vec<_> = up.iter().filter(|it| it.fate == Fate::Lost).map(|it| it.at).collect();
    assert_eq!((lost.first(), lost.last()), (Some(&ms(200)), Some(&ms(780))), "{lost:?}");
    assert_eq!((lost.len(), up.len()), (59, 99));
}

/// The next session's positions begin at 0, so no list shows how many passed the proxy meanwhile.
#[test]
fn an_outage_that_ends_the_lists_is_filled_as_packets_came_before() {
    let mut down = Down::begin();
    let heard = |down: &mut Down, at| {
        down.watch.on_left(at, 100, &mut down.recorder, down.now + ms(at));
        down.watch.on_heard(ms(20), &mut down.recorder, down.now + ms(at));
    };
    for identifier in 0..50 {
        let at = 10 * u64::from(identifier);
        heard(&mut down, at);
        down.arrives(identifier, at);
    }
    down.list(0..50, 491);
    for at in [500, 600, 700, 800] {
        down.watch.on_left(at, 100, &mut down.recorder, down.now + ms(at));
    }
    down.watch.end_lists(&mut down.recorder);
    heard(&mut down, 1490);
    down.arrives(1000, 1490);
    down.arrives(1001, 1500);
    down.list(1000..1002, 1501);
    let packets = down.end();
    let lost: Vec<_> = packets.iter().filter(|it| it.fate == Fate::Lost).collect();
    assert_eq!(packets.len() - lost.len(), 52);
    assert_eq!(lost.len(), 98, "{lost:?}");
    assert!(lost.iter().all(|it| (ms(490)..ms(1490)).contains(&it.at)));
}
