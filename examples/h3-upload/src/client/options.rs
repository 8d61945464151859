//! The options that both programs have, and the [`Plan`] that results from checking all of them.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use quic_sidekick::tune::{Help, Network, Tune};
use quic_sidekick::{Carry, Config, Mode, Paper, PublicKey, ReceiveRepair};
use url::Host;

use crate::target::Target;

/// `--sidekick` for help by the socket.
const SOCKET: &str = "socket";
/// The most bytes that the second uplink carries, as of the agent.
const MOST_CARRIED: u64 = 1 << 30;
/// The port of name servers.
pub(crate) const DNS_PORT: u16 = 53;

/// The options of the command line.
#[derive(Debug, Args)]
pub struct Options {
    /// How to use a Sidekick proxy: off, a mode, or socket. auto, receive, reinject, early-loss,
    /// pacubic and path-aware-bbr help what this program sends. auto and receive also help what it
    /// receives, if the proxy keeps copies. ack-reduction requests fewer acknowledgements from
    /// servers that offer that; use it only if the bottleneck is before the proxy. socket helps as
    /// a stack without the plugin gets it, by its socket, which has no options but --proxy and
    /// --proxy-key.
    /// docs/integrate.md compares the modes
    #[arg(long, value_name = "MODE", default_value = "off", value_parser = parse_sidekick)]
    sidekick: Sidekick,
    /// The Sidekick proxy on the path [default: any that is discovered there; default port: 5252]
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_proxy)]
    proxy: Option<ProxyName>,
    /// Accept only the proxy with this public key, which sidekick-proxy prints at its start
    #[arg(long, value_name = "HEX")]
    proxy_key: Option<PublicKey>,
    /// Congestion control of what this program sends, by these names or quiche's [default: the
    /// mode's own; without one, bbr2, or cubic if --tune is off]
    #[arg(long, value_enum)]
    cc: Option<Cc>,
    /// Choose the settings of the connection by the file and the network. --json lists each choice
    /// with its reason. off: payloads of 1350 bytes, an initial window of ten packets, and cubic if
    /// the mode has no controller of its own
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    tune: OnOff,
    /// The network that this host is attached to: unknown, wired, wifi, cellular, leo or geo (a
    /// satellite in a low or in a geostationary orbit)
    #[arg(long, value_name = "NETWORK", default_value_t)]
    network: Network,
    /// Request a quACK every N packets
    #[arg(long, value_name = "N")]
    quack_every_packets: Option<NonZeroU16>,
    /// Request a quACK every MS milliseconds. auto, reinject and receive use at most 5, and more
    /// only after about 2 s without a loss. 0 leaves the schedule to --quack-every-packets, which
    /// is then needed; auto, reinject and receive still have an interval of their own
    #[arg(long, value_name = "MS", default_value_t = 30)]
    quack_every_ms: u16,
    /// The most missing packets that a quACK can identify. One that answers a poll may identify
    /// more
    #[arg(long, value_name = "T", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..))]
    threshold: u8,
    /// Request a quACK ahead of the schedule when the sender suspects a loss, and soon after the
    /// last packet of a burst
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    poll: OnOff,
    /// How this program repairs what it lacks in the modes receive and auto. requests: it requests
    /// copies from the proxy. parity: it rebuilds packets from parity, which the proxy sends in
    /// datagrams of its own. both: parity and requests. auto: requests while the proxy is near, and
    /// both if it is far away. This program requests no copy that would come too late [default:
    /// auto]
    #[arg(long, value_name = "REPAIR")]
    repair: Option<ReceiveRepair>,
    /// Interface of a second uplink to the same proxy. What the first loses goes by it, and copies
    /// come by it, in the modes auto and receive. It needs a route to the proxy
    #[arg(long, value_name = "IF")]
    second_uplink: Option<String>,
    /// Mbit/s, each way, that the second uplink carries while the first is silent, up to 1 GiB
    #[arg(long, value_name = "MBIT", default_value_t = 0, requires = "second_uplink")]
    carry: u32,

    /// Do not check the server's certificate (for tests only)
    #[arg(long)]
    insecure: bool,
    /// Trust the root certificates in FILE (PEM) in addition to the system's
    #[arg(long, visible_alias = "ca", value_name = "FILE", conflicts_with = "insecure")]
    cafile: Option<PathBuf>,
    /// Maximum time to look up the server's name and connect, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    timeout: Duration,
    /// Abort if the server lets less than 512 bytes/s of the file pass for this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    stall_timeout: Duration,
    /// Query this name server for the addresses of the URL's host, and for its HTTPS record, which
    /// may name another port or server (RFC 9460) [default: the system's; default port: 53]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = parse_resolver)]
    resolver: Option<SocketAddr>,

    /// Write the connection's events, and the plugin's, to FILE, for qvis and other readers of qlog
    #[arg(long, value_name = "FILE")]
    qlog: Option<PathBuf>,
    /// Print one JSON object on standard output instead of the summary
    #[arg(long)]
    json: bool,
    /// Show no progress and no summary
    #[arg(long, short)]
    quiet: bool,
}

