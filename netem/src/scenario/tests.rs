use std::time::Duration;

use super::*;
use crate::units::BitRate;
use proptest::prelude::*;

fn upload() -> Scenario {
    Scenario::load("upload-paper").unwrap()
}

#[test]
fn upload_paper_is_the_papers_path() {
    let scenario = upload();
    assert_eq!(scenario.near.both.delay, Duration::from_millis(1));
    assert_eq!(scenario.near.both.rate, BitRate::from_mbit(100.0));
    assert_eq!(scenario.far.both.delay, Duration::from_millis(25));
    assert_eq!(scenario.far.both.rate, BitRate::from_mbit(10.0));
    for direction in [Direction::ToReceiver, Direction::ToSender] {
        assert_eq!(scenario.near.link(direction).loss.get(), 1.0);
        assert_eq!(scenario.far.link(direction).loss.get(), 0.0);
        assert_eq!(scenario.near.link(direction).queue_bytes, 65_000);
    }
    assert_eq!(scenario.flow.bytes, 10 * 1024 * 1024);
}

#[test]
fn one_direction_can_lose_more_than_the_other() {
    let mut scenario = upload();
    scenario.apply(&["near.loss_percent=2", "near.loss_from_percent=0"]).unwrap();
    assert_eq!(scenario.near.link(Direction::ToReceiver).loss.get(), 2.0);
    assert_eq!(scenario.near.link(Direction::ToSender).loss.get(), 0.0);
}

#[test]
fn one_direction_can_be_slower_than_the_other() {
    let rates = |settings: &[&str]| {
        let mut scenario = upload();
        scenario.apply(settings).unwrap();
        let (far, faults) = (&scenario.far, &scenario.faults);
        let rates = |segment: &Segment| {
            [Direction::ToReceiver, Direction::ToSender]
                .map(|direction| segment.link(direction).rate.map(BitRate::bits_per_second))
        };
        (
            rates(far),
            faults.later_stages(Place::Far, far).iter().map(|(_, far)| rates(far)).collect(),
        )
    };
    let fast = Some(12_000_000);
    assert_eq!(
        rates(&["far.rate_mbit=12", "far.rate_from_mbit=3"]),
        ([fast, Some(3_000_000)], Vec::new())
    );
    assert_eq!(rates(&["far.rate_mbit=12", "far.rate_to_mbit=unlimited"]).0, [None, fast]);
    // A change of the rate is one of both directions, for its time.
    let (first, later) = rates(&[
        "far.rate_mbit=12",
        "far.rate_from_mbit=3",
        "faults.events=far-rate 5 at 2000 for 500",
    ]);
    assert_eq!(first, [fast, Some(3_000_000)]);
    assert_eq!(later, [[Some(5_000_000); 2], first]);
}

#[test]
fn every_built_in_scenario_loads_and_describes_itself() {
    assert_eq!(built_in().count(), BUILT_IN.len());
    for (name, description) in built_in() {
        Scenario::load(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!description.is_empty(), "{name}");
    }
}

#[test]
fn an_unknown_setting_names_those_there_are() {
    let error = upload().apply(&["near.los_percent=3"]).unwrap_err().to_string();
    assert!(error.contains("`near.los_percent`; did you mean near.loss_percent?"), "{error}");
    for setting in settings() {
        let is_near = setting.section == "near";
        assert_eq!(error.contains(&setting.name()), is_near, "{error}");
    }
    let error = upload().apply(&["close.loss_percent=3"]).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "; the sections are near, middle, second, far, flow, competitor, sidekick, faults"
        ),
        "{error}"
    );
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn a_wrong_value_names_those_that_are_taken() {
    for (assignment, takes) in [
        (
            "sidekick.mode=fast",
            "off, early-loss, pacubic, path-aware-bbr, reinject, ack-reduction, auto, receive, agent, \
             agent-in-order, measure or socket",
        ),
        ("flow.cc=bbr", "cubic, cubic-rfc9438, reno, bbr2 or hybla"),
        ("near.loss_percent=101", "percent from 0 to 100"),
        ("near.loss_percent=nan", "percent from 0 to 100"),
        ("near.delay_ms=-1", "milliseconds from 0 to 60000"),
        ("far.rate_mbit=0", "Mbit/s from 0.001 to 100000, or unlimited"),
        ("sidekick.threshold=0", "packets from 1 to 255"),
        ("flow.bytes=ten", "bytes from 1 to 10000000000"),
    ] {
        let error = upload().apply(&[assignment]).unwrap_err().to_string();
        assert!(error.ends_with(&format!("it takes {takes}")), "{assignment}: {error}");
    }
}

#[test]
fn unknown_names_are_errors() {
    let unknown = Scenario::load("uplaod").unwrap_err().to_string();
    assert!(
        unknown.starts_with("there is no scenario `uplaod`: choose one of upload-paper"),
        "{unknown}"
    );
    let missing = Scenario::load("/nowhere/x.toml").unwrap_err().to_string();
    assert!(missing.starts_with("cannot read scenario /nowhere/x.toml"), "{missing}");
}

