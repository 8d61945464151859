//! The command line.

mod compat;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, Parser, value_parser};
use sidekick_protocol::{DEFAULT_PORT, ObserverConfig};

pub use compat::{CompatOptions, Wire};

const EXAMPLES: &str = "\
Examples:
  An access point whose clients are on wlan0:
      sidekick-proxy --interface wlan0
  A router with two local networks, logging its progress:
      sidekick-proxy -i eth1 -i eth2 -v
  A train gateway that answers only on its local address:
      sidekick-proxy -i eth0 --listen 192.168.8.1:5252
  For the published sender of NSDI '24 at 10.0.0.2, which expects quACKs at port 5103:
      sidekick-proxy -i eth1 --compat nsdi24 --quack-to 10.0.0.2:5103 --quack-every 32

Name the interfaces through which senders' packets come in (the near side). Packets are only
looked at, never altered or delayed. Capturing takes CAP_NET_RAW: run as root, or grant it once:
      setcap cap_net_raw+ep $(command -v sidekick-proxy)

SIGINT or SIGTERM says goodbye to the senders, prints a summary and exits with 0.";

/// Counts the encrypted packets of senders that ask for it, and tells them by quACKs which of them arrived
/// here, so that they repair losses on the near segment without waiting for the far end.
#[derive(Clone, Debug, Parser)]
#[command(name = "sidekick-proxy", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Options {
    /// Interface to capture on; repeat it, or separate names by commas, for several
    #[arg(short, long = "interface", value_name = "IF", required = true, value_delimiter = ',')]
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

    /// Largest threshold granted: a sender learns of at most this many missing packets from an ordinary quACK
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

    /// Keep the proxy's secret key in this file, which is made if there is none; senders can then pin the public
    /// key, which is shown at the start. Without it the key lasts as long as the program
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// Do not answer senders that look for a proxy on their path; only those that know the address find it
    #[arg(long)]
    pub no_discovery: bool,

    /// Address and port to tell senders that look for a proxy, one for IPv4 and one for IPv6
    /// [default: of the interface on which their packets come in]
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "no_discovery", value_parser = announced)]
    pub announce: Vec<SocketAddr>,

    /// Also count packets that are addressed to other machines, as on a switch's mirror port
    #[arg(long)]
    pub promiscuous: bool,

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
    /// When it is not one that can be meant; the error is what to print. Asking for help is such an error too.
    pub fn read(line: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let options = Self::try_parse_from(line)?;
        options
            .compat
            .check(options.listen, options.distinct_interfaces().len())
            .map_err(|complaint| Self::command().error(ErrorKind::ArgumentConflict, complaint))?;
        Ok(options)
    }

    /// The observer's limits as asked for.
    #[must_use]
    pub fn observer(&self) -> ObserverConfig {
        let defaults = limits();
        ObserverConfig {
            max_sessions: usize::try_from(self.max_sessions).unwrap_or(usize::MAX),
            max_sessions_per_source: usize::try_from(self.max_sessions_per_source).unwrap_or(usize::MAX),
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
