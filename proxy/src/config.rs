//! The settings of a proxy, independent of how the operator gives them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum, value_parser};
use nix::sys::sysinfo::sysinfo;
use serde::{Serialize, Serializer};
use sidekick_protocol::{DEFAULT_PORT, ObserverConfig};
use thiserror::Error;

use crate::capture::SpareCapture;
use crate::capture::settings::{Backend, Settings, interface_name};
use crate::cli::values::{announced, listen, metrics_or_off};
use crate::monitor::listener::{DEFAULT_ADDRESS, MetricsAddress};
use crate::port;
use crate::size::Size;

/// Interfaces that one proxy can capture on.
pub const MAX_INTERFACES: usize = 32;

/// The budget for copies: this, or one part in [`KEEP_PART`] of the machine's memory if that is
/// less.
const KEEP: Size = Size::mebibytes(64);
const KEEP_PART: u64 = 8;

/// The bytes that a session takes at most, without copies. A test measures fewer.
const SESSION: u64 = 3584;

/// The settings of a proxy: the flags of its program, and the keys of its file.
#[derive(Args, Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Config {
    /// Interface to capture on. Repeat the flag, or separate names by commas, for several
    #[arg(
        short,
        long = "interface",
        alias = "interfaces",
        value_name = "IF",
        value_delimiter = ',',
        value_parser = interface_name
    )]
    pub interfaces: Vec<String>,

    /// Address and UDP port on which senders reach this proxy; `0.0.0.0:5252` for IPv4 alone
    /// [default: `[::]:5252` for IPv6 and IPv4, or `0.0.0.0:5252` if the kernel has no IPv6]
    #[arg(short, long, value_name = "ADDR:PORT", value_parser = listen)]
    pub listen: Option<SocketAddr>,

    /// Maximum number of sessions at once
    #[arg(
        long,
        value_name = "N",
        default_value_t = Self::default().max_sessions,
        value_parser = value_parser!(u64).range(1..=1_000_000)
    )]
    pub max_sessions: u64,

    /// Maximum number of sessions at once for one IPv4 address or IPv6 /64
    #[arg(
        long,
        value_name = "N",
        default_value_t = Self::default().max_sessions_per_source,
        value_parser = value_parser!(u64).range(1..=1_000_000)
    )]
    pub max_sessions_per_source: u64,

    /// Largest threshold that the proxy grants: an ordinary quACK identifies at most this many
    /// missing packets
    #[arg(
        long,
        value_name = "T",
        default_value_t = Self::default().max_threshold,
        value_parser = value_parser!(u8).range(1..)
    )]
    pub max_threshold: u8,

    /// End a session this many seconds after the last message of its sender
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = Self::default().idle_timeout,
        value_parser = value_parser!(u64).range(1..=86_400)
    )]
    pub idle_timeout: u64,

    /// Memory for copies of datagrams to clients that ask for them, such as 64M; 0 keeps none
    /// [default: 64M, or an eighth of the machine's memory if that is less]
    #[arg(long, value_name = "BYTES")]
    pub keep: Option<Size>,

    /// Maximum memory for the copies of one session. Below 64K, no session keeps copies
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().keep_per_session)]
    pub keep_per_session: Size,

    /// Whether to send parity, from which clients that ask for it at the start of a session rebuild
    /// what the near segment lost. Parity needs copies
    #[arg(long, value_enum, default_value_t = Self::default().parity)]
    pub parity: ParityPolicy,

    /// Maximum bytes of parity, in percent of those that it covers. A flow may have 16 KiB more
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = Self::default().parity_percent,
        value_parser = value_parser!(u8).range(1..=100)
    )]
    pub parity_percent: u8,

    /// Put uploads in order for agents: hold the packets behind one that the near segment lost
    /// until its repair is here, in a netfilter queue. Only where this machine routes. The proxy
    /// sets up the rules of the firewall that this needs, keeps CAP_NET_ADMIN, and works with one
    /// thread
    #[arg(long)]
    pub in_order: bool,

    /// Number of that queue. Two programs on a machine need two
    #[arg(long, value_name = "N", default_value_t = Self::default().queue)]
    pub queue: u16,

    /// Do not answer senders that look for a proxy: only those that know the address find this one
    #[arg(long = "no-discovery", action = ArgAction::SetFalse)]
    pub discovery: bool,

    /// Address and port to announce to senders that look for a proxy; one for IPv4 and one for IPv6
    /// [default: those of the interface on which their packets arrive]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        conflicts_with = "discovery",
        value_parser = announced
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub announce: Vec<SocketAddr>,

    /// Keep the secret key in this file, so that senders can pin the public key, which the proxy
    /// prints at the start. The proxy creates the file; only its owner may be able to read and
    /// write it. Without this flag, the proxy makes a key at each start
    #[arg(long, value_name = "FILE")]
    #[serde(serialize_with = "shown", skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,

    /// Put the interfaces into promiscuous mode, to capture packets to other machines, as on a
    /// switch's mirror port
    #[arg(long)]
    pub promiscuous: bool,

    /// How to capture packets
    #[arg(long = "capture", value_name = "HOW", value_enum, default_value_t)]
    #[serde(rename = "capture")]
    pub backend: Backend,

    /// Mebibytes of packets that may wait on each interface, for each thread (8 hold 4096 packets)
    #[arg(
        long,
        value_name = "MIB",
        default_value_t = Self::default().buffer,
        value_parser = value_parser!(u16).range(1..=1024)
    )]
    pub buffer: u16,

    /// Threads that share the packets by source address. With N threads, each admits 1/N of
    /// --max-sessions, rounded up
    #[arg(
        long,
        value_name = "N",
        default_value_t = Self::default().threads,
        value_parser = value_parser!(u16).range(1..=64)
    )]
    pub threads: u16,

    /// Address and TCP port of metrics, health and status over HTTP, or `off`. Everyone who can
    /// reach it can read them [default: 127.0.0.1:9252, or nowhere if that port is
    /// in use]
    #[arg(long, value_name = "ADDR:PORT|off", value_parser = metrics_or_off(DEFAULT_ADDRESS))]
    pub metrics: Option<MetricsAddress>,

    /// How much to log to stderr
    #[command(flatten)]
    #[serde(flatten)]
    pub log: Log,

    /// Print the final summary as one JSON object
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
}

