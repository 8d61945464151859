//! The HTTP server. It trusts no client: it bounds their number, their bytes and their time. It
//! asks the program's threads one question at a time, however many clients there are.

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

use super::exposition::CONTENT_TYPE as METRICS_TYPE;
use super::subject::{ProgramStatus, StatusSource};
use crate::runtime::{clock, spawn};

/// Most connections at once. For a further one, the server closes the oldest, so that slow clients
/// do not keep others out.
const CONNECTIONS: usize = 16;
/// Longest time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(15);
/// Most bytes of a request's head. Hyper accepts no smaller limit.
const HEAD_LEN: usize = 8192;
/// How long a status also answers other requests.
const MAX_AGE: Duration = Duration::from_millis(100);
/// How long the server pauses after it failed to accept a connection, as for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Sessions or flows that a status describes.
const SOME_ROWS: usize = 50;
/// Sessions or flows that a status describes if the client requests all.
pub(crate) const ALL_ROWS: usize = 10_000;

/// Starts the thread of the server, which ends with the program.
///
/// # Errors
/// When the system has no more threads or descriptors.
pub fn serve(listener: TcpListener, source: impl StatusSource) -> Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // One thread that blocks while it waits for the program's others.
    let runtime = builder.enable_io().enable_time().max_blocking_threads(1).build();
    let runtime = runtime.context("cannot serve metrics")?;
    let local_ip = listener.local_addr().context("cannot serve metrics")?.ip();
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener).context("cannot serve metrics")?
    };
    let cache = Arc::new(Mutex::new(Cache { source, last: None }));
    let site = Site { cache, local: local_ip.is_loopback() };
    spawn("metrics".to_owned(), move || runtime.block_on(accept(listener, Arc::new(site))))
}

async fn accept<S: StatusSource>(listener: tokio::net::TcpListener, site: Arc<Site<S>>) {
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
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(HEAD_LEN)
                .keep_alive(false);
            let connection = server.serve_connection(TokioIo::new(stream), service);
            // An error of a connection concerns its client, and must not fill the log.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
        }));
    }
}

/// The last status.
struct Cache<S: StatusSource> {
    source: S,
    last: Option<Answer<S::Status>>,
}

struct Answer<T> {
    at: Instant,
    /// The limit of sessions or flows in the status.
    rows: usize,
    status: Arc<T>,
}

impl<S: StatusSource> Cache<S> {
    /// The last status if it is fresh, or a new one.
    fn status(&mut self, rows: usize) -> Arc<S::Status> {
        let fresh = |answer: &&Answer<S::Status>| {
            answer.rows >= rows && clock().saturating_duration_since(answer.at) < MAX_AGE
        };
        if let Some(answer) = self.last.as_ref().filter(fresh) {
            return Arc::clone(&answer.status);
        }
        let status = Arc::new(self.source.read(rows));
        self.last = Some(Answer { at: clock(), rows, status: Arc::clone(&status) });
        status
    }
}

type Page = Response<Full<Bytes>>;

struct Site<S: StatusSource> {
    cache: Arc<Mutex<Cache<S>>>,
    /// The server listens only for this machine.
    local: bool,
}

impl<S: StatusSource> Site<S> {
    async fn answer(&self, request: &Request<Incoming>) -> Page {
        if self.local && !request.headers().get(HOST).is_none_or(is_local_name) {
            // DNS rebinding: a browser on this machine shows a foreign page, whose name now
            // resolves to this machine.
            return plain(
                StatusCode::FORBIDDEN,
                "use an address of this machine, or localhost, as the host\n",
            );
        }
        let path = request.uri().path();
        if !matches!(path, "/metrics" | "/health" | "/status") {
            return plain(StatusCode::NOT_FOUND, "the pages are /metrics, /health and /status\n");
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "the pages are read-only\n");
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        let all = request.uri().query().and_then(|query| query.strip_suffix("=all"));
        let rows = match path {
            "/status" if all == Some(S::Status::PROGRAM.rows) => ALL_ROWS,
            "/status" => SOME_ROWS,
            _ => 0,
        };
        let Some(status) = self.status(rows).await else {
            return plain(StatusCode::INTERNAL_SERVER_ERROR, "cannot read the status\n");
        };
        match path {
            "/metrics" => page(StatusCode::OK, METRICS_TYPE, status.metrics(resident())),
            "/status" => match serde_json::to_string(&*status) {
                Ok(json) => page(StatusCode::OK, "application/json", json + "\n"),
                Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "cannot write the status\n"),
            },
            _ => match status.complaint() {
                None => plain(StatusCode::OK, "ok\n"),
                Some(complaint) => plain(StatusCode::SERVICE_UNAVAILABLE, complaint + "\n"),
            },
        }
    }

    /// The status now, or a moment ago.
    async fn status(&self, rows: usize) -> Option<Arc<S::Status>> {
        let mut cache = Arc::clone(&self.cache).lock_owned().await;
        // The question owns the lock: a client that disconnects meanwhile allows no second one.
        tokio::task::spawn_blocking(move || cache.status(rows)).await.ok()
    }
}

/// Whether a Host header names this machine in a way that needs no DNS.
fn is_local_name(host: &HeaderValue) -> bool {
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

/// The resident memory of this process, in bytes.
fn resident() -> Option<u64> {
    // In kB, unlike statm, which counts pages of unknown size.
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_dns_are_not_local() {
        let ours = |host: &str| is_local_name(&HeaderValue::from_str(host).unwrap());
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
    fn this_test_uses_memory() {
        assert!(resident().unwrap() > 100_000);
    }
}
