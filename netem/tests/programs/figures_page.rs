//! The page of `sidekick-lab figures` in a browser. The browser logs no error, requests nothing
//! from the network, and shows every point of the CSV files. The figures are made up. Other tests
//! check their meaning.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use sidekick_netem::figures;
use sidekick_netem::figures::experiments::{Scope, all};
use sidekick_netem::figures::job::{Job, Outcome};
use sidekick_netem::figures::page::About;
use sidekick_netem::figures::plan::Plan;
use sidekick_netem::record::{
    Audio, CompetitorRecord, Percentiles, QuackStyles, RunRecord, WindowSample,
};

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A made-up outcome for every plot and table, from the text of the job alone.
fn made_up(job: &Job) -> Outcome {
    let text = job.identity();
    let spread =
        text.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 100;
    if spread == 99 {
        return Err("the run made no progress for a minute & <gave up>".to_owned());
    }
    let of = |setting: &str| {
        text.split(' ')
            .find_map(|word| word.strip_prefix(setting)?.strip_prefix('=')?.parse::<f64>().ok())
    };
    let (loss, factor) = (of("near.loss_percent").unwrap_or(1.0), 1.0 + spread as f64 / 400.0);
    let goodput = 9.0 * factor / (1.0 + loss / 4.0);
    let sample = |tenth: u32| WindowSample {
        time_s: f64::from(tenth) / 2.0,
        window_bytes: 12_000 + u64::from(tenth % 12) * 7_000,
        delivered_bytes: u64::from(tenth) * 500_000,
    };
    let dejitter_ms = Percentiles {
        p50: 0.0,
        p90: 1.0,
        p95: 12.0 * factor,
        p99: 52.0 * factor,
        p999: 93.0,
        max: 150.0,
    };
    Ok(RunRecord {
        goodput_mbit_s: goodput,
        bytes: 10_000_000 + spread * 1000,
        ack_packets: 7000 / (1 + spread),
        first_byte_ms: vec![of("far.delay_ms").unwrap_or(10.0) * 4.0 * factor],
        audio: Some(Audio { dejitter_ms, late: spread, played: 3000, ..Audio::default() }),
        competitor: Some(CompetitorRecord {
            cc: "bbr2".into(),
            goodput_mbit_s: 9.0 - goodput / 2.0,
            beside_mbit_s: goodput / 2.0,
            jain: 0.6 + spread as f64 / 300.0,
        }),
        quack_styles: Some(QuackStyles {
            messages: 300,
            packets: 8000,
            power_sums: 12_000 + spread,
            echo_every: 32_000,
            echo_window: 900_000,
            hash_of_all: 10_000,
        }),
        window: (0..40).map(sample).collect(),
        ..RunRecord::default()
    })
}

/// Writes the page into a directory.
fn write_page(directory: &Path) -> Plan {
    let user = RunRecord {
        backend: "user".into(),
        scenario: "upload-paper".into(),
        ..RunRecord::default()
    };
    let plan = Plan::of(all(Scope::Quick, &[user]));
    let results = plan.jobs().iter().map(|job| (job.clone(), made_up(job))).collect();
    let about =
        About { command: "sidekick-lab figures --quick --out DIR".into(), ..About::default() };
    figures::write(&plan, &results, &about, directory).unwrap();
    plan
}

/// Opens a file in a browser with its own profile directory.
fn browse(file: &Path, profile: &Path, arguments: &[&str]) -> Output {
    let is_there =
        |name: &&str| Command::new(name).arg("--version").stdout(Stdio::null()).status().is_ok();
    let Some(browser) = BROWSERS.into_iter().find(is_there) else {
        panic!("there is no Chromium: install Debian's package `chromium`, or run `make deps`");
    };
    Command::new(browser)
        .args(["--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"])
        // As root and in a container, the browser cannot make its sandbox. The page is ours.
        .arg("--no-sandbox")
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(["--enable-logging=stderr"])
        .args(arguments)
        .arg(format!("file://{}", file.display()))
        .env("HOME", profile)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The text of each figure of the page, with its name, its kind, and its number of points.
fn figures_of(dom: &str) -> Vec<(&str, String, String, usize)> {
    let attribute = |text: &str, name: &str| -> String {
        let (_, rest) = text.split_once(&format!("{name}=\"")).unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    dom.split("<figure ")
        .skip(1)
        .map(|text| {
            let text = text.split("</figure>").next().unwrap();
            let points = attribute(text, "data-points").parse().unwrap();
            (text, attribute(text, "data-csv"), attribute(text, "data-kind"), points)
        })
        .collect()
}

/// The addresses that the page requested, from a log of Chromium's network stack. Requests of the
/// browser itself, such as those for updates, have no page as their initiator.
fn asked_for(log: &Path) -> BTreeSet<String> {
    let log: serde_json::Value = serde_json::from_str(&fs::read_to_string(log).unwrap()).unwrap();
    let events = log["events"].as_array().unwrap().iter().map(|event| &event["params"]);
    let by_page = |event: &&serde_json::Value| {
        event["initiator"].as_str().is_some_and(|by| by != "not an origin")
    };
    events.filter(by_page).map(|event| event["url"].as_str().unwrap().to_owned()).collect()
}

/// Opens a page in a browser. Returns its document, its log, and the addresses that it requested.
fn look_at(page: &Path) -> (String, String, BTreeSet<String>) {
    let profile = tempfile::tempdir().unwrap();
    let log = profile.path().join("net-log.json");
    let net_log = format!("--log-net-log={}", log.display());
    let output = browse(page, profile.path(), &["--dump-dom", &net_log]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    (String::from_utf8(output.stdout).unwrap(), errors, asked_for(&log))
}

#[test]
fn a_browser_shows_every_point_and_asks_for_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let plan = write_page(path);
    let (dom, errors, asked) = look_at(&path.join(figures::PAGE));
    assert!(!errors.contains("CONSOLE"), "{errors}");
    assert_eq!(asked, BTreeSet::new());

    let shown = figures_of(&dom);
    let parts = plan.experiments().iter().map(|experiment| experiment.parts.len()).sum::<usize>();
    assert_eq!(shown.len(), parts);
    for (text, file, kind, points) in shown {
        let rows =
            csv::Reader::from_path(path.join(&file)).unwrap().records().map(Result::unwrap).count();
        let marks = match kind.as_str() {
            "plot" => text.matches("<circle ").count(),
            "heat" => text.matches("<rect ").count(),
            _ => text.matches("<tr>").count() - 1,
        };
        assert!(rows > 0, "{file} is empty");
        assert_eq!((marks, points), (rows, rows), "{file}");
    }
}

#[test]
fn the_browser_reports_requests_and_errors() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    // Port 9 is discard. No program listens there.
    let text = r#"<!DOCTYPE html><link rel="icon" href="data:,"><img src="http://127.0.0.1:9/a.png"><script>nobody()</script>"#;
    fs::write(&page, text).unwrap();
    let (_, errors, asked) = look_at(&page);
    assert!(errors.contains("CONSOLE"), "{errors}");
    assert_eq!(asked, BTreeSet::from(["http://127.0.0.1:9/a.png".to_owned()]));
}