/// Whether the proxy sends parity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ParityPolicy {
    /// To clients that ask for it
    #[default]
    Auto,
    /// To none
    Off,
}

/// How much a program logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Errors and warnings
    #[default]
    Warn,
    /// Progress, too
    Info,
    /// Also what the program did not do, and why
    Debug,
    /// Everything
    Trace,
}

impl LogLevel {
    /// The level's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// How much to log, as the operator says it.
#[derive(Args, Clone, Copy, Debug, Default, Serialize)]
pub struct Log {
    /// Log this to stderr (RUST_LOG overrides this)
    #[arg(id = "log", long = "log", value_name = "LEVEL", value_enum, default_value_t)]
    #[serde(rename = "log")]
    level: LogLevel,

    /// Log more to stderr: -v is --log info, -vv is --log debug
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "log")]
    #[serde(skip)]
    verbose: u8,
}

impl Log {
    /// The level.
    #[must_use]
    pub fn level(&self) -> LogLevel {
        match self.verbose {
            0 => self.level,
            1 => LogLevel::Info,
            2 => LogLevel::Debug,
            _ => LogLevel::Trace,
        }
    }
}

impl From<LogLevel> for Log {
    fn from(level: LogLevel) -> Self {
        Self { level, verbose: 0 }
    }
}

/// Why a proxy cannot run with a [`Config`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no interface.
    #[error(
        "no interface to capture on: name one with --interface IF, or interfaces = [\"IF\"] in the \
         file of --config"
    )]
    NoInterface,
    /// There are too many interfaces.
    #[error("{0} interfaces: the limit is {MAX_INTERFACES}")]
    TooManyInterfaces(usize),
    /// One thread reads the queue.
    #[error("in-order works with one thread: set threads to 1")]
    Threads,
}

