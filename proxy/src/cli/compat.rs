//! The options of other proxies' wires.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use clap::{Args, ValueEnum, value_parser};

use crate::compat::nsdi24::{Every, Settings};

/// Longest time between two quACKs, in milliseconds.
const MAX_MILLIS: u32 = 60_000;

/// The wires that can be spoken in place of the Sidekick protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wire {
    /// That of the programs published with the Sidekick paper at NSDI '24
    Nsdi24,
}

/// Which other wire to speak, and how.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Speaking the published proxy's wire")]
pub struct CompatOptions {
    /// Speak another proxy's wire in place of the Sidekick protocol, so that programs written for
    /// it can be run against this proxy
    ///
    /// nsdi24 is the wire of the programs published with the Sidekick paper (NSDI '24). There are
    /// no sessions: one interface is captured on, and quACKs go to the address that --quack-to
    /// names. Any UDP datagram to the address that --listen names is a reset: sums and count are 0
    /// again, and the last identifier is none.
    ///
    /// Counted is every UDP datagram that comes in through the interface, of whatever flow and of
    /// whatever first byte, if its payload has 25 bytes at least; the identifier is bytes 21 to 24
    /// (the first is byte 0), big-endian. Not counted are datagrams that come from or go to the
    /// address and port this proxy listens on (if it listens on every address, that port of any
    /// address), so neither its quACKs nor resets, and those that leave through the interface (on
    /// Linux before 4.20 these cannot be told apart, and the proxy says so).
    ///
    /// Nothing in this wire is authenticated. Use it in a laboratory.
    #[arg(
        long,
        value_name = "WIRE",
        value_enum,
        requires = "quack_to",
        conflicts_with_all = [
            "max_sessions", "max_sessions_per_source", "max_threshold", "idle_timeout", "key", "no_discovery", "announce",
            "threads"
        ]
    )]
    pub compat: Option<Wire>,

    /// Where quACKs are sent: the sender's address and UDP port for them
    #[arg(long, value_name = "ADDR:PORT", requires = "compat")]
    pub quack_to: Option<SocketAddr>,

    /// When a quACK is sent: after every N counted datagrams (32), or every N milliseconds (30ms)
    ///
    /// By time, the first follows the first datagram after the start or a reset by N milliseconds,
    /// and from then on they are sent steadily, also when nothing new was counted. Before that
    /// datagram there are none. N is 1 to 4294967295 datagrams, or 1 to 60000 milliseconds.
    #[arg(
        long,
        value_name = "N|Nms",
        default_value = "30ms",
        value_parser = every,
        requires = "compat"
    )]
    pub quack_every: Every,

    /// Sums in each quACK, from which a sender finds out as many missing datagrams; it must expect
    /// so many
    #[arg(
        long,
        value_name = "T",
        default_value_t = 20,
        value_parser = value_parser!(u8).range(1..),
        requires = "compat"
    )]
    pub threshold: u8,
}

impl CompatOptions {
    /// What is asked for, if it is the wire of NSDI '24.
    #[must_use]
    pub fn nsdi24(&self) -> Option<Settings> {
        let Wire::Nsdi24 = self.compat?;
        let mut quack_to = self.quack_to?;
        // An IPv4 socket takes no IPv6 address, even one that stands for an IPv4 address.
        if let IpAddr::V4(v4) = quack_to.ip().to_canonical() {
            quack_to.set_ip(v4.into());
        }
        Some(Settings { quack_to, every: self.quack_every, threshold: self.threshold })
    }

