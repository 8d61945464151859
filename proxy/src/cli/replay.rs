//! The options of `sidekick-proxy replay`.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, value_parser};
use sidekick_protocol::Terms;

use crate::replay::report::Settings;

const EXAMPLES: &str = "\
Examples:
  What the proxy would have counted, and how many quACKs it would have sent:
      sidekick-proxy replay trace.pcapng
  The same for quACKs of 10 sums after every 2 packets, for a program to read:
      sidekick-proxy replay --every-packets 2 --threshold 10 --json trace.pcap
  During the capture:
      tcpdump -i eth1 -s 128 -w - udp | sidekick-proxy replay -

The program counts each UDP flow as if its sender had requested it: QUIC packets with a short
header, by the four bytes at offset 21. A truncated capture is enough if it has 128 bytes of each
packet.";

/// Which file to replay, and how.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayOptions {
    /// A capture file, pcap or pcapng; `-` for standard input
    file: PathBuf,

    /// Send a quACK after every N packets of a flow [default: one every 30 ms]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..))]
    every_packets: Option<u16>,

    /// Send a quACK every N milliseconds, if packets have arrived since the last [default: 30,
    /// without --every-packets]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=60_000))]
    every_ms: Option<u32>,

    /// Sums in each quACK
    #[arg(
        long,
        value_name = "T",
        default_value_t = 20,
        value_parser = value_parser!(u8).range(1..)
    )]
    threshold: u8,

    /// Most flows to count. Packets of other flows appear only in the total
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        value_parser = value_parser!(u32).range(1..=1_000_000)
    )]
    flows: u32,

    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

impl ReplayOptions {
    pub(crate) fn settings(self) -> Settings {
        let every_packets = self.every_packets.and_then(NonZeroU16::new);
        let every = self.every_ms.map(|ms| Duration::from_millis(ms.into()));
        let every = if every_packets.is_some() { every } else { every.or(Terms::default().every) };
        Settings {
            file: self.file,
            terms: Terms { threshold: self.threshold, every_packets, every, ..Terms::default() },
            flows: usize::try_from(self.flows).unwrap_or(usize::MAX),
            json: self.json,
        }
    }
}
