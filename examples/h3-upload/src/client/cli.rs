//! The command line, and the [`Plan`] that results from checking all of it.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::{Parser, ValueEnum};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use quic_sidekick::{Config, Mode, PublicKey};
use url::{Host, Url};

use crate::resolver::DNS_PORT;

/// What the first screen of the help has.
const ABOUT: &str = "\
Upload a file over HTTP/3.

Without --sidekick the upload is plain QUIC. With --sidekick auto, a Sidekick proxy helps if there
is one on the path:
    h3-upload --sidekick auto video.mp4 https://upload.example/
    h3-upload --sidekick auto --proxy 192.0.2.1 --proxy-key HEX video.mp4 https://upload.example/
To try it with h3-upload-server and its own certificate, add --cafile ca.pem.";

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "h3-upload",
    version,
    about = ABOUT,
    override_usage = "h3-upload [OPTIONS] <FILE> <URL>",
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// The file to upload
    file: PathBuf,
    /// The destination: https://HOST:PORT/NAME, or https://HOST:PORT/ to keep the file's own name
    #[arg(value_parser = parse_url)]
    url: Url,

    /// How to use a proxy's reports: off, auto, reinject, path-aware-bbr, pacubic or early-loss.
    /// If the bottleneck is before the proxy, ack-reduction: it requests fewer acknowledgements
    /// from servers that offer that
    #[arg(long, value_name = "MODE", default_value = "off", value_parser = parse_sidekick)]
    sidekick: Sidekick,
    /// The Sidekick proxy on the path [default: any that is discovered there; default port: 5252]
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_proxy)]
    proxy: Option<ProxyName>,
    /// Accept only the proxy with this public key, which sidekick-proxy prints at its start
    #[arg(long, value_name = "HEX")]
    proxy_key: Option<PublicKey>,
    /// Congestion control, by these names or quiche's [default: the mode's own, otherwise cubic]
    #[arg(long, value_enum)]
    cc: Option<Cc>,
    /// Request a quACK every N packets
    #[arg(long, value_name = "N")]
    quack_every_packets: Option<NonZeroU16>,
    /// Request a quACK every MS milliseconds; 0 disables that. auto and reinject use at most 5
    #[arg(long, value_name = "MS", default_value_t = 30)]
    quack_every_ms: u16,
    /// The most missing packets that a quACK can identify
    #[arg(long, value_name = "T", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..))]
    threshold: u8,
    /// Request a quACK ahead of the schedule when the sender suspects a loss
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    poll: OnOff,

    /// Do not check the server's certificate (for tests only)
    #[arg(long)]
    insecure: bool,
    /// Trust the root certificates in FILE (PEM) in addition to the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    cafile: Option<PathBuf>,
    /// The longest wait for the connection, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    timeout: Duration,
    /// Abort after this many seconds in which the server accepts nothing of the file and sends no
    /// answer
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    stall_timeout: Duration,
    /// Query this name server for the addresses of the URL's host, and for its HTTPS record, which
    /// may name another port or server (RFC 9460) [default: the system's; default port: 53]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = parse_resolver)]
    resolver: Option<SocketAddr>,

    /// Write the events of the connection and the proxy to FILE, for qvis and other readers of qlog
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
}

/// `--proxy`, before its name is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProxyName {
    pub(crate) host: String,
    pub(crate) port: u16,
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
pub(crate) enum Cc {
    Cubic,
    /// CUBIC exactly as in RFC 9438, without quiche's own rollback
    #[value(name = "cubic-rfc9438")]
    CubicRfc9438,
    Reno,
    #[value(alias = "bbr2_gcongestion")]
    Bbr2,
}

impl Cc {
    /// The name for users.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::CubicRfc9438 => "cubic-rfc9438",
            Self::Reno => "reno",
            Self::Bbr2 => "bbr2",
        }
    }

    /// quiche's name.
    pub(crate) fn quiche_name(self) -> &'static str {
        match self {
            Self::Bbr2 => "bbr2_gcongestion",
            other => other.name(),
        }
    }

    fn from_quiche_name(name: &str) -> Option<Self> {
        Self::value_variants().iter().copied().find(|cc| cc.quiche_name() == name)
    }
}

/// The destination of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) host: Host<String>,
    pub(crate) port: u16,
    /// `host:port`, for the request.
    pub(crate) authority: String,
    /// The path of the request, percent-encoded.
    pub(crate) path: String,
}

