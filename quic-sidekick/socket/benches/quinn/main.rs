//! What the socket costs quinn where nothing is lost: the client of a transfer on loopback, and a
//! server with a thousand clients.
//!
//! The program starts itself once for each run, beside a plain server in another process. Plain
//! quinn alternates with quinn over the socket; valgrind's callgrind counts instructions.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

#[path = "../../../quack/benches/quack/figures.rs"]
mod figures;
mod network;
#[path = "../../tests/relay/mod.rs"]
mod relay;
mod server;
mod transfer;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use figures::Figures;

/// Runs of each row, in turns, and those under valgrind.
const TURNS: usize = 9;
const COUNTED: usize = 3;

/// What stands below quinn: its own socket, one with help where no proxy is, and one with a proxy
/// that sees all.
const PLAIN: &str = "plain";
const SOCKET: &str = "socket";
const PROXIED: &str = "proxied";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    match words[..] {
        ["--serve", below] => server::serve(below),
        ["--transfer", below, way, bytes, address, certificate] => {
            let (bytes, address) = (bytes.parse().unwrap(), address.parse().unwrap());
            transfer::transfer(below, way, bytes, address, certificate);
        }
        // Cargo passes `--bench`.
        _ => measure(),
    }
}

fn measure() {
    let mut figures = Figures::begin();
    let plain_server = Served::start(PLAIN);
    for way in ["up", "down"] {
        for below in [SOCKET, PROXIED] {
            let name = |what| format!("socket/{way}/{below}/{what}");
            let [plain, ours] =
                turns(TURNS, [PLAIN, below], |below| plain_server.transfer(below, way, false));
            let [baseline, value] = [&plain, &ours].map(|runs| runs.median(0));
            figures.add(&name("goodput"), "Mbit/s", (value, baseline), value / baseline);
            for (at, what) in [(1, "sent-at-once"), (2, "received-at-once")] {
                let [baseline, value] = [&plain, &ours].map(|runs| runs.median(at));
                figures.add(&name(what), "datagrams", (value, baseline), value / baseline);
            }
            let [plain, ours] =
                turns(COUNTED, [PLAIN, below], |below| plain_server.transfer(below, way, true));
            let [baseline, value] = [&plain, &ours].map(|runs| runs.median(3));
            figures.add(&name("instructions"), "instructions", (value, baseline), baseline / value);
        }
    }
    let [plain, ours] = turns(COUNTED, [PLAIN, SOCKET], server::with_clients);
    for (at, what, unit) in [(0, "memory", "MiB"), (1, "processor-time", "ms")] {
        let [baseline, value] = [&plain, &ours].map(|runs| runs.median(at));
        let name = format!("socket/server-of-1000/{what}");
        figures.add(&name, unit, (value, baseline), baseline / value);
    }
    figures.write();
}

/// The figures of all runs of a row.
#[derive(Debug, Default)]
struct Runs(Vec<Vec<f64>>);

impl Runs {
    fn median(&self, at: usize) -> f64 {
        let mut values: Vec<f64> = self.0.iter().map(|run| run[at]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }
}

fn turns(count: usize, rows: [&str; 2], run: impl Fn(&str) -> Vec<f64>) -> [Runs; 2] {
    let mut all = [Runs::default(), Runs::default()];
    for _ in 0..count {
        for (runs, row) in all.iter_mut().zip(rows) {
            runs.0.push(run(row));
        }
    }
    all
}

/// A server in a process of its own.
struct Served {
    process: Child,
    address: String,
    /// The file with its certificate.
    certificate: String,
    output: BufReader<std::process::ChildStdout>,
}

impl Served {
    fn start(below: &str) -> Self {
        let mut process = this()
            .args(["--serve", below])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let (address, certificate) = line.trim().split_once(' ').unwrap();
        let (address, certificate) = (address.to_owned(), certificate.to_owned());
        Self { process, address, certificate, output }
    }

    /// Ends the server. Returns what it measured.
    fn end(mut self) -> Vec<f64> {
        drop(self.process.stdin.take());
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        figures_of(&line)
    }

    /// Mbit/s, datagrams sent and received at once, and instructions a datagram, which only
    /// valgrind counts.
    fn transfer(&self, below: &str, way: &str, counts: bool) -> Vec<f64> {
        let (mut command, mut bytes) = (this(), "67108864");
        if counts {
            // valgrind is much slower.
            bytes = "8388608";
            let program = std::env::current_exe().unwrap();
            command = Command::new("valgrind");
            command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
            // Either begins it if it does not count, and ends it if it does.
            command.args(["--toggle-collect=*::counted_work*"]);
            command.args(["--toggle-collect=*::uncounted_work*"]);
            command.arg(program);
        }
        let command =
            command.args(["--transfer", below, way, bytes, &self.address, &self.certificate]);
        let output = command
            .output()
            .unwrap_or_else(|error| panic!("{error}: `.ci/deps bench` installs valgrind"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let mut run = figures_of(&String::from_utf8_lossy(&output.stdout));
        let datagrams = run.pop().unwrap();
        let counted = said.split_once("Collected : ").map(|(_, after)| figures_of(after)[0]);
        run.push(counted.unwrap_or_default() / datagrams);
        run
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Then it removes its files, and ends.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn this() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

/// The numbers at the beginning of a text.
fn figures_of(text: &str) -> Vec<f64> {
    text.split_whitespace().map_while(|word| word.parse().ok()).collect()
}

/// Prints numbers for the process that started this one.
fn report(numbers: &[f64]) {
    let words: Vec<String> = numbers.iter().map(f64::to_string).collect();
    println!("{}", words.join(" "));
    std::io::stdout().flush().unwrap();
}
