//! `sidekick-proxy status`: fetches the status of a running proxy, and shows it.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::status::{Session, Status};
use crate::runtime::clock;
use crate::size::Size;

/// Longest time for the answer. The proxy itself waits two seconds for stuck threads.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of an answer, which has room for all sessions.
const LONGEST: u64 = 16 << 20;

/// Fetches the status of the proxy that serves metrics at `address`, as JSON and parsed. `all`:
/// whether to request all sessions.
///
/// # Errors
/// Why there is no status, and a remedy.
pub(crate) fn ask(address: SocketAddr, all: bool) -> Result<(String, Status)> {
    let no_proxy = || {
        format!(
            "no proxy answers at {address}: start it, or name the address of its metrics, with \
             --metrics or by the file of --config"
        )
    };
    let json = get(address, if all { "/status?sessions=all" } else { "/status" })
        .with_context(no_proxy)?;
    let status = serde_json::from_str(&json)
        .with_context(|| format!("the program that answers at {address} is not a proxy"))?;
    Ok((json, status))
}

/// Fetches a page. Accepts only what our own server sends: version 1.1, status 200, and a length.
fn get(address: SocketAddr, path: &str) -> Result<String> {
    let address = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => {
            SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port())
        }
        IpAddr::V6(ip) if ip.is_unspecified() => {
            SocketAddr::new(Ipv6Addr::LOCALHOST.into(), address.port())
        }
        _ => address,
    };
    let deadline = clock() + PATIENCE;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // One string, so that the request is one segment.
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    Deadline { stream, deadline }.take(LONGEST).read_to_end(&mut bytes)?;
    let answer = String::from_utf8(bytes).context("the answer is not text")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer does not end its head")?;
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    ensure!(first.starts_with("HTTP/1.1 200 "), "the answer is {first:?}");
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, length)| length.trim().parse().ok());
    if length != Some(body.len()) {
        bail!("the answer has {} bytes, which is not the length in its head", body.len());
    }
    Ok(body.to_owned())
}

/// A stream with a deadline for all reads together.
struct Deadline {
    stream: TcpStream,
    deadline: Instant,
}

impl Read for Deadline {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(clock());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

/// The status as text for people.
#[must_use]
pub(crate) fn show(status: &Status) -> String {
    let mut text = format!("sidekick-proxy {}, up {}\n", status.version, duration(status.uptime));
    let mut say = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12}{value}");
    };
    say("address", status.address.to_string());
    if let Some(key) = &status.public_key {
        say("public key", key.clone());
    }
    say("health", status.complaint().unwrap_or_else(|| "ok".to_owned()));
    say("totals", status.totals.to_string());
    if let Some(open) = status.sessions_open {
        say("sessions", format!("{open} open, {} at most", status.sessions_max));
    }
    if let Some(copies) = &status.copies {
        let (bytes, most) = (Size::bytes(copies.bytes), Size::bytes(copies.max_bytes));
        say(
            "copies",
            match copies.max_bytes {
                0 => "none".to_owned(),
                _ => format!("{bytes} for {} sessions, {most} at most", copies.sessions),
            },
        );
    }
    let interfaces = status.interfaces.iter().map(|of| {
        let up = match (&of.backend, of.up) {
            (None, _) => "gone",
            (_, true) => "up",
            (_, false) => "down",
        };
        let backend = of.backend.clone().unwrap_or_else(|| "-".to_owned());
        vec![
            of.name.clone(),
            backend,
            up.to_owned(),
            of.captured.to_string(),
            of.dropped.to_string(),
        ]
    });
    text += "\n";
    text += &table(&["interface", "backend", "state", "captured", "dropped"], 3, interfaces);
    if !status.sessions.is_empty() {
        let headings = [
            "source",
            "destination",
            "peer",
            "epoch",
            "counted",
            "quACKs",
            "kept",
            "packet",
            "heard",
        ];
        text += "\n";
        text += &table(&headings, 3, status.sessions.iter().map(row));
        let more = status.sessions_open.unwrap_or(0).saturating_sub(status.sessions.len());
        if more > 0 {
            let _ = writeln!(text, "and {more} more sessions (--all shows them)");
        }
    }
    // Another program may answer at the port. Its bytes must not control the terminal.
    text.chars().map(|char| if char.is_control() && char != '\n' { '?' } else { char }).collect()
}

