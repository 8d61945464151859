//! The common part of hostile servers of uploads and downloads.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, Endpoint, RecvStream, SendStream, TransportConfig, VarInt};
use tempfile::tempdir;
use tokio::runtime::{Builder, Runtime};
use tokio::time::interval;

use crate::child::PATIENCE;
use crate::peer::server_config;
use crate::programs::{assert_complains, file, names};
use crate::raw::open_control;

pub(crate) type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Address space of the client, in KiB. An upload takes half of it.
const MEMORY: u32 = 256 * 1024;
/// The complaint about an answer that has a beginning and no end.
pub(crate) const UNFINISHED: &str = "did not complete its answer";
/// The words of a client that succeeds.
pub(crate) const SUCCESS: &str = "";

/// A server with hand-written HTTP/3. It ends when dropped.
pub(crate) struct Server {
    pub(crate) port: u16,
    _runtime: Runtime,
}

/// A server that has `transport` and runs `act` on the first request of a connection. `act`
/// receives the connection, the server's control stream, which must stay open, and both halves of
/// the request's stream.
pub(crate) fn serve_request<F>(
    transport: TransportConfig,
    act: impl Fn(Connection, SendStream, SendStream, RecvStream) -> F + Clone + Send + 'static,
) -> Server
where
    F: Future<Output = Outcome> + Send + 'static,
{
    // With one thread, no packet leaves between two steps of `act` without a wait between them.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut config = server_config();
    config.transport_config(Arc::new(transport));
    let endpoint = runtime
        .block_on(async { Endpoint::server(config, (Ipv4Addr::LOCALHOST, 0).into()) })
        .unwrap();
    let port = endpoint.local_addr().unwrap().port();
    runtime.spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            let Ok(quic) = incoming.await else { continue };
            let act = act.clone();
            // These servers cause clients to leave early, so an error is no failure.
            tokio::spawn(async move {
                let control = open_control(&quic).await?;
                let (send, receive) = quic.accept_bi().await?;
                let acted = act(quic.clone(), control, send, receive).await;
                quic.closed().await;
                acted
            });
        }
    });
    Server { port, _runtime: runtime }
}

/// What a server does with a request.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// Whether it reads the whole request first.
    pub(crate) reads: bool,
    /// What it sends then.
    pub(crate) begin: Vec<u8>,
    pub(crate) then: Then,
}

/// What follows. All streams stay open.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    Nothing,
    /// The end of the stream.
    Finish,
    /// These bytes, repeatedly and slowly.
    Slowly(Vec<u8>),
    /// These bytes, repeatedly and at full speed.
    Flood(Vec<u8>),
    /// Both halves of the request's stream end early.
    Reset,
    /// The connection ends, with this code and reason.
    Close(u32, &'static str),
}

impl Script {
    pub(crate) fn serve(self) -> Server {
        self.serve_over(plain())
    }

    pub(crate) fn serve_over(self, transport: TransportConfig) -> Server {
        serve_request(transport, move |quic, control, send, receive| {
            self.clone().play(quic, control, send, receive)
        })
    }

    async fn play(
        self,
        quic: Connection,
        control: SendStream,
        mut send: SendStream,
        mut receive: RecvStream,
    ) -> Outcome {
        // The end of a control stream is an error of its own.
        let _open = control;
        if self.reads {
            receive.read_to_end(usize::MAX).await?;
        }
        send.write_all(&self.begin).await?;
        match self.then {
            Then::Nothing => {}
            Then::Finish => send.finish()?,
            Then::Slowly(bytes) => forever(&mut send, &bytes, true).await,
            Then::Flood(bytes) => forever(&mut send, &bytes, false).await,
            Then::Reset => {
                // It fails if the request has ended.
                let _ = receive.stop(VarInt::from_u32(0x102));
                send.reset(VarInt::from_u32(0x102))?;
            }
            Then::Close(code, reason) => quic.close(VarInt::from_u32(code), reason.as_bytes()),
        }
        std::future::pending().await
    }
}

/// What the client does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Client {
    /// It uploads a file of this length.
    Upload(usize),
    Download,
}

impl Client {
    /// Runs the client against `server`. It must complain with `words`, show nothing that controls
    /// a terminal or fills it, and leave no file; with [`SUCCESS`] it returns the file's content.
    pub(crate) fn meets(self, server: &Server, options: &[&str], words: &str) -> Option<Vec<u8>> {
        let (source, scratch) = (tempdir().unwrap(), tempdir().unwrap());
        let mut command = Command::new("sh");
        let limit = format!("ulimit -v {MEMORY}; exec timeout {} \"$@\"", PATIENCE.as_secs());
        command.args(["-c", &limit, "sh"]).current_dir(scratch.path());
        match self {
            Self::Upload(len) => {
                command.arg(env!("CARGO_BIN_EXE_h3-upload")).arg(file(&source, "x", len));
            }
            Self::Download => {
                command.arg(env!("CARGO_BIN_EXE_h3-download"));
            }
        }
        command.args(["--insecure", "--quiet", "--stall-timeout", patience(words)]).args(options);
        let output = command.arg(format!("https://127.0.0.1:{}/x", server.port)).output().unwrap();
        let said = std::str::from_utf8(&output.stderr).unwrap();
        let controls =
            |c: char| c != '\n' && (c.is_control() || "\u{202e}\u{2066}\u{200b}".contains(c));
        assert!(!said.contains(controls), "{said:?}");
        assert!(said.len() < 1000, "{} bytes", said.len());
        let content = std::fs::read(scratch.path().join("x")).ok();
        assert_eq!(names(scratch.path()).len(), usize::from(content.is_some()), "a part is left");
        if words == SUCCESS {
            assert!(output.status.success(), "{said}");
        } else {
            assert_complains(&output, words);
            assert_eq!(content, None);
        }
        content
    }
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

/// A transport that keeps the connection alive.
pub(crate) fn plain() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.keep_alive_interval(Some(Duration::from_millis(100)));
    transport
}

/// Writes `bytes` repeatedly while the client accepts them: `slowly`, or at full speed.
pub(crate) async fn forever(to: &mut SendStream, bytes: &[u8], slowly: bool) {
    let mut ticks = interval(Duration::from_millis(20));
    while to.write_all(bytes).await.is_ok() {
        if slowly {
            ticks.tick().await;
        }
    }
}