/// `--sidekick`, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sidekick {
    Off,
    On(Mode),
    Socket,
}

/// `--proxy`, before its name is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyName {
    /// A name or an address.
    pub host: String,
    /// Its UDP port.
    pub port: u16,
}

impl std::fmt::Display for ProxyName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnOff {
    On,
    Off,
}

/// The congestion controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cc {
    /// CUBIC as quiche has it
    Cubic,
    /// CUBIC exactly as in RFC 9438, without quiche's own rollback
    #[value(name = "cubic-rfc9438")]
    CubicRfc9438,
    /// Reno
    Reno,
    /// BBR, version 2
    #[value(alias = "bbr2_gcongestion")]
    Bbr2,
}

impl Cc {
    /// The name for users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::CubicRfc9438 => "cubic-rfc9438",
            Self::Reno => "reno",
            Self::Bbr2 => "bbr2",
        }
    }

    /// quiche's name.
    #[must_use]
    pub fn quiche_name(self) -> &'static str {
        match self {
            Self::Bbr2 => "bbr2_gcongestion",
            other => other.name(),
        }
    }

    fn from_quiche_name(name: &str) -> Option<Self> {
        Self::value_variants().iter().copied().find(|cc| cc.quiche_name() == name)
    }
}

/// The plugin's configuration, and its proxy.
#[derive(Clone, Debug)]
pub struct Assistance {
    /// `None` to discover proxies on the path.
    pub proxy: Option<ProxyName>,
    /// What helps.
    pub by: By,
}

/// What helps a connection, without the proxy's address, which is not resolved yet.
#[derive(Clone, Debug)]
pub enum By {
    /// The plugin.
    Plugin(Config),
    /// The socket.
    Socket(sidekick_socket::Config),
}

impl By {
    /// The mode's name.
    #[must_use]
    pub fn mode(&self) -> String {
        match self {
            Self::Plugin(config) => config.mode.to_string(),
            Self::Socket(_) => SOCKET.to_owned(),
        }
    }

    /// Whether only the proxy with a given key may help.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        match self {
            Self::Plugin(config) => config.key.is_some(),
            Self::Socket(config) => config.key.is_some(),
        }
    }
}

/// Which certificates to accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those under the system's roots, and under those of a file.
    Roots {
        /// The file, in PEM.
        cafile: Option<PathBuf>,
    },
    /// Any certificate.
    Any,
}

/// A checked command line.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program's name, for its messages.
    pub program: &'static str,
    /// The server, and the path of the request.
    pub target: Target,
    /// The congestion controller.
    pub cc: Cc,
    /// What chooses the settings of the connection; `None` for fixed ones.
    pub tune: Option<Tune>,
    /// The plugin's configuration; `None` without a mode.
    pub assistance: Option<Assistance>,
    /// The interface of the plugin's second uplink.
    pub second_uplink: Option<String>,
    /// Which certificates to accept.
    pub trust: Trust,
    /// The longest wait for the connection.
    pub timeout: Duration,
    /// The longest wait for progress of the file.
    pub stall_timeout: Duration,
    /// The name server to query; `None` for the system's.
    pub resolver: Option<SocketAddr>,
    /// Where to write the connection's events.
    pub qlog: Option<PathBuf>,
    /// Whether to print a JSON object instead of the summary.
    pub json: bool,
    /// Whether to show neither progress nor a summary.
    pub quiet: bool,
}

impl Plan {
    /// The mode's name in the report.
    #[must_use]
    pub fn mode(&self) -> String {
        self.assistance.as_ref().map_or_else(|| "off".to_owned(), |help| help.by.mode())
    }
}