impl Default for Config {
    fn default() -> Self {
        let limits = ObserverConfig::default();
        Self {
            interfaces: Vec::new(),
            listen: None,
            max_sessions: limits.max_sessions as u64,
            max_sessions_per_source: limits.max_sessions_per_source as u64,
            max_threshold: limits.max_threshold,
            idle_timeout: limits.idle_timeout.as_secs(),
            keep: None,
            keep_per_session: Size::bytes(limits.keep_bytes_per_session as u64),
            parity: ParityPolicy::Auto,
            parity_percent: limits.parity_percent,
            in_order: false,
            queue: 5252,
            key: None,
            discovery: true,
            announce: Vec::new(),
            promiscuous: false,
            backend: Backend::default(),
            buffer: 8,
            threads: 1,
            metrics: None,
            json: false,
            log: Log::default(),
        }
    }
}

impl Config {
    /// Checks the settings as a whole.
    ///
    /// # Errors
    /// [`ConfigError`] states the fault.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self.interfaces.len() {
            0 => Err(ConfigError::NoInterface),
            number if number > MAX_INTERFACES => Err(ConfigError::TooManyInterfaces(number)),
            _ if self.in_order && self.threads > 1 => Err(ConfigError::Threads),
            _ => Ok(()),
        }
    }

    /// Each interface with its number, by which captures and addresses refer to it.
    pub(crate) fn numbered_interfaces(&self) -> impl Iterator<Item = (u32, &str)> {
        (0_u32..).zip(self.interfaces.iter().map(String::as_str))
    }

    /// How to capture on each interface.
    pub(crate) fn capture(&self) -> Settings {
        Settings {
            backend: self.backend,
            promiscuous: self.promiscuous,
            buffer: usize::from(self.buffer) << 20,
            threads: self.threads,
        }
    }

    /// The address and UDP port on which senders reach the proxy.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        self.listen.unwrap_or_else(|| SocketAddr::new(port::all_addresses(), DEFAULT_PORT))
    }

    /// The limits of each thread's observer.
    #[must_use]
    pub fn observer(&self) -> ObserverConfig {
        let defaults = ObserverConfig::default();
        let threads = u64::from(self.threads.max(1));
        let share = self.max_sessions.div_ceil(threads);
        let size = |number| usize::try_from(number).unwrap_or(usize::MAX);
        ObserverConfig {
            max_sessions: size(share),
            max_sessions_per_source: size(self.max_sessions_per_source),
            kept_sums: defaults.kept_sums.max(self.max_threshold),
            max_threshold: self.max_threshold,
            idle_timeout: Duration::from_secs(self.idle_timeout),
            keep_bytes: size(self.keep().get() / threads),
            keep_bytes_per_session: size(self.keep_per_session.get()),
            parity_percent: match self.parity {
                ParityPolicy::Auto => self.parity_percent,
                ParityPolicy::Off => 0,
            },
            ..defaults
        }
    }

    /// Most memory for copies, of all sessions and threads together.
    #[must_use]
    pub fn keep(&self) -> Size {
        let part = || sysinfo().map_or(KEEP, |system| Size::bytes(system.ram_total() / KEEP_PART));
        // In whole mebibytes, as the default is.
        let whole = |size: Size| Size::mebibytes(size.get() >> 20);
        self.keep.unwrap_or_else(|| whole(KEEP.min(part())))
    }

    /// A sentence if waiting packets, copies and sessions could fill more than half of the
    /// machine's memory.
    #[must_use]
    pub fn memory_shortage(&self) -> Option<String> {
        let memory = sysinfo().ok()?.ram_total() >> 20;
        let [buffers, copies, sessions] = self.memory();
        (buffers.saturating_add(copies).saturating_add(sessions) > memory / 2).then(|| {
            format!(
                "waiting packets can fill {buffers} MiB (buffer for each interface and thread), \
                 copies {copies} MiB (keep), sessions {sessions} MiB (max-sessions), and this \
                 machine has {memory} MiB: reduce buffer, threads, keep or max-sessions"
            )
        })
    }

    /// The most mebibytes of waiting packets, of copies, and of sessions.
    fn memory(&self) -> [u64; 3] {
        let interfaces = u64::try_from(self.interfaces.len()).unwrap_or(u64::MAX);
        let captures = interfaces.saturating_mul(self.threads.into());
        let copies = self.keep().get() >> 20;
        // A capture for copies has a buffer, too, and is open before a session asks.
        let bytes = SpareCapture::buffer(self.capture());
        let for_copies = if self.observer().keeps_copies() { bytes as u64 >> 20 } else { 0 };
        let sessions = self.max_sessions.saturating_mul(SESSION) >> 20;
        [captures.saturating_mul(u64::from(self.buffer) + for_copies), copies, sessions]
    }

    /// A sentence if the operator grants memory for copies, and it is too little for any.
    #[must_use]
    pub fn copies_shortage(&self) -> Option<String> {
        const LEAST: u64 = ObserverConfig::LEAST_KEEP_BYTES as u64;

        let (keep, threads) = (self.keep(), u64::from(self.threads.max(1)));
        if keep.get() == 0 {
            return None;
        }
        let (each, enough) = (Size::bytes(LEAST), Size::bytes(LEAST * threads));
        if keep < enough {
            return Some(format!(
                "keep = {keep} is less than {each} for each thread, so the proxy keeps no copies: \
                 write at least {enough}, or 0"
            ));
        }
        (self.keep_per_session < each).then(|| {
            format!(
                "keep-per-session = {} is less than {each}, so the proxy keeps no copies: write at \
                 least {each}, or keep = 0",
                self.keep_per_session
            )
        })
    }

    /// A sentence if the operator limits parity, and the proxy sends none.
    #[must_use]
    pub fn idle_parity(&self) -> Option<String> {
        if self.parity_percent == Self::default().parity_percent {
            return None;
        }
        let (reason, instead) = match self.parity {
            ParityPolicy::Off => ("parity is off", "set parity to auto"),
            ParityPolicy::Auto if self.keep().get() == 0 => {
                ("keep is 0", "let the proxy keep copies")
            }
            ParityPolicy::Auto => return None,
        };
        Some(format!("parity-percent has no effect while {reason}: leave it out, or {instead}"))
    }

    /// The settings as the lines of a configuration file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let metrics = self.metrics.unwrap_or(MetricsAddress::At(DEFAULT_ADDRESS));
        lines(&Self {
            listen: Some(self.listen()),
            keep: Some(self.keep()),
            metrics: Some(metrics),
            log: self.log.level().into(),
            ..self.clone()
        })
    }
}

