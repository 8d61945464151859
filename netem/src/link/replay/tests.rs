use super::*;

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// A recording of packets at this interval towards the proxy, which are lost by their times.
fn trace(count: u64, every: u64, is_lost: impl Fn(u64) -> bool) -> Trace {
    let lines = (0..count).map(|number| {
        let since = if number == 0 { 0 } else { every };
        let fate = if is_lost(number * every) { " -" } else { "" };
        format!("u {since} 1200{fate}\n")
    });
    let text: String = lines.collect();
    format!("sidekick-trace 1\n{text}end {every}\n").parse().unwrap()
}

/// A number that follows from a time, from 0 to 1.
fn chance_at(at: u64) -> f64 {
    unit_interval(ChaCha8Rng::seed_from_u64(at).next_u64())
}

/// The fates of packets at this interval over so many passes of a recording.
fn fates(trace: &Trace, every: u64, passes: u64, seed: u64) -> Vec<bool> {
    let [up, _] = Replay::both(trace);
    let mut player = Player::new(seed, [10, 11]);
    let all = passes * up.length / every;
    (0..all).map(|number| player.loses(&up, us(number * every))).collect()
}

fn share(fates: &[bool]) -> f64 {
    fates.iter().filter(|lost| **lost).count() as f64 / fates.len() as f64
}

/// The mean length of runs of lost packets.
fn run(fates: &[bool]) -> f64 {
    let runs = fates.chunk_by(|one, other| one == other).filter(|run| run[0]).count();
    share(fates) * fates.len() as f64 / runs as f64
}

#[test]
fn independent_losses_stay_so_in_a_denser_flow() {
    let recorded = trace(60_000, 1000, |at| chance_at(at) < 0.04);
    for every in [100, 1000, 7000] {
        let fates = fates(&recorded, every, 1, 1);
        let (share, run) = (share(&fates), run(&fates));
        assert!((share - 0.04).abs() < 0.005, "{every}: {share}");
        assert!((1.0..1.09).contains(&run), "{every}: {run}");
    }
}

/// Both directions share the air, but the recording times what arrives by its arrival.
#[test]
fn a_fade_strikes_both_directions_at_once() {
    let fades = |at: u64| (100_000..130_000).contains(&at);
    let lines = (0..300_u64).map(|ms| {
        let [up, down] = [ms * 1000, (ms * 1000).saturating_sub(12_000)]
            .map(|at| if fades(at) { " -" } else { "" });
        format!("u 500 1200{up}\nd 500 1200{down}\n")
    });
    let text = format!("sidekick-trace 1\n{}r 0 24000\nend 0\n", lines.collect::<String>());
    let [up, down] = Replay::both(&text.parse().unwrap());
    for (replay, stream) in [(up, 10), (down, 12)] {
        let mut player = Player::new(1, [stream, 11]);
        player.begins = 0.0;
        let lost: Vec<u64> = (0..280).filter(|ms| player.loses(&replay, us(ms * 1000))).collect();
        let (first, last) = (lost[0], lost[lost.len() - 1]);
        assert!((98..=102).contains(&first) && (128..=132).contains(&last), "{lost:?}");
        assert!(lost.len() as u64 + 1 >= last - first, "{lost:?}");
    }
}

#[test]
fn a_fade_lasts_its_milliseconds() {
    let recorded = trace(60_000, 1000, |at| at % 300_000 < 12_000);
    for every in [250, 1000, 3000] {
        let fates = fates(&recorded, every, 1, 2);
        let (share, run) = (share(&fates), run(&fates) * every as f64 / 1e3);
        assert!((share / 0.04 - 1.0).abs() < 0.1, "{every}: {share}");
        assert!((run / 12.0 - 1.0).abs() < 0.2, "{every}: {run} ms");
    }
}

/// In a bad state that spares some packets, a denser flow loses no longer runs in time.
#[test]
fn a_bad_state_spares_as_many_as_it_did() {
    let recorded = trace(100_000, 1000, |at| at % 200_000 < 20_000 && chance_at(at) < 0.6);
    let fates = fates(&recorded, 250, 1, 3);
    let lost = share(&fates);
    assert!((lost / 0.06 - 1.0).abs() < 0.1, "{lost}");
    let both = fates.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64;
    let after_another = both / (lost * fates.len() as f64);
    assert!((0.5..0.75).contains(&after_another), "{after_another}");
}

#[test]
fn a_seed_gives_the_same_fates() {
    let recorded = trace(5000, 1000, |at| chance_at(at) < 0.1);
    let of = |seed| fates(&recorded, 300, 2, seed);
    assert_eq!(of(4), of(4));
    assert_ne!(of(4), of(5));
    let [up, _] = Replay::both(&recorded);
    let [one, other] = [10, 12].map(|own| Player::new(4, [own, 11]).place(&up, us(0)));
    assert_eq!(one, other, "both directions begin at the same time");
}