impl Options {
    /// Checks the combination of the options of `program`, for a request to `target`.
    ///
    /// # Errors
    /// They contradict each other.
    pub fn plan(self, program: &'static str, target: Target) -> anyhow::Result<Plan> {
        ensure!(
            self.resolver.is_none() || matches!(target.host, Host::Domain(_)),
            "--resolver has no effect, because the URL has an address: leave it out, or use a host \
             name in the URL"
        );
        ensure!(
            self.second_uplink.is_none()
                || matches!(self.sidekick, Sidekick::On(Mode::Auto | Mode::Receive)),
            "--second-uplink has no effect with this --sidekick: choose auto or receive"
        );
        let tuned = self.tune == OnOff::On;
        ensure!(
            tuned || self.network == Network::Unknown,
            "--network has no effect with --tune off: leave one of them out"
        );
        let (cc, assistance) = self.assistance(if tuned { Cc::Bbr2 } else { Cc::Cubic })?;
        let trust = match self.insecure {
            true => Trust::Any,
            false => Trust::Roots { cafile: self.cafile },
        };
        let tune = Tune {
            network: self.network,
            help: match assistance.as_ref().map(|help| &help.by) {
                Some(By::Plugin(config)) => Help::Mode(config.mode),
                Some(By::Socket(_)) | None => Help::Off,
            },
            controller: Some(cc.quiche_name()),
            ..Tune::client()
        };
        Ok(Plan {
            program,
            target,
            cc,
            tune: tuned.then_some(tune),
            assistance,
            second_uplink: self.second_uplink,
            trust,
            timeout: self.timeout,
            stall_timeout: self.stall_timeout,
            resolver: self.resolver,
            qlog: self.qlog,
            json: self.json,
            quiet: self.quiet,
        })
    }

    /// The congestion controller, which is the `usual` one without another reason, and the plugin's
    /// configuration.
    fn assistance(&self, usual: Cc) -> anyhow::Result<(Cc, Option<Assistance>)> {
        match self.sidekick {
            Sidekick::Off => {
                ensure!(
                    self.proxy.is_none() && self.proxy_key.is_none(),
                    "--proxy and --proxy-key have no effect without --sidekick: choose a mode, for \
                     example --sidekick pacubic"
                );
                ensure!(
                    self.repair.is_none(),
                    "--repair has no effect without --sidekick: choose --sidekick receive"
                );
                Ok((self.cc.unwrap_or(usual), None))
            }
            Sidekick::Socket => {
                ensure!(
                    self.repair.is_none(),
                    "--repair has no effect with --sidekick socket: choose receive or auto"
                );
                let config = sidekick_socket::Config { key: self.proxy_key, ..Default::default() };
                let by = By::Socket(config);
                let assistance = Assistance { proxy: self.proxy.clone(), by };
                Ok((self.cc.unwrap_or(usual), Some(assistance)))
            }
            Sidekick::On(mode) => {
                ensure!(
                    self.repair.is_none() || matches!(mode, Mode::Receive | Mode::Auto),
                    "--repair has no effect with --sidekick {mode}: choose receive or auto"
                );
                let ms = Duration::from_millis(self.quack_every_ms.into());
                let every = (!ms.is_zero()).then_some(ms);
                ensure!(
                    every.is_some() || self.quack_every_packets.is_some(),
                    "a proxy refuses sessions without a schedule: use --quack-every-packets, or \
                     leave out --quack-every-ms 0"
                );
                let config = Config {
                    key: self.proxy_key,
                    every_packets: self.quack_every_packets,
                    every,
                    threshold: self.threshold,
                    poll: self.poll == OnOff::On,
                    receive_repair: self.repair.unwrap_or_default(),
                    carry: Carry::new(self.carry.into(), MOST_CARRIED),
                    ..Config::discover(mode)
                };
                let by = By::Plugin(config);
                let assistance = Assistance { proxy: self.proxy.clone(), by };
                Ok((congestion_control(mode, self.cc, usual)?, Some(assistance)))
            }
        }
    }
}

