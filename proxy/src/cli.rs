//! The command line.

mod compat;
mod config;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{
    ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
    value_parser,
};
use nix::sys::sysinfo::sysinfo;
use sidekick_protocol::{DEFAULT_PORT, ObserverConfig};

pub use compat::{CompatOptions, Wire};
use config::File;
pub use config::FileError;

use crate::capture::{self, Backend};
use crate::monitor::{self, Place};
use crate::replay::program as replay;
use crate::worker::MOST_INTERFACES;

const EXAMPLES: &str = "\
Examples:
  An access point whose clients are on wlan0:
      sidekick-proxy --interface wlan0
  A router with two local networks, logging its progress:
      sidekick-proxy -i eth1 -i eth2 -v
  A train gateway that answers only on its local address:
      sidekick-proxy -i eth0 --listen 192.168.8.1:5252
  A router that is set up by a file, which is looked over first:
      sidekick-proxy check /etc/sidekick-proxy.toml
      sidekick-proxy --config /etc/sidekick-proxy.toml
  How the proxy stands that runs:
      sidekick-proxy status
  For the published sender of NSDI '24 at 10.0.0.2, which expects quACKs at port 5103:
      sidekick-proxy -i eth1 --compat nsdi24 --quack-to 10.0.0.2:5103 --quack-every 32

Name the interfaces through which senders' packets come in (the near side). Packets are only
looked at, never altered or delayed. Capturing takes CAP_NET_RAW: run as root, or grant it once:
      setcap cap_net_raw+ep $(command -v sidekick-proxy)

SIGINT or SIGTERM says goodbye to the senders, prints a summary and exits with 0. SIGHUP reads the
file of --config anew: limits, discovery and log, for what begins from then on; sessions go on.
Without such a file SIGHUP ends it, too.";

/// Counts the encrypted packets of senders that ask for it, and tells them by quACKs which of them
/// arrived here, so that they repair losses on the near segment without waiting for the far end.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "sidekick-proxy",
    version,
    after_help = EXAMPLES,
    max_term_width = 100,
    args_conflicts_with_subcommands = true
)]
pub struct Options {
    /// What to do instead
    #[command(subcommand)]
    pub instead: Option<Instead>,

    /// Read this file (TOML), whose keys are the flags' names; flags that are given override it
    #[arg(short, long, value_name = "FILE", conflicts_with = "compat")]
    pub config: Option<PathBuf>,

    /// Interface to capture on; repeat it, or separate names by commas, for several
    #[arg(short, long = "interface", value_name = "IF", value_delimiter = ',')]
    pub interfaces: Vec<String>,

