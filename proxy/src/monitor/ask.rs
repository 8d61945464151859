//! The command `status`: fetches the status of a running program.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::runtime::Builder;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::subject::{AGENT, Origin, PROXY, ProgramStatus};

/// Longest time for the answer. A proxy itself waits two seconds for stuck threads.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of an answer, which has room for all sessions or flows.
const LONGEST: usize = 16 << 20;

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
        if error.is::<Elapsed>() {
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

/// Fetches a page. The error is [`Elapsed`] if the program accepts, but does not answer.
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
    // A stopped program still accepts, because the kernel does. So this error is not its silence.
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nonblocking(true)?;
    let request = Request::get(path)
        .header(HOST, address.to_string())
        .body(Empty::<Bytes>::new())
        .context("cannot ask")?;
    let answer = async {
        let stream = TokioIo::new(tokio::net::TcpStream::from_std(stream)?);
        let (mut sender, connection) = http1::handshake(stream).await?;
        tokio::spawn(connection);
        let answer = sender.send_request(request).await?;
        ensure!(answer.status() == StatusCode::OK, "the answer is {}", answer.status());
        let body = Limited::new(answer.into_body(), LONGEST).collect().await;
        let body = body.map_err(|error| anyhow!("{error}"))?.to_bytes();
        String::from_utf8(body.into()).context("the answer is not text")
    };
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async { timeout(PATIENCE, answer).await })?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::status::Status;
    use std::io::{Read, Write};
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
            assert!(asked[..len].starts_with(b"GET /status HTTP/1.1\r\nhost: 127.0.0.1:"));
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
            ("", "connection closed"),
            ("HTTP/1.1 200 OK\r\n", "connection closed"),
            ("SSH-2.0-OpenSSH\r\n\r\n", "invalid HTTP version"),
            ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "404"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", "reading a body"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "is no proxy"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n<p>", "is no proxy"),
            ("HTTP/1.1 200 OK\r\n\r\n{}", "is no proxy"),
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