fn row(session: &Session) -> Vec<String> {
    let ago = |seconds: f64| format!("{seconds:.1}s ago");
    let packet = match session.last_packet_ago {
        _ if !session.confirmed => "unproven".to_owned(),
        None => "none".to_owned(),
        Some(seconds) => ago(seconds),
    };
    vec![
        session.source.to_string(),
        session.destination.to_string(),
        session.peer.to_string(),
        session.epoch.to_string(),
        session.counted.to_string(),
        session.quacks.to_string(),
        session.kept.map_or_else(|| "-".to_owned(), |kept| kept.to_string()),
        packet,
        ago(session.last_heard_ago),
    ]
}

/// A table. The first `left` columns are aligned left, the others right.
fn table(headings: &[&str], left: usize, rows: impl Iterator<Item = Vec<String>>) -> String {
    let headings = headings.iter().map(|heading| (*heading).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(headings).chain(rows).collect();
    let mut widths: Vec<usize> = Vec::new();
    for row in &rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if column < left {
                write!(line, "{cell:<width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        text += line.trim_end();
        text += "\n";
    }
    text
}

/// A time in the two largest units that fit.
fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::status::tests::example;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn columns_are_aligned() {
        let mut status = example();
        status.interfaces[1].name = "tun0\x1b[2J".to_owned();
        status.sessions_open = Some(3);
        let shown = show(&status);
        let key = "ab".repeat(32);
        let expected = format!(
            "\
sidekick-proxy 1.2.3, up 1 d 2 h
address     192.0.2.1:5252
public key  {key}
health      ok
totals      captured 9, counted 5, quACKs 0, bytes sent 0, sessions 0, malformed 0
sessions    3 open, 1024 at most
copies      64K for 1 sessions, 64M at most

interface  backend  state  captured  dropped
eth0       ring     up            7        0
tun0?[2J   ring     up            2        0

source         destination        peer           epoch  counted  quACKs  kept  packet     heard
10.0.0.2:4000  [2001:db8::1]:443  10.0.0.2:4001      1        5       2     3    none  0.2s ago
and 2 more sessions (--all shows them)
"
        );
        assert_eq!(shown, expected);
    }

    #[test]
    fn times_are_short() {
        for (seconds, said) in
            [(0, "0 s"), (59, "59 s"), (61, "1 min"), (7_260, "2 h 1 min"), (90_000, "1 d 1 h")]
        {
            assert_eq!(duration(seconds), said);
        }
    }

    /// The error for a server that answers so.
    fn answered(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 512];
            let len = stream.read(&mut asked).unwrap();
            assert!(asked[..len].starts_with(b"GET /status HTTP/1.1\r\nHost: 127.0.0.1:"));
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let error = ask(address, false).unwrap_err();
        server.join().unwrap();
        format!("{error:#}")
    }

    #[test]
    fn an_answer_of_another_program_is_an_error() {
        for (answer, said) in [
            ("", "does not end its head"),
            ("HTTP/1.1 200 OK\r\n", "does not end its head"),
            ("SSH-2.0-OpenSSH\r\n\r\n", "SSH-2.0"),
            ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "404"),
            ("HTTP/1.1 200 OK\r\n\r\n{}", "not the length"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", "not the length"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "is not a proxy"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n<p>", "is not a proxy"),
        ] {
            let error = answered(answer);
            assert!(error.contains(said), "{answer:?}: {error}");
        }
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = ask(closed, false).unwrap_err().to_string();
        assert!(
            error.contains("no proxy answers at 127.0.0.1:") && error.contains("--metrics"),
            "{error}"
        );
    }
}
