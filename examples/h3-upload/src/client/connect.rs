//! Connects as a [`Plan`] demands: addresses, socket, QUIC settings, handshake.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use quic_sidekick::quiche;
use quic_sidekick::tune::{Tune, Tuned};
use quic_sidekick::{Config, Driver, Status};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use tokio::net::UdpSocket;
use tracing::debug;
use url::Host;

use crate::discover::{self, Found, Route};
use crate::event_loop::{Application, Ending, EventLoop, Seen, Udp};
use crate::http3::{Http3, http3};
use crate::now;
use crate::options::{Assistance, By, Plan, ProxyName, Trust};
use crate::qlog;
use crate::report::Measured;
use crate::tls::Verifier;

/// Bytes of a UDP payload without tuning. They fit every usual path, tunnels included.
const UDP_PAYLOAD: usize = 1350;
/// The idle timeout of the connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Flow control credit for each of the few streams that the server may open, in bytes. Anything
/// more would only fill the memory.
const UNIDIRECTIONAL_WINDOW: u64 = 16 * 1024;
/// The control stream, QPACK's encoder and decoder, and a few for extensions or GREASE.
const UNIDIRECTIONAL_STREAMS: u64 = 8;
/// How long a server may take to answer after the network reported that no program listens there.
/// If the path loses the first datagram, the client sends it again after one second, or after two
/// over a geostationary satellite.
const ANSWER_IN_SPITE_OF_REFUSAL: Duration = Duration::from_secs(3);

/// The application protocol (ALPN) of HTTP/3.
pub const HTTP3: &[u8] = b"h3";

/// The requirements of a program on its connection.
#[derive(Clone, Copy, Debug)]
pub struct Needs<'a> {
    /// The application protocol (ALPN).
    pub protocol: &'a [u8],
    /// The most bytes of an answer that the server may send before the program reads them.
    pub window: u64,
    /// Bytes that the program sends, if known.
    pub object: Option<u64>,
    /// The files that the qlog file must not replace.
    pub files: &'a [&'a Path],
}

/// An established connection.
#[derive(Clone, Debug)]
pub struct Link<C = Http3> {
    /// The program's side of the application that runs on it.
    pub controller: C,
    pub(crate) seen: Arc<Seen>,
    started: Instant,
    route: Route,
    tuned: Option<Tuned>,
}

impl<C> Link<C> {
    /// Separates the controller from the connection.
    #[must_use]
    pub fn split(self) -> (Link<()>, C) {
        (self.view(), self.controller)
    }

    /// The connection without its controller, to look at it while that is in use.
    #[must_use]
    pub fn view(&self) -> Link<()> {
        let &Self { ref seen, started, route, tuned, .. } = self;
        Link { controller: (), seen: Arc::clone(seen), started, route, tuned }
    }

    /// Why the connection ended, once it has.
    #[must_use]
    pub fn ending(&self) -> Option<String> {
        self.seen.ending.get().map(ToString::to_string)
    }

    /// What the connection and the plugin have measured so far. `ended` is when the transfer did.
    #[must_use]
    pub fn measured(&self, ended: Instant) -> Measured {
        Measured {
            time: ended.saturating_duration_since(self.started),
            counters: self.seen.counters(),
            server: self.route.address,
            found: self.route.found,
            tuned: self.tuned,
        }
    }

    /// When the first packet was sent.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The plugin's report, if the plan has a mode.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.seen.counters().sidekick
    }

    /// Bytes of packets that the server has acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.seen.counters().acknowledged
    }

    /// Bytes that the server has acknowledged, minus the received ones. An upload receives much
    /// less than it sends, so this excludes packets that the server itself provoked: a client
    /// without credit announces that after each acknowledgement, which is acknowledged, too.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.seen.counters().taken
    }
}

