//! The command line, and its check.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{bail, ensure};
use audio::edge;
use audio::session::{Description, Encoding, MasterKey, Session};
use clap::{Parser, ValueEnum};

/// The default port of RTP (RFC 3551, section 8).
const PORT: u16 = 5004;

/// Receive one call from audio-send, play it in order, and report how long packets waited.
///
/// The key and the payload types come from a session description. Either audio-send --write-sdp
/// writes it for --sdp here, or this program writes it with --write-sdp for audio-send --sdp. The
/// program accepts the first stream that arrives. It requests a missing packet at most once per
/// round trip, until the playout limit. Then it skips the packet, and conceals it in the WAV file.
/// With --sidekick parity, a Sidekick proxy behind this end's lossy link sends parity for the
/// call's packets. From it the program rebuilds what that link lost. It ends after the stream, or
/// on Ctrl-C, and prints its report in either case.
#[derive(Debug, Parser)]
#[command(
    name = "audio-receive",
    version,
    override_usage = "audio-receive --write-sdp <FILE> [OPTIONS]\n       \
                      audio-receive --sdp <FILE> [OPTIONS]"
)]
pub(crate) struct Cli {
    /// The session description that the sender wrote
    #[arg(long, value_name = "FILE", conflicts_with = "write_sdp")]
    sdp: Option<PathBuf>,
    /// Make a session with a new key, and write its description for the sender
    #[arg(long, value_name = "FILE")]
    pub(crate) write_sdp: Option<PathBuf>,
    /// With --write-sdp: expect random bytes in place of Opus, as audio-send --raw sends them
    #[arg(long, requires = "write_sdp")]
    raw: bool,
    /// The local UDP address [default: every IPv4 address of this machine and port 5004; with
    /// --sdp, every address of the file's family and the file's port]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,

    /// Write the sound to a WAV file
    #[arg(long, value_name = "FILE")]
    pub(crate) wav: Option<PathBuf>,
    /// Write how long packets waited, as a percentile distribution for HdrHistogram's plotter
    #[arg(long, value_name = "FILE")]
    pub(crate) hgrm: Option<PathBuf>,
    /// How long a missing packet may delay later ones, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=60_000))]
    pub(crate) playout_limit_ms: u16,
    /// The silence in seconds after which the stream is over, once it has begun
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) idle_timeout: u16,
    /// The use of a proxy behind the lossy link of this end
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Sidekick::Off)]
    sidekick: Sidekick,
    /// The Sidekick proxy on the path [default port: 5252]
    #[arg(long, value_name = "HOST[:PORT]")]
    proxy: Option<String>,
    /// Request this many datagrams of parity for a hundred packets, 3 to 100; the proxy may send
    /// fewer
    #[arg(long, value_name = "PERCENT", default_value_t = 30, value_parser = clap::value_parser!(u8).range(3..=100))]
    parity_share: u8,

    /// Print one JSON object on standard output, after the line that starts with `ready`, instead
    /// of the summary
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sidekick {
    /// None: repairs are end to end
    Off,
    /// Rebuild lost packets from the proxy's parity
    Parity,
}

/// A checked command line.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) listen: SocketAddr,
    /// The call's description, with the destination for the sender.
    pub(crate) description: Description,
    /// The proxy to ask for parity, and the share of repair symbols.
    pub(crate) parity: Option<(SocketAddr, f64)>,
}

