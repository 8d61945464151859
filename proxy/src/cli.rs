//! The proxy's command line.

pub(crate) mod file;
pub(crate) mod shared;
pub(crate) mod values;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::addresses;
use crate::config::Config;
use crate::monitor::status::Status;
use crate::replay::report::ReplayOptions;
use file::{FileError, Parsed, options_of, with_file};
use shared::{Action, StatusOptions, absent_interfaces, distinct, error};

/// Fixed, because clap's own repeats every given flag in an error.
const USAGE: &str = "\
sidekick-proxy --interface <IF> [OPTIONS]
       sidekick-proxy <COMMAND>";

const EXAMPLES: &str = "\
Examples:
  An access point whose clients are on wlan0:
      sidekick-proxy --interface wlan0
  A router with two local networks that logs its progress:
      sidekick-proxy -i eth1 -i eth2 -v
  A train gateway that answers only on its local address (IPv4 flows only):
      sidekick-proxy -i eth0 --listen 192.168.8.1:5252
  A router with a configuration file, after a check of that file:
      sidekick-proxy check /etc/sidekick-proxy.toml
      sidekick-proxy --config /etc/sidekick-proxy.toml
  The status of the running proxy:
      sidekick-proxy status

Name the interfaces of the near segment, through which the senders' packets arrive. The proxy only
reads packets. It never alters them, and delays none but with --in-order. Capturing requires
CAP_NET_RAW: run the proxy as root, or grant the capability once:
      setcap cap_net_raw+ep $(command -v sidekick-proxy)

On SIGINT or SIGTERM the proxy sends each sender a BYE, prints a summary and exits with 0. On
SIGHUP it rereads the file of --config, and open sessions continue. A change of interfaces, listen,
key, promiscuous, in-order, queue, capture, buffer, threads or metrics needs a restart, which a
warning names. Without a configuration file, SIGHUP ends the proxy, too.";

/// Counts the encrypted packets of senders that request it, and reports to them by quACKs which
/// packets arrived here. So these senders repair losses on the near segment without waiting for the
/// far end.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "sidekick-proxy",
    version,
    after_help = EXAMPLES,
    override_usage = USAGE,
    max_term_width = 100,
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Options {
    /// What to do instead of running
    #[command(subcommand)]
    command: Option<Command>,

    /// Read this file (TOML). Its keys are the names of the flags, with `discovery = false` for
    /// --no-discovery. Flags override it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: Config,
}

/// What the program does instead of running.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Check a configuration file and the key that it names, and print the effective settings. This
    /// starts and creates nothing
    Check {
        /// The file
        file: PathBuf,
    },

    /// Remove the rules of the firewall that a killed proxy with --in-order has left. They stop no
    /// packet
    Clean {
        /// The configuration file of that proxy, which names its queue
        file: Option<PathBuf>,
    },

    /// Count the packets of a capture file as the proxy would have counted them, and print the
    /// result
    Replay(ReplayOptions),

    /// Show the status of the proxy that runs on this machine: interfaces, totals and sessions
    Status(StatusOptions<Status>),
}

/// The definition of the command line.
pub(crate) fn definition() -> clap::Command {
    Options::command()
}

