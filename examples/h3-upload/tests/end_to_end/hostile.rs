//! The common part of hostile servers of uploads and downloads.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use quinn::{Connection, RecvStream, SendStream, TransportConfig};
use tokio::time::interval;

use crate::raw::{Server, serve};

pub(crate) type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Address space of the client, in KiB. An upload takes half of it.
const MEMORY: u32 = 256 * 1024;
/// The complaint about an answer that has a beginning and no end.
pub(crate) const UNFINISHED: &str = "did not complete its answer";

/// A server that has `transport` and runs `act` on the request. `act` receives the connection, the
/// server's control stream, which must stay open, and both halves of the request's stream.
pub(crate) fn serve_request<F>(
    transport: TransportConfig,
    act: impl Fn(Connection, SendStream, SendStream, RecvStream) -> F + Clone + Send + 'static,
) -> Server
where
    F: Future<Output = Outcome> + Send + 'static,
{
    serve(transport, move |quic, control| {
        let act = act.clone();
        async move {
            let (send, receive) = quic.accept_bi().await?;
            let acted = act(quic.clone(), control, send, receive).await;
            quic.closed().await;
            acted
        }
    })
}

/// The seconds that a client waits for a server that makes no progress, if it will complain with
/// `words`. They are few only if it complains because of this wait.
fn patience(words: &str) -> &'static str {
    match words {
        stall if stall.ends_with("for 1 s") => "1",
        // The head of this answer must arrive within this time.
        UNFINISHED => "5",
        _ => "60",
    }
}

/// The program, with bounded memory, and with the [`patience`] for `words`. It runs in `directory`.
pub(crate) fn client(program: &str, directory: &Path, words: &str) -> Command {
    let mut command = Command::new("sh");
    let limit = format!("ulimit -v {MEMORY}; exec \"$@\"");
    command.args(["-c", &limit, "sh", program]).current_dir(directory);
    command.args(["--insecure", "--quiet", "--stall-timeout", patience(words)]);
    command
}

/// A transport that keeps the connection alive.
pub(crate) fn plain() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.keep_alive_interval(Some(Duration::from_millis(100)));
    transport
}

/// Writes `bytes` repeatedly while the client accepts them: `slowly`, or at full speed.
pub(crate) async fn forever(mut to: SendStream, bytes: &[u8], slowly: bool) -> Outcome {
    let mut ticks = interval(Duration::from_millis(20));
    while to.write_all(bytes).await.is_ok() {
        if slowly {
            ticks.tick().await;
        }
    }
    std::future::pending().await
}

/// Asserts that the client shows nothing of a server that controls a terminal or fills it.
pub(crate) fn assert_harmless(output: &Output) {
    let said = std::str::from_utf8(&output.stderr).unwrap();
    let controls =
        |c: char| c != '\n' && (c.is_control() || "\u{202e}\u{2066}\u{200b}".contains(c));
    assert!(!said.contains(controls), "{said:?}");
    assert!(said.len() < 1000, "{} bytes", said.len());
}