#[test]
fn an_outage_with_few_packets_loses_all() {
    let before = (0..10_000).map(|_| "u 1000 1200\n").collect::<String>();
    let probes = "u 250000 1200 -\n".repeat(3);
    let text = format!("sidekick-trace 1\n{before}{probes}u 250000 1200\n{before}end 0\n");
    let recorded: Trace = text.parse().unwrap();
    let fates = fates(&recorded, 500, 1, 6);
    let lost = share(&fates) * fates.len() as f64 * 0.5;
    assert!((990.0..=1000.0).contains(&lost), "{lost} ms");
    assert!(run(&fates) >= 990.0, "at once, unless the run begins within");
}

#[test]
fn what_was_lost_after_idle_time_is_no_outage() {
    let text = "sidekick-trace 1\nu 0 9\nu 9000000 9 -\nu 900 9 -\nu 900 9 -\nu 900 9\nend 0\n";
    let [up, _] = Replay::both(&text.parse().unwrap());
    assert_eq!((up.outages.len(), up.times.len()), (0, 5));
    let text = text.replace("u 900 9 -", "u 90000 9 -");
    let [up, _] = Replay::both(&text.parse().unwrap());
    assert_eq!(up.outages, [(8_910_000, 9_180_900)]);
}

#[test]
fn a_recording_without_loss_loses_nothing() {
    let fates = fates(&trace(1000, 500, |_| false), 100, 3, 1);
    assert!(fates.iter().all(|lost| !lost));
}

#[test]
fn lateness_is_that_of_the_nearest_or_drawn() {
    let late: String = (0..4000).map(|n| ["u 5000 99\n", "u 5000 99 +700\n"][n % 2]).collect();
    let recorded: Trace = format!("sidekick-trace 1\n{late}end 5000\n").parse().unwrap();
    let [up, down] = Replay::both(&recorded);
    let mut player = Player { begins: 0.0, ..Player::new(1, [0, 1]) };
    assert_eq!(player.lateness(&up, us(5_900)), None);
    // Its place was 2500 µs before the arrival of the next one.
    assert_eq!(player.lateness(&up, us(10_900)), Some(us(3200)));
    assert_eq!(player.lateness(&down, us(10_900)), None, "nothing was recorded");
    let far = (0..2000).filter(|n| player.lateness(&up, us(n * 5000 + 2500)).is_some());
    let far = far.count();
    assert!((900..1100).contains(&far), "{far}");
}

#[test]
fn jitter_is_what_does_not_last() {
    // A queue of 60 ms for two seconds, with a jitter of 10 ms every fifth round trip.
    let round_trips: String = (0..100)
        .map(|n| {
            let queue = if (40..80).contains(&n) { 60_000 } else { 0 };
            let jitter = if n % 5 == 0 { 10_000 } else { 0 };
            format!("r 50000 {}\n", 20_000 + queue + jitter)
        })
        .collect();
    let text = format!("sidekick-trace 1\n{round_trips}u 0 9\nend 0\n");
    let [up, _] = Replay::both(&text.parse().unwrap());
    let player = Player { begins: 0.0, ..Player::new(1, [0, 1]) };
    let jitter = |n: u64| player.jitter(&up, us(n * 50_000));
    // The n-th ends after (n + 1) times 50 ms.
    assert_eq!([jitter(21), jitter(22), jitter(61)], [us(5000), us(0), us(5000)]);
    assert_eq!(player.jitter(&up, us(21 * 50_000 + 25_000)), us(2500), "in between");
    assert_eq!(jitter(70), us(0), "a queue is no jitter");
}

#[test]
fn what_is_no_recording_is_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    let error = |text: &str| {
        std::fs::write(&file, text).unwrap();
        read(&file).unwrap_err().to_string()
    };
    let shown = file.display();
    assert_eq!(
        error("sidekick-trace 1\nend 5\n"),
        format!("{shown} has no packets; record it while a transfer runs")
    );
    let torn = error("sidekick-trace 1\nu 5 9\n");
    assert!(torn.starts_with(&format!("{shown}: line 3 of the trace: ")), "{torn}");
    assert!(torn.ends_with("`sidekick-agent measure --trace FILE` wrote"), "{torn}");
    let missing = read(Path::new("/nowhere/x")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read the trace /nowhere/x: "), "{missing}");
    assert!(missing.contains("; record one by `sidekick-agent measure"), "{missing}");
}
