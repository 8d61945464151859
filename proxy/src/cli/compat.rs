//! The options for the wire formats of other proxies.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use clap::{Args, ValueEnum, value_parser};

use super::values::address;
use crate::compat::nsdi24::settings::{Interval, Settings};

/// Longest time between two quACKs, in milliseconds.
const MAX_MILLIS: u32 = 60_000;

/// The wire formats that can replace the Sidekick protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WireFormat {
    /// That of the programs published with the Sidekick paper at NSDI '24
    Nsdi24,
}

/// Which other wire format to use, and how.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Using the published proxy's wire format")]
pub(super) struct CompatOptions {
    /// Use another proxy's wire format in place of the Sidekick protocol, for programs that were
    /// written for that proxy
    ///
    /// nsdi24 is the wire format of the programs published with the Sidekick paper (NSDI '24). It
    /// has no sessions: the proxy captures on one interface, and sends quACKs to the address of
    /// --quack-to. Any UDP datagram to the address of --listen is a reset: it clears the sums, the
    /// count and the last identifier.
    ///
    /// The proxy counts every UDP datagram that arrives through the interface, of any flow and with
    /// any first byte, if its payload has at least 25 bytes. The identifier is bytes 21 to 24 (the
    /// first is byte 0), big-endian. The proxy does not count datagrams from or to the address and
    /// port on which it listens, so neither its quACKs nor resets. If it listens on every address,
    /// this applies to that port of any address. It does not count datagrams that leave through the
    /// interface either. Linux before 4.20 does not distinguish these; the proxy then warns.
    ///
    /// Nothing in this wire format is authenticated. Use it in a laboratory.
    #[arg(
        long,
        value_name = "WIRE",
        value_enum,
        requires = "quack_to",
        conflicts_with_all = [
            "max_sessions", "max_sessions_per_source", "max_threshold", "idle_timeout", "key",
            "discovery", "announce", "threads"
        ]
    )]
    compat: Option<WireFormat>,

    /// Destination of quACKs: the sender's address and UDP port for them
    #[arg(long, value_name = "ADDR:PORT", value_parser = quack_to, requires = "compat")]
    quack_to: Option<SocketAddr>,

    /// When to send a quACK: after every N counted datagrams (32), or every N milliseconds (30ms)
    ///
    /// By time, the first quACK follows N milliseconds after the first datagram since the start or
    /// a reset. From then on the proxy sends one every N milliseconds, even if it has counted
    /// nothing new. N is 1 to 4294967295 datagrams, or 1 to 60000 milliseconds.
    #[arg(
        long,
        value_name = "N|Nms",
        default_value = "30ms",
        value_parser = interval,
        requires = "compat"
    )]
    quack_every: Interval,

    /// Sums in each quACK: a sender can identify this many missing datagrams. The sender must
    /// expect the same number
    #[arg(
        long,
        value_name = "T",
        default_value_t = 20,
        value_parser = value_parser!(u8).range(1..),
        requires = "compat"
    )]
    threshold: u8,
}

impl CompatOptions {
    /// The settings for the wire format of NSDI '24, if the operator chose it.
    pub(super) fn nsdi24(&self) -> Option<Settings> {
        let WireFormat::Nsdi24 = self.compat?;
        Some(Settings::new(self.quack_to?, self.quack_every, self.threshold))
    }
}

/// Reads the destination of quACKs.
fn quack_to(text: &str) -> Result<SocketAddr, String> {
    address(text, SocketAddr::from(([10, 0, 0, 2], 5103)))
}

