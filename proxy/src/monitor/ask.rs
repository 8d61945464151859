//! The command `status`: fetches the status of a running program.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::subject::{AGENT, Origin, PROXY, ProgramStatus};
use crate::runtime::clock;

/// Longest time for the answer. A proxy itself waits two seconds for stuck threads.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of an answer, which has room for all sessions or flows.
const LONGEST: u64 = 16 << 20;

/// Fetches the status of the program that serves metrics at `address`, as JSON and parsed. `all`
/// states whether to request all sessions or flows.
///
/// # Errors
/// Why there is no status, and a remedy.
pub(crate) fn ask<S: ProgramStatus>(address: SocketAddr, all: bool) -> Result<(String, S)> {
    let what = S::PROGRAM.what;
    let no_answer = || {
        format!(
            "no {what} answers at {address}: start it, or name the address of its metrics, with \
             --metrics or by the file of --config"
        )
    };
    let query = if all { format!("?{}=all", S::PROGRAM.rows) } else { String::new() };
    let json = get(address, &format!("/status{query}")).map_err(|error| {
        let silent = error.downcast_ref::<io::Error>().is_some_and(|error| {
            matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
        });
        if silent {
            let seconds = PATIENCE.as_secs();
            return anyhow!(
                "the {what} at {address} does not answer within {seconds} s: restart it, and \
                 report a bug"
            );
        }
        error.context(no_answer())
    })?;
    let status = read(&json, address)?;
    Ok((json, status))
}

/// Reads the status of the program that answers at `address`.
fn read<S: ProgramStatus>(json: &str, address: SocketAddr) -> Result<S> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let (what, name) = (S::PROGRAM.what, S::PROGRAM.name);
    let stranger = || format!("the program that answers at {address} is no {what}");
    let origin: Origin = serde_json::from_str(json).with_context(stranger)?;
    if origin.program != name {
        // Any program may answer at the port. Its words must not reach the terminal as a command.
        let other = [PROXY, AGENT].into_iter().find(|ours| origin.program == *ours);
        let other = other.with_context(stranger)?;
        bail!(
            "the program that answers at {address} is {other}: run `{other} status`, or name the \
             address of the {what}'s metrics, with --metrics or by the file of --config"
        );
    }
    serde_json::from_str(json).with_context(|| {
        format!(
            "the program that answers at {address} has version {:?}, and this {name} has \
             {VERSION}, which cannot read its status: restart the {what}, or update {name}",
            origin.version
        )
    })
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
    // A stopped program still accepts, because the kernel does. So this error is not its silence.
    let mut stream =
        TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| anyhow!("{error}"))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::status::Status;
    use std::net::TcpListener;
    use std::thread;

    /// The error for a server with this answer.
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
        let error = ask::<Status>(address, false).unwrap_err();
        server.join().unwrap();
        format!("{error:#}")
    }

    #[test]
    fn a_status_of_another_program_or_version_is_named() {
        let address = "127.0.0.1:9".parse().unwrap();
        let error = |json: &str| format!("{:#}", read::<Status>(json, address).unwrap_err());
        let agent = serde_json::to_string(&crate::agent::status::tests::example()).unwrap();
        assert_eq!(
            error(&agent),
            "the program that answers at 127.0.0.1:9 is sidekick-agent: run `sidekick-agent \
             status`, or name the address of the proxy's metrics, with --metrics or by the file \
             of --config"
        );
        // The status of another version may lack a field.
        let status = crate::monitor::status::tests::example();
        let mut other = serde_json::to_value(status).unwrap();
        other.as_object_mut().unwrap().remove("sessions_max_per_source");
        for (version, shown) in [("0.0.9", "\"0.0.9\""), ("\u{1b}[2J", "\"\\u{1b}[2J\"")] {
            other["version"] = version.into();
            let said = error(&other.to_string());
            let expected = format!(
                "the program that answers at 127.0.0.1:9 has version {shown}, and this \
                 sidekick-proxy has {}, which cannot read its status: restart the proxy, or \
                 update sidekick-proxy: ",
                env!("CARGO_PKG_VERSION")
            );
            assert!(said.starts_with(&expected), "{said}");
        }
    }

    #[test]
    fn a_stranger_names_no_command() {
        let address = "127.0.0.1:9".parse().unwrap();
        for json in [
            r#"{"program":"\u001b[2J","version":"1"}"#,
            r#"{"program":"rm -rf /; sidekick-proxy","version":"1"}"#,
            r#"{"version":"1"}"#,
        ] {
            let said = format!("{:#}", read::<Status>(json, address).unwrap_err());
            let expected = "the program that answers at 127.0.0.1:9 is no proxy";
            assert!(said.starts_with(expected), "{said}");
            assert!(!said.contains("run `") && !said.contains(char::is_control), "{said}");
        }
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
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "is no proxy"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n<p>", "is no proxy"),
        ] {
            let error = answered(answer);
            assert!(error.contains(said), "{answer:?}: {error}");
        }
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = ask::<Status>(closed, false).unwrap_err().to_string();
        assert!(
            error.contains("no proxy answers at 127.0.0.1:") && error.contains("--metrics"),
            "{error}"
        );
    }
}
