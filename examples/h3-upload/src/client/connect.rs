//! Connects as a [`Plan`] demands: addresses, socket, QUIC settings, handshake.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use quic_sidekick::tokio_quiche::{Handle, assist};
use quic_sidekick::tune::{Tune, Tuned};
use quic_sidekick::{Config, Status};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio_quiche::http3::settings::Http3Settings;
use tokio_quiche::quic::connect_with_config;
use tokio_quiche::settings::{Hooks, QuicSettings};
use tokio_quiche::socket::{Socket, SocketCapabilities, SocketCapabilitiesBuilder};
use tokio_quiche::{
    ApplicationOverQuic, BoxError, ClientH3Controller, ClientH3Driver, ConnectionParams, quiche,
};
use tracing::debug;
use url::Host;

use crate::clock::now;
use crate::discover::{Found, Route};
use crate::options::{Plan, ProxyName, Trust};
use crate::qlog::Qlog;
use crate::report::Measured;
use crate::resolver;
use crate::tls::{NO_CERTIFICATE, Verifier};
use crate::watch::{Counters, Seen, Watched};

/// Bytes of a UDP payload without tuning. They fit every usual path, tunnels included.
const UDP_PAYLOAD: usize = 1350;
/// The idle timeout of the connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Flow control credit for each of the few streams that the server may open, in bytes. Anything
/// more would only fill the memory.
const UNIDIRECTIONAL_WINDOW: u64 = 16 * 1024;
/// The control stream, QPACK's encoder and decoder, and a few for extensions or GREASE.
const UNIDIRECTIONAL_STREAMS: u64 = 8;
/// The longest header section of an answer, in bytes.
const LONGEST_HEADERS: u64 = 16 * 1024;

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

/// An established connection. Its application runs on it, and `controller` controls that.
pub struct Link<C = ClientH3Controller> {
    pub(crate) controller: C,
    pub(crate) seen: Arc<Seen>,
    pub(crate) sidekick: Option<Handle>,
    pub(crate) started: Instant,
    pub(crate) server: SocketAddr,
    pub(crate) found: Found,
    pub(crate) tuned: Option<Tuned>,
}

impl<C> fmt::Debug for Link<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("server", &self.server).finish_non_exhaustive()
    }
}

impl<C> Link<C> {
    /// Separates the controller from the connection.
    #[must_use]
    pub fn split(self) -> (Link<()>, C) {
        let Self { controller, seen, sidekick, started, server, found, tuned } = self;
        (Link { controller: (), seen, sidekick, started, server, found, tuned }, controller)
    }

    /// Why the connection ended, once it has; `None` if this end closed it.
    #[must_use]
    pub fn ending(&self) -> Option<String> {
        self.seen.ending.get().map(ToString::to_string)
    }

    /// What the connection and the plugin have measured, once the connection has ended. `ended` is
    /// when the transfer did.
    #[must_use]
    pub fn measured(&self, ended: Instant) -> Measured {
        self.measured_with(self.seen.last.get().copied().unwrap_or_default(), ended)
    }

    pub(crate) fn measured_with(&self, counters: Counters, ended: Instant) -> Measured {
        Measured {
            time: ended.saturating_duration_since(self.started),
            counters,
            server: self.server,
            found: self.found,
            tuned: self.tuned,
            sidekick: self.status(),
            socket_errors: self.sidekick.as_ref().map_or(0, |handle| handle.socket_errors()),
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
        self.sidekick.as_ref().map(Handle::status)
    }

    /// Bytes of packets that the server has acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.seen.acknowledged.load(Ordering::Relaxed)
    }

    /// Bytes that the server has acknowledged, minus a quarter of the received ones. An upload
    /// receives much less than it sends, so this excludes packets that the server itself provoked.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.seen.taken.load(Ordering::Relaxed)
    }
}

/// An HTTP/3 client, and what controls it.
fn http3() -> (ClientH3Driver, ClientH3Controller) {
    let mut settings = Http3Settings::default();
    settings.max_header_list_size = Some(LONGEST_HEADERS);
    ClientH3Driver::new(settings)
}