/// Reads `N` or `Nms`.
fn interval(text: &str) -> Result<Interval, String> {
    let (number, limit, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, MAX_MILLIS, "milliseconds"),
        None => (text, u32::MAX, "datagrams"),
    };
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(
            "give a number of datagrams, such as 32, or of milliseconds, such as 30ms".to_owned()
        );
    }
    let number = number.parse().ok().filter(|number: &NonZeroU32| number.get() <= limit);
    let number = number.ok_or_else(|| format!("choose 1 to {limit} {unit}"))?;
    Ok(if unit == "datagrams" { Interval::Packets(number) } else { Interval::Millis(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::read;
    use crate::cli::shared::Action;
    use crate::config::Config;

    const START: &str = "p -i lo --compat nsdi24 --quack-to 10.0.0.2:5103";

    fn config(line: &str) -> Result<Config, String> {
        match read(line.split_whitespace()).map_err(|error| error.to_string())? {
            Action::Run { config, .. } => Ok(config),
            other => panic!("{other:?}"),
        }
    }

    fn settings(interval: Interval, threshold: u8) -> Option<Settings> {
        Some(Settings::new("10.0.0.2:5103".parse().unwrap(), interval, threshold))
    }

    fn millis(number: u32) -> Interval {
        Interval::Millis(NonZeroU32::new(number).unwrap())
    }

    fn packets(number: u32) -> Interval {
        Interval::Packets(NonZeroU32::new(number).unwrap())
    }

    #[test]
    fn without_compat_the_proxy_uses_the_sidekick_protocol() {
        assert_eq!(config("p -i a -i b").unwrap().nsdi24, None);
    }

    #[test]
    fn defaults_and_choices() {
        let defaults = settings(millis(30), 20);
        let choices = [
            ("", defaults),
            ("-i lo -i lo", defaults),
            ("--quack-every 1", settings(packets(1), 20)),
            ("--quack-every 4294967295", settings(packets(u32::MAX), 20)),
            ("--quack-every 1ms", settings(millis(1), 20)),
            ("--quack-every 60000ms --threshold 255", settings(millis(60_000), 255)),
            ("--listen [::ffff:10.0.0.1]:5103", defaults),
            ("--listen [::]:5103 --promiscuous --json", defaults),
        ];
        for (more, expected) in choices {
            assert_eq!(config(&format!("{START} {more}")).unwrap().nsdi24, expected, "{more}");
        }
    }

    #[test]
    fn a_mapped_ipv4_address_is_an_ipv4_address() {
        let line = "p -i lo --compat nsdi24 --quack-to [::ffff:10.0.0.2]:5103";
        assert_eq!(config(line).unwrap().nsdi24, settings(millis(30), 20));
    }

    #[test]
    fn nonsense_is_refused_with_a_sentence() {
        let more = |more: &str| format!("{START} {more}");
        let to = |to: &str| format!("p -i lo --compat nsdi24 --quack-to {to}");
        for (line, complaint) in [
            ("p -i lo --compat nsdi24".to_owned(), "--quack-to <ADDR:PORT>"),
            ("p -i lo --quack-to 10.0.0.2:1".to_owned(), "--compat <WIRE>"),
            ("p -i lo --quack-every 4".to_owned(), "--compat <WIRE>"),
            ("p -i lo --threshold 4".to_owned(), "--compat <WIRE>"),
            (START.replace("nsdi24", "sigcomm99"), "possible values: nsdi24"),
            (START.replace("-i lo", ""), "--interface IF"),
            (more("-i eth0"), "exactly one interface, not on 2"),
            (more("--max-sessions 5"), "cannot be used with '--max-sessions <N>'"),
            (
                more("--max-sessions-per-source 5"),
                "cannot be used with '--max-sessions-per-source <N>'",
            ),
            (more("--max-threshold 5"), "cannot be used with '--max-threshold <T>'"),
            (more("--idle-timeout 5"), "cannot be used with '--idle-timeout <SECONDS>'"),
            (more("--threshold 0"), "0 is not in 1..=255"),
            (more("--threshold 256"), "256 is not in 1..=255"),
            (more("--quack-every 4 --quack-every 4ms"), "cannot be used multiple times"),
            (more("--quack-every 0"), "1 to 4294967295 datagrams"),
            (more("--quack-every 4294967296"), "1 to 4294967295 datagrams"),
            (more("--quack-every 0ms"), "1 to 60000 milliseconds"),
            (more("--quack-every 60001ms"), "1 to 60000 milliseconds"),
            (more("--quack-every ms"), "such as 30ms"),
            (more("--quack-every +4"), "such as 32"),
            (more("--quack-every 4s"), "such as 32"),
            (to("10.0.0.2"), "add a port to it, like 10.0.0.2:5103"),
            (to("10.0.0.2:0"), "not the address and port of one program"),
            (to("0.0.0.0:7"), "not the address and port of one program"),
            (to("224.0.0.1:7"), "not the address and port of one program"),
            (to("[::1]:7 --listen 0.0.0.0:5252"), "same IP version"),
            (to("10.0.0.2:7 --listen [::1]:5252"), "same IP version"),
            (to("127.0.0.1:5252"), "this proxy itself"),
            (to("127.0.0.1:5252 --listen 0.0.0.0:5252"), "this proxy itself"),
            (to("10.0.0.2:7 --listen 10.0.0.2:7"), "this proxy itself"),
        ] {
            let error = config(&line).expect_err(&line);
            assert!(
                error.starts_with("error: ") && error.contains(complaint),
                "{complaint:?} in {error}"
            );
        }
    }
}
