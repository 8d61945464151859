use std::time::Duration;

use super::super::Scenario;
use super::*;
use crate::link::{Jitter, JitterShape, Retries};
use crate::units::BitRate;

fn near(settings: &[&str]) -> Result<LinkConfig, String> {
    let mut scenario = Scenario::default();
    scenario.apply(settings).map_err(|error| error.to_string())?;
    Ok(scenario.near.link(Direction::ToReceiver))
}

fn percent(value: f64) -> Percent {
    Percent::new(value).unwrap()
}

#[test]
fn an_empty_section_is_a_wire_without_length() {
    assert_eq!(near(&[]).unwrap(), LinkConfig::default());
}

#[test]
fn every_setting_reaches_the_link() {
    let link = near(&[
        "near.delay_ms=10",
        "near.jitter_ms=2.5",
        "near.jitter_shape=normal",
        "near.jitter_reorders=on",
        "near.reorder_percent=1",
        "near.rate_mbit=8",
        "near.overhead_bytes=24",
        "near.loss_percent=2",
        "near.bad_enter_percent=1",
        "near.bad_leave_percent=20",
        "near.bad_loss_percent=60",
        "near.duplicate_percent=3",
        "near.corrupt_percent=4",
        "near.policer_mbit=6",
        "near.policer_burst_bytes=20000",
        "near.queue=codel",
        "near.queue_bytes=30000",
        "near.queue_packets=20",
        "near.codel_target_ms=7",
        "near.codel_interval_ms=70",
        "near.ecn=on",
        "near.mtu_bytes=1400",
        "near.retries=3",
        "near.retry_ms=8",
        "near.handover_every_ms=15000",
        "near.handover_ms=50-300",
        "near.handover_delay_ms=9",
        "near.outages_ms=2000+500, 8000+100",
    ])
    .unwrap();
    let ms = Duration::from_millis;
    let expected = LinkConfig {
        delay: ms(10),
        jitter: Jitter {
            spread: Duration::from_micros(2500),
            shape: JitterShape::Normal,
            reorders: true,
        },
        reorder: percent(1.0),
        rate: BitRate::from_mbit(8.0),
        trace: None,
        overhead_bytes: 24,
        loss: percent(2.0),
        loss_model: LossModel::GilbertElliott {
            to_bad: percent(1.0),
            to_good: percent(20.0),
            bad_loss: percent(60.0),
        },
        fading: None,
        replay: None,
        retries: Some(Retries { most: 3, after: ms(8) }),
        handovers: Some(Handovers { every: ms(15_000), outage: (ms(50), ms(300)), delay: ms(9) }),
        outages: [(2000, 500), (8000, 100)]
            .map(|(from, length)| crate::link::Outage { from: ms(from), length: ms(length) })
            .into_iter()
            .collect(),
        mtu_bytes: Some(1400),
        duplicate: percent(3.0),
        corrupt: percent(4.0),
        policer: BitRate::from_mbit(6.0),
        policer_burst_bytes: 20_000,
        queue: Discipline::CoDel(CoDelConfig { target: ms(7), interval: ms(70) }),
        queue_bytes: 30_000,
        queue_packets: Some(20),
        ecn: true,
    };
    assert_eq!(link, expected);
    let correlated = near(&["near.loss_percent=2", "near.loss_correlation_percent=25"]).unwrap();
    assert_eq!(correlated.loss_model, LossModel::Correlated(percent(25.0)));
    assert_eq!(near(&["near.queue=red"]).unwrap().queue, Discipline::Red);
    let fading = near(&[
        "near.good_ms=900",
        "near.bad_ms=16.7",
        "near.bad_loss_percent=60",
        "near.bad_rate_percent=40",
    ]);
    let (good, bad) = (ms(900), Duration::from_micros(16_700));
    let expected = Fading { good, bad, loss: percent(60.0), rate: percent(40.0) };
    assert_eq!(fading.unwrap().fading, Some(expected));
}

#[test]
fn a_policer_can_stand_in_one_direction() {
    let mut scenario = Scenario::default();
    let settings = ["far.policer_mbit=8", "far.policer_to_mbit=none", "middle.policer_from_mbit=3"];
    scenario.apply(&settings).unwrap();
    let rates = |segment: &Segment| {
        [Direction::ToReceiver, Direction::ToSender]
            .map(|direction| segment.link(direction).policer.map(BitRate::bits_per_second))
    };
    assert_eq!(rates(&scenario.far), [None, Some(8_000_000)]);
    assert_eq!(rates(scenario.middle.as_ref().unwrap()), [None, Some(3_000_000)]);
}

#[test]
fn settings_can_be_reset() {
    let taken_back = near(&[
        "near.outages_ms=1+1",
        "near.outages_ms=none",
        "near.mtu_bytes=1400",
        "near.mtu_bytes=unlimited",
        "near.queue_packets=5",
        "near.queue_packets=unlimited",
        "near.trace=none",
        "near.replay=none",
        "near.policer_mbit=5",
        "near.policer_mbit=none",
    ]);
    assert_eq!(taken_back.unwrap(), LinkConfig::default());
}