/// Connects to the plan's server, and runs the application that `begin` makes. It tries the
/// server's addresses in turn, all of them within the plan's timeout.
///
/// # Errors
/// No address answers in time as a server of the protocol with a trusted certificate.
pub async fn connect<A: Application, C>(
    plan: &Plan,
    needs: Needs<'_>,
    begin: impl Fn() -> (A, C),
) -> anyhow::Result<Link<C>> {
    let verifier = Verifier::new(&plan.trust, plan.target.host.clone())?;
    let deadline = now() + plan.timeout;
    let routes = async {
        let found = tokio::time::timeout(plan.timeout, discover::find(plan)).await;
        found.map_err(|_| lookup_took_too_long(plan))?
    };
    let (routes, proxies) = tokio::try_join!(routes, proxies(plan))?;
    tuned(plan, needs).iter().flat_map(Tuned::choices).for_each(|choice| debug!("{choice}"));
    // The addresses in HTTPS records must leave time for the host's own.
    let reserve = match routes.iter().any(|route| route.found == Found::Address) {
        true => plan.timeout / 3,
        false => Duration::ZERO,
    };

    let (mut reason, mut any_refused) = (None, false);
    let mut left = routes.as_slice();
    while let Some((route, others)) = left.split_first() {
        let (until, rivals) = match route.found {
            Found::HttpsRecord => {
                (deadline - reserve, left.iter().filter(|rival| rival.found == route.found).count())
            }
            Found::Address => (deadline, left.len()),
        };
        let patience = until.saturating_duration_since(now()) / u32::try_from(rivals)?;
        left = others;
        let verifier = Arc::new(verifier.afresh());
        let attempted =
            attempt(plan, needs, Arc::clone(&verifier), route, &proxies, patience, begin());
        let error = match attempted.await {
            Ok(link) => return Ok(link),
            Err(error) => error,
        };
        debug!(?route, "{error:#}");
        let refused = verifier.refusal().is_some();
        if refused {
            // Another address of the same endpoint would present the same certificate.
            let same = left.iter().take_while(|next| next.endpoint == route.endpoint).count();
            left = left.split_at(same).1;
        }
        if !any_refused {
            (reason, any_refused) = (Some(error), refused);
        }
    }
    Err(sum_up(plan, &routes, reason))
}

/// [`connect`] for one request of HTTP/3.
///
/// The future is boxed, so that its code belongs to this library. Otherwise each program that
/// awaits it would compile the connection again.
///
/// # Errors
/// As [`connect`].
pub fn connect_http3<'a>(
    plan: &'a Plan,
    needs: Needs<'a>,
) -> Pin<Box<dyn Future<Output = anyhow::Result<Link>> + 'a>> {
    Box::pin(connect(plan, needs, http3))
}

fn lookup_took_too_long(plan: &Plan) -> anyhow::Error {
    let host = &plan.target.host;
    match plan.resolver {
        Some(server) => {
            anyhow!("the name server {server} did not resolve {host} in time: check --resolver")
        }
        None => anyhow!("no name server resolved {host} in time"),
    }
}

/// Why all `routes` failed. `reason` is the first certificate that was refused, or else the last
/// error.
fn sum_up(plan: &Plan, routes: &[Route], reason: Option<anyhow::Error>) -> anyhow::Error {
    let host = &plan.target.host;
    let Some(reason) = reason else { return anyhow!("{host} has no address") };
    let tried = |found| routes.iter().any(|route| route.found == found);
    match (tried(Found::HttpsRecord), tried(Found::Address)) {
        (false, _) => reason,
        (true, false) => {
            reason.context(format!("{host} is unreachable at the address in its HTTPS record"))
        }
        (true, true) => reason.context(format!(
            "{host} can be reached neither at the address in its HTTPS record nor at its own \
             address"
        )),
    }
}

/// Looks up the addresses of the plan's proxy; empty if the plan names no proxy.
async fn proxies(plan: &Plan) -> anyhow::Result<Vec<SocketAddr>> {
    let Some(ProxyName { host, port }) =
        plan.assistance.as_ref().and_then(|help| help.proxy.as_ref())
    else {
        return Ok(Vec::new());
    };
    tokio::time::timeout(plan.timeout, discover::system_addresses(host, *port))
        .await
        .unwrap_or_else(|_| Err(anyhow!("no name server resolved {host} in time")))
        .context("cannot find the proxy: check --proxy, or leave out --sidekick")
}

/// The settings that suit the connection; `None` if the plan has fixed ones.
fn tuned(plan: &Plan, needs: Needs<'_>) -> Option<Tuned> {
    let facts = |tune| Tune { object: needs.object, window: Some(needs.window), ..tune };
    plan.tune.map(|tune| facts(tune).choose())
}