/// Connects to the plan's server, and runs the application that `begin` makes. It tries the
/// server's addresses in turn, all of them within the plan's timeout.
///
/// # Errors
/// No address answers in time as a server of the protocol with a trusted certificate.
pub async fn connect<A: ApplicationOverQuic, C>(
    plan: &Plan,
    needs: Needs<'_>,
    begin: impl Fn() -> (A, C),
) -> anyhow::Result<Link<C>> {
    let verifier = Verifier::new(&plan.trust, plan.target.host.clone())?;
    let deadline = now() + plan.timeout;
    let routes = async {
        let found = tokio::time::timeout(plan.timeout, resolver::find(plan)).await;
        found.map_err(|_| lookup_took_too_long(plan))?
    };
    let (routes, proxies) = tokio::try_join!(routes, proxies(plan))?;
    tuned(plan, needs).iter().flat_map(Tuned::choices).for_each(|choice| debug!("{choice}"));
    // The addresses in HTTPS records must leave time for the host's own.
    let reserve = match routes.iter().any(|route| route.found == Found::Address) {
        true => plan.timeout / 3,
        false => Duration::ZERO,
    };

    let mut failures = Failures::default();
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
        failures.add(route, error, refused);
    }
    Err(failures.sum_up(plan))
}

/// [`connect`] with tokio-quiche's HTTP/3 client.
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

/// Why every address failed: the first certificate that was refused, or else the last error.
#[derive(Default)]
struct Failures {
    reason: Option<anyhow::Error>,
    refused: bool,
    recorded: bool,
    own: bool,
}

impl Failures {
    fn add(&mut self, route: &Route, error: anyhow::Error, refused: bool) {
        match route.found {
            Found::HttpsRecord => self.recorded = true,
            Found::Address => self.own = true,
        }
        if !self.refused {
            self.reason = Some(error);
            self.refused = refused;
        }
    }