    /// Says what is wrong with options that are right each by itself.
    pub(super) fn check(&self, listen: SocketAddr, interfaces: usize) -> Result<(), String> {
        let Some(Settings { quack_to, .. }) = self.nsdi24() else { return Ok(()) };
        if interfaces != 1 {
            return Err(format!(
                "--compat nsdi24 counts on exactly one interface, not on {interfaces}: its wire knows one set of sums"
            ));
        }
        let to = quack_to.ip();
        if quack_to.port() == 0 || to.is_unspecified() || to.is_multicast() {
            return Err(format!(
                "--quack-to {quack_to} is no address of one program on one machine"
            ));
        }
        // An IPv6 socket that listens on every address speaks IPv4 too.
        let dual = listen.is_ipv6() && listen.ip().is_unspecified();
        if listen.ip().to_canonical().is_ipv4() != to.is_ipv4() && !dual {
            return Err(format!(
                "quACKs cannot be sent from {listen} to {quack_to}: choose an address of the same IP version with \
                 --listen"
            ));
        }
        let reaches_us =
            if listen.ip().is_unspecified() { to.is_loopback() } else { to == listen.ip() };
        if reaches_us && quack_to.port() == listen.port() {
            return Err(format!(
                "--quack-to {quack_to} is this proxy itself, which would be reset by its own quACKs"
            ));
        }
        Ok(())
    }
}

/// Reads `N` or `Nms`.
fn every(text: &str) -> Result<Every, String> {
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
    let number = number.ok_or_else(|| format!("1 to {limit} {unit} are possible"))?;
    Ok(if unit == "datagrams" { Every::Packets(number) } else { Every::Millis(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Options;

    const START: &str = "p -i lo --compat nsdi24 --quack-to 10.0.0.2:5103";

    fn options(line: &str) -> Result<Options, String> {
        Options::read(line.split_whitespace()).map_err(|error| error.to_string())
    }

    fn millis(number: u32) -> Every {
        Every::Millis(NonZeroU32::new(number).unwrap())
    }

    fn packets(number: u32) -> Every {
        Every::Packets(NonZeroU32::new(number).unwrap())
    }

    #[test]
    fn without_compat_it_is_our_own_wire() {
        assert_eq!(options("p -i a -i b").unwrap().compat.nsdi24(), None);
    }

    #[test]
    fn defaults_and_choices() {
        let quack_to = "10.0.0.2:5103".parse().unwrap();
        let defaults = Settings { quack_to, every: millis(30), threshold: 20 };
        let choices = [
            ("", defaults),
            ("-i lo -i lo", defaults),
            ("--quack-every 1", Settings { every: packets(1), ..defaults }),
            ("--quack-every 4294967295", Settings { every: packets(u32::MAX), ..defaults }),
            ("--quack-every 1ms", Settings { every: millis(1), ..defaults }),
            (
                "--quack-every 60000ms --threshold 255",
                Settings { every: millis(60_000), threshold: 255, ..defaults },
            ),
            ("--listen [::ffff:10.0.0.1]:5103", defaults),
            ("--listen [::]:5103 --promiscuous --json", defaults),
        ];
        for (more, expected) in choices {
            assert_eq!(
                options(&format!("{START} {more}")).unwrap().compat.nsdi24(),
                Some(expected),
                "{more}"
            );
        }
    }

    #[test]
    fn an_ipv4_address_in_ipv6_is_one() {
        let settings = options("p -i lo --compat nsdi24 --quack-to [::ffff:10.0.0.2]:9")
            .unwrap()
            .compat
            .nsdi24();
        assert_eq!(settings.unwrap().quack_to, "10.0.0.2:9".parse().unwrap());
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
            (to("10.0.0.2"), "invalid socket address"),
            (to("10.0.0.2:0"), "no address of one program"),
            (to("0.0.0.0:7"), "no address of one program"),
            (to("224.0.0.1:7"), "no address of one program"),
            (to("[::1]:7"), "same IP version"),
            (to("10.0.0.2:7 --listen [::1]:5252"), "same IP version"),
            (to("127.0.0.1:5252"), "this proxy itself"),
            (to("10.0.0.2:7 --listen 10.0.0.2:7"), "this proxy itself"),
        ] {
            let error = options(&line).expect_err(&line);
            assert!(
                error.starts_with("error: ") && error.contains(complaint),
                "{complaint:?} in {error}"
            );
        }
    }
}