/// A connection to `server` that has sent nothing, and its socket.
async fn dial(
    plan: &Plan,
    needs: Needs<'_>,
    tuned: Option<Tuned>,
    verifier: &Verifier,
    server: SocketAddr,
) -> anyhow::Result<(quiche::Connection, UdpSocket)> {
    let mut files = needs.files.to_vec();
    if let Trust::Roots { cafile: Some(cafile) } = &plan.trust {
        files.push(cafile);
    }
    let qlog = plan.qlog.as_deref().map(|file| qlog::create(file, &files)).transpose()?;
    let mut config = config(plan, needs, tuned, verifier)?;
    // Proxies answer at a socket that gets help, so it must not be connected to the server.
    let connects = !matches!(plan.assistance, Some(Assistance { by: By::Socket(_), .. }));
    let udp = socket(server, connects, tuned.is_some_and(|tuned| tuned.discovers_mtu()))
        .await
        .with_context(|| unreachable(server))?;
    // SNI carries no address (RFC 6066, section 3), but the verifier checks it.
    let name = match &plan.target.host {
        Host::Domain(name) => Some(name.as_str()),
        Host::Ipv4(_) | Host::Ipv6(_) => None,
    };
    let mut id = [0; quiche::MAX_CONN_ID_LEN];
    boring::rand::rand_bytes(&mut id).context("cannot draw a connection ID")?;
    let id = quiche::ConnectionId::from_ref(&id);
    let local = udp.local_addr().with_context(|| unreachable(server))?;
    let mut conn = quiche::connect(name, &id, local, server, &mut config)
        .with_context(|| format!("cannot connect to {server}"))?;
    if let Some(qlog) = qlog {
        conn.set_qlog(qlog, plan.program.to_owned(), format!("connection {id:?}"));
    }
    Ok((conn, udp))
}

/// A socket that sends by an interface, in the server's IP version.
async fn bound_to(interface: &str, server: SocketAddr) -> anyhow::Result<std::net::UdpSocket> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let bound = async {
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.bind_device(Some(interface.as_bytes()))?;
        socket.into_std()
    };
    bound.await.with_context(|| {
        format!(
            "cannot send by {interface}: name an interface of this host with --second-uplink, or \
             leave it out"
        )
    })
}

fn unreachable(server: SocketAddr) -> String {
    format!("cannot send to {server}: check the address and the network")
}

async fn attempt<A: Application, C>(
    plan: &Plan,
    needs: Needs<'_>,
    verifier: Arc<Verifier>,
    route: &Route,
    proxies: &[SocketAddr],
    patience: Duration,
    (app, controller): (A, C),
) -> anyhow::Result<Link<C>> {
    let server = route.address;
    let tuned = tuned(plan, needs);
    let (conn, udp) = dial(plan, needs, tuned, &verifier, server).await?;
    // A proxy refuses flows of the other family. The status then names the reason.
    let proxy = proxies
        .iter()
        .find(|proxy| proxy.is_ipv4() == server.is_ipv4())
        .or(proxies.first())
        .copied();
    // Sidekick needs no more than this, and the four calls of the event loop.
    let (help, udp) = match plan.assistance.as_ref().map(|assistance| &assistance.by) {
        Some(By::Plugin(config)) => {
            let mut driver = Driver::new(Config { proxy, ..config.clone() });
            if let Some(interface) = &plan.second_uplink {
                driver.attach_second(bound_to(interface, server).await?, now());
            }
            (Some(driver), Udp::Plain(udp))
        }
        Some(By::Socket(config)) => {
            let config = sidekick_socket::Config { proxy, ..*config };
            let socket = sidekick_socket::tokio::UdpSocket::wrap(udp.into_std()?, config);
            (None, Udp::Helped(Box::new(socket.with_context(|| unreachable(server))?)))
        }
        None => (None, Udp::Plain(udp)),
    };
    let (event_loop, seen, established) =
        EventLoop::new(conn, (udp, server), help, app).with_context(|| unreachable(server))?;

    let started = now();
    let running = Running(tokio::spawn(event_loop.run()));
    // Anyone can forge a refusal. A running server answers nevertheless.
    let refused = async {
        seen.refused.notified().await;
        tokio::time::sleep(ANSWER_IN_SPITE_OF_REFUSAL.min(patience / 2)).await;
    };
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(patience, established) => outcome,
        () = refused => {
            bail!("no program listens at {server}: check the port, or start the server");
        }
    };
    if let Some(reason) = verifier.refusal() {
        bail!(
            "the certificate of {} is not trusted ({reason}): name its root certificate with \
             --cafile FILE, or accept any certificate in a test with --insecure",
            plan.target.authority
        );
    }
    match outcome {
        Ok(Ok(())) => {
            running.goes_on();
            Ok(Link { controller, seen, started, route: *route, tuned })
        }
        Ok(Err(_)) if seen.ending.get() != Some(&Ending::TimedOut) => {
            let protocol = match needs.protocol {
                HTTP3 => "HTTP/3".to_owned(),
                other => String::from_utf8_lossy(other).to_uppercase(),
            };
            bail!("{server} refused the connection: check whether it is a server of {protocol}")
        }
        _ => bail!(
            "no answer from {server} within {:.1} s: check the address, and whether firewalls pass \
             UDP port {}",
            now().saturating_duration_since(started).as_secs_f64(),
            server.port()
        ),
    }
}

