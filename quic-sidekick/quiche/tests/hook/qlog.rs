//! The hook's events in quiche's own qlog file.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::hooked::transfer::{instant, payload, upload, Assist, Outcome, Scenario};
use quiche::sidekick::Reaction;
use quiche::{Connection, QlogLevel};
use serde_json::Value;

/// A file in memory, or one on a full disk.
#[derive(Clone, Default)]
struct File {
    text: Arc<Mutex<Vec<u8>>>,
    full: bool,
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.text.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl File {
    /// The file's events: time, name and data. Each record of a JSON text sequence begins with a
    /// record separator (RFC 7464). The first is the header.
    fn events(&self) -> Vec<(f64, String, Value)> {
        let text = self.text.lock().unwrap().clone();
        let mut records = text.split(|byte| *byte == b'\x1e').skip(1);
        let header: Value = serde_json::from_slice(records.next().unwrap()).unwrap();
        assert_eq!(header["title"], "title");
        let event = |record| {
            let mut event: Value = serde_json::from_slice(record).unwrap();
            let name = event["name"].as_str().unwrap().to_owned();
            (event["time"].as_f64().unwrap(), name, event["data"].take())
        };
        records.map(event).collect()
    }
}

/// Drops packets before the proxy, declares them lost a near round trip later, and logs that in the
/// file.
struct Proxy {
    file: Option<File>,
    level: Option<QlogLevel>,
    importance: QlogLevel,
    reports: BTreeMap<u64, u64>,
    controller: Option<&'static str>,
    made: u64,
    declared: u64,
}

impl Proxy {
    fn new(file: Option<File>, level: QlogLevel, importance: QlogLevel) -> Self {
        let reports = BTreeMap::new();
        Self {
            file,
            level: Some(level),
            importance,
            reports,
            controller: None,
            made: 0,
            declared: 0,
        }
    }
}

impl Assist for Proxy {
    fn attach(&mut self, client: &mut Connection) {
        client.sidekick_log(1000);
        self.controller = client.sidekick_congestion_control();
        if let (Some(file), Some(level)) = (&self.file, self.level.take()) {
            client.set_qlog_with_level(
                Box::new(file.clone()),
                "title".into(),
                "description".into(),
                level,
            );
        }
    }

    fn sent(&mut self, client: &mut Connection, _: &[u8], now: u64, at_proxy: Option<u64>) {
        let next = client.sidekick_logged().first().copied();
        client.sidekick_clear_log();
        let Some(packet) = next else { return };
        if at_proxy.is_none() {
            self.reports.insert(now + 10_000_000, packet.packet_number);
        }
    }

    fn due(&self) -> Option<u64> {
        self.reports.keys().next().copied()
    }

