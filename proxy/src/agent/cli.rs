//! The agent's command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use super::config::AgentConfig;
use super::measure::MeasureOptions;
use super::status::AgentStatus;
use crate::addresses::OwnAddresses;
use crate::cli::file::{FileError, Parsed, options_of, with_file};
use crate::cli::shared::{Action, StatusOptions, absent_interfaces, distinct, error};
use crate::monitor::listener::MetricsAddress;

/// Fixed, because clap's own repeats every given flag in an error.
const USAGE: &str = "\
sidekick-agent --interface <IF> [OPTIONS]
       sidekick-agent <COMMAND>";

const EXAMPLES: &str = "\
Examples:
  A laptop on Wi-Fi, whose access point runs a proxy:
      sidekick-agent --interface wlan0
  A router in front of a train's network, whose modem is wwan0; the base station runs a proxy,
  which has to allow as many sessions (--max-sessions 4096 --max-sessions-per-source 4096):
      sidekick-agent -i wwan0 --max-flows 4096 --memory 256M
  With a proxy whose address and key are known:
      sidekick-agent -i wwan0 --proxy 192.0.2.1:5252 --proxy-key 9f0c...
  Help WebRTC calls and QUIC, but nothing inside the own network:
      sidekick-agent -i wlan0 --only 443,3478,49152-65535 --except 192.168.0.0/16
  A router with a configuration file, after a check of that file:
      sidekick-agent check /etc/sidekick-agent.toml
      sidekick-agent --config /etc/sidekick-agent.toml
  The status of the running agent:
      sidekick-agent status
  What the link does to packets, recorded for a minute:
      sidekick-agent measure -i wlan0 --trace wlan0.trace

Name the interfaces of the lossy link. The agent needs a proxy (sidekick-proxy) at its other end.
The agent alters no packet, and delays none but with --in-order. To the destinations of flows it
sends copies of packets that were lost before the proxy, and of some that were not. It also sends
them markers, which search for a proxy. To proxies it sends messages. It helps no flow to a
multicast or broadcast address. It helps DNS, DHCP, NTP, SSDP, multicast DNS, and port 5252, which
is that of proxies, only if --only names the port.

A SELECTOR is a destination of flows:
      443                         a port
      5000-5999                   ports
      192.0.2.1                   an address
      10.0.0.0/8                  a network
      10.0.0.0/8:443              ports behind an address or a network
      [2001:db8::]/32:5000-5999   the same of IPv6, in brackets

The agent requires CAP_NET_RAW, and CAP_NET_ADMIN until it has created the TUN device, or all the
time with --in-order: run it as root, or grant the capabilities once:
      setcap cap_net_raw,cap_net_admin+ep $(command -v sidekick-agent)

On SIGINT or SIGTERM the agent ends its sessions, prints a summary and exits with 0. The flows go on
without help. On SIGHUP it rereads the file of --config. Without a file, SIGHUP ends it, too.";

/// Helps the UDP flows of unmodified programs: QUIC, calls, tunnels. If a packet is lost between
/// this host and a Sidekick proxy on the path, the agent repeats it at once, unchanged.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "sidekick-agent",
    version,
    after_help = EXAMPLES,
    override_usage = USAGE,
    max_term_width = 100,
    args_conflicts_with_subcommands = true
)]
struct Options {
    /// What to do instead of running
    #[command(subcommand)]
    command: Option<Command>,

    /// Read this file (TOML). Its keys are the names of the flags. Flags override it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: AgentConfig,
}

/// What the program does instead of running.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Command {
    /// Check a configuration file, and print the effective settings. This starts nothing
    Check {
        /// The file
        file: PathBuf,
    },

    /// Remove the rules of the firewall that a killed agent with --in-order has left. They stop no
    /// packet
    Clean {
        /// The configuration file of that agent, which names its queue
        file: Option<PathBuf>,
    },

    /// Measure what the link loses and when, by the packets of programs, without help for them
    Measure(MeasureOptions),

    /// Show the status of the agent that runs on this machine: interfaces, totals and flows
    Status(StatusOptions<AgentStatus>),
}

/// The definition of the command line.
pub(crate) fn definition() -> clap::Command {
    Options::command()
}

