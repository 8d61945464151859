//! The HTTP server. Whoever speaks to it is not trusted: what a client can cost is bounded in time,
//! bytes and number, and the workers are asked one question at a time, however many want to know.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::exposition;
use super::status::{Status, Watch};
use crate::runtime::{clock, spawn};

/// Connections at once. When one more comes, the oldest gives way: it has had its time, and those
/// that are slow on purpose must not keep others out.
const CONNECTIONS: usize = 16;
/// How long a client may take over the head of its request.
const HEAD: Duration = Duration::from_secs(5);
/// How long a connection may last in all.
const WHOLE: Duration = Duration::from_secs(15);
/// Bytes that a request's head may have; hyper takes no less.
const HEAD_LEN: usize = 8192;
/// How long an answer of the workers serves other questions, too.
const FRESH: Duration = Duration::from_millis(100);
/// How long nothing is accepted after that has failed, as it does without descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Sessions that a status describes, and when all are asked for.
const SESSIONS: (usize, usize) = (50, 10_000);

/// Starts the thread that serves. It ends with the program.
///
/// # Errors
/// When the system has no more threads or descriptors.
pub fn serve(listener: TcpListener, watch: Watch) -> Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // The thread that blocks while it waits for the workers.
    let runtime = builder.enable_io().enable_time().max_blocking_threads(1).build();
    let runtime = runtime.context("cannot serve metrics")?;
    let own = listener.local_addr().context("cannot serve metrics")?.ip();
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener).context("cannot serve metrics")?
    };
    let site =
        Site { kept: Arc::new(Mutex::new(Kept { watch, last: None })), local: own.is_loopback() };
    spawn("metrics".to_owned(), move || runtime.block_on(accept(listener, Arc::new(site))))
}

async fn accept(listener: tokio::net::TcpListener, site: Arc<Site>) {
    let mut open: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let site = Arc::clone(&site);
        open.push_back(tokio::spawn(async move {
            let service = service_fn(move |request| {
                let site = Arc::clone(&site);
                async move { Ok::<_, Infallible>(site.answer(&request).await) }
            });
            let mut server = http1::Builder::new();
            server
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .max_buf_size(HEAD_LEN)
                .keep_alive(false);
            let connection = server.serve_connection(TokioIo::new(stream), service);
            // What goes wrong with a connection is its client's affair, and no reason to fill the
            // log.
            let _ = tokio::time::timeout(WHOLE, connection).await;
        }));
    }
}

/// What the workers said last.
struct Kept {
    watch: Watch,
    last: Option<Answer>,
}

struct Answer {
    at: Instant,
    /// The most sessions that it describes.
    sessions: usize,
    status: Arc<Status>,
}

impl Kept {
    fn look(&mut self, sessions: usize) -> Arc<Status> {
        let fresh = |answer: &&Answer| {
            answer.sessions >= sessions && clock().saturating_duration_since(answer.at) < FRESH
        };
        if let Some(answer) = self.last.as_ref().filter(fresh) {
            return Arc::clone(&answer.status);
        }
        let status = Arc::new(self.watch.look(sessions));
        self.last = Some(Answer { at: clock(), sessions, status: Arc::clone(&status) });
        status
    }
}

type Page = Response<Full<Bytes>>;

struct Site {
    kept: Arc<Mutex<Kept>>,
    /// It listens for this machine alone.
    local: bool,
}

impl Site {
    async fn answer(&self, request: &Request<Incoming>) -> Page {
        if self.local && !request.headers().get(HOST).is_none_or(is_ours) {
            // A page from elsewhere whose name was made to mean this machine, read by a browser
            // that runs here.
            return plain(
                StatusCode::FORBIDDEN,
                "ask by an address of this machine, or localhost\n",
            );
        }
        let path = request.uri().path();
        if !matches!(path, "/metrics" | "/health" | "/status") {
            return plain(StatusCode::NOT_FOUND, "there are /metrics, /health and /status\n");
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "these are only to be read\n");
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        let sessions = match (path, request.uri().query()) {
            ("/status", Some("sessions=all")) => SESSIONS.1,
            ("/status", _) => SESSIONS.0,
            _ => 0,
        };
        let Some(status) = self.status(sessions).await else {
            return plain(StatusCode::INTERNAL_SERVER_ERROR, "the workers cannot be asked\n");
        };
        match path {
            "/metrics" => page(
                StatusCode::OK,
                exposition::CONTENT_TYPE,
                exposition::text(&status, resident()),
            ),
            "/status" => match serde_json::to_string(&*status) {
                Ok(json) => page(StatusCode::OK, "application/json", json + "\n"),
                Err(_) => {
                    plain(StatusCode::INTERNAL_SERVER_ERROR, "the status cannot be written\n")
                }
            },
            _ => match status.complaint() {
                None => plain(StatusCode::OK, "ok\n"),
                Some(complaint) => plain(StatusCode::SERVICE_UNAVAILABLE, complaint + "\n"),
            },
        }
    }

    /// How things stand now, or stood a moment ago.
    async fn status(&self, sessions: usize) -> Option<Arc<Status>> {
        let mut kept = Arc::clone(&self.kept).lock_owned().await;
        // The lock goes with the question: who hangs up meanwhile makes no room for a second one.
        tokio::task::spawn_blocking(move || kept.look(sessions)).await.ok()
    }
}

/// Whether a Host header names this machine in a way that no one else can give away.
fn is_ours(host: &HeaderValue) -> bool {
    let Some(host) =
        host.to_str().ok().and_then(|host| host.parse::<hyper::http::uri::Authority>().ok())
    else {
        return false;
    };
    let name = host.host();
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Page {
    page(status, "text/plain; charset=utf-8", text)
}

fn page(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Page {
    let mut page = Response::new(Full::new(text.into()));
    *page.status_mut() = status;
    page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    page.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    page
}

/// Bytes of memory that this process has.
fn resident() -> Option<u64> {
    // In kB, unlike statm, which counts in pages of a size that would have to be asked for.
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_others_can_give_are_not_ours() {
        let ours = |host: &str| is_ours(&HeaderValue::from_str(host).unwrap());
        for host in [
            "127.0.0.1",
            "127.0.0.1:9252",
            "localhost:9252",
            "LOCALHOST",
            "[::1]:9252",
            "192.0.2.1:80",
        ] {
            assert!(ours(host), "{host}");
        }
        for host in [
            "",
            "evil.example:9252",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "a b",
            "[::1",
        ] {
            assert!(!ours(host), "{host}");
        }
    }

    #[test]
    fn this_test_takes_memory() {
        assert!(resident().unwrap() > 100_000);
    }
}