impl Target {
    /// The whole URL.
    pub(crate) fn url(&self) -> String {
        format!("https://{}{}", self.authority, self.path)
    }
}

/// The plugin's configuration, and its proxy.
#[derive(Clone, Debug)]
pub(crate) struct Assistance {
    /// `None` to discover proxies on the path.
    pub(crate) proxy: Option<ProxyName>,
    /// Without the proxy's address, which is not resolved yet.
    pub(crate) config: Config,
}

/// Which certificates to accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Those under the system's roots, and under those of a file.
    Roots { cafile: Option<PathBuf> },
    /// Any certificate.
    Any,
}

/// A checked command line.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) file: PathBuf,
    pub(crate) target: Target,
    pub(crate) cc: Cc,
    pub(crate) assistance: Option<Assistance>,
    pub(crate) trust: Trust,
    pub(crate) timeout: Duration,
    pub(crate) stall_timeout: Duration,
    /// The name server to query; `None` for the system's.
    pub(crate) resolver: Option<SocketAddr>,
    pub(crate) qlog: Option<PathBuf>,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
}

impl Plan {
    /// The mode's name in the report.
    pub(crate) fn mode(&self) -> String {
        self.assistance.as_ref().map_or_else(|| "off".to_owned(), |a| a.config.mode.to_string())
    }
}

impl Cli {
    /// Checks the combination of the options.
    pub(crate) fn plan(self) -> anyhow::Result<Plan> {
        let target = target(&self.url, &self.file)?;
        ensure!(
            self.resolver.is_none() || matches!(target.host, Host::Domain(_)),
            "--resolver is of no use, because the URL has an address: leave it out, or use a host \
             name in the URL"
        );
        let (cc, assistance) = match self.sidekick {
            Sidekick::Off => {
                ensure!(
                    self.proxy.is_none() && self.proxy_key.is_none(),
                    "--proxy and --proxy-key are of no use without --sidekick: choose a mode, for \
                     example --sidekick pacubic"
                );
                (self.cc.unwrap_or(Cc::Cubic), None)
            }
            Sidekick::On(mode) => {
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
                    ..Config::discover(mode)
                };
                let assistance = Assistance { proxy: self.proxy, config };
                (congestion_control(mode, self.cc)?, Some(assistance))
            }
        };
        let trust = match self.insecure {
            true => Trust::Any,
            false => Trust::Roots { cafile: self.cafile },
        };
        Ok(Plan {
            file: self.file,
            target,
            cc,
            assistance,
            trust,
            timeout: self.timeout,
            stall_timeout: self.stall_timeout,
            resolver: self.resolver,
            qlog: self.qlog,
            json: self.json,
            quiet: self.quiet,
        })
    }
}

/// Selects the congestion control. A mode may have its own, which `--cc` must not contradict.
fn congestion_control(mode: Mode, asked: Option<Cc>) -> anyhow::Result<Cc> {
    let Some(name) = mode.congestion_control() else {
        return Ok(asked.unwrap_or(Cc::Cubic));
    };
    let own = Cc::from_quiche_name(name)
        .with_context(|| format!("mode {mode} needs {name}, which this program does not offer"))?;
    match asked {
        // The mode works with any controller that does not measure by acknowledgements.
        Some(asked) if mode == Mode::AckReduction && asked != Cc::Bbr2 => Ok(asked),
        Some(asked) if mode == Mode::AckReduction => bail!(
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

/// The characters to encode in a path segment: all but the unreserved ones of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn target(url: &Url, file: &Path) -> anyhow::Result<Target> {
    let host = url.host().context("the URL names no host")?.to_owned();
    let port = url.port_or_known_default().unwrap_or(443);
    let mut path = url.path().to_owned();
    if path.ends_with('/') {
        let name = file.file_name().with_context(|| {
            format!("{} has no file name: add a name for it to the URL, {url}NAME", file.display())
        })?;
        path.push_str(&encode(name));
    }
    Ok(Target { authority: format!("{host}:{port}"), host, port, path })
}

fn encode(name: &OsStr) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    percent_encode(name.as_bytes(), SEGMENT).to_string()
}

fn parse_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|e| format!("{e}; use the form https://HOST:PORT/NAME"))?;
    match url.scheme() {
        "https" => Ok(url),
        other => {
            Err(format!("HTTP/3 needs https, not {other}; use the form https://HOST:PORT/NAME"))
        }
    }
}

