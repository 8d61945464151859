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

use figures::Figures;
use quic_sidekick::{AdjacentSocket, Config, Driver, MAX_DATAGRAM_LEN, Mode, quiche};
use sidekick_protocol::{Flow, Observer, ObserverConfig, Payload};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::process::{Command, ExitCode};
use std::time::Instant;

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
    let key = rcgen::generate_simple_self_signed(["example.org".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let files = (path("cert.pem"), path("key.pem"));
    std::fs::write(&files.0, key.cert.pem()).unwrap();
    std::fs::write(&files.1, key.signing_key.serialize_pem()).unwrap();
    let files = (files.0.as_str(), files.1.as_str());
    match help {
        "stock" => stock::upload::upload(controller, files, &mut Nobody),
        "none" => hooked::upload::upload(controller, files, &mut Nobody),
        _ => {
            let (mode, every) = help.split_once('/').unwrap();
            let (_, every) = FREQUENCIES.into_iter().find(|(name, _)| *name == every).unwrap();
            let mut helped = Helped::new(mode.parse().unwrap(), every);
            let packets = hooked::upload::upload(controller, files, &mut helped);
            let status = helped.driver.status();
            // Otherwise the figure would be one without assistance.
            let wanted = every.map_or(100, |every| packets * 9 / 10 / u64::from(every.get()));
            assert!(status.stats.quacks_received > wanted, "{status:?}");
            packets
        }
    }
}

/// No proxy, no plugin.
struct Nobody;

macro_rules! nobody {
    ($upload:path, $connection:ty) => {
        impl $upload for Nobody {
            fn attach(&mut self, _: &mut $connection) {}
            fn receive(&mut self, _: &mut $connection, _: Option<Vec<u8>>) -> bool {
                false
            }
            fn on_sent(&mut self, _: &mut $connection, _: &mut Vec<Vec<u8>>) {}
            fn next_timeout(&self) -> Option<Instant> {
                None
            }
            fn proxy(&mut self, _: Option<&[u8]>, _: &[Vec<u8>]) -> Vec<Vec<u8>> {
                Vec::new()
            }
            fn proxy_deadline(&self) -> Option<Instant> {
                None
            }
        }
    };
}

nobody!(hooked::upload::Help, quiche::Connection);
nobody!(stock::upload::Help, pristine::Connection);

/// The plugin and its proxy.
struct Helped {
    driver: Driver<Memory>,
    observer: Observer,
    flow: Flow,
    proxy: SocketAddr,
    adjacent: SocketAddr,
}

/// An adjacent socket without a system behind it.
struct Memory {
    address: SocketAddr,
    proxy: SocketAddr,
    received: Cell<Option<Vec<u8>>>,
    sent: RefCell<Vec<Vec<u8>>>,
}

impl AdjacentSocket for Memory {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn send_to(&self, datagram: &[u8], _: SocketAddr) -> io::Result<usize> {
        self.sent.borrow_mut().push(datagram.to_vec());
        Ok(datagram.len())
    }

    fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let datagram = self.received.take().ok_or(io::ErrorKind::WouldBlock)?;
        buffer[..datagram.len()].copy_from_slice(&datagram);
        Ok((datagram.len(), self.proxy))
    }
}

impl Helped {
    fn new(mode: Mode, every: Option<NonZeroU16>) -> Self {
        let [client, server, proxy, adjacent] =
            ["192.0.2.1:4000", "198.51.100.7:443", "192.0.2.254:5252", "192.0.2.1:5000"]
                .map(|address| address.parse::<SocketAddr>().unwrap());
        let mut config = Config::new(proxy, mode);
        config.every_packets = every.or(config.every_packets);
        Self {
            driver: Driver::with_seed(config, [7; 32]),
            observer: Observer::new(ObserverConfig::default(), [3; 32]).unwrap(),
            flow: Flow { source: client, destination: server },
            proxy,
            adjacent,
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "it is the virtual clock that answers")]
fn now() -> Instant {
    Instant::now()
}

impl hooked::upload::Help for Helped {
    fn attach(&mut self, client: &mut quiche::Connection) {
        let (address, proxy) = (self.adjacent, self.proxy);
        let (received, sent) = (Cell::default(), RefCell::default());
        self.driver.attach_with(client, Memory { address, proxy, received, sent });
    }

    fn receive(&mut self, client: &mut quiche::Connection, message: Option<Vec<u8>>) -> bool {
        self.driver.socket().unwrap().received.set(message);
        self.driver.receive(client, now())
    }

    fn on_sent(&mut self, client: &mut quiche::Connection, messages: &mut Vec<Vec<u8>>) {
        self.driver.on_sent(client, now());
        messages.append(&mut self.driver.socket().unwrap().sent.borrow_mut());
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.driver.poll_timeout()
    }

    fn proxy(&mut self, datagram: Option<&[u8]>, messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
        if let Some(datagram) = datagram {
            self.observer.observe(&self.flow, 0, Payload::whole(datagram), now());
        }
        for message in messages {
            // The proxy's messages show the outcome.
            let _ = self.observer.handle_input(self.adjacent, message, now());
        }
        self.observer.on_timeout(now());
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let mut sent = Vec::new();
        while let Some(transmit) = self.observer.poll_transmit(&mut buffer) {
            sent.push(buffer[..transmit.size].to_vec());
        }
        sent
    }

    fn proxy_deadline(&self) -> Option<Instant> {
        self.observer.poll_timeout()
    }
}