/// The task of a connection, which ends with a handshake that nobody awaits any more.
struct Running(tokio::task::JoinHandle<()>);

impl Running {
    /// Leaves the connection to its task.
    fn goes_on(self) {
        std::mem::forget(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn config(
    plan: &Plan,
    needs: Needs<'_>,
    tuned: Option<Tuned>,
    verifier: &Verifier,
) -> anyhow::Result<quiche::Config> {
    let context = verifier.context().context("cannot prepare TLS")?;
    let mut config = quiche::Config::with_boring_ssl_ctx_builder(quiche::PROTOCOL_VERSION, context)
        .context("quiche refuses the settings")?;
    let applied = match tuned {
        Some(tuned) => tuned.apply(&mut config),
        None => fix(&mut config, plan, needs.window),
    };
    applied.with_context(|| {
        format!(
            "this program's quiche has no {}: build it in its own workspace, whose Cargo.toml \
             patches quiche, or choose another --cc",
            plan.cc.name()
        )
    })?;
    config.set_application_protos(&[needs.protocol]).context("quiche refuses the protocol")?;
    config.set_max_idle_timeout(u64::try_from(IDLE_TIMEOUT.as_millis())?);
    config.set_initial_max_stream_data_uni(UNIDIRECTIONAL_WINDOW);
    config.set_initial_max_streams_uni(UNIDIRECTIONAL_STREAMS);
    config.set_initial_max_streams_bidi(0);
    config.set_disable_active_migration(true);
    Ok(config)
}

/// Settings that depend only on the plan.
fn fix(config: &mut quiche::Config, plan: &Plan, window: u64) -> quiche::Result<()> {
    config.set_cc_algorithm_name(plan.cc.quiche_name())?;
    // BBR2 needs pacing. quiche does not pace CUBIC and Reno.
    config.enable_pacing(true);
    config.set_max_send_udp_payload_size(UDP_PAYLOAD);
    config.set_max_recv_udp_payload_size(UDP_PAYLOAD);
    // The server can use the whole window from the start, however long the round trip is.
    let total = window + UNIDIRECTIONAL_STREAMS * UNIDIRECTIONAL_WINDOW;
    config.set_initial_max_data(total);
    config.set_max_connection_window(total);
    config.set_initial_max_stream_data_bidi_local(window);
    config.set_max_stream_window(window);
    Ok(())
}

/// Opens a socket for `server`, and connects it there if it `connects`. Segmentation offload (GSO)
/// stays off: it would send at once what the controller paces, and a proxy on the same machine
/// would see one packet instead of many.
async fn socket(server: SocketAddr, connects: bool, discovers_mtu: bool) -> io::Result<UdpSocket> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let udp = UdpSocket::bind((any, 0)).await?;
    if connects {
        udp.connect(server).await?;
    }
    if discovers_mtu {
        // It needs Don't Fragment (RFC 8899, section 4).
        match server {
            SocketAddr::V4(_) => sockopt::set_ip_mtu_discover(&udp, Ipv4PathMtuDiscovery::PROBE)?,
            SocketAddr::V6(_) => sockopt::set_ipv6_mtu_discover(&udp, Ipv6PathMtuDiscovery::PROBE)?,
        }
    }
    // tokio sends nothing before its reactor has seen the socket.
    udp.writable().await?;
    Ok(udp)
}
