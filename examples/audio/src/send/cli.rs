//! The command line, and its check.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use audio::edge;
use audio::session::{Description, Encoding, MasterKey, Session};
use audio::source::FRAME_MS;
use audio::talker::{MAX_PAYLOAD, MIN_PAYLOAD, sender_config};
use clap::{Parser, ValueEnum};
use sidekick_protocol::SenderConfig;

/// Send sound as a call: Opus at a constant 96 kbit/s in RTP under SRTP, a packet every 20 ms.
///
/// The receiver reads the key and the payload types from a session description. It is audio-receive
/// or any other program for RTP and SRTP, such as ffmpeg. Either end makes the description:
/// audio-send --write-sdp FILE, or before it audio-receive --write-sdp FILE for --sdp here. Make
/// another for each call, and keep it secret: its holder can decrypt the call. With --sidekick
/// reinject, a Sidekick proxy on the path reports which packets did not reach it. The program sends
/// them again at once, without waiting for the receiver. Ctrl-C ends the stream; a second one ends
/// the program.
#[derive(Debug, Parser)]
#[command(
    name = "audio-send",
    version,
    override_usage = "audio-send --write-sdp <FILE> <HOST:PORT> [OPTIONS]\n       \
                      audio-send --sdp <FILE> [HOST:PORT] [OPTIONS]"
)]
pub(crate) struct Cli {
    /// The receiver's address [default: that of --sdp]
    #[arg(value_name = "HOST:PORT")]
    dest: Option<String>,
    /// The session description that the receiver wrote
    #[arg(long, value_name = "FILE", conflicts_with = "write_sdp")]
    sdp: Option<PathBuf>,
    /// Make a session with a new key, and write its description for the receiver
    #[arg(long, value_name = "FILE")]
    pub(crate) write_sdp: Option<PathBuf>,

    /// The sound: a WAV file with one or two channels, which are mixed [default: a tone]
    #[arg(long, value_name = "FILE", conflicts_with = "raw")]
    pub(crate) wav: Option<PathBuf>,
    /// Send random bytes in place of Opus, as in the Sidekick paper
    #[arg(long)]
    raw: bool,
    /// The duration in seconds [default: 60, or the length of the WAV file]
    #[arg(long, value_name = "N", value_parser = parse_seconds)]
    seconds: Option<Duration>,
    /// The interval between packets in milliseconds; for Opus 5, 10, 20, 40 or 60
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    interval_ms: u16,
    /// Random bytes in a packet, without headers
    #[arg(long, value_name = "BYTES", default_value_t = 240, requires = "raw")]
    pub(crate) bytes: usize,
    /// The seed of the random bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Expect no authenticated reports, as from ffmpeg: the receiver's silence is no error
    #[arg(long)]
    pub(crate) one_way: bool,

    /// The use of a proxy's reports
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Sidekick::Off)]
    sidekick: Sidekick,
    /// The Sidekick proxy on the path [default port: 5252]
    #[arg(long, value_name = "HOST[:PORT]")]
    proxy: Option<String>,
    /// Request a quACK every N packets; 0 for none by number
    #[arg(long, value_name = "N", default_value_t = 1)]
    quack_every_packets: u16,
    /// Request a quACK every MS milliseconds; 0 for none by time
    #[arg(long, value_name = "MS", default_value_t = 0)]
    quack_every_ms: u16,
    /// The most missing packets that a quACK identifies; --poll on requests larger ones if
    /// necessary [default: 1 with --poll on, otherwise 8]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u8).range(1..))]
    threshold: Option<u8>,
    /// Request a quACK before the schedule when a packet may be lost
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    poll: OnOff,
    /// Request a quACK when a packet may be lost, and few others
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    steady: OnOff,

    /// Print one JSON object on standard output instead of the summary
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sidekick {
    /// None: repairs are end to end
    Off,
    /// Send again at once the packets that did not reach the proxy
    Reinject,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnOff {
    On,
    Off,
}

/// A checked command line.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) description: Description,
    /// The most packets. A file has its own end.
    pub(crate) packets: u32,
    /// The proxy, and the terms to request.
    pub(crate) sender: Option<SenderConfig>,
}

impl Cli {
    /// Checks the options together, resolves names, and reads the session description or makes one
    /// with `key`.
    pub(crate) fn plan(&self, key: MasterKey) -> anyhow::Result<Plan> {
        edge::check_files(&[("--wav", &self.wav), ("--write-sdp", &self.write_sdp)])?;
        let interval = Duration::from_millis(self.interval_ms.into());
        ensure!(
            self.raw || FRAME_MS.contains(&self.interval_ms),
            "Opus has frames of 5, 10, 20, 40 or 60 ms: use --interval-ms with one of these, or --raw"
        );
        ensure!(
            (MIN_PAYLOAD..=MAX_PAYLOAD).contains(&self.bytes),
            "--bytes must be {MIN_PAYLOAD} to {MAX_PAYLOAD}: less holds no identifier, and more does not fit an Ethernet frame"
        );
        let most = if self.wav.is_some() { Duration::MAX } else { Duration::from_secs(60) };
        let packets = self.seconds.unwrap_or(most).as_millis() / interval.as_millis().max(1);
        Ok(Plan {
            description: Description { interval, ..self.description(key)? },
            packets: u32::try_from(packets).unwrap_or(u32::MAX).max(1),
            sender: self.sender(interval)?,
        })
    }