    fn sum_up(self, plan: &Plan) -> anyhow::Error {
        let host = &plan.target.host;
        let Some(reason) = self.reason else { return anyhow!("{host} has no address") };
        match (self.recorded, self.own) {
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
}

/// Looks up the addresses of the plan's proxy; empty if the plan names no proxy.
async fn proxies(plan: &Plan) -> anyhow::Result<Vec<SocketAddr>> {
    let Some(ProxyName { host, port }) =
        plan.assistance.as_ref().and_then(|help| help.proxy.as_ref())
    else {
        return Ok(Vec::new());
    };
    tokio::time::timeout(plan.timeout, resolver::system_addresses(host, *port))
        .await
        .unwrap_or_else(|_| Err(anyhow!("no name server resolved {host} in time")))
        .context("cannot find the proxy: check --proxy, or leave out --sidekick")
}

/// The settings that suit the connection; `None` if the plan has fixed ones.
fn tuned(plan: &Plan, needs: Needs<'_>) -> Option<Tuned> {
    let facts = |tune| Tune { object: needs.object, window: Some(needs.window), ..tune };
    plan.tune.map(|tune| facts(tune).choose())
}

async fn attempt<A: ApplicationOverQuic, C>(
    plan: &Plan,
    needs: Needs<'_>,
    verifier: Arc<Verifier>,
    route: &Route,
    proxies: &[SocketAddr],
    patience: Duration,
    (driver, controller): (A, C),
) -> anyhow::Result<Link<C>> {
    let &Route { address: server, found, .. } = route;
    let tuned = tuned(plan, needs);
    let Some(assistance) = &plan.assistance else {
        let (started, seen) =
            establish(plan, needs, tuned, verifier, server, patience, driver).await?;
        return Ok(Link { controller, seen, sidekick: None, started, server, found, tuned });
    };
    // A proxy refuses flows of the other family. The status then names the reason.
    let proxy = proxies
        .iter()
        .find(|proxy| proxy.is_ipv4() == server.is_ipv4())
        .or(proxies.first())
        .copied();
    // Sidekick needs no more of an application than these two calls.
    let (driver, sidekick) = assist(driver, Config { proxy, ..assistance.config.clone() });
    let connecting = establish(plan, needs, tuned, verifier, server, patience, driver);
    let (started, seen) = sidekick.connect(connecting).await?;
    Ok(Link { controller, seen, sidekick: Some(sidekick), started, server, found, tuned })
}

/// Runs the handshake, and leaves `app` running on the connection. After the handshake the qlog
/// file gets its final name, even if the handshake failed.
async fn establish<A: ApplicationOverQuic>(
    plan: &Plan,
    needs: Needs<'_>,
    tuned: Option<Tuned>,
    verifier: Arc<Verifier>,
    server: SocketAddr,
    patience: Duration,
    app: A,
) -> anyhow::Result<(Instant, Arc<Seen>)> {
    let mut files = needs.files.to_vec();
    if let Trust::Roots { cafile: Some(cafile) } = &plan.trust {
        files.push(cafile);
    }
    let qlog = plan.qlog.as_deref().map(|file| Qlog::prepare(file, &files)).transpose()?;
    let settings = settings(plan, needs, tuned, qlog.as_ref());
    let handshake = handshake(plan, verifier, server, patience, settings, app);
    let outcome = match tuned {
        Some(tuned) => tuned.connect(handshake).await,
        None => handshake.await,
    };
    let kept = qlog.map_or(Ok(()), Qlog::keep);
    let established = outcome?;
    kept?;
    Ok(established)
}

async fn handshake<A: ApplicationOverQuic>(
    plan: &Plan,
    verifier: Arc<Verifier>,
    server: SocketAddr,
    patience: Duration,
    settings: QuicSettings,
    app: A,
) -> anyhow::Result<(Instant, Arc<Seen>)> {
    let socket = socket(server, settings.discover_path_mtu)
        .await
        .with_context(|| format!("cannot send to {server}: check the address and the network"))?;
    let (app, seen) = Watched::new(app);
    let hooks = Hooks { connection_hook: Some(Arc::clone(&verifier) as _) };
    let params = ConnectionParams::new_client(settings, Some(NO_CERTIFICATE), hooks);
    // SNI carries no address (RFC 6066, section 3), but the verifier checks it.
    let name = match &plan.target.host {
        Host::Domain(name) => Some(name.as_str()),
        Host::Ipv4(_) | Host::Ipv6(_) => None,
    };

    // Anyone can forge a refusal. A running server answers nevertheless.
    let udp = Arc::clone(&socket.recv);
    let refused = async {
        refusal(udp).await;
        tokio::time::sleep(ANSWER_IN_SPITE_OF_REFUSAL.min(patience / 2)).await;
    };
    let started = now();
    let handshake = connect_with_config(socket, name, &params, app);
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(patience, handshake) => outcome,
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
        Ok(Ok(_connection)) => Ok((started, seen)),
        Ok(Err(error)) => Err(explain(plan, server, &params.settings.alpn, &error)),
        Err(_) => bail!(
            "no answer from {server} within {:.1} s: check the address, and whether firewalls pass \
             UDP port {}",
            patience.as_secs_f64(),
            server.port()
        ),
    }
}

fn explain(
    plan: &Plan,
    server: SocketAddr,
    protocols: &[Vec<u8>],
    error: &BoxError,
) -> anyhow::Error {
    match error.downcast_ref() {
        Some(quiche::Error::CongestionControl) => anyhow!(
            "this program's quiche has no {}: build it in its own workspace, whose Cargo.toml \
             patches quiche, or choose another --cc",
            plan.cc.name()
        ),
        Some(error) => anyhow!("cannot connect to {server}: {error}"),
        None => {
            let protocol = match protocols {
                [protocol] if protocol != HTTP3 => String::from_utf8_lossy(protocol).to_uppercase(),
                _ => "HTTP/3".to_owned(),
            };
            anyhow!("{server} refused the connection: check whether it is a server of {protocol}")
        }
    }
}

fn settings(
    plan: &Plan,
    needs: Needs<'_>,
    tuned: Option<Tuned>,
    qlog: Option<&Qlog>,
) -> QuicSettings {
    let mut settings = QuicSettings::default();
    settings.alpn = vec![needs.protocol.to_vec()];
    match tuned {
        Some(tuned) => tuned.apply_to_settings(&mut settings),
        None => fix(&mut settings, plan, needs.window),
    }
    settings.max_idle_timeout = Some(IDLE_TIMEOUT);
    settings.handshake_timeout = Some(plan.timeout);
    settings.initial_max_stream_data_uni = UNIDIRECTIONAL_WINDOW;
    settings.initial_max_streams_uni = UNIDIRECTIONAL_STREAMS;
    settings.initial_max_streams_bidi = 0;
    settings.enable_dgram = false;
    settings.qlog_dir = qlog.map(|qlog| qlog.dir().to_owned());
    settings
}

/// Settings that depend only on the plan.
fn fix(settings: &mut QuicSettings, plan: &Plan, window: u64) {
    settings.cc_algorithm = plan.cc.quiche_name().to_owned();
    // BBR2 needs pacing. quiche does not pace CUBIC and Reno.
    settings.enable_pacing = true;
    settings.max_send_udp_payload_size = UDP_PAYLOAD;
    settings.max_recv_udp_payload_size = UDP_PAYLOAD;
    settings.discover_path_mtu = false;
    // The server can use the whole window from the start, however long the round trip is.
    let total = window + UNIDIRECTIONAL_STREAMS * UNIDIRECTIONAL_WINDOW;
    settings.initial_max_data = total;
    settings.max_connection_window = total;
    settings.initial_max_stream_data_bidi_local = window;
    settings.max_stream_window = window;
}

/// Opens a socket that is connected to `server`. Path MTU discovery needs Don't Fragment.
async fn socket(
    server: SocketAddr,
    discovers_mtu: bool,
) -> io::Result<Socket<Arc<UdpSocket>, Arc<UdpSocket>>> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let udp = UdpSocket::bind((any, 0)).await?;
    udp.connect(server).await?;
    // Otherwise a later datagram could overtake the first, which waits for this.
    udp.writable().await?;
    let capabilities = capabilities(&udp, discovers_mtu.then_some(server))?;
    let mut socket = Socket::try_from(udp)?;
    socket.capabilities = capabilities;
    Ok(socket)
}