/// Selects the congestion control: the `usual` one, unless the mode has its own, which `--cc` must
/// not contradict.
fn congestion_control(mode: Mode, asked: Option<Cc>, usual: Cc) -> anyhow::Result<Cc> {
    let Some(name) = mode.congestion_control() else {
        return Ok(asked.unwrap_or(usual));
    };
    let own = Cc::from_quiche_name(name)
        .with_context(|| format!("mode {mode} needs {name}, which this program does not offer"))?;
    match asked {
        // The mode works with any controller that does not measure by acknowledgements.
        Some(asked) if mode == Mode::Paper(Paper::AckReduction) && asked != Cc::Bbr2 => Ok(asked),
        Some(asked) if mode == Mode::Paper(Paper::AckReduction) => bail!(
            "--sidekick {mode} reduces acknowledgements, but {} measures by them: leave out --cc \
             {0}, or choose cubic, cubic-rfc9438 or reno",
            asked.name(),
        ),
        Some(asked) if asked != own => bail!(
            "--sidekick {mode} works with {} only: leave out --cc {}, or choose --sidekick \
             early-loss, which works with any",
            own.name(),
            asked.name(),
        ),
        _ => Ok(own),
    }
}

fn parse_sidekick(text: &str) -> Result<Sidekick, String> {
    match text {
        "off" => Ok(Sidekick::Off),
        SOCKET => Ok(Sidekick::Socket),
        mode => mode.parse().map(Sidekick::On).map_err(|_| {
            let modes: Vec<_> = Mode::ALL.iter().map(ToString::to_string).collect();
            format!("choose off, {SOCKET} or one of {}", modes.join(", "))
        }),
    }
}

/// Reads an address with or without a port.
fn address(text: &str, default_port: u16) -> Option<SocketAddr> {
    // The colons of an IPv6 address do not begin a port.
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    match bare.parse::<IpAddr>() {
        Ok(ip) => Some(SocketAddr::new(ip, default_port)),
        Err(_) => text.parse().ok().filter(|address: &SocketAddr| address.port() != 0),
    }
}

fn parse_resolver(text: &str) -> Result<SocketAddr, String> {
    address(text, DNS_PORT)
        .ok_or_else(|| "use the form 192.0.2.1, 192.0.2.1:53 or [2001:db8::1]:53".to_owned())
}

