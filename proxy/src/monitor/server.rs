//! The HTTP server. It trusts no client, so it bounds their number, their bytes and their time, and
//! asks the program's threads one question at a time, however many clients there are.

use std::convert::Infallible;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Mutex;

use super::connections::Connections;
use super::exposition::CONTENT_TYPE as METRICS_TYPE;
use super::subject::{ProgramStatus, StatusSource};
use crate::runtime::{clock, spawn};

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
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener).context("cannot serve metrics")?
    };
    let cache = Arc::new(Mutex::new(Cache { source, last: None }));
    let site = Site { cache };
    spawn("metrics".to_owned(), move || runtime.block_on(accept(listener, Arc::new(site))))
}

async fn accept<S: StatusSource>(listener: tokio::net::TcpListener, site: Arc<Site<S>>) {
    let connections = Arc::<Connections>::default();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let site = Arc::clone(&site);
        connections.open(peer.ip(), clock(), |guard| {
            tokio::spawn(async move {
                let service = service_fn(|request| {
                    let answered = guard.requested(clock());
                    let site = Arc::clone(&site);
                    async move {
                        Ok::<_, Infallible>(match answered {
                            true => site.answer(&request).await,
                            false => busy(),
                        })
                    }
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
            })
            .abort_handle()
        });
        // Between two connections, the others read what has arrived.
        tokio::task::yield_now().await;
    }
}

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
}

impl<S: StatusSource> Site<S> {
    async fn answer(&self, request: &Request<Incoming>) -> Page {
        let own = hostname();
        if !request.headers().get(HOST).is_none_or(|host| is_local_name(host, own.as_deref())) {
            // DNS rebinding: a browser that reaches this machine shows a foreign page, whose name
            // now resolves to this machine.
            return plain(
                StatusCode::FORBIDDEN,
                "use an IP address of this machine, its host name, or localhost, as the host\n",
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

/// Whether a Host header names this machine in a way that no foreign page can: by an IP address, as
/// localhost, or by its `own` name, which may end in .local (RFC 6762).
fn is_local_name(host: &HeaderValue, own: Option<&str>) -> bool {
    let Some(host) =
        host.to_str().ok().and_then(|host| host.parse::<hyper::http::uri::Authority>().ok())
    else {
        return false;
    };
    let name = host.host();
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let own = own.map(str::to_ascii_lowercase);
    let local = own.as_deref().and_then(|own| own.split('.').next());
    let mdns = name.strip_suffix(".local").is_some_and(|first| local == Some(first));
    bare.parse::<IpAddr>().is_ok() || name == "localhost" || own.as_ref() == Some(&name) || mdns
}

/// The name of this machine, if it has one. The units hide the file of it in /proc.
fn hostname() -> Option<String> {
    let name = nix::unistd::gethostname().ok()?.into_string().ok()?;
    (!name.is_empty()).then_some(name)
}

/// The answer to a request beside too many others.
fn busy() -> Page {
    let mut page = plain(StatusCode::SERVICE_UNAVAILABLE, "too many requests at once: try again\n");
    page.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    page
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
    use crate::monitor::status::{Status, tests::example};
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::mpsc;

    /// A source that answers each time the test lets it.
    #[derive(Debug)]
    struct Gate(mpsc::Receiver<()>);

    impl StatusSource for Gate {
        type Status = Status;

        fn read(&mut self, _: usize) -> Status {
            // After the test, it answers at once.
            let _ = self.0.recv();
            example()
        }
    }

    /// A server whose source is behind a gate.
    fn gated() -> (SocketAddr, mpsc::Sender<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (open, gate) = mpsc::channel();
        serve(listener, Gate(gate)).unwrap();
        (address, open)
    }

    fn request(address: SocketAddr, path: &str, host: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        stream
    }

    /// The whole answer; empty if the server has closed the connection.
    fn answer(mut stream: TcpStream) -> String {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut text = String::new();
        let read = stream.read_to_string(&mut text);
        assert!(read.is_ok() || text.is_empty(), "{read:?}: {text}");
        text
    }

    #[test]
    fn a_flood_of_connections_ends_no_scrape() {
        let (address, open) = gated();
        let scrape = request(address, "/metrics", "127.0.0.1");
        let flood: Vec<_> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
        // The server has accepted all connections before this one.
        assert!(answer(request(address, "/elsewhere", "127.0.0.1")).starts_with("HTTP/1.1 404"));
        open.send(()).unwrap();
        assert!(answer(scrape).starts_with("HTTP/1.1 200"));
        drop(flood);
    }

    #[test]
    fn more_requests_than_it_answers_are_told_so() {
        let (address, open) = gated();
        let waiting: Vec<_> = (0..20).map(|_| request(address, "/health", "localhost")).collect();
        let further = answer(request(address, "/health", "localhost"));
        assert!(
            further.starts_with("HTTP/1.1 503") && further.contains("retry-after"),
            "{further}"
        );
        drop(open);
        let said: Vec<_> = waiting.into_iter().map(answer).collect();
        let busy = said.iter().filter(|answer| answer.contains("too many requests")).count();
        assert_eq!((busy, said.iter().filter(|said| said.is_empty()).count()), (8, 0), "{said:?}");
    }

    /// DNS rebinding concerns each address on which the server may listen.
    #[test]
    fn a_foreign_host_is_refused_at_every_address() {
        for ip in ["127.0.0.1", "0.0.0.0"] {
            let listener = TcpListener::bind((ip, 0)).unwrap();
            listener.set_nonblocking(true).unwrap();
            let address = listener.local_addr().unwrap();
            let (open, gate) = mpsc::channel();
            drop(open);
            serve(listener, Gate(gate)).unwrap();
            let status = |host: &str| answer(request(address, "/metrics", host))[9..12].to_owned();
            assert_eq!(status("evil.example"), "403", "{ip}");
            assert_eq!(status(&hostname().unwrap()), "200", "{ip}");
            assert_eq!(status("192.0.2.1:9252"), "200", "{ip}");
        }
    }

    #[test]
    fn names_of_the_dns_are_not_local() {
        let ours = |host: &str, own: Option<&str>| {
            is_local_name(&HeaderValue::from_str(host).unwrap(), own)
        };
        for host in [
            "127.0.0.1",
            "127.0.0.1:9252",
            "localhost:9252",
            "LOCALHOST",
            "[::1]:9252",
            "192.0.2.1:80",
            "gateway:9252",
            "Gateway.local.",
        ] {
            assert!(ours(host, Some("gateWay")), "{host}");
        }
        for host in [
            "",
            "evil.example:9252",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "gateway.evil.example",
            "gateway.evil.local",
            "other.local",
            ".local",
            "a b",
            "[::1",
        ] {
            assert!(!ours(host, Some("gateway")) && !ours(host, None), "{host}");
        }
        let full = Some("gateway.example.org");
        assert!(ours("gateway.example.org:9252", full) && ours("gateway.local", full));
        assert!(!ours("gateway", full) && !ours("other.example.org", full));
    }

    #[test]
    fn this_test_uses_memory() {
        assert!(resident().unwrap() > 100_000);
    }
}