    /// Address and UDP port on which senders reach this proxy; `[::]:5252` for IPv6 and IPv4
    #[arg(
        short,
        long,
        value_name = "ADDR:PORT",
        default_value_t = SocketAddr::from(([0, 0, 0, 0], DEFAULT_PORT))
    )]
    pub listen: SocketAddr,

    /// Most sessions at once
    #[arg(
        long,
        value_name = "N",
        default_value_t = limits().max_sessions as u64,
        value_parser = value_parser!(u64).range(1..=1_000_000)
    )]
    pub max_sessions: u64,

    /// Most sessions at once for one source address
    #[arg(
        long,
        value_name = "N",
        default_value_t = limits().max_sessions_per_source as u64,
        value_parser = value_parser!(u64).range(1..=1_000_000)
    )]
    pub max_sessions_per_source: u64,

    /// Largest threshold granted: a sender learns of at most this many missing packets from an
    /// ordinary quACK
    #[arg(
        long,
        value_name = "T",
        default_value_t = limits().max_threshold,
        value_parser = value_parser!(u8).range(1..)
    )]
    pub max_threshold: u8,

    /// Forget a session whose sender was not heard for this many seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = limits().idle_timeout.as_secs(),
        value_parser = value_parser!(u64).range(1..=86_400)
    )]
    pub idle_timeout: u64,

    /// Keep the proxy's secret key in this file, which is made if there is none; senders can then
    /// pin the public key, which is shown at the start. It has to be a regular file that only its
    /// owner can read and write. Without it the key lasts as long as the program
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// Do not answer senders that look for a proxy on their path; only those that know the address
    /// find it
    #[arg(long)]
    pub no_discovery: bool,

    /// Address and port to tell senders that look for a proxy, one for IPv4 and one for IPv6
    /// [default: of the interface on which their packets come in]
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "no_discovery", value_parser = announced)]
    pub announce: Vec<SocketAddr>,

    /// Put the interfaces into promiscuous mode, so that packets to other machines arrive, as on a
    /// switch's mirror port
    #[arg(long)]
    pub promiscuous: bool,

    /// How packets are captured
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub capture: Backend,

    /// Mebibytes of packets that may wait on each interface, for each thread: enough for a moment's
    /// pause at the rate of the link (8 hold 4096 packets)
    #[arg(long, value_name = "MIB", default_value_t = 8, value_parser = value_parser!(u16).range(1..=1024))]
    pub buffer: u16,

    /// Threads that share the packets by their source addresses; limits of sessions are shared out,
    /// too. One counts some million packets a second
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=64))]
    pub threads: u16,

    /// Address and TCP port where metrics, health and status are served over HTTP to whoever asks,
    /// or `off` [default: 127.0.0.1:9252, or nowhere if that is taken]
    #[arg(long, value_name = "ADDR:PORT|off")]
    pub metrics: Option<Place>,

    /// Print the summary at the end as one JSON object
    #[arg(long)]
    pub json: bool,

    /// Log more to stderr: -v progress, -vv what was dropped and why (RUST_LOG overrides this)
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,

    /// Which other wire to speak, and how
    #[command(flatten)]
    pub compat: CompatOptions,
}

/// What the program does instead of running.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Instead {
    /// Look a configuration file over, and its key; say what it comes to or what is wrong; start
    /// and make nothing
    Check {
        /// The file
        file: PathBuf,
    },
    /// Count the packets of a capture file as the proxy would have counted them, and show what came
    /// of it
    Replay(replay::Options),

    /// Show how the proxy stands that runs on this machine: interfaces, totals and sessions
    Status {
        /// Print it as one JSON object
        #[arg(long)]
        json: bool,

        /// Show all sessions, not only some
        #[arg(long)]
        all: bool,

        /// Where that proxy serves its metrics
        #[arg(long, value_name = "ADDR:PORT", conflicts_with = "config", default_value_t = monitor::DEFAULT)]
        metrics: SocketAddr,

        /// The file that the proxy was started with, which says where
        #[arg(short, long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// An address that a sender can speak to.
fn announced(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|error| format!("{error}; it should look like 192.0.2.1:5252"))?;
    let ip = address.ip();
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    if address.port() == 0 || ip.is_unspecified() || ip.is_multicast() || broadcast {
        return Err("it is no address of one program on one machine".to_owned());
    }
    Ok(address)
}

fn limits() -> ObserverConfig {
    ObserverConfig::default()
}

impl Options {
    /// Reads a command line, the program's name first.
    ///
    /// # Errors
    /// When it is not one that can be meant; the error is what to print. Asking for help is such an
    /// error too.
    pub fn read(
        line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches_from(line)?;
        let mut options = Self::from_arg_matches(&matches)?;
        let wrong = |kind, complaint| Self::command().error(kind, complaint);
        if options.instead.is_some() {
            return Ok(options);
        }
        if let Some(path) = options.config.clone() {
            let file = File::read(&path)
                .map_err(|error| wrong(ErrorKind::InvalidValue, error.to_string()))?;
            options.take(file, &matches);
        }
        if options.interfaces.is_empty() {
            let what = "no interface to capture on: name one with --interface IF, or interfaces = [\"IF\"] in the file of --config";
            return Err(wrong(ErrorKind::MissingRequiredArgument, what.to_owned()));
        }
        let interfaces = options.distinct_interfaces().len();
        if interfaces > MOST_INTERFACES {
            let what =
                format!("{interfaces} interfaces: {MOST_INTERFACES} can be captured on at once");
            return Err(wrong(ErrorKind::TooManyValues, what));
        }
        options
            .compat
            .check(options.listen, interfaces)
            .map_err(|complaint| wrong(ErrorKind::ArgumentConflict, complaint))?;
        Ok(options)
    }