#[test]
fn settings_that_contradict_each_other_are_one_sentence() {
    for (settings, expected) in [
        (
            &["near.reorder_percent=1"][..],
            "near.reorder_percent = 1 does not go with near.delay_ms = 0; set a delay, in which \
             packets can overtake",
        ),
        (
            &["near.bad_enter_percent=1"],
            "near.bad_enter_percent = 1 does not go with near.bad_leave_percent = 0; set a chance \
             to leave the bad state",
        ),
        (
            &[
                "near.bad_enter_percent=1",
                "near.bad_leave_percent=9",
                "near.loss_correlation_percent=5",
            ],
            "near.bad_enter_percent = 1 does not go with near.loss_correlation_percent = 5; set \
             one of them to 0",
        ),
        (
            &["near.bad_ms=20"],
            "near.good_ms = 0 does not go with near.bad_ms = 20; a link that fades is good and bad \
             by turns; set both, or none",
        ),
        (
            &[
                "near.bad_enter_percent=1",
                "near.bad_leave_percent=9",
                "near.bad_ms=20",
                "near.good_ms=80",
            ],
            "near.bad_enter_percent = 1 does not go with near.bad_ms = 20; leave one of them out",
        ),
        (
            &["near.handover_every_ms=100", "near.handover_ms=50-200"],
            "near.handover_every_ms = 100 does not go with near.handover_ms = 50-200; set an \
             interval that is longer than the outages",
        ),
        (
            &["near.handover_ms=50-200"],
            "near.handover_ms = 50-200 does not go with near.handover_every_ms = 0; set the \
             interval of the handovers, or handover_ms to 0-0",
        ),
        (
            &["near.handover_delay_ms=9"],
            "near.handover_delay_ms = 9 does not go with near.handover_every_ms = 0; set the \
             interval of the handovers, or handover_delay_ms to 0",
        ),
        (
            &["near.handover_every_ms=100"],
            "near.handover_every_ms = 100 does not go with near.handover_ms = 0-0; set what a \
             handover does: handover_ms, handover_delay_ms, or both",
        ),
        (
            &["near.bad_loss_percent=60"],
            "near.bad_loss_percent = 60 does not go with a link without a bad state; set good_ms \
             and bad_ms, or leave it out",
        ),
        (
            &["near.bad_enter_percent=1", "near.bad_leave_percent=9", "near.bad_rate_percent=40"],
            "near.bad_rate_percent = 40 does not go with a link that does not fade; set good_ms \
             and bad_ms, or leave it out",
        ),
        (
            &["near.retry_ms=8"],
            "near.retry_ms = 8 does not go with near.retries = 0; set how often a frame is sent \
             again, or retry_ms to 0",
        ),
        (
            &["near.queue=red", "near.queue_bytes=9000"],
            "near.queue = red does not go with near.queue_bytes = 9000; set the queue to 12000 \
             bytes at least",
        ),
        (
            &["near.ecn=on"],
            "near.ecn = on does not go with near.queue = drop-tail; a drop-tail queue marks no \
             packets; set queue to red or codel",
        ),
    ] {
        assert_eq!(near(settings).unwrap_err(), expected);
    }
}

#[test]
fn wrong_values_are_refused() {
    for assignment in [
        "near.outages_ms=5",
        "near.outages_ms=5+",
        "near.outages_ms=-5+1",
        "near.outages_ms=5+1,",
        "near.outages_ms=",
        "near.jitter_shape=pareto",
        "near.loss_correlation_percent=100",
        "near.queue=fq",
        "near.policer_mbit=unlimited",
        "near.policer_burst_bytes=1513",
        "near.queue_packets=0",
        "near.codel_target_ms=0",
        "near.mtu_bytes=575",
        "near.overhead_bytes=-14",
        "near.trace=",
        "near.replay=",
        "near.bad_rate_percent=0",
        "near.handover_ms=300-50",
        "near.handover_ms=50",
        "near.retries=21",
        "near.bad_ms=0.5",
    ] {
        let error = near(&[assignment]).unwrap_err();
        assert!(error.contains("is no value for near.") && error.contains("it takes "), "{error}");
    }
}

#[test]
fn a_trace_lies_beside_its_scenario() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mine.toml");
    std::fs::write(directory.path().join("lte.up"), "5\n10\n").unwrap();
    std::fs::write(directory.path().join("bad.up"), "5\nfive\n").unwrap();
    let load = |text: &str| {
        std::fs::write(&file, text).unwrap();
        Scenario::load(file.to_str().unwrap())
    };
    let scenario = load("[near]\ntrace = \"lte.up\"").unwrap();
    let trace = Trace::read(&directory.path().join("lte.up")).unwrap();
    assert_eq!(scenario.near.link(Direction::ToSender).trace.as_deref(), Some(&trace));
    let error = load("[near]\ndelay_ms = 1\ntrace = \"bad.up\"").unwrap_err().to_string();
    let place = format!(
        "{}, line 3: {}, line 2: `five` is no time",
        file.display(),
        directory.path().join("bad.up").display()
    );
    assert!(error.starts_with(&place), "{error}");
    let error = load("[far]\ntrace = \"lte.up\"\nrate_mbit = 4").unwrap_err().to_string();
    assert!(
        error.ends_with("far.rate_mbit = 4; set the rate to unlimited, or the trace to none"),
        "{error}"
    );
    let error = near(&["near.trace=/nowhere/x"]).unwrap_err();
    assert!(error.starts_with("cannot read the trace /nowhere/x: "), "{error}");
}

#[test]
fn a_recording_is_replayed_in_both_directions() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mine.toml");
    let recording = "sidekick-trace 1\nu 0 1200\nd 500 1200 -\nend 500\n";
    std::fs::write(directory.path().join("link.trace"), recording).unwrap();
    std::fs::write(&file, "[near]\nreplay = \"link.trace\"").unwrap();
    let scenario = Scenario::load(file.to_str().unwrap()).unwrap();
    let [up, down] = Replay::both(&recording.parse().unwrap());
    let link = |direction| scenario.near.link(direction).replay.unwrap();
    assert_eq!(link(Direction::ToReceiver), up);
    assert_eq!(link(Direction::ToSender), down);
    let error = near(&["near.replay=/nowhere/x"]).unwrap_err();
    assert!(error.starts_with("cannot read the trace /nowhere/x: "), "{error}");
}
