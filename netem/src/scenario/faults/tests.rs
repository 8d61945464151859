use super::*;
use crate::scenario::Scenario;
use proptest::prelude::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn upload(events: &str) -> Result<Scenario, ScenarioError> {
    Scenario::with("upload-paper", &[format!("faults.events={events}")])
}

#[test]
fn events_are_short_sentences() {
    let share = |percent| Percent::new(percent).unwrap();
    let event = |fault, at, length: Option<u64>| (fault, MS(at), length.map(MS));
    for (text, expected) in [
        ("near-outage at 2000 for 500", event(Fault::Outage(Place::Near), 2000, Some(500))),
        ("quack-loss 50 at 0 for 10000", event(Fault::QuackLoss(share(50.0)), 0, Some(10_000))),
        ("quack-duplicate 20 at 0", event(Fault::QuackDuplicate(share(20.0)), 0, None)),
        ("quack-reorder 30 at 0", event(Fault::QuackReorder(share(30.0)), 0, None)),
        ("quack-corrupt 0.5 at 0", event(Fault::QuackCorrupt(share(0.5)), 0, None)),
        (
            "  quack-delay   40 at 1000 for 2000 ",
            event(Fault::QuackDelay(MS(40)), 1000, Some(2000)),
        ),
        ("proxy-restart at 3000", event(Fault::ProxyRestart, 3000, None)),
        (
            "proxy-lies too-much at 1000 for 500",
            event(Fault::ProxyLies(Lie::TooMuch(share(25.0))), 1000, Some(500)),
        ),
        (
            "proxy-lies too-little at 1",
            event(Fault::ProxyLies(Lie::TooLittle(share(25.0))), 1, None),
        ),
        ("proxy-lies garbage at 1", event(Fault::ProxyLies(Lie::Garbage(share(100.0))), 1, None)),
        (
            "proxy-lies too-little 10 at 0",
            event(Fault::ProxyLies(Lie::TooLittle(share(10.0))), 0, None),
        ),
        ("proxy-lies garbage 0.5 at 0", event(Fault::ProxyLies(Lie::Garbage(share(0.5))), 0, None)),
        ("near-delay 20 at 4000", event(Fault::Delay(Place::Near, MS(20)), 4000, None)),
        (
            "near-rate 5 at 4000",
            event(Fault::Rate(Place::Near, BitRate::from_mbit(5.0)), 4000, None),
        ),
        ("far-rate unlimited at 4000", event(Fault::Rate(Place::Far, None), 4000, None)),
        ("nat-rebinding at 3000", event(Fault::NatRebinding, 3000, None)),
        ("capture-drops 5 at 0", event(Fault::CaptureDrops(share(5.0)), 0, None)),
        ("message-loss 20 at 5", event(Fault::MessageLoss(share(20.0)), 5, None)),
        ("repeat-loss 20 at 5 for 6", event(Fault::RepeatLoss(share(20.0)), 5, Some(6))),
        ("migration at 700", event(Fault::Migration, 700, None)),
        (
            "proxy-lies wrong-copies at 1",
            event(Fault::ProxyLies(Lie::WrongCopies(share(100.0))), 1, None),
        ),
        ("proxy-lies no-copies at 1", event(Fault::ProxyLies(Lie::NoCopies(share(25.0))), 1, None)),
        (
            "proxy-lies unasked-copies 9 at 1",
            event(Fault::ProxyLies(Lie::UnaskedCopies(share(9.0))), 1, None),
        ),
    ] {
        let events = upload(text).unwrap().faults.events;
        let [Event { kind, fault, at, length }] = events[..] else { panic!("{text}: {events:?}") };
        assert_eq!((fault, at, length), expected, "{text}");
        assert!(text.trim_start().starts_with(kind), "{text}");
    }
    let many = upload("proxy-restart at 1; near-outage at 2 for 3").unwrap().faults.events;
    assert_eq!(many.len(), 2);
    assert_eq!(upload("none").unwrap().faults, Faults::default());
}

