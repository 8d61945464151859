//! The plugin's events in the connection's qlog file.

use super::{Proxy, Run, Swallowed, upload_as};
use quic_sidekick::{Assistance, Mode, Paper, Reason, quiche};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

#[path = "schema.rs"]
mod schema;

use schema::{Event, check, early_lost, named, read, sent};

/// A file in memory.
#[derive(Clone, Default)]
struct File(Arc<Mutex<Vec<u8>>>);

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn logged(
    mode: Mode,
    controller: &str,
    swallow: (u64, Swallowed),
    proxy: Proxy,
) -> (Run, Vec<Event>) {
    let file = File::default();
    let writer = file.clone();
    let run = upload_as(mode, controller, swallow, proxy, |client: &mut quiche::Connection| {
        client.set_qlog(Box::new(writer), "upload".to_owned(), String::new());
    });
    let events = read(&file.0.lock().unwrap());
    (run, events)
}

fn sum(events: &[Event], name: &str, field: &str) -> u64 {
    named(events, name).into_iter().map(|data| data[field].as_u64().unwrap()).sum()
}

#[test]
fn losses_and_quacks_are_in_the_file_as_they_are_in_the_counters() {
    let runs = [
        (Mode::Paper(Paper::EarlyLoss), "cubic", "loss"),
        // This path takes no time, so there is no ratio of round trips.
        (Mode::Paper(Paper::Pacubic), "cubic-rfc9438", "loss"),
        (Mode::Paper(Paper::PathAwareBbr), "bbr2_gcongestion", "neutered"),
        (Mode::Reinject, "cubic", "reinjected"),
    ];
    for (mode, controller, reaction) in runs {
        let (run, events) = logged(mode, controller, (20, Swallowed::Lost), Proxy::Known);
        let stats = run.status.stats;
        let counts = check(&events);
        println!("{mode}, {controller}: {counts:?}, {:?}", run.status);

        assert_eq!(counts["sidekick:mode_set"], 1);
        let asked = named(&events, "sidekick:mode_set")[0];
        assert_eq!(asked["mode"], mode.to_string());
        assert_eq!(asked["congestion_control"], controller);
        assert_eq!(asked["proxy"], "192.0.2.254:5252");
        let every_ms = if mode == Mode::Reinject { 5.0 } else { 30.0 };
        assert_eq!((&asked["every_packets"], &asked["every_ms"]), (&4.into(), &every_ms.into()));
        assert_eq!((&asked["threshold"], &asked["poll"]), (&20.into(), &true.into()));

        assert_eq!(counts["sidekick:quack_received"] as u64, stats.quacks_received);
        let quacks = named(&events, "sidekick:quack_received");
        let undecodable =
            quacks.iter().filter(|data| data["outcome"] != "decoded" && data["outcome"] != "empty");
        assert_eq!(undecodable.count() as u64, stats.undecodable);
        let near_rtt = quacks.last().unwrap()["near_rtt"].as_f64().unwrap();
        let difference = near_rtt - run.status.near_rtt.unwrap().as_secs_f64() * 1e3;
        assert!(difference.abs() < 1e-6, "{near_rtt}");
        if stats.epochs == 1 {
            let received = sum(&events, "sidekick:quack_received", "received");
            assert_eq!(quacks.last().unwrap()["count"], received);
        }

        let (lost, sent) = (early_lost(&events), sent(&events));
        assert_eq!(lost.len() as u64, stats.early_lost);
        assert_eq!(sum(&events, "sidekick:early_loss", "count"), stats.early_lost);
        assert!(stats.early_lost * 10 >= run.swallowed * 8, "{stats:?}");
        let once: BTreeSet<_> = lost.iter().copied().collect();
        // A re-injected packet may be lost again.
        assert!(once.len() == lost.len() || mode == Mode::Reinject, "no packet is lost twice");
        assert!(once.is_subset(&sent), "{:?} were never sent", once.difference(&sent));
        for loss in named(&events, "sidekick:early_loss") {
            assert_eq!(loss["local"], "192.0.2.1:4000");
            assert_eq!(loss["remote"], "198.51.100.7:443");
            // If it is too late to re-inject a packet, the connection resends its frames.
            let late = mode == Mode::Reinject && loss["reaction"] == "neutered";
            assert!(loss["reaction"] == reaction || late, "{loss:?}");
        }

        // Each packet was sent before it was lost, by the file's own times.
        let mut until_now = BTreeSet::new();
        for event in &events {
            until_now.append(&mut sent_in(event));
            let lost: BTreeSet<_> = early_lost(std::slice::from_ref(event)).into_iter().collect();
            assert!(lost.is_subset(&until_now), "{event:?}");
        }
        assert!(events.is_sorted_by(|a, b| a.time <= b.time), "events are in order of time");

        let changes = named(&events, "sidekick:assistance_changed");
        let last = changes.last().unwrap();
        assert_eq!((&changes[0]["old"], &last["new"]), (&"seeking".into(), &"assisted".into()));
        assert!(!last.contains_key("reason"));
    }
}