impl Cli {
    /// Checks the options together, and reads the session description or makes one with `key`.
    pub(crate) fn plan(&self, key: MasterKey) -> anyhow::Result<Plan> {
        edge::check_files(&[
            ("--sdp", &self.sdp),
            ("--write-sdp", &self.write_sdp),
            ("--wav", &self.wav),
            ("--hgrm", &self.hgrm),
        ])?;
        let (listen, description) = match (&self.sdp, &self.write_sdp) {
            (Some(path), _) => {
                let read = edge::read_description(path)?;
                let any = edge::unspecified(read.destination);
                (self.listen.unwrap_or(SocketAddr::new(any, read.destination.port())), read)
            }
            (None, Some(_)) => {
                let listen = self.listen.unwrap_or((Ipv4Addr::UNSPECIFIED, PORT).into());
                let encoding = if self.raw { Encoding::Random } else { Encoding::Opus };
                (listen, Description::new(Session::new(key, encoding), listen))
            }
            (None, None) => bail!(
                "the call needs a key that both ends know: use --sdp FILE with the file of audio-send --write-sdp; \
                 or --write-sdp FILE, and start audio-send with that file"
            ),
        };
        ensure!(
            self.wav.is_none() || description.session.encoding == Encoding::Opus,
            "random bytes cannot be played: leave out --wav, or make a session without --raw"
        );
        let used = self.sidekick == Sidekick::Parity;
        let proxy = edge::proxy("parity", used, self.proxy.as_deref())?;
        let parity = proxy.map(|proxy| (proxy, f64::from(self.parity_share) / 100.0));
        Ok(Plan { listen, description, parity })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(args: &[&str]) -> anyhow::Result<Plan> {
        Cli::try_parse_from(["audio-receive"].iter().chain(args))?.plan(MasterKey::of_simulation(1))
    }

    #[test]
    fn a_session_is_made_or_read() {
        let made = plan(&["--write-sdp", "call.sdp", "--listen", "127.0.0.1:7"]).unwrap();
        assert_eq!(
            (made.listen, made.description.destination.port()),
            ("127.0.0.1:7".parse().unwrap(), 7)
        );
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("call.sdp");
        std::fs::write(&path, made.description.to_sdp(None)).unwrap();
        let read = plan(&["--sdp", path.to_str().unwrap()]).unwrap();
        assert_eq!(
            (read.listen, read.description),
            ("0.0.0.0:7".parse().unwrap(), made.description)
        );
    }

    #[test]
    fn parity_has_a_proxy_and_a_share() {
        let parity = |line: &str| {
            let args = ["--write-sdp", "call.sdp"].into_iter().chain(line.split_whitespace());
            plan(&args.collect::<Vec<_>>()).unwrap().parity
        };
        assert_eq!(parity(""), None);
        let proxy = "[::1]:5252".parse().unwrap();
        assert_eq!(parity("--sidekick parity --proxy ::1"), Some((proxy, 0.3)));
        let line = "--sidekick parity --proxy ::1 --parity-share 100";
        assert_eq!(parity(line), Some((proxy, 1.0)));
    }

    #[test]
    fn contradictions_are_named() {
        for (args, word) in [
            (&[][..], "--write-sdp FILE"),
            (&["--raw"], "--write-sdp"),
            (&["--write-sdp", "call.sdp", "--proxy", "::1"], "--sidekick parity"),
            (&["--write-sdp", "call.sdp", "--sidekick", "parity"], "--proxy HOST[:PORT]"),
            (&["--write-sdp", "call.sdp", "--parity-share", "101"], "3..=100"),
            // Two symbols could not cover each packet.
            (&["--write-sdp", "call.sdp", "--parity-share", "2"], "3..=100"),
            (&["--write-sdp", "call.sdp", "--raw", "--wav", "call.wav"], "cannot be played"),
            (&["--sdp", "/nonexistent/call.sdp"], "cannot read /nonexistent/call.sdp"),
            (&["--sdp", "a", "--write-sdp", "b"], "cannot be used with"),
            (&["--sdp", "a", "--wav", "./a"], "--sdp and --wav"),
            (&["--write-sdp", "a", "--wav", "b", "--hgrm", "src/../b"], "--wav and --hgrm"),
        ] {
            let text = format!("{:#}", plan(args).expect_err("this must be refused"));
            assert!(text.contains(word), "{args:?}: {text}");
        }
    }
}