/// The lines of a configuration file with these settings.
pub(crate) fn lines(settings: &impl Serialize) -> String {
    // All settings are texts, numbers, booleans and lists, which cannot fail.
    toml::to_string(settings).unwrap_or_default()
}

/// Writes a path as an operator reads it, since it may be no text.
fn shown<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.as_deref().unwrap_or("".as_ref()).display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn defaults_equal_those_of_the_library() {
        // The library keeps no copies by default: its user must capture whole datagrams.
        let config = Config { keep: Some(Size::bytes(0)), ..Config::default() };
        let observer = config.observer();
        assert_eq!(format!("{observer:?}"), format!("{:?}", ObserverConfig::default()));
    }

    #[test]
    fn every_accepted_limit_makes_an_observer() {
        for max_threshold in 1..=255 {
            let observer = Config { max_threshold, ..Config::default() }.observer();
            assert_eq!(observer.max_threshold, max_threshold);
            sidekick_protocol::Observer::new(observer, [0; 32]).unwrap();
        }
    }

    #[test]
    fn threads_share_the_memory_for_copies() {
        let keep = Some(Size::mebibytes(6));
        let observer = Config { keep, threads: 3, ..Config::default() }.observer();
        assert_eq!((observer.keep_bytes, observer.keep_bytes_per_session), (2 << 20, 4 << 20));
        let default = Config::default().keep();
        assert!(default > Size::bytes(0) && default <= KEEP, "{default}");
    }

    #[test]
    fn too_little_memory_for_copies_is_named_with_what_is_enough() {
        let says = |keep: u64, per_session: u64, threads| {
            let keep_per_session = Size::bytes(per_session << 10);
            let keep = Some(Size::bytes(keep << 10));
            Config { keep, keep_per_session, threads, ..Config::default() }.copies_shortage()
        };
        for fine in [(0, 0, 3), (64, 64, 1), (192, 4096, 3)] {
            assert_eq!(says(fine.0, fine.1, fine.2), None, "{fine:?}");
        }
        assert_eq!(
            says(191, 4096, 3).unwrap(),
            "keep = 191K is less than 64K for each thread, so the proxy keeps no copies: write at \
             least 192K, or 0"
        );
        assert_eq!(
            says(1024, 63, 1).unwrap(),
            "keep-per-session = 63K is less than 64K, so the proxy keeps no copies: write at least \
             64K, or keep = 0"
        );
        for (keep, per_session, threads) in [(191, 4096, 3), (192, 4096, 3), (1024, 63, 1)] {
            let keep_per_session = Size::bytes(per_session << 10);
            let keep = Some(Size::bytes(keep << 10));
            let config = Config { keep, keep_per_session, threads, ..Config::default() };
            assert_eq!(config.observer().keeps_copies(), config.copies_shortage().is_none());
        }
    }

    #[test]
    fn a_limit_on_parity_without_parity_is_named() {
        let usual = Config::default().parity_percent;
        let says = |parity_percent, keep, parity| {
            let keep = Some(Size::mebibytes(keep));
            let config = Config { parity_percent, keep, parity, ..Config::default() };
            let sends = config.observer().keeps_copies() && config.observer().parity_percent > 0;
            let sentence = config.idle_parity();
            assert_eq!(sentence.is_none(), sends || parity_percent == usual, "{sentence:?}");
            sentence.unwrap_or_default()
        };
        for (parity_percent, keep) in [(usual, 64), (usual, 0), (50, 64), (50, 0)] {
            says(parity_percent, keep, ParityPolicy::Auto);
            says(parity_percent, keep, ParityPolicy::Off);
        }
        assert_eq!(
            says(50, 0, ParityPolicy::Auto),
            "parity-percent has no effect while keep is 0: leave it out, or let the proxy keep \
             copies"
        );
        assert_eq!(
            says(50, 64, ParityPolicy::Off),
            "parity-percent has no effect while parity is off: leave it out, or set parity to auto"
        );
    }

    #[test]
    fn captures_for_copies_need_memory_too() {
        let interfaces = ["eth0".to_owned(), "eth1".to_owned()].to_vec();
        let keep = |mebibytes| Some(Size::mebibytes(mebibytes));
        let config = Config { interfaces, threads: 3, keep: keep(7), ..Config::default() };
        assert_eq!(config.memory(), [2 * 3 * (8 + 2), 7, 3]);
        assert_eq!(Config { buffer: 1, ..config.clone() }.memory(), [2 * 3 * (1 + 1), 7, 3]);
        let many = Config { keep: keep(0), max_sessions: 1_000_000, ..config };
        assert_eq!(many.memory(), [2 * 3 * 8, 0, 3417]);
    }

    /// So a reload that only adds this address to the file changes nothing. Another address
    /// requires a restart.
    #[test]
    fn a_file_names_the_default_address_that_is_in_use() {
        let default = Config::default();
        let naming = |listen| Config { listen: Some(listen), ..Config::default() }.to_toml();
        assert_eq!(naming(default.listen()), default.to_toml());
        assert_ne!(naming("192.0.2.1:5252".parse().unwrap()), default.to_toml());
    }

    #[test]
    fn a_path_that_is_no_text_hides_no_setting() {
        let key = Some(OsStr::from_bytes(b"/k\xff").into());
        let text = Config { key, ..Config::default() }.to_toml();
        assert!(text.contains("key = \"/k") && text.contains("max-sessions = "), "{text}");
    }

    #[test]
    fn interfaces_have_a_limit() {
        let with = |number: usize| Config {
            interfaces: (0..number).map(|number| format!("eth{number}")).collect(),
            ..Config::default()
        };
        assert_eq!(with(0).check(), Err(ConfigError::NoInterface));
        assert_eq!(with(32).check(), Ok(()));
        let error = with(33).check().unwrap_err();
        assert_eq!(error.to_string(), "33 interfaces: the limit is 32");
    }
}