fn parse_proxy(text: &str) -> Result<ProxyName, String> {
    if let Some(address) = address(text, quic_sidekick::DEFAULT_PORT) {
        return Ok(ProxyName { host: address.ip().to_string(), port: address.port() });
    }
    let (host, port) = match text.split_once(':') {
        None => (text, quic_sidekick::DEFAULT_PORT),
        Some((host, port)) => {
            (host, port.parse().map_err(|_| format!("{port:?} is not a port (1 to 65535)"))?)
        }
    };
    if host.is_empty() || host.contains(['/', ' ', '[', ']']) || port == 0 {
        return Err("use the form HOST or HOST:PORT".to_owned());
    }
    Ok(ProxyName { host: host.to_owned(), port })
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.1..=3600.0).contains(&seconds) {
        return Err("use 0.1 to 3600 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::parse_url;

    #[derive(clap::Parser)]
    struct Only {
        #[command(flatten)]
        options: Options,
    }

    fn plan_of(url: &str, args: &[&str]) -> anyhow::Result<Plan> {
        use clap::Parser as _;
        let only = Only::try_parse_from(["program"].iter().chain(args))?;
        let target = Target::new(&parse_url(url).unwrap(), "/x".to_owned())?;
        only.options.plan("program", target)
    }

    fn plan(args: &[&str]) -> anyhow::Result<Plan> {
        plan_of("https://example.org:4433/", args)
    }

    #[test]
    fn defaults_are_plain_and_tuned() {
        let plan = plan(&[]).unwrap();
        assert_eq!((plan.cc, plan.mode().as_str()), (Cc::Bbr2, "off"));
        let tune = Tune { help: Help::Off, controller: Some("bbr2_gcongestion"), ..Tune::client() };
        assert_eq!(plan.tune, Some(tune));
        assert_eq!(plan.trust, Trust::Roots { cafile: None });
    }

    #[test]
    fn tuning_hears_of_the_network_and_can_be_off() {
        let tuned = plan(&["--network", "geo", "--sidekick", "auto"]).unwrap().tune.unwrap();
        assert_eq!((tuned.network, tuned.help), (Network::Geo, Help::Mode(Mode::Auto)));
        let fixed = plan(&["--tune", "off"]).unwrap();
        assert_eq!((fixed.cc, fixed.tune), (Cc::Cubic, None));
    }

    #[test]
    fn a_mode_selects_its_congestion_control() {
        for (mode, asked, cc) in [
            ("early-loss", None, Cc::Bbr2),
            ("pacubic", None, Cc::CubicRfc9438),
            ("path-aware-bbr", None, Cc::Bbr2),
            ("ack-reduction", Some("reno"), Cc::Reno),
            ("off", Some("reno"), Cc::Reno),
            // quiche's names are accepted, too.
            ("auto", Some("bbr2_gcongestion"), Cc::Bbr2),
        ] {
            let asked = asked.map(|cc| vec!["--cc", cc]).unwrap_or_default();
            let plan = plan(&[vec!["--sidekick", mode], asked].concat());
            assert_eq!(plan.map(|plan| (plan.mode(), plan.cc)).unwrap(), (mode.to_owned(), cc));
        }
    }

    #[test]
    fn without_a_name_the_sender_discovers_a_proxy() {
        let key = "0".repeat(64);
        let plan = plan(&["--sidekick", "pacubic", "--proxy-key", &key]).unwrap();
        let Assistance { proxy, by: By::Plugin(config) } = plan.assistance.unwrap() else {
            panic!("a mode is the plugin's");
        };
        assert_eq!((proxy, config.proxy, config.key), (None, None, key.parse().ok()));
    }

    #[test]
    fn contradictions_are_named() {
        for (args, words) in [
            (&["--proxy", "gw"][..], "--sidekick"),
            (&["--repair", "both"], "--sidekick receive"),
            (&["--repair", "both", "--sidekick", "pacubic"], "choose receive or auto"),
            (&["--tune", "off", "--network", "geo"], "--network"),
            (&["--sidekick", "pacubic", "--cc", "bbr2"], "works with cubic-rfc9438 only"),
            (&["--sidekick", "ack-reduction", "--cc", "bbr2"], "choose cubic"),
            (&["--sidekick", "early-loss", "--quack-every-ms", "0"], "--quack-every-packets"),
            (&["--sidekick", "faster"], "path-aware-bbr"),
        ] {
            let said = plan(args).expect_err("this must be refused").to_string();
            assert!(said.contains(words), "{said}");
        }
        for url in ["https://192.0.2.2/", "https://[2001:db8::2]:4433/"] {
            let said = plan_of(url, &["--resolver", "192.0.2.1"]).expect_err("no name").to_string();
            assert!(said.contains("--resolver"), "{said}");
        }
    }

    #[test]
    fn proxies_and_name_servers_may_have_a_port() {
        let proxy = |text: &str| parse_proxy(text).map(|proxy| proxy.to_string());
        let resolver = |text: &str| parse_resolver(text).map(|address| address.to_string());
        for (text, host, port) in [
            ("192.0.2.1", "192.0.2.1", None),
            ("192.0.2.1:7", "192.0.2.1", Some(7)),
            ("2001:db8::1", "[2001:db8::1]", None),
            ("[2001:db8::1]", "[2001:db8::1]", None),
            ("[2001:db8::1]:7", "[2001:db8::1]", Some(7)),
        ] {
            assert_eq!(proxy(text), Ok(format!("{host}:{}", port.unwrap_or(5252))));
            assert_eq!(resolver(text), Ok(format!("{host}:{}", port.unwrap_or(DNS_PORT))));
        }
        assert_eq!(proxy("gw"), Ok("gw:5252".to_owned()));
        assert_eq!(proxy("gw:99"), Ok("gw:99".to_owned()));
        for host in ["", "gw", "192.0.2.1", "[::1]"] {
            for port in [":", ":http", ":70000", ":0"] {
                let bad = format!("{host}{port}");
                assert!(proxy(&bad).is_err() && resolver(&bad).is_err(), "{bad} passed");
            }
        }
        for bad in ["", ":53", "a b", "[::1", "http://gw"] {
            assert!(proxy(bad).is_err() && resolver(bad).is_err(), "{bad} passed");
        }
        assert!(resolver("dns.example").is_err());
    }

    #[test]
    fn only_sane_timeouts() {
        for bad in ["0", "-1", "nan", "inf", "ten", "1e9"] {
            assert!(parse_seconds(bad).is_err(), "{bad} passed");
        }
    }
}