    /// What a file comes to with these options, none of which is a flag that was given; and what in
    /// it deserves a second look.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn with_file(self, path: &Path) -> Result<(Self, Vec<String>), FileError> {
        let mut options = self;
        options.take(File::read(path)?, &ArgMatches::default());
        let mut remarks = Vec::new();
        if options.interfaces.is_empty() {
            remarks.push("it names no interface: --interface has to".to_owned());
        }
        let present = pnet_datalink::interfaces();
        for name in options.distinct_interfaces() {
            if !present.iter().any(|interface| interface.name == name) {
                remarks.push(format!("there is no interface {name} on this machine now"));
            }
        }
        remarks.extend(options.lack_of_room());
        if options.no_discovery && !options.announce.is_empty() {
            remarks.push("without discovery nobody is told what announce says".to_owned());
        }
        Ok((options, remarks))
    }

    /// Takes over what a file says, where no flag was given.
    fn take(&mut self, file: File, flags: &ArgMatches) {
        let given = |id: &str| {
            flags.try_contains_id(id).is_ok_and(|known| known)
                && flags.value_source(id) == Some(ValueSource::CommandLine)
        };
        fn put<T>(field: &mut T, value: Option<T>, given: bool) {
            if let (Some(value), false) = (value, given) {
                *field = value;
            }
        }
        let announce =
            file.announce.map(|addresses| addresses.into_iter().map(|address| address.0).collect());
        // One flag says no more than another of the same thing.
        let discovery = given("no_discovery") || given("announce");
        put(&mut self.interfaces, file.interfaces, given("interfaces"));
        put(&mut self.listen, file.listen.map(|address| address.0), given("listen"));
        put(&mut self.max_sessions, file.max_sessions.map(|n| n.0), given("max_sessions"));
        let per_source = file.max_sessions_per_source.map(|n| n.0);
        put(&mut self.max_sessions_per_source, per_source, given("max_sessions_per_source"));
        let threshold = file.max_threshold.and_then(|n| u8::try_from(n.0).ok());
        put(&mut self.max_threshold, threshold, given("max_threshold"));
        put(&mut self.idle_timeout, file.idle_timeout.map(|n| n.0), given("idle_timeout"));
        put(&mut self.key, file.key.map(Some), given("key"));
        put(&mut self.no_discovery, file.discovery.map(|discovery| !discovery), discovery);
        put(&mut self.announce, announce, discovery);
        put(&mut self.promiscuous, file.promiscuous, given("promiscuous"));
        put(&mut self.capture, file.capture, given("capture"));
        put(&mut self.buffer, file.buffer.and_then(|n| u16::try_from(n.0).ok()), given("buffer"));
        put(
            &mut self.threads,
            file.threads.and_then(|n| u16::try_from(n.0).ok()),
            given("threads"),
        );
        put(&mut self.metrics, file.metrics.map(|place| Some(place.0)), given("metrics"));
        put(&mut self.verbose, file.log.map(config::Log::verbose), given("verbose"));
    }

    /// The options as the lines of a configuration file.
    #[must_use]
    pub fn to_file(&self) -> String {
        let quoted = |texts: Vec<String>| {
            texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ")
        };
        let interfaces = self.distinct_interfaces().into_iter().map(str::to_owned).collect();
        let mut text = format!(
            "interfaces = [{}]\nlisten = \"{}\"\nmax-sessions = {}\nmax-sessions-per-source = {}\nmax-threshold = {}\n\
             idle-timeout = {}\ndiscovery = {}\n",
            quoted(interfaces),
            self.listen,
            self.max_sessions,
            self.max_sessions_per_source,
            self.max_threshold,
            self.idle_timeout,
            !self.no_discovery,
        );
        if !self.announce.is_empty() {
            text += &format!(
                "announce = [{}]\n",
                quoted(self.announce.iter().map(SocketAddr::to_string).collect())
            );
        }
        if let Some(key) = &self.key {
            text += &format!("key = {:?}\n", key.display().to_string());
        }
        text += &format!("promiscuous = {}\n", self.promiscuous);
        let capture = self.capture.to_possible_value();
        let capture = capture.as_ref().map_or("auto", |value| value.get_name());
        text += &format!(
            "capture = \"{capture}\"\nbuffer = {}\nthreads = {}\n",
            self.buffer, self.threads
        );
        let metrics = self.metrics.unwrap_or(Place::At(monitor::DEFAULT));
        text + &format!("metrics = \"{metrics}\"\nlog = \"{}\"\n", self.log_filter())
    }

    /// How interfaces are to be captured on.
    #[must_use]
    pub fn capture(&self) -> capture::Settings {
        capture::Settings {
            backend: self.capture,
            promiscuous: self.promiscuous,
            buffer: usize::from(self.buffer) << 20,
            threads: self.threads,
        }
    }

    /// A sentence if packets that wait may take more than half of the machine's memory: `buffer`
    /// for each interface and thread.
    #[must_use]
    pub fn lack_of_room(&self) -> Option<String> {
        let interfaces = u64::try_from(self.distinct_interfaces().len()).unwrap_or(u64::MAX);
        let room =
            u64::from(self.buffer).saturating_mul(interfaces).saturating_mul(self.threads.into());
        let memory = sysinfo().ok()?.ram_total() >> 20;
        (room > memory / 2).then(|| {
            format!(
                "packets that wait may take {room} MiB (buffer for each interface and thread), and this machine has \
                 {memory}: make buffer or threads less"
            )
        })
    }

    /// The limits of each thread's observer as asked for.
    #[must_use]
    pub fn observer(&self) -> ObserverConfig {
        let defaults = limits();
        let share = self.max_sessions.div_ceil(self.threads.max(1).into());
        ObserverConfig {
            max_sessions: usize::try_from(share).unwrap_or(usize::MAX),
            max_sessions_per_source: usize::try_from(self.max_sessions_per_source)
                .unwrap_or(usize::MAX),
            kept_sums: defaults.kept_sums.max(self.max_threshold),
            max_threshold: self.max_threshold,
            idle_timeout: Duration::from_secs(self.idle_timeout),
            ..defaults
        }
    }

    /// The interfaces in the order given, each once.
    #[must_use]
    pub fn distinct_interfaces(&self) -> Vec<&str> {
        let mut distinct = Vec::new();
        for name in &self.interfaces {
            if !distinct.contains(&name.as_str()) {
                distinct.push(name.as_str());
            }
        }
        distinct
    }

    /// The log filter that `-v` stands for.
    #[must_use]
    pub fn log_filter(&self) -> &'static str {
        match self.verbose {
            0 => "warn",
            1 => "info",
            2 => "debug",
            _ => "trace",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Result<Options, clap::Error> {
        Options::read(line.split_whitespace())
    }

    #[test]
    fn defaults_are_the_library_s() {
        Options::command().debug_assert();
        let options = options("sidekick-proxy -i eth0").unwrap();
        assert_eq!(options.listen.to_string(), "0.0.0.0:5252");
        assert_eq!(format!("{:?}", options.observer()), format!("{:?}", ObserverConfig::default()));
        assert_eq!(options.log_filter(), "warn");
    }

    fn with_file(text: &str, flags: &str) -> Result<Options, clap::Error> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sidekick-proxy.toml");
        std::fs::write(&path, text).unwrap();
        options(&format!("sidekick-proxy --config {} {flags}", path.display()))
    }

    /// The file in the repository, with what is left out in it put in.
    fn sample() -> String {
        let text = include_str!("../sidekick-proxy.toml");
        text.lines()
            .map(|line| {
                line.strip_prefix('#')
                    .filter(|rest| !rest.starts_with(' '))
                    .unwrap_or(line)
                    .to_owned()
                    + "\n"
            })
            .collect()
    }

    #[test]
    fn the_sample_file_has_every_key_at_its_default() {
        let defaults = options("sidekick-proxy -i eth0").unwrap();
        let plain = with_file(include_str!("../sidekick-proxy.toml"), "").unwrap();
        assert_eq!(plain.to_file(), defaults.to_file());
        let whole = with_file(&sample(), "").unwrap();
        // Two have no default that could be written down.
        let given =
            "sidekick-proxy -i eth0 --key /var/lib/sidekick-proxy/key --announce 192.0.2.1:5252";
        assert_eq!(whole.to_file(), options(given).unwrap().to_file());
        let keys = |text: &str| text.lines().filter_map(|line| line.split_once(" = ")).count();
        assert_eq!(keys(&whole.to_file()), 15);
        assert_eq!(keys(&sample()), 15);
    }

    #[test]
    fn flags_override_the_file() {
        let text = "interfaces = [\"a\"]\nmax-sessions = 7\nmax-threshold = 9\nlisten = \"127.0.0.1:1\"\ndiscovery = false\n\
                    idle-timeout = 5\nlog = \"debug\"\nmetrics = \"off\"\nmax-sessions-per-source = 3\npromiscuous = true\nkey = \"k\"";
        let file = with_file(text, "").unwrap();
        assert_eq!(
            file.to_file(),
            with_file(&file.to_file(), "").unwrap().to_file(),
            "it can be read again"
        );
        assert_eq!(
            (file.max_sessions, file.max_threshold, file.idle_timeout, file.verbose),
            (7, 9, 5, 2)
        );
        assert_eq!(file.metrics, Some(Place::Off));
        assert!(file.no_discovery && file.promiscuous && file.max_sessions_per_source == 3);
        let flags =
            "-i b --max-sessions 1024 --announce 192.0.2.1:5252 -v --key other --metrics [::1]:7";
        let both = with_file(text, flags).unwrap();
        assert_eq!(
            (both.distinct_interfaces(), both.max_sessions, both.max_threshold),
            (vec!["b"], 1024, 9)
        );
        assert_eq!(both.metrics, "[::1]:7".parse().ok());
        assert!(!both.no_discovery && both.verbose == 1 && both.key == Some("other".into()));
    }

    #[test]
    fn a_wrong_file_ends_it_before_it_begins() {
        let said = with_file("max-sessions = 0", "-i a").unwrap_err().to_string();
        assert!(
            said.contains(":1: max-sessions: ") && said.contains("from 1 to 1000000"),
            "{said}"
        );
        let said = with_file("max-sessions = 3", "").unwrap_err().to_string();
        assert!(said.contains("--interface IF"), "{said}");
        let said = options("p --config /nonexistent -i a").unwrap_err().to_string();
        assert!(said.contains("cannot read /nonexistent"), "{said}");
        assert!(options("p check f --interface a").is_err());
        let check = options("p check some.toml").unwrap().instead;
        assert_eq!(check, Some(Instead::Check { file: "some.toml".into() }));
    }

    #[test]
    fn interfaces_may_be_given_in_any_manner() {
        for line in ["p -i a -i b", "p --interface a,b", "p --interface=a -ib -i a"] {
            assert_eq!(options(line).unwrap().distinct_interfaces(), ["a", "b"], "{line}");
        }
    }

    #[test]
    fn every_accepted_limit_makes_an_observer() {
        for threshold in 1..=255 {
            let options = options(&format!("p -i a --max-threshold {threshold}")).unwrap();
            assert_eq!(options.observer().max_threshold, threshold);
            sidekick_protocol::Observer::new(options.observer(), [0; 32]).unwrap();
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "p",
            "p -i a --bogus",
            "p -i a --listen nowhere",
            "p -i a --announce 192.0.2.1:0",
            "p -i a --announce 0.0.0.0:5252",
            "p -i a --announce 255.255.255.255:5252",
            "p -i a --no-discovery --announce 192.0.2.1:5252",
            "p -i a --max-threshold 0",
            "p -i a --max-threshold 256",
            "p -i a --max-sessions 0",
            "p -i a --max-sessions-per-source 0",
            "p -i a --idle-timeout 0",
            "p -i a --metrics on",
            "p status --config f --metrics 127.0.0.1:1",
        ] {
            assert!(options(line).is_err(), "{line}");
        }
    }

    #[test]
    fn help_shows_examples_and_defaults() {
        let help = Options::command().render_help().to_string();
        for wanted in ["Examples:", "setcap", "[default: 0.0.0.0:5252]", "[default: 40]"] {
            assert!(help.contains(wanted), "{wanted} in {help}");
        }
    }
}
