//! Downloads whose reader pauses: the connection continues. A client does not mistake a server that
//! gives up meanwhile for one that has finished.

use std::io::Read as _;
use std::process::{Child, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::signal::Signal;
use quinn::{Connection, SendStream, TransportConfig, VarInt};
use tempfile::tempdir;
use tokio::time::interval;

use crate::child::{PATIENCE, send};
use crate::hostile::{Outcome, serve_request};
use crate::programs::{Server, assert_complains, bytes, download};
use crate::raw::{DATA, answer, frame};

/// The server's idle timeout. The client keeps the connection alive by PINGs.
const IDLE: Duration = Duration::from_secs(3);
/// More bytes than the client takes while its reader pauses.
const LONG: usize = 60_000_000;
/// Fewer bytes than that.
const SHORT: usize = 12_000_000;

/// Starts a download to a pipe. No process reads the pipe yet.
fn to_a_pipe(url: &str, options: &[&str]) -> Child {
    let scratch = tempdir().unwrap();
    let mut command = download(url, scratch.path());
    command.args(["--quiet", "-o", "-"]).args(options);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Reads the whole pipe. Returns what was read, and how the program ended.
fn read(mut child: Child) -> (Vec<u8>, Output) {
    let mut content = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut content).unwrap();
    (content, child.wait_with_output().unwrap())
}

fn impatient() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(IDLE.try_into().unwrap()));
    transport
}

/// Returns once the client has sent this many PINGs while flow control allowed no data, or when the
/// connection has ended.
async fn pause(quic: &Connection, pings: u64) {
    let mut ticks = interval(Duration::from_millis(20));
    let mut sent = 0;
    let mut before = 0;
    while quic.close_reason().is_none() {
        let stats = quic.stats();
        if stats.frame_tx.stream != sent {
            (sent, before) = (stats.frame_tx.stream, stats.frame_rx.ping);
        }
        if stats.frame_rx.ping >= before + pings {
            break;
        }
        ticks.tick().await;
    }
}

/// Resets the stream. Returns once the client has received that.
async fn reset(quic: &Connection, mut stream: SendStream) -> Outcome {
    stream.reset(VarInt::from_u32(0x102))?;
    // It acknowledges a later stream, of an unknown type.
    let mut later = quic.open_uni().await?;
    later.write_all(&[0x21]).await?;
    later.finish()?;
    later.stopped().await?;
    Ok(())
}

/// Without PINGs the server would end the connection.
#[test]
fn a_reader_may_pause_for_longer_than_the_idle_timeout() {
    let (paused, has_paused) = mpsc::channel();
    let body = bytes(LONG / 60).repeat(60);
    let expected = body.clone();
    let server = serve_request(impatient(), move |quic, control, mut send, receive| {
        let (paused, body) = (paused.clone(), body.clone());
        async move {
            let _open = (control, receive);
            let whole = [answer(b"200", &[]), frame(DATA, &body)].concat();
            let pause = async {
                // Three to an idle timeout.
                pause(&quic, 5).await;
                paused.send(()).unwrap();
            };
            tokio::join!(send.write_all(&whole), pause).0?;
            send.finish()?;
            std::future::pending().await
        }
    });
    let child = to_a_pipe(&format!("https://127.0.0.1:{}/x", server.port), &["--insecure"]);
    has_paused.recv_timeout(PATIENCE).unwrap();
    let (content, output) = read(child);
    assert!(output.status.success(), "{output:?}");
    assert!(content == expected);
}

/// No length shows that the file is not whole.
#[test]
fn a_reset_during_a_pause_is_not_the_end_of_the_file() {
    let (paused, has_paused) = mpsc::channel();
    let server = serve_request(impatient(), move |quic, control, mut send, receive| {
        let paused = paused.clone();
        async move {
            let _open = (control, receive);
            let whole = [answer(b"200", &[]), frame(DATA, &vec![7; LONG])].concat();
            tokio::select! {
                written = send.write_all(&whole) => written?,
                () = pause(&quic, 2) => {}
            }
            let reset = reset(&quic, send).await;
            paused.send(()).unwrap();
            reset?;
            std::future::pending().await
        }
    });
    let child = to_a_pipe(&format!("https://127.0.0.1:{}/x", server.port), &["--insecure"]);
    has_paused.recv_timeout(PATIENCE).unwrap();
    let (content, mut output) = read(child);
    assert!(content.len() < LONG, "{} bytes", content.len());
    output.stdout.clear();
    assert_complains(&output, "the server reset the download");
}

/// The client has the whole file, so the server need not wait for the reader.
#[test]
fn a_short_file_needs_no_server_during_the_pause() {
    let mut server = Server::start(&["--request-timeout", "1"]);
    std::fs::write(server.dir().join("x"), bytes(SHORT)).unwrap();
    let ca = server.ca();
    let child = to_a_pipe(&server.url("/x"), &["--cafile", ca.to_str().unwrap()]);
    server.wait_for("closing a connection without a request");
    // The server ends once its closed connections have.
    send(&server.child, Signal::SIGTERM);
    assert!(server.child.wait().unwrap().success());
    let (content, output) = read(child);
    assert!(output.status.success(), "{output:?}");
    assert!(content == bytes(SHORT));
}