/// Reads a command line, which begins with the program's name.
///
/// # Errors
/// The text to print: what is wrong, or the help that the operator requested.
pub(crate) fn read(
    line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<Action<Config, Command>, clap::Error> {
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
pub(crate) fn read_file(path: &Path) -> Result<(Config, Vec<String>), FileError> {
    let config = options_of::<Options>(path)?.into_config();
    let mut remarks: Vec<_> = absent_interfaces(&config.interfaces).collect();
    remarks.extend(addresses::remarks(&config));
    remarks.extend(config.memory_shortage());
    remarks.extend(config.copies_shortage());
    remarks.extend(config.idle_parity());
    Ok((config, remarks))
}

impl Options {
    fn into_config(self) -> Config {
        let interfaces = distinct(self.settings.interfaces);
        Config { interfaces, ..self.settings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LogLevel;
    use crate::monitor::listener::MetricsAddress;
    use crate::size::Size;

    fn config(line: &str) -> Result<Config, clap::Error> {
        match read(line.split_whitespace())? {
            Action::Run { config, .. } => Ok(config),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_configuration() {
        Options::command().debug_assert();
        let expected = Config { interfaces: vec!["eth0".to_owned()], ..Config::default() };
        let config = config("sidekick-proxy -i eth0").unwrap();
        assert_eq!(format!("{config:?}"), format!("{expected:?}"));
    }

    fn with_file(text: &str, flags: &str) -> Result<Config, clap::Error> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sidekick-proxy.toml");
        std::fs::write(&path, text).unwrap();
        config(&format!("sidekick-proxy --config {} {flags}", path.display()))
    }

    /// The sample file of the repository, with values for its commented keys.
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
        let defaults = config("sidekick-proxy -i eth0").unwrap();
        let plain = with_file(include_str!("../sidekick-proxy.toml"), "").unwrap();
        assert_eq!(plain.to_toml(), defaults.to_toml());
        let whole = with_file(&sample(), "").unwrap();
        // A file cannot show the defaults of two keys, and those of two depend on the machine.
        let given = "sidekick-proxy -i eth0 --key /var/lib/sidekick-proxy/key --keep 64M \
                     --listen [::]:5252 --announce 192.0.2.1:5252";
        assert_eq!(whole.to_toml(), config(given).unwrap().to_toml());
        let keys = |text: &str| text.lines().filter_map(|line| line.split_once(" = ")).count();
        assert_eq!(keys(&whole.to_toml()), 21);
        assert_eq!(keys(&sample()), 21);
    }

    #[test]
    fn flags_override_the_file() {
        let text = "interfaces = [\"a\"]\nmax-sessions = 7\nmax-threshold = 9\n\
                    listen = \"127.0.0.1:1\"\ndiscovery = false\nidle-timeout = 5\n\
                    log = \"debug\"\nmetrics = \"off\"\nmax-sessions-per-source = 3\n\
                    promiscuous = true\nkey = \"k\"\n\
                    keep = \"9M\"\nkeep-per-session = 99";
        let file = with_file(text, "").unwrap();
        assert_eq!(
            file.to_toml(),
            with_file(&file.to_toml(), "").unwrap().to_toml(),
            "it can be read again"
        );
        assert_eq!(
            (file.max_sessions, file.max_threshold, file.idle_timeout, file.log.level()),
            (7, 9, 5, LogLevel::Debug)
        );
        assert_eq!((file.keep(), file.keep_per_session), (Size::mebibytes(9), Size::bytes(99)));
        assert_eq!(file.metrics, Some(MetricsAddress::Off));
        assert!(!file.discovery && file.promiscuous && file.max_sessions_per_source == 3);
        let flags =
            "-i b --max-sessions 1024 --announce 192.0.2.1:5252 -v --key other --metrics [::1]:7";
        let both = with_file(text, flags).unwrap();
        assert_eq!(
            (both.interfaces, both.max_sessions, both.max_threshold),
            (vec!["b".to_owned()], 1024, 9)
        );
        assert_eq!(both.metrics, "[::1]:7".parse().ok());
        assert_eq!(with_file(text, "--keep 5M").unwrap().keep(), Size::mebibytes(5));
        assert_eq!(with_file("keep = 0", "-i a").unwrap().keep(), Size::default());
        assert!(
            both.discovery
                && both.log.level() == LogLevel::Info
                && both.key == Some("other".into())
        );
    }

    #[test]
    fn an_error_in_the_file_is_an_error_of_the_command_line() {
        let said = with_file("max-sessions = 0", "-i a").unwrap_err().to_string();
        assert!(
            said.contains(":1: max-sessions: ") && said.contains("not in 1..=1000000"),
            "{said}"
        );
        let said = with_file("max-sessions = 3", "").unwrap_err().to_string();
        assert!(said.contains("--interface IF"), "{said}");
        let said = config("p --config /nonexistent -i a").unwrap_err().to_string();
        assert!(said.contains("cannot read /nonexistent"), "{said}");
        assert!(read("p check f --interface a".split(' ')).is_err());
        let Action::Command(Command::Check { file }) = read(["p", "check", "some.toml"]).unwrap()
        else {
            panic!("another command");
        };
        assert_eq!(file, Path::new("some.toml"));
    }

    #[test]
    fn interfaces_have_several_notations() {
        for line in ["p -i a -i b", "p --interface a,b", "p --interface=a -ib -i a"] {
            assert_eq!(config(line).unwrap().interfaces, ["a", "b"], "{line}");
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
            "p -i a --keep many",
            "p -i a -v --log debug",
            "p -i a --metrics on",
            "p -i a,",
            "p -i=",
            "p status --config f --metrics 127.0.0.1:1",
        ] {
            assert!(read(line.split_whitespace()).is_err(), "{line}");
        }
    }

    #[test]
    fn help_shows_examples_and_defaults() {
        let help = Options::command().render_help().to_string();
        for wanted in ["Examples:", "setcap", "[default: `[::]:5252`", "[default: 40]"] {
            assert!(help.contains(wanted), "{wanted} in {help}");
        }
    }
}