/// Enables pacing, and sets Don't Fragment towards a server to which the path MTU is searched.
///
/// tokio-quiche paces only on sockets that claim to carry a packet's release time.
/// It holds packets back itself until shortly before that time, so any queueing discipline works.
/// Segmentation offload (GSO) stays off. It would send at once what the controller paces, and a
/// proxy on the same machine would see one packet instead of many.
fn capabilities(udp: &UdpSocket, searched: Option<SocketAddr>) -> io::Result<SocketCapabilities> {
    let mut capabilities = SocketCapabilitiesBuilder::new(udp);
    capabilities.txtime()?;
    match searched {
        Some(SocketAddr::V4(_)) => capabilities.ip_mtu_discover_probe()?,
        Some(SocketAddr::V6(_)) => capabilities.ipv6_mtu_discover_probe()?,
        None => {}
    }
    Ok(capabilities.finish())
}

/// Resolves when the network reports that no program listens at the other end (ICMP "port
/// unreachable"). tokio-quiche ignores that error. This is right for an established connection, but
/// a user would wait in vain for a new one.
async fn refusal(udp: Arc<UdpSocket>) {
    let refused = udp.async_io(Interest::ERROR, || match udp.take_error() {
        Ok(Some(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        _ => Err(io::ErrorKind::WouldBlock.into()),
    });
    if refused.await.is_err() {
        std::future::pending::<()>().await;
    }
}
