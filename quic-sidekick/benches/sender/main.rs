//! The sender's cost of a Sidekick: instructions per packet, counted by valgrind's callgrind, next
//! to those of the pristine quiche.
//!
//! The program starts itself under valgrind, once for each row. Only the sender's work counts:
//! receiving, sending, timers, and all of the plugin's work, including quACKs and their decryption.
//! Nothing is lost before the proxy, so this is the cost of assistance without a benefit.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

virtual_time::in_force!();

#[path = "."]
mod hooked {
    use quic_sidekick::quiche as engine;

    #[path = "upload.rs"]
    pub(crate) mod upload;
}

#[path = "."]
#[allow(clippy::duplicate_mod, reason = "the same upload, once for each crate")]
mod stock {
    use pristine as engine;

    #[path = "upload.rs"]
    pub(crate) mod upload;
}

#[path = "../../quack/benches/quack/figures.rs"]
mod figures;
mod help;

use figures::Figures;
use help::{Helped, Link, Nobody};
use quic_sidekick::Mode;
use std::num::NonZeroU16;
use std::process::{Command, ExitCode};

/// As in the lab's `upload-paper`: 10 Mbit/s.
const PAPER: Link = Link {
    bytes: 8 << 20,
    ahead: 8 << 20,
    ns_per_byte: 800,
    queue_bytes: 65_000,
    loses_every: None,
};

/// The modes, each with its congestion controller.
const MODES: [(Mode, &str); 3] = [
    (Mode::Reinject, "cubic"),
    (Mode::PathAwareBbr, "bbr2_gcongestion"),
    (Mode::Auto, "bbr2_gcongestion"),
];

/// The name of a row, and after how many packets the proxy sends a quACK, if the plugin does not
/// choose.
const FREQUENCIES: [(&str, Option<NonZeroU16>); 2] =
    [("by-default", None), ("every-2-packets", NonZeroU16::new(2))];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, measure, controller, help] = arguments.as_slice()
        && measure == "--measure"
    {
        println!("packets {}", run(controller, help));
        return ExitCode::SUCCESS;
    }
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), String> {
    let mut figures = Figures::begin()
        .map_err(|error| format!("target/bench.json cannot be read: {error}; remove it"))?;
    for controller in ["cubic", "bbr2_gcongestion"] {
        let stock = count(controller, "stock")?;
        let modes =
            MODES.iter().filter(|(_, of)| *of == controller).map(|(mode, _)| mode.to_string());
        let helped = modes.flat_map(|mode| FREQUENCIES.map(|(every, _)| format!("{mode}/{every}")));
        for help in std::iter::once("none".to_owned()).chain(helped) {
            let ours = count(controller, &help)?;
            let name = format!("sender/{controller}/{help}/instructions");
            figures.add(&name, "instructions", (ours, stock), stock / ours);
        }
    }
    figures.write().map_err(|error| format!("the figures could not be written: {error}"))
}

/// Instructions per packet.
fn count(controller: &str, help: &str) -> Result<f64, String> {
    let failed = |what: String| {
        format!(
            "valgrind could not count {controller} with {help}: {what}; `.ci/deps bench` installs it, or says what to install"
        )
    };
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--toggle-collect=*counted_work*",
        ])
        .arg(std::env::current_exe().map_err(|error| failed(error.to_string()))?)
        .args(["--measure", controller, help])
        .output()
        .map_err(|error| failed(error.to_string()))?;
    let number = |text: &[u8], label: &str| {
        let text = String::from_utf8_lossy(text).into_owned();
        let (_, after) = text.split_once(label)?;
        after.split_whitespace().next()?.parse::<f64>().ok()
    };
    let counted = number(&output.stderr, "Collected : ").zip(number(&output.stdout, "packets "));
    let (instructions, packets) =
        counted.ok_or_else(|| failed(String::from_utf8_lossy(&output.stderr).into_owned()))?;
    Ok(instructions / packets)
}

fn run(controller: &str, help: &str) -> u64 {
    let certificate = help::Certificate::new();
    let files = certificate.files();
    let files = (files.0.as_str(), files.1.as_str());
    match help {
        "stock" => stock::upload::upload(PAPER, controller, files, &mut Nobody),
        "none" => hooked::upload::upload(PAPER, controller, files, &mut Nobody),
        _ => {
            let (mode, every) = help.split_once('/').unwrap();
            let (_, every) = FREQUENCIES.into_iter().find(|(name, _)| *name == every).unwrap();
            let mut helped = Helped::new(mode.parse().unwrap(), every);
            let packets = hooked::upload::upload(PAPER, controller, files, &mut helped);
            let status = helped.status();
            // Otherwise the figure would be one without assistance.
            let wanted = every.map_or(100, |every| packets * 9 / 10 / u64::from(every.get()));
            assert!(status.stats.quacks_received > wanted, "{status:?}");
            packets
        }
    }
}

// Nobody asks here what the sender holds.

fn watched<T>(work: impl FnOnce() -> T) -> T {
    work()
}

fn unwatched<T>(work: impl FnOnce() -> T) -> T {
    work()
}