fn parse_sidekick(text: &str) -> Result<Sidekick, String> {
    match text {
        "off" => Ok(Sidekick::Off),
        mode => mode.parse().map(Sidekick::On).map_err(|_| {
            "choose off, auto, reinject, path-aware-bbr, pacubic, early-loss, ack-reduction or receive"
                .to_owned()
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

    fn plan(args: &[&str]) -> anyhow::Result<Plan> {
        let all = ["h3-upload", "dir/a file.bin", "https://example.org:4433/"].iter().chain(args);
        Cli::try_parse_from(all)?.plan()
    }

    fn complaint(args: &[&str]) -> String {
        plan(args).expect_err("this must be refused").to_string()
    }

    #[test]
    fn defaults_are_plain_cubic() {
        let plan = plan(&[]).unwrap();
        assert_eq!(plan.cc, Cc::Cubic);
        assert!(plan.assistance.is_none());
        assert_eq!(plan.mode(), "off");
        assert_eq!(plan.trust, Trust::Roots { cafile: None });
        assert_eq!(plan.timeout, Duration::from_secs(10));
        assert_eq!(plan.resolver, None);
    }

    #[test]
    fn a_mode_brings_its_congestion_control() {
        for (mode, cc) in
            [("early-loss", Cc::Cubic), ("pacubic", Cc::CubicRfc9438), ("path-aware-bbr", Cc::Bbr2)]
        {
            let plan = plan(&["--sidekick", mode, "--proxy", "gw"]).unwrap();
            assert_eq!(plan.cc, cc, "{mode}");
            assert_eq!(plan.mode(), mode);
        }
        for (mode, name, cc) in [
            ("early-loss", "bbr2", Cc::Bbr2),
            ("ack-reduction", "reno", Cc::Reno),
            ("auto", "bbr2_gcongestion", Cc::Bbr2),
        ] {
            let plan = plan(&["--sidekick", mode, "--proxy", "gw", "--cc", name]).unwrap();
            assert_eq!(plan.cc, cc, "{mode}");
        }
    }

    #[test]
    fn without_a_name_the_sender_discovers_a_proxy() {
        let key = "0".repeat(64);
        let plan = plan(&["--sidekick", "pacubic", "--proxy-key", &key]).unwrap();
        let Assistance { proxy, config } = plan.assistance.unwrap();
        assert_eq!(proxy, None);
        assert_eq!((config.proxy, config.key), (None, key.parse().ok()));
    }

    #[test]
    fn quiche_s_names_of_controllers_are_accepted() {
        for cc in Cc::value_variants() {
            assert_eq!(Cc::from_str(cc.quiche_name(), false).as_ref(), Ok(cc));
            assert_eq!(Cc::from_str(cc.name(), false).as_ref(), Ok(cc));
        }
    }

    #[test]
    fn the_help_begins_with_the_default() {
        use clap::CommandFactory as _;
        let help = Cli::command().render_help().to_string();
        let place = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text} in {help}"));
        assert!(place("plain QUIC") < place("--sidekick auto"));
        assert!(place("--sidekick auto") < place("Usage:"));
        assert!(place("Usage:") < place("[default: off]"));
    }

    #[test]
    fn contradictions_are_named() {
        let said = complaint(&["--proxy", "gw"]);
        assert!(said.contains("--sidekick"), "{said}");
        for nowhere in ["gw:0", "127.0.0.1:0", "[::1]:0", "gw:99999", ""] {
            assert!(parse_proxy(nowhere).is_err(), "{nowhere}");
        }
        let said = complaint(&["--sidekick", "pacubic", "--proxy", "gw", "--cc", "bbr2"]);
        assert!(said.contains("cubic-rfc9438") && said.contains("--cc bbr2"), "{said}");
        let said =
            complaint(&["--sidekick", "early-loss", "--proxy", "gw", "--quack-every-ms", "0"]);
        assert!(said.contains("--quack-every-packets"), "{said}");
        let said = complaint(&["--sidekick", "ack-reduction", "--proxy", "gw", "--cc", "bbr2"]);
        assert!(said.contains("cubic") && said.contains("--cc bbr2"), "{said}");
        let said = complaint(&["--sidekick", "faster"]);
        assert!(said.contains("path-aware-bbr"), "{said}");
    }

    #[test]
    fn the_proxy_is_a_host_with_or_without_a_port() {
        let of = |text: &str| parse_proxy(text).map(|p| (p.host, p.port));
        assert_eq!(of("gw"), Ok(("gw".to_owned(), 5252)));
        assert_eq!(of("gw:99"), Ok(("gw".to_owned(), 99)));
        assert_eq!(of("10.0.0.1"), Ok(("10.0.0.1".to_owned(), 5252)));
        assert_eq!(of("10.0.0.1:7"), Ok(("10.0.0.1".to_owned(), 7)));
        assert_eq!(of("::1"), Ok(("::1".to_owned(), 5252)));
        assert_eq!(of("[::1]"), Ok(("::1".to_owned(), 5252)));
        assert_eq!(of("[::1]:7"), Ok(("::1".to_owned(), 7)));
        for whole in ["gw:99", "10.0.0.1:7", "[::1]:7"] {
            assert_eq!(parse_proxy(whole).unwrap().to_string(), whole);
        }
        for bad in ["", ":5252", "gw:", "gw:http", "gw:70000", "gw:0", "a b", "[::1", "http://gw"] {
            assert!(of(bad).is_err(), "{bad:?} passed");
        }
    }

    #[test]
    fn the_resolver_is_an_address_with_or_without_a_port() {
        let of = |text: &str| parse_resolver(text).map(|address| address.to_string());
        assert_eq!(of("192.0.2.1"), Ok("192.0.2.1:53".to_owned()));
        assert_eq!(of("192.0.2.1:5353"), Ok("192.0.2.1:5353".to_owned()));
        assert_eq!(of("2001:db8::1"), Ok("[2001:db8::1]:53".to_owned()));
        assert_eq!(of("[2001:db8::1]"), Ok("[2001:db8::1]:53".to_owned()));
        assert_eq!(of("[2001:db8::1]:5353"), Ok("[2001:db8::1]:5353".to_owned()));
        for bad in [
            "",
            "dns.example",
            "dns.example:53",
            "192.0.2.1:0",
            "192.0.2.1:",
            "192.0.2.1:99999",
            ":53",
        ] {
            assert!(of(bad).is_err(), "{bad:?} passed");
        }
    }

    #[test]
    fn a_name_server_is_for_names() {
        let with = |url: &str| {
            Cli::try_parse_from(["h3-upload", "x", url, "--resolver", "192.0.2.1"]).unwrap().plan()
        };
        let server = Some(SocketAddr::from(([192, 0, 2, 1], 53)));
        assert_eq!(with("https://example.org/").unwrap().resolver, server);
        for url in ["https://192.0.2.2/", "https://[2001:db8::2]:4433/"] {
            let said = with(url).expect_err("this must be refused").to_string();
            assert!(said.contains("--resolver"), "{said}");
        }
    }

    #[test]
    fn the_name_is_the_urls_or_the_files() {
        let of = |url: &str, file: &str| {
            target(&Url::parse(url).unwrap(), Path::new(file)).map(|t| t.path)
        };
        assert_eq!(of("https://h/", "dir/a file.bin").unwrap(), "/a%20file.bin");
        assert_eq!(of("https://h", "50%?#.bin").unwrap(), "/50%25%3F%23.bin");
        assert_eq!(of("https://h/other", "x").unwrap(), "/other");
        assert_eq!(of("https://h/other name", "x").unwrap(), "/other%20name");
        assert!(of("https://h/", "..").is_err());
        assert_eq!(of("https://h/parent", "..").unwrap(), "/parent");
    }

    #[test]
    fn the_authority_always_has_its_port() {
        let of = |url: &str| target(&Url::parse(url).unwrap(), Path::new("x")).unwrap();
        assert_eq!(of("https://example.org/").url(), "https://example.org:443/x");
        assert_eq!(of("https://[::1]:4433/").url(), "https://[::1]:4433/x");
    }

    #[test]
    fn only_https_and_sane_timeouts() {
        assert!(parse_url("http://h/").is_err());
        assert!(parse_url("h:4433").is_err());
        for bad in ["0", "-1", "nan", "inf", "ten", "1e9"] {
            assert!(parse_seconds(bad).is_err(), "{bad} passed");
        }
    }
}
