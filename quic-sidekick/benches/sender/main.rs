//! The cost of a Sidekick to a client that uploads, and to one that downloads. valgrind's callgrind
//! counts instructions per packet of the file, also for the pristine quiche.
//!
//! The program starts itself under valgrind, once for each row. Only the client's work counts:
//! receiving, sending, timers, and all of the plugin's work, including quACKs and their decryption.
//! Nothing is lost, so this is the cost of assistance without a benefit.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

virtual_time::in_force!();

#[path = "."]
mod hooked {
    use quic_sidekick::quiche as engine;

    #[path = "transfer.rs"]
    pub(crate) mod transfer;
}

#[path = "."]
#[allow(clippy::duplicate_mod, reason = "the same transfer, once for each crate")]
mod stock {
    use pristine as engine;

    #[path = "transfer.rs"]
    pub(crate) mod transfer;
}

#[path = "../../quack/benches/quack/figures.rs"]
mod figures;
mod help;

use figures::Figures;
use help::{Direction, Helped, Link, NoHelp, ProxyOutput};
use quic_sidekick::{Mode, Paper, ReceiveRepair, ReceiveState};
use std::num::NonZeroU16;
use std::process::{Command, ExitCode};

/// As in the lab's `upload-paper`: 10 Mbit/s.
const UPLOAD: Link = Link {
    direction: Direction::Up,
    bytes: 8 << 20,
    ahead: 8 << 20,
    ns_per_byte: 800,
    queue_bytes: 65_000,
    loses_every: None,
};
/// The same path. The server has no more under way than the queue has room for.
const DOWNLOAD: Link = Link { direction: Direction::Down, ahead: 60_000, ..UPLOAD };

/// The modes of an upload, each with its congestion controller.
const MODES: [(Mode, &str); 3] = [
    (Mode::Reinject, "cubic"),
    (Mode::Paper(Paper::PathAwareBbr), "bbr2_gcongestion"),
    (Mode::Auto, "bbr2_gcongestion"),
];

/// The controller of a client that downloads. It sends acknowledgements alone.
const RECEIVER: &str = "bbr2_gcongestion";

/// The name of a row, and after how many packets the proxy sends a quACK, if the plugin does not
/// choose.
const FREQUENCIES: [(&str, Option<NonZeroU16>); 2] =
    [("by-default", None), ("every-2-packets", NonZeroU16::new(2))];
/// A row without a proxy, although the plugin searches for one.
const WITHOUT_PROXY: &str = "without-proxy";
/// The row of a client that downloads, with a proxy that keeps copies.
const COPIES: &str = "copies";
/// The same with parity.
const PARITY: &str = "parity";

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
    let mut figures = Figures::begin();
    for controller in ["cubic", "bbr2_gcongestion"] {
        let stock = count(controller, "stock")?;
        let mut rows = vec!["none".to_owned()];
        for (mode, _) in MODES.iter().filter(|(_, of)| *of == controller) {
            rows.extend(FREQUENCIES.map(|(every, _)| format!("{mode}/{every}")));
            rows.push(format!("{mode}/{WITHOUT_PROXY}"));
        }
        for help in rows {
            let ours = count(controller, &help)?;
            let name = format!("sender/{controller}/{help}/instructions");
            figures.add(&name, "instructions", (ours, stock), stock / ours);
        }
    }
    let stock = count(RECEIVER, "receiver/stock")?;
    for help in ["none", COPIES, PARITY, WITHOUT_PROXY] {
        let name = format!("receiver/{help}");
        let ours = count(RECEIVER, &name)?;
        let name = format!("{name}/instructions");
        figures.add(&name, "instructions", (ours, stock), stock / ours);
    }
    figures.write();
    Ok(())
}

/// Instructions per packet.
fn count(controller: &str, help: &str) -> Result<f64, String> {
    let failed = |what: String| {
        format!(
            "valgrind could not count {controller} with {help}: {what}; `.ci/deps bench` installs it, or reports what to install"
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
    let (link, help) = match help.strip_prefix("receiver/") {
        Some(help) => (DOWNLOAD, help),
        None => (UPLOAD, help),
    };
    let mut helped = match help {
        "stock" => return stock::transfer::transfer(link, controller, files, &mut NoHelp),
        "none" => return hooked::transfer::transfer(link, controller, files, &mut NoHelp),
        COPIES => Helped::receiving(ReceiveRepair::Requests),
        PARITY => Helped::receiving(ReceiveRepair::Parity),
        WITHOUT_PROXY => Helped::without_proxy(Mode::Auto),
        _ => {
            let (mode, every) = help.split_once('/').unwrap();
            let mode = MODES.into_iter().find(|(it, _)| it.to_string() == mode).unwrap().0;
            match FREQUENCIES.into_iter().find(|(name, _)| *name == every) {
                Some((_, every)) => Helped::new(mode, every),
                None => Helped::without_proxy(mode),
            }
        }
    };
    let packets = hooked::transfer::transfer(link, controller, files, &mut helped);
    let status = helped.status();
    // Otherwise the figure would be one without assistance.
    // After 2000 packets without a loss, quACKs are fewer.
    let every_2 = 2000 * 9 / 20 + packets.saturating_sub(2000) / 20;
    let wanted = match help.rsplit('/').next().unwrap() {
        WITHOUT_PROXY => 0,
        "every-2-packets" => every_2,
        _ => 100,
    };
    assert!(status.stats.quacks_received >= wanted, "{status:?}");
    assert_eq!(status.stats.quacks_received > 0, wanted > 0, "{status:?}");
    let expected = match help {
        COPIES => Some(ReceiveState::Repairing),
        PARITY => Some(ReceiveState::Watching),
        _ => None,
    };
    assert!(expected.is_none_or(|state| status.received.state == state), "{status:?}");
    packets
}

// This benchmark does not measure memory.

fn watched<T>(work: impl FnOnce() -> T) -> T {
    work()
}

fn unwatched<T>(work: impl FnOnce() -> T) -> T {
    work()
}