#[test]
fn an_error_states_the_fault_of_an_event() {
    for (text, expected) in [
        (
            "",
            "`` is no event for faults.events: an event begins with one of near-outage, \
             middle-outage, far-outage",
        ),
        (
            "proxy-restart at 1; rain at 2",
            "`rain at 2` is no event for faults.events: an event begins with",
        ),
        ("quack-loss 150 at 0", ": quack-loss takes percent from 0 to 100"),
        ("quack-loss at 0", ": quack-loss takes percent from 0 to 100"),
        ("near-rate 0 at 1", ": near-rate takes Mbit/s from 0.001 to 100000, or unlimited"),
        (
            "proxy-lies often at 1",
            ": proxy-lies takes too-much, too-little, garbage, wrong-copies, no-copies or",
        ),
        (
            "proxy-lies too-little 101 at 1",
            ": proxy-lies takes too-much, too-little, garbage, wrong-copies, no-copies or",
        ),
        (
            "proxy-lies 5 too-little at 1",
            ": proxy-lies takes too-much, too-little, garbage, wrong-copies, no-copies or",
        ),
        ("near-outage 5 at 1", ": write `at MS` next, with MS in milliseconds from 0 to 3600000"),
        ("near-outage at -1", ": write `at MS` next, with MS in milliseconds from 0 to 3600000"),
        ("near-outage at 1 during 5", ": write `for MS` last, with MS in milliseconds above 0"),
        ("near-outage at 1 for 0", ": write `for MS` last, with MS in milliseconds above 0"),
        ("nat-rebinding at 1 for 5", ": nat-rebinding has no duration; leave `for` out"),
        ("migration at 1 for 5", ": migration has no duration; leave `for` out"),
        ("near-outage at 1 for 5 proxy-restart", ": `proxy-restart` may not follow the duration"),
    ] {
        let error = upload(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn a_file_has_an_array_of_events_and_each_has_its_line() {
    let parse = |text: &str| Scenario::parse("mine.toml", text);
    let good = "[faults]\nevents = [\n  \"proxy-restart at 1\",\n  'near-outage at 2 for 3',\n]";
    assert_eq!(
        parse(good).unwrap().faults,
        upload("proxy-restart at 1; near-outage at 2 for 3").unwrap().faults
    );
    assert_eq!(parse("[faults]\nevents = []").unwrap().faults, Faults::default());
    assert_eq!(parse("[faults]\nevents = \"proxy-restart at 1\"").unwrap().faults.events.len(), 1);
    for (text, start) in [
        (
            "[faults]\nevents = [\n  \"proxy-restart at 1\",\n  \"rain at 2\",\n]",
            "mine.toml, line 4: `rain at 2` is",
        ),
        ("[faults]\nevents = [7]", "mine.toml, line 2: `7` is no event"),
        ("[faults]\nevent = []", "mine.toml, line 2: there is no setting `faults.event`"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(start), "{error}");
    }
}

#[test]
fn the_list_names_every_form() {
    for (name, takes) in grammar::kinds() {
        assert!(grammar::TAKES.contains(name), "{name}");
        let value = match takes {
            "" => continue,
            ms if ms.starts_with("milliseconds") => "MS",
            rate if rate.starts_with("Mbit/s") => "MBIT",
            percent if percent.starts_with("percent") => "PERCENT",
            _ => "too-much|too-little|garbage|wrong-copies|no-copies|unasked-copies",
        };
        assert!(grammar::TAKES.contains(&format!("{name} {value}")), "{name}");
    }
}

#[test]
fn a_segment_goes_from_stage_to_stage_and_back() {
    let scenario = upload(
        "near-delay 20 at 400 for 200; near-rate 5 at 500; far-delay 9 at 1; near-delay 3 at 450 for 50",
    );
    let Scenario { near, faults, .. } = scenario.unwrap();
    let stages: Vec<_> = faults
        .later_stages(Place::Near, &near)
        .into_iter()
        .map(|(time, stage)| (time.as_millis(), stage.both.delay.as_millis(), stage.both.rate))
        .collect();
    let (before, after) = (BitRate::from_mbit(100.0), BitRate::from_mbit(5.0));
    let expected = [(400, 20, before), (450, 3, before), (500, 20, after), (600, 1, after)];
    assert_eq!(stages, expected);
    assert_eq!(faults.first_stage(Place::Near, &near), near);
}

#[test]
fn outages_join_those_of_the_segment() {
    let mut scenario = upload("near-outage at 100 for 50; far-outage at 300").unwrap();
    scenario.apply(&["near.outages_ms=10+5"]).unwrap();
    let stage = |place, segment| scenario.faults.first_stage(place, segment).both.outages;
    let near = stage(Place::Near, &scenario.near);
    let down: Vec<u64> = (0..400).filter(|&ms| near.contains(MS(ms))).collect();
    assert_eq!(down, (10..15).chain(100..150).collect::<Vec<_>>());
    assert!(stage(Place::Far, &scenario.far).contains(MS(3_600_000)));
    assert_eq!(scenario.faults.only_in_virtual_time(), None);
    assert_eq!(
        upload("capture-drops 1 at 0").unwrap().faults.only_in_virtual_time(),
        Some("capture-drops")
    );
}

#[test]
fn a_new_rate_does_not_go_with_a_trace() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace");
    std::fs::write(&trace, "1\n2\n").unwrap();
    let set = format!("near.trace={}", trace.display());
    let settings = ["near.rate_mbit=unlimited", &set, "faults.events=near-rate 5 at 1"];
    let error = Scenario::with("upload-paper", &settings).unwrap_err().to_string();
    assert!(error.contains("does not go with near.rate_mbit = 5"), "{error}");
}

#[test]
fn the_later_of_two_events_in_force_decides() {
    let faults = upload("quack-loss 10 at 0; quack-loss 90 at 5 for 5").unwrap().faults;
    let chance = |ms| {
        faults.in_force(MS(ms), |fault| match fault {
            Fault::QuackLoss(share) => Some(share.get()),
            _ => None,
        })
    };
    assert_eq!([0, 5, 9, 10].map(chance), [10.0, 90.0, 90.0, 10.0].map(Some));
}

proptest! {
    #[test]
    fn any_text_is_accepted_or_refused_with_a_sentence(text in "[a-z0-9 ;.-]{0,60}|(near-outage|quack-loss|at|for|;|[0-9]{1,4}| ){0,12}") {
        if let Err(error) = grammar::events(&text) {
            prop_assert!(error.to_string().contains("is no event for faults.events: "));
        }
    }
}