    fn description(&self, key: MasterKey) -> anyhow::Result<Description> {
        let encoding = if self.raw { Encoding::Random } else { Encoding::Opus };
        let dest = self.dest.as_deref().map(edge::resolve).transpose()?;
        if let Some(path) = &self.sdp {
            let read = edge::read_description(path)?;
            ensure!(
                read.session.encoding == encoding,
                "{} is for {}",
                path.display(),
                if self.raw { "Opus: leave out --raw" } else { "random bytes: add --raw" }
            );
            let destination = dest.unwrap_or(read.destination);
            ensure!(
                !destination.ip().is_unspecified() && destination.port() != 0,
                "{} does not name the receiver's address: add its HOST:PORT",
                path.display()
            );
            return Ok(Description { destination, ..read });
        }
        let (Some(_), Some(destination)) = (&self.write_sdp, dest) else {
            bail!(
                "the call needs a key that both ends know: use HOST:PORT and --write-sdp FILE, and start the receiver with \
                 that file; or --sdp FILE with the file of audio-receive --write-sdp"
            );
        };
        Ok(Description::new(Session::new(key, encoding), destination))
    }

    fn sender(&self, interval: Duration) -> anyhow::Result<Option<SenderConfig>> {
        let used = self.sidekick == Sidekick::Reinject;
        let Some(proxy) = edge::proxy("reinject", used, self.proxy.as_deref())? else {
            return Ok(None);
        };
        let mut sender = sender_config(proxy);
        sender.poll = self.poll == OnOff::On;
        sender.steady = (self.steady == OnOff::On).then_some(interval);
        sender.terms.threshold = self.threshold.unwrap_or(if sender.poll { 1 } else { 8 });
        sender.terms.every_packets = NonZeroU16::new(self.quack_every_packets);
        sender.terms.every =
            (self.quack_every_ms > 0).then(|| Duration::from_millis(self.quack_every_ms.into()));
        ensure!(
            self.quack_every_packets > 0 || self.quack_every_ms > 0,
            "a proxy refuses to report without a schedule: use --quack-every-packets or --quack-every-ms"
        );
        Ok(Some(sender))
    }
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
        Cli::try_parse_from(["audio-send"].iter().chain(args))?.plan(MasterKey::of_simulation(1))
    }

    const NEW: [&str; 3] = ["127.0.0.1:9", "--write-sdp", "call.sdp"];

    fn new(args: &[&str]) -> anyhow::Result<Plan> {
        plan(&[&NEW, args].concat())
    }

    #[test]
    fn the_default_is_a_minute_of_opus() {
        let plan = new(&[]).unwrap();
        assert_eq!((plan.packets, plan.description.session.encoding), (3000, Encoding::Opus));
        assert_eq!(plan.description.destination, "127.0.0.1:9".parse().unwrap());
        assert!(plan.sender.is_none());
        assert_eq!(new(&["--wav", "speech.wav"]).unwrap().packets, u32::MAX);
        assert_eq!(new(&["--wav", "speech.wav", "--seconds", "2"]).unwrap().packets, 100);
    }

    #[test]
    fn the_settings_arrive() {
        let proxy = "--sidekick reinject --proxy ::1 --interval-ms 60 ";
        let all =
            "--quack-every-packets 4 --quack-every-ms 30 --threshold 16 --poll off --steady off";
        let ms = Duration::from_millis;
        // With polls, a quACK has one sum by default.
        for (line, every_packets, every, threshold, poll, steady) in [
            ("--poll on", 1, None, 1, true, Some(ms(60))),
            ("--poll off", 1, None, 8, false, Some(ms(60))),
            (all, 4, Some(ms(30)), 16, false, None),
        ] {
            let sender = new(&(proxy.to_owned() + line).split(' ').collect::<Vec<_>>());
            let sender = sender.unwrap().sender.unwrap();
            assert_eq!(sender.proxy, Some("[::1]:5252".parse().unwrap()));
            assert_eq!(sender.terms.every_packets, NonZeroU16::new(every_packets), "{line}");
            assert_eq!((sender.terms.every, sender.terms.threshold), (every, threshold), "{line}");
            assert_eq!((sender.poll, sender.steady), (poll, steady), "{line}");
        }
    }

    #[test]
    fn the_address_of_a_description_is_the_default() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("call.sdp");
        let file = path.to_str().unwrap();
        let made = new(&[]).unwrap().description;
        std::fs::write(&path, made.to_sdp(None)).unwrap();
        assert_eq!(plan(&["--sdp", file]).unwrap().description, made);
        let elsewhere = plan(&["--sdp", file, "[::1]:7"]).unwrap().description.destination;
        assert_eq!(elsewhere, "[::1]:7".parse().unwrap());
        let text = format!("{:#}", plan(&["--sdp", file, "--raw"]).unwrap_err());
        assert!(text.contains("leave out --raw"), "{text}");
        std::fs::write(&path, "no description").unwrap();
        let text = format!("{:#}", plan(&["--sdp", file]).unwrap_err());
        assert!(text.contains("cannot use the session description"), "{text}");
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
            (&["--interval-ms", "30"], "--raw"),
            (&["--raw", "--bytes", "12"], "13 to 1428"),
            (&["--bytes", "100"], "--raw"),
            (&["--sdp", "call.sdp"], "--write-sdp"),
            (&["--wav", "./call.sdp"], "--wav and --write-sdp"),
        ] {
            let text = format!("{:#}", new(args).expect_err("this must be refused"));
            assert!(text.contains(word), "{args:?}: {text}");
        }
        let text = plan(&["127.0.0.1:9"]).unwrap_err().to_string();
        assert!(text.contains("--write-sdp FILE") && text.contains("--sdp FILE"), "{text}");
    }
}