/// Reads a command line, which begins with the program's name.
///
/// # Errors
/// The text to print: what is wrong, or the help that the operator requested.
pub(super) fn read(
    line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<Action<AgentConfig, Command>, clap::Error> {
    let Parsed { options, has_file } = with_file::<Options>(line, |options| &options.config)?;
    if let Some(command) = options.command {
        return Ok(Action::Command(command));
    }
    let config = options.into_config();
    config.check().map_err(|conflict| error(ErrorKind::ValueValidation, &conflict))?;
    Ok(Action::Run { config, has_file })
}

/// Reads a configuration file. Returns the settings, and remarks on what may be a mistake.
///
/// # Errors
/// [`FileError`] says what is wrong with the file.
pub(super) fn read_file(path: &Path) -> Result<(AgentConfig, Vec<String>), FileError> {
    let config = options_of::<Options>(path)?.into_config();
    let mut remarks: Vec<_> = absent_interfaces(&config.interfaces).collect();
    remarks.extend(absent_interfaces(config.second_uplink.as_slice()));
    remarks.extend(foreign_addresses(&config));
    remarks.extend(config.memory_shortage());
    remarks.extend(config.contradiction());
    remarks.extend(config.unhelped_group());
    remarks.extend(config.no_copies());
    remarks.extend(config.other_device(Path::new("/sys/class/net")));
    Ok((config, remarks))
}

/// Remarks on addresses that do not fit this machine now.
fn foreign_addresses(config: &AgentConfig) -> impl Iterator<Item = String> {
    let own = OwnAddresses::read();
    let metrics = own.foreign("metrics", config.metrics.and_then(MetricsAddress::address));
    let proxy = config.proxy.map(|proxy| proxy.ip()).filter(|ip| own.contains(*ip)).map(|ip| {
        format!(
            "proxy: {ip} is an address of this machine: name that of the proxy at the other end of \
             the link"
        )
    });
    metrics.into_iter().chain(proxy)
}

impl Options {
    fn into_config(self) -> AgentConfig {
        AgentConfig { interfaces: distinct(self.settings.interfaces), ..self.settings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::filter::Selector;
    use crate::config::LogLevel;
    use crate::size::Size;

    fn config(line: &str) -> Result<AgentConfig, clap::Error> {
        match read(line.split_whitespace())? {
            Action::Run { config, .. } => Ok(config),
            other => panic!("{other:?}"),
        }
    }

    fn with_file(text: &str, flags: &str) -> Result<AgentConfig, clap::Error> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sidekick-agent.toml");
        std::fs::write(&path, text).unwrap();
        config(&format!("sidekick-agent --config {} {flags}", path.display()))
    }

    #[test]
    fn defaults_are_those_of_the_configuration() {
        Options::command().debug_assert();
        let expected =
            AgentConfig { interfaces: vec!["wlan0".to_owned()], ..AgentConfig::default() };
        let config = config("sidekick-agent -i wlan0").unwrap();
        assert_eq!(format!("{config:?}"), format!("{expected:?}"));
    }

    const SAMPLE: &str = include_str!("../../sidekick-agent.toml");

    #[test]
    fn the_sample_file_has_every_key_at_its_default() {
        let defaults = config("sidekick-agent -i wlan0").unwrap();
        assert_eq!(with_file(SAMPLE, "").unwrap().to_toml(), defaults.to_toml());
        let lines = SAMPLE.lines().map(|line| {
            line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line)
        });
        let sample = lines.collect::<Vec<_>>().join("\n");
        // A file cannot show the defaults of these three.
        let key = "0".repeat(64);
        let given = format!(
            "sidekick-agent -i wlan0 --proxy 192.0.2.1:5252 --proxy-key {key} \
             --second-uplink wwan0"
        );
        let whole = with_file(&sample, "").unwrap().to_toml();
        assert_eq!(whole, config(&given).unwrap().to_toml());
        let keys = |text: &str| text.lines().filter_map(|line| line.split_once(" = ")).count();
        assert_eq!((keys(&whole), keys(&sample)), (20, 20));
    }

    #[test]
    fn flags_override_the_file() {
        let key = "ab".repeat(32);
        let text = format!(
            "interfaces = [\"a\"]\nproxy = \"192.0.2.1:1\"\nproxy-key = \"{key}\"\n\
             only = [443, \"10.0.0.0/8\"]\nexcept = [\"10.1.0.0/16:1-9\"]\nmin-packets = 2\n\
             max-flows = 3\nmemory = \"4M\"\nidle-timeout = 5\ncapture = \"pnet\"\nbuffer = 6\n\
             metrics = \"off\"\nlog = \"debug\"\nin-order = false\nupload-parity = false\nqueue = 7\n\
             second-uplink = \"c\"\ncarry = 1\ncarry-budget = \"2M\""
        );
        let file = with_file(&text, "").unwrap();
        assert_eq!(
            file.to_toml(),
            with_file(&file.to_toml(), "").unwrap().to_toml(),
            "it can be read again"
        );
        assert_eq!(file.proxy, "192.0.2.1:1".parse().ok());
        assert_eq!(file.proxy_key, key.parse().ok());
        let texts = |of: &[Selector]| of.iter().map(Selector::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&file.only), ["443", "10.0.0.0/8"]);
        assert_eq!(texts(&file.except), ["10.1.0.0/16:1-9"]);
        assert_eq!((file.min_packets, file.max_flows, file.buffer), (2, 3, 6));
        assert_eq!((file.memory, file.idle_timeout), (Size::mebibytes(4), 5));
        assert_eq!((file.metrics, file.log.level()), (Some(MetricsAddress::Off), LogLevel::Debug));
        let other = "cd".repeat(32);
        let flags = format!(
            "-i b --proxy 192.0.2.2:2 --proxy-key {other} --only 80,81 --only 82 --except 8.8.8.8 \
             --min-packets 8 --max-flows 9 --memory 1G --idle-timeout 30 --capture auto --buffer 4 \
             --in-order --upload-parity --second-uplink d --carry 9 --carry-budget 3M --queue 9 \
             --metrics [::1]:7 -v"
        );
        let both = with_file(&text, &flags).unwrap();
        assert_eq!(both.to_toml(), config(&format!("p {flags}")).unwrap().to_toml());
        assert_eq!(texts(&both.only), ["80", "81", "82"]);
    }

    #[test]
    fn nonsense_is_refused_with_what_to_write() {
        for (line, said) in [
            ("p", "no interface to help on: name one with --interface IF"),
            ("p -i a --bogus", "--bogus"),
            ("p -i a,", "the name is empty"),
            ("p -i a --proxy 192.0.2.1", "add a port to it, like 192.0.2.1:5252"),
            ("p -i a --proxy 0.0.0.0:5252", "write an address of the proxy and its port"),
            ("p -i a --tun none", "write off for no device"),
            ("p -i a --proxy-key 12", "expected 64 hexadecimal digits"),
            ("p -i a --only https", "expected a port like 443"),
            ("p -i a --except 10.0.0.1/8", "write 10.0.0.0/8"),
            ("p -i a --min-packets 0", "1..=1000000"),
            ("p -i a --max-flows 0", "1..=65536"),
            ("p -i a --max-flows 65537", "1..=65536"),
            ("p -i a --memory many", "expected a number of bytes like 64M"),
            ("p -i a --idle-timeout 0", "1..=86400"),
            ("p -i a --buffer 0", "1..=1024"),
            ("p -i a --metrics 9253", "like 127.0.0.1:9253, or off"),
            ("p status --config f --metrics 127.0.0.1:1", "cannot be used with"),
            ("p check f --interface a", "--interface"),
            ("p --config /nonexistent -i a", "cannot read /nonexistent"),
        ] {
            let error = read(line.split_whitespace()).unwrap_err().to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
        let said = with_file("max-flows = 0", "-i a").unwrap_err().to_string();
        assert!(said.contains(":1: max-flows: ") && said.contains("not in 1..=65536"), "{said}");
    }

    #[test]
    fn help_shows_examples_and_defaults() {
        let help = Options::command().render_help().to_string();
        for wanted in ["Examples:", "setcap", "[default: 256]", "[default: 30]", "2001:db8::"] {
            assert!(help.contains(wanted), "{wanted} in {help}");
        }
    }
    #[test]
    fn each_program_shows_its_own_status() {
        let proxy = crate::cli::read(["p", "status", "--help"]).unwrap_err().to_string();
        let agent = read(["a", "status", "--help"]).unwrap_err().to_string();
        for (help, lines) in [
            (
                proxy,
                [
                    "Show up to 10000 sessions, not only the first\n",
                    "Where that proxy serves its metrics [default: 127.0.0.1:9252]\n",
                    "The configuration file of that proxy, which names",
                ],
            ),
            (
                agent,
                [
                    "Show up to 10000 flows, not only the busiest\n",
                    "Where that agent serves its metrics [default: 127.0.0.1:9253]\n",
                    "The configuration file of that agent, which names",
                ],
            ),
        ] {
            for line in lines {
                assert!(help.contains(line), "{line} in {help}");
            }
        }
    }
}