fn sent_in(event: &Event) -> BTreeSet<u64> {
    sent(std::slice::from_ref(event))
}

#[test]
fn wrong_reports_show_as_spurious_and_end_in_standing_down() {
    let (run, events) =
        logged(Mode::Paper(Paper::EarlyLoss), "cubic", (3, Swallowed::Hidden), Proxy::Known);
    let counts = check(&events);
    println!("{counts:?}, {:?}", run.status);
    assert_eq!(run.status.assistance, Assistance::Unassisted(Reason::StoodDown));
    assert_eq!(early_lost(&events).len() as u64, run.status.stats.early_lost);
    let spurious = named(&events, "sidekick:early_loss_spurious");
    let total = spurious.last().unwrap()["total"].as_u64().unwrap();
    assert!(total > 16 && total == run.status.stats.spurious, "{total}");
    assert_eq!(sum(&events, "sidekick:early_loss_spurious", "count"), total);
    let last = *named(&events, "sidekick:assistance_changed").last().unwrap();
    assert_eq!((&last["old"], &last["new"]), (&"assisted".into(), &"unassisted".into()));
    assert_eq!(last["reason"], "stood_down");
    assert_eq!(last["message"], run.status.assistance.to_string());
    // The proxy reports no more, and the connection continues.
    let end = events.iter().rposition(|event| event.name.starts_with("sidekick:")).unwrap();
    assert!(events[end..].iter().any(|event| event.name == "quic:packet_sent"));
}

#[test]
fn without_a_proxy_the_file_has_the_failed_search() {
    let (run, events) =
        logged(Mode::Paper(Paper::Pacubic), "cubic-rfc9438", (50, Swallowed::Lost), Proxy::Absent);
    let counts = check(&events);
    assert_eq!(counts["sidekick:mode_set"], 1);
    assert_eq!(counts["sidekick:quack_received"] + counts["sidekick:early_loss"], 0);
    for change in named(&events, "sidekick:assistance_changed") {
        assert_eq!(
            (&change["new"], &change["reason"]),
            (&"unassisted".into(), &"no_answer".into())
        );
    }
    assert_eq!(
        counts["sidekick:assistance_changed"] == 1,
        run.status.assistance == Assistance::Unassisted(Reason::NoAnswer)
    );
}

#[test]
fn the_file_changes_nothing() {
    for (mode, controller) in [
        (Mode::Paper(Paper::Pacubic), "cubic-rfc9438"),
        (Mode::Paper(Paper::PathAwareBbr), "bbr2_gcongestion"),
    ] {
        let (with, _) = logged(mode, controller, (20, Swallowed::Lost), Proxy::Known);
        let without = upload_as(mode, controller, (20, Swallowed::Lost), Proxy::Known, |_| {});
        let counters = |run: &Run| (run.swallowed, run.lost_end_to_end, run.status.assistance);
        assert_eq!(counters(&with), counters(&without), "{mode}");
    }
}