#[test]
fn the_mode_chooses_its_controller_and_refuses_others() {
    let mut scenario = upload();
    assert_eq!(scenario.congestion_control(), CongestionControl::Cubic);
    scenario.apply(&["sidekick.mode=path-aware-bbr"]).unwrap();
    assert_eq!(scenario.congestion_control(), CongestionControl::Bbr2);
    let error = scenario.apply(&["flow.cc=reno"]).unwrap_err().to_string();
    assert!(error.ends_with("set it to bbr2"), "{error}");
    scenario.apply(&["sidekick.mode=pacubic", "flow.cc=cubic"]).unwrap();
    assert_eq!(scenario.congestion_control(), CongestionControl::CubicRfc9438);
}

#[test]
fn files_are_held_to_the_same_settings() {
    let error = |text: &str| Scenario::parse("mine.toml", text).unwrap_err().to_string();
    for (text, start) in [
        (
            "[near]\nlosses = 1",
            "mine.toml, line 2: there is no setting `near.losses`; the section has \
             near.delay_ms",
        ),
        ("near = 1", "mine.toml, line 1: there is no setting `near`"),
        ("\n\n[near", "mine.toml, line 3: not valid TOML"),
        (
            "# a path\n[far]\ndelay_ms = 1\nrate_mbit = [1]",
            "mine.toml, line 4: `[1]` is no value for far.rate_mbit",
        ),
        (
            "[far]\nrate_mbit = -5.0",
            "mine.toml, line 2: `-5.0` is no value for far.rate_mbit; it takes Mbit/s from",
        ),
        (
            "[sidekick]\nmode = \"pacubic\"\n[flow]\ncc = \"reno\"",
            "mine.toml, line 4: flow.cc = reno does not go",
        ),
    ] {
        assert!(error(text).starts_with(start), "{}", error(text));
    }
    let plain =
        Scenario::parse("mine.toml", "[far]\nrate_mbit = \"unlimited\"\n[sidekick]\npoll = false")
            .unwrap();
    assert_eq!((plain.far.both.rate, plain.sidekick.poll), (None, false));
}

proptest! {
    #[test]
    fn any_text_is_taken_or_refused(text in ".{0,80}", value in ".{0,20}") {
        let _ = Scenario::parse("any", &text);
        let mut scenario = upload();
        let _ = scenario.apply(&[text]);
        for setting in settings() {
            let name = setting.name();
            if scenario.set(&name, &value).is_err() {
                // A refused value must not change the scenario. It may be valid or not because of
                // its other settings.
                let before = scenario.clone();
                let _ = scenario.set(&name, &value);
                prop_assert_eq!(&before, &scenario);
            }
        }
    }
}

/// Where docs/lab-reference.md has the settings of a section.
fn heading(section: &str) -> &'static str {
    match section {
        "near" => "## Settings of a segment",
        "flow" => "## Settings of the flow",
        "competitor" => "## Settings of the competitor",
        "sidekick" => "## Settings of Sidekick",
        _ => panic!("the page has no table of {section}"),
    }
}

#[test]
fn the_reference_has_the_settings_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/lab-reference.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // The segments have the same settings, and the only one of the faults has a table of its own.
    for section in ["near", "flow", "competitor", "sidekick"] {
        let start = lines.iter().position(|line| line == heading(section)).unwrap();
        let rule = start + lines[start..].iter().position(|line| line.starts_with("|---")).unwrap();
        let length = lines[rule..].iter().take_while(|line| line.starts_with('|')).count();
        let of_section = settings().filter(|setting| setting.section == section);
        let rows: Vec<_> = of_section
            .map(|About { key, meaning, takes, .. }| format!("| `{key}` | {meaning} | {takes} |"))
            .collect();
        lines.splice(rule + 1..rule + length, rows);
    }
    let updated = lines.join("\n") + "\n";
    if std::env::var_os("SIDEKICK_UPDATE").is_some() {
        std::fs::write(path, updated).unwrap();
    } else {
        let stale = updated.lines().zip(text.lines()).find(|(new, old)| new != old);
        assert!(updated == text, "SIDEKICK_UPDATE=1 rewrites docs/lab-reference.md: {stale:#?}");
    }
}

#[test]
fn the_pages_have_every_scenario_and_every_fault() {
    let guide = include_str!("../../../docs/lab.md");
    let reference = include_str!("../../../docs/lab-reference.md");
    for (name, _) in built_in() {
        let link = format!("[`{name}`](../netem/scenarios/{name}.toml)");
        assert!(guide.contains(&link), "docs/lab.md lacks {link}");
    }
    let events = settings().find(|setting| setting.name() == faults::EVENTS).unwrap();
    let (_, kinds) = events.takes.split_once("WHAT [VALUE] is ").unwrap();
    for kind in kinds.split([',', ' ', '(', ')']).filter(|word| word.contains('-')) {
        // The two faults of the middle and far segments share the row of the near one.
        let kind = kind.replace("middle-delay", "near-delay").replace("middle-rate", "near-rate");
        let kind = kind.replace("far-delay", "near-delay").replace("far-rate", "near-rate");
        for kind in kind.split('|') {
            let known = reference.contains(&format!("`{kind}`"));
            assert!(known, "docs/lab-reference.md lacks the fault {kind}");
        }
    }
}