    fn act(&mut self, client: &mut Connection, _: u64) {
        let Some((_, number)) = self.reports.pop_first() else { return };
        assert!(!client.sidekick_is_early_lost(0, number));
        if client.sidekick_early_lost(0, &[number], Reaction::Loss, instant()) == 0 {
            return;
        }
        assert!(
            client.sidekick_is_early_lost(0, number) && !client.sidekick_is_early_lost(9, number)
        );
        self.declared += 1;
        // Before the file began: no time is negative.
        let times =
            [instant(), instant() - Duration::from_millis(1), instant() - Duration::from_secs(900)];
        for now in times {
            client.sidekick_qlog("test:lost", again(&self.importance), now, |client| {
                self.made += 1;
                BTreeMap::from([("number", number), ("early", client.sidekick_early_lost_count())])
            });
        }
    }
}

/// A copy of a level, because quiche's levels are not `Copy`.
fn again(level: &QlogLevel) -> QlogLevel {
    match level {
        QlogLevel::Core => QlogLevel::Core,
        QlogLevel::Base => QlogLevel::Base,
        QlogLevel::Extra => QlogLevel::Extra,
    }
}

fn run(controller: &'static str, proxy: &mut Proxy) -> Outcome {
    let scenario = Scenario { near_loss: 50, bytes: 300_000, ..Scenario::new(controller, 5) };
    let (outcome, client) = upload(&scenario, proxy);
    assert!(outcome.received == payload(scenario.bytes), "the data differ with {controller}");
    assert!(proxy.declared > 5, "{} early losses", proxy.declared);
    assert_eq!(client.sidekick_early_lost_count(), proxy.declared);
    outcome
}

#[test]
fn events_and_quiches_own_have_the_same_time() {
    for controller in ["reno", "cubic", "cubic-rfc9438", "bbr2_gcongestion"] {
        let file = File::default();
        let mut proxy = Proxy::new(Some(file.clone()), QlogLevel::Base, QlogLevel::Base);
        run(controller, &mut proxy);
        assert_eq!(proxy.controller, Some(controller));

        let events = file.events();
        let ours: Vec<_> = (0..events.len()).filter(|&i| events[i].1 == "test:lost").collect();
        assert_eq!(ours.len() as u64, 3 * proxy.declared);
        let sent: BTreeMap<_, _> = events
            .iter()
            .filter(|(_, name, data)| {
                name == "quic:packet_sent" && data["header"]["packet_type"] == "1RTT"
            })
            .map(|(time, _, data)| (data["header"]["packet_number"].as_u64().unwrap(), *time))
            .collect();
        for (early, indices) in (1..).zip(ours.chunks(3)) {
            let [first, second, third] = [0, 1, 2].map(|i| &events[indices[i]]);
            // The report comes 10 ms after the packet.
            let sent = sent[&first.2["number"].as_u64().unwrap()];
            assert!((first.0 - sent - 10.0).abs() < 1e-6, "sent at {sent}, {first:?}");
            assert!(
                (first.0 - second.0 - 1.0).abs() < 1e-6 && third.0 == 0.0,
                "{second:?}, {third:?}"
            );
            assert_eq!(first.2["early"], early);
            // quiche's own metrics include the loss when the receiver confirms it; for the last one
            // that may be after the upload.
            let confirmed =
                events[indices[0]..].iter().find(|event| event.2["cf_lost_packets"].is_object());
            let last = early == proxy.declared;
            assert!(
                last || confirmed.is_some_and(|event| event.0 > first.0),
                "{first:?}, {confirmed:?}"
            );
        }
    }
}

#[test]
fn the_files_level_decides() {
    let levels = || [QlogLevel::Core, QlogLevel::Base, QlogLevel::Extra];
    for (i, level) in levels().into_iter().enumerate() {
        for (j, importance) in levels().into_iter().enumerate() {
            let file = File::default();
            let mut proxy = Proxy::new(Some(file.clone()), again(&level), importance);
            run("cubic", &mut proxy);
            let wanted = if j <= i { 3 * proxy.declared } else { 0 };
            assert_eq!(proxy.made, wanted, "importance {j} at level {i}");
            let written = file.events().iter().filter(|(_, name, _)| name == "test:lost").count();
            assert_eq!(written as u64, wanted);
        }
    }
}

#[test]
fn neither_a_missing_nor_a_full_file_changes_the_connection() {
    for controller in ["cubic", "bbr2_gcongestion"] {
        let good = File::default();
        let full = File { full: true, ..File::default() };
        let mut with = Proxy::new(Some(good), QlogLevel::Extra, QlogLevel::Core);
        let logged = run(controller, &mut with);
        let mut without = Proxy::new(None, QlogLevel::Extra, QlogLevel::Core);
        assert!(run(controller, &mut without) == logged, "{controller}, without a file");
        assert_eq!(without.made, 0, "no data is made for an event that is not written");
        assert!(
            run(controller, &mut Proxy::new(Some(full), QlogLevel::Extra, QlogLevel::Core))
                == logged
        );
    }
}
