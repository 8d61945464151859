//! The settings of a proxy, independent of how the operator gives them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use nix::sys::sysinfo::sysinfo;
use serde::Deserialize;
use sidekick_protocol::{DEFAULT_PORT, ObserverConfig};
use thiserror::Error;

use crate::capture::SpareCapture;
use crate::capture::settings::{Backend, Settings};
use crate::compat::nsdi24::settings::{Conflict, Settings as Nsdi24};
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

/// The settings of a proxy.
#[derive(Clone, Debug)]
pub struct Config {
    /// The interfaces to capture on, in the operator's order: 1 to [`MAX_INTERFACES`] different
    /// names.
    pub interfaces: Vec<String>,
    /// The address and UDP port on which senders reach the proxy. `None`: all addresses of IPv6 and
    /// IPv4, or of IPv4 if the kernel has no IPv6, at port 5252.
    pub listen: Option<SocketAddr>,
    /// Most sessions at once, 1 to 1,000,000.
    pub max_sessions: u64,
    /// Most sessions at once for one source address, 1 to 1,000,000.
    pub max_sessions_per_source: u64,
    /// Largest threshold that the proxy grants, 1 to 255.
    pub max_threshold: u8,
    /// How long a session lasts after the last message of its sender, 1 second to 1 day.
    pub idle_timeout: Duration,
    /// Most memory for copies of datagrams, of all sessions together; 0 to keep none. The proxy
    /// keeps copies of datagrams towards the senders that ask for copies, for less than a second.
    /// `None`: 64 MiB, or an eighth of the machine's memory if that is less.
    pub keep: Option<Size>,
    /// Most of this memory that one session can use. Below 64 KiB, no session keeps copies.
    pub keep_per_session: Size,
    /// Whether sessions that keep copies get parity.
    pub parity: ParityPolicy,
    /// Most bytes of parity, in percent of a session's datagrams towards its client: 1 to 100.
    pub parity_percent: u8,
    /// The file of the secret key. Without it, the proxy makes a key at each start.
    pub key: Option<PathBuf>,
    /// Whether the proxy answers senders that look for a proxy on their path.
    pub discovery: bool,
    /// The addresses that these answers announce. If empty, the proxy announces the address in
    /// `listen`, or those of the interface on which the sender's packets arrive.
    pub announce: Vec<SocketAddr>,
    /// Whether to put the interfaces into promiscuous mode.
    pub promiscuous: bool,
    /// How to capture packets.
    pub backend: Backend,
    /// Mebibytes of packets that may wait, for each interface and thread: 1 to 1024.
    pub buffer: u16,
    /// Threads that share the packets by source address, 1 to 64.
    pub threads: u16,
    /// Where to serve metrics. `None`: at the default address, or nowhere if that is in use.
    pub metrics: Option<MetricsAddress>,
    /// Whether to print the final summary as JSON.
    pub json: bool,
    /// How much to log.
    pub log: LogLevel,
    /// Settings for the wire format of NSDI '24. If set, the proxy uses that format in place of
    /// the Sidekick protocol.
    pub nsdi24: Option<Nsdi24>,
}

/// Whether the proxy sends parity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ParityPolicy {
    /// To clients that ask for it
    #[default]
    Auto,
    /// To none
    Off,
}

impl ParityPolicy {
    /// The name on the command line and in files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
        }
    }
}

/// How much the proxy logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Errors and warnings.
    #[default]
    Warn,
    /// Progress, too.
    Info,
    /// Also which messages were dropped, and why.
    Debug,
    /// Everything.
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
    /// The settings for the wire format of NSDI '24 contradict others.
    #[error("{0}")]
    Nsdi24(#[from] Conflict),
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
            idle_timeout: limits.idle_timeout,
            keep: None,
            keep_per_session: Size::bytes(limits.keep_bytes_per_session as u64),
            parity: ParityPolicy::Auto,
            parity_percent: limits.parity_percent,
            key: None,
            discovery: true,
            announce: Vec::new(),
            promiscuous: false,
            backend: Backend::default(),
            buffer: 8,
            threads: 1,
            metrics: None,
            json: false,
            log: LogLevel::default(),
            nsdi24: None,
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
            0 => return Err(ConfigError::NoInterface),
            number if number > MAX_INTERFACES => {
                return Err(ConfigError::TooManyInterfaces(number));
            }
            _ => {}
        }
        if let Some(nsdi24) = &self.nsdi24 {
            nsdi24.check(self.listen(), self.interfaces.len())?;
        }
        Ok(())
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
            idle_timeout: self.idle_timeout,
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
        if keep.get() == 0 || self.nsdi24.is_some() {
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
        let list = |texts: &[String]| {
            texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ")
        };
        let mut lines = vec![
            format!("interfaces = [{}]", list(&self.interfaces)),
            format!("listen = \"{}\"", self.listen()),
            format!("max-sessions = {}", self.max_sessions),
            format!("max-sessions-per-source = {}", self.max_sessions_per_source),
            format!("max-threshold = {}", self.max_threshold),
            format!("idle-timeout = {}", self.idle_timeout.as_secs()),
            format!("keep = \"{}\"", self.keep()),
            format!("keep-per-session = \"{}\"", self.keep_per_session),
            format!("parity = \"{}\"", self.parity.as_str()),
            format!("parity-percent = {}", self.parity_percent),
            format!("discovery = {}", self.discovery),
        ];
        if !self.announce.is_empty() {
            let addresses: Vec<_> = self.announce.iter().map(SocketAddr::to_string).collect();
            lines.push(format!("announce = [{}]", list(&addresses)));
        }
        if let Some(key) = &self.key {
            lines.push(format!("key = {:?}", key.display().to_string()));
        }
        let metrics = self.metrics.unwrap_or(MetricsAddress::At(DEFAULT_ADDRESS));
        lines.extend([
            format!("promiscuous = {}", self.promiscuous),
            format!("capture = \"{}\"", self.backend.as_str()),
            format!("buffer = {}", self.buffer),
            format!("threads = {}", self.threads),
            format!("metrics = \"{metrics}\""),
            format!("log = \"{}\"", self.log.as_str()),
        ]);
        lines.join("\n") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
