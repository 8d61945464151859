//! The command line, checked as a whole.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use audio::TalkerConfig;
use clap::{Parser, ValueEnum};

/// Send an audio-like stream: a small packet of random bytes every few milliseconds.
///
/// audio-receive at the other end plays the packets in order and asks for lost ones again. With --sidekick reinject a
/// Sidekick proxy on the path says which packets did not even reach it, and those are sent again at once, without waiting
/// for the receiver to miss them. Ctrl-C hangs up: the stream ends as if its time were over; a second one ends the program.
#[derive(Debug, Parser)]
#[command(name = "audio-send", version)]
pub(crate) struct Cli {
    /// Where audio-receive listens
    #[arg(value_name = "HOST:PORT")]
    dest: String,

    /// How long to talk, in seconds
    #[arg(long, value_name = "N", default_value = "60", value_parser = parse_seconds)]
    seconds: Duration,
    /// From one packet to the next, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    interval_ms: u16,
    /// UDP payload of a packet, 25 to 1452 bytes
    #[arg(long, value_name = "BYTES", default_value_t = 240)]
    bytes: usize,
    /// What the bytes of the packets follow from: the same seed gives the same bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// What to do with a proxy's reports
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Sidekick::Off)]
    sidekick: Sidekick,
    /// The Sidekick proxy on the path [default port: 5252]
    #[arg(long, value_name = "HOST[:PORT]")]
    proxy: Option<String>,
    /// Ask the proxy for a quACK every N packets; 0 for none by number
    #[arg(long, value_name = "N", default_value_t = 2)]
    quack_every_packets: u16,
    /// Ask the proxy for a quACK every MS milliseconds; 0 for none by the clock
    #[arg(long, value_name = "MS", default_value_t = 0)]
    quack_every_ms: u16,
    /// How many missing packets a quACK can name
    #[arg(long, value_name = "T", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..))]
    threshold: u8,
    /// Ask for a quACK when a loss is suspected, ahead of the schedule
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    poll: OnOff,

    /// Print one JSON object on standard output instead of the summary
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sidekick {
    /// Nothing: repairs are end to end
    Off,
    /// Send again at once what did not reach the proxy
    Reinject,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnOff {
    On,
    Off,
}

/// The help that is wanted, and from whom.
#[derive(Clone, Debug)]
pub(crate) struct Assistance {
    pub(crate) proxy: SocketAddr,
    pub(crate) every_packets: Option<NonZeroU16>,
    pub(crate) every: Option<Duration>,
    pub(crate) threshold: u8,
    pub(crate) poll: bool,
}

/// A command line that makes sense as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) dest: SocketAddr,
    /// Without the help of a proxy.
    pub(crate) stream: TalkerConfig,
    pub(crate) assistance: Option<Assistance>,
}

impl Cli {
    /// Checks what the options say together, and looks up the names.
    pub(crate) fn plan(&self) -> anyhow::Result<Plan> {
        let interval = Duration::from_millis(self.interval_ms.into());
        let packets = self.seconds.as_millis() / interval.as_millis().max(1);
        let stream = TalkerConfig {
            interval,
            payload: self.bytes,
            packets: u32::try_from(packets).unwrap_or(u32::MAX).max(1),
            seed: self.seed,
            reinject: None,
        };
        let assistance = self.assistance()?;
        Ok(Plan { dest: resolve(&self.dest)?, stream, assistance })
    }

    fn assistance(&self) -> anyhow::Result<Option<Assistance>> {
        if self.sidekick == Sidekick::Off {
            ensure!(
                self.proxy.is_none(),
                "--proxy is of no use without --sidekick: say --sidekick reinject, or leave it out"
            );
            return Ok(None);
        }
        let Some(proxy) = &self.proxy else {
            bail!(
                "--sidekick reinject needs a proxy to hear from: name it with --proxy HOST[:PORT], or say --sidekick off"
            );
        };
        let every_packets = NonZeroU16::new(self.quack_every_packets);
        let every = (self.quack_every_ms > 0).then(|| Duration::from_millis(self.quack_every_ms.into()));
        ensure!(
            every.is_some() || every_packets.is_some(),
            "a proxy refuses to report on no schedule at all: give --quack-every-packets or --quack-every-ms"
        );
        Ok(Some(Assistance {
            proxy: resolve(&with_port(proxy))?,
            every_packets,
            every,
            threshold: self.threshold,
            poll: self.poll == OnOff::On,
        }))
    }
}

/// `HOST` or `HOST:PORT` as `HOST:PORT`. An IPv6 address is full of colons, with brackets or without.
fn with_port(proxy: &str) -> String {
    let port = sidekick_protocol::DEFAULT_PORT;
    let bare = proxy.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(proxy);
    match bare.parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, port).to_string(),
        Err(_) if proxy.contains(':') => proxy.to_owned(),
        Err(_) => format!("{proxy}:{port}"),
    }
}

fn resolve(name: &str) -> anyhow::Result<SocketAddr> {
    let mut found = name
        .to_socket_addrs()
        .with_context(|| format!("cannot find {name:?}; it should look like HOST:PORT"))?;
    let address = found.next().with_context(|| format!("{name:?} has no address"))?;
    ensure!(address.port() != 0, "{name:?} names no port that one could send to; give one from 1 to 65535");
    Ok(address)
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.001..=86_400.0).contains(&seconds) {
        return Err("between 0.001 and 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(args: &[&str]) -> anyhow::Result<Plan> {
        Cli::try_parse_from(["audio-send", "127.0.0.1:9"].iter().chain(args))?.plan()
    }

    #[test]
    fn the_default_is_the_papers_call() {
        let plan = plan(&[]).unwrap();
        assert_eq!((plan.stream.packets, plan.stream.payload), (3000, 240));
        assert!(plan.assistance.is_none());
    }

    #[test]
    fn the_settings_arrive() {
        let line = "--sidekick reinject --proxy ::1 --quack-every-packets 4 --quack-every-ms 30 --threshold 16 --poll off";
        let plan = plan(&line.split(' ').collect::<Vec<_>>()).unwrap();
        let assistance = plan.assistance.unwrap();
        assert_eq!(assistance.proxy, "[::1]:5252".parse().unwrap());
        assert_eq!(assistance.every_packets, NonZeroU16::new(4));
        assert_eq!(assistance.every, Some(Duration::from_millis(30)));
        assert_eq!((assistance.threshold, assistance.poll), (16, false));
    }

    #[test]
    fn contradictions_are_named() {
        for (args, word) in [
            (&["--proxy", "127.0.0.1"][..], "--sidekick reinject"),
            (&["--sidekick", "reinject"], "--proxy"),
            (
                &["--sidekick", "reinject", "--proxy", "127.0.0.1", "--quack-every-packets", "0"],
                "--quack-every-ms",
            ),
            (&["--sidekick", "reinject", "--proxy", "127.0.0.1:0"], "1 to 65535"),
            (&["--seconds", "0"], "86400"),
            (&["--sidekick", "pacubic"], "reinject"),
        ] {
            let said = format!("{:#}", plan(args).expect_err("this must be refused"));
            assert!(said.contains(word), "{args:?}: {said}");
        }
    }
}
