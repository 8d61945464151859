//! Files for Wireshark and similar programs: the packets that a segment's links received, and those
//! that they delivered.
//!
//! The files are classic pcap with times in nanoseconds from the start of the run. Each holds both
//! directions, which the addresses distinguish. Packets that are only in the first file were lost
//! on the segment.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

/// Little-endian, times in nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Major version 2, minor version 4: 16 bits each.
const VERSION: u32 = 2 | 4 << 16;
/// More bytes than any frame has.
const SNAPSHOT_BYTES: u32 = 262_144;
const LINKTYPE_ETHERNET: u32 = 1;

/// Writes Ethernet frames as a pcap file.
#[derive(Debug)]
pub(crate) struct PcapWriter<W: Write>(W);

impl<W: Write> PcapWriter<W> {
    pub(crate) fn new(mut out: W) -> io::Result<Self> {
        // Time zone and accuracy are 0, because readers ignore them.
        for field in [MAGIC, VERSION, 0, 0, SNAPSHOT_BYTES, LINKTYPE_ETHERNET] {
            out.write_all(&field.to_le_bytes())?;
        }
        Ok(Self(out))
    }

    /// Appends a frame that was seen at `now`. Refuses a frame of more than 262,144 bytes, and a
    /// time after 136 years.
    pub(crate) fn write(&mut self, now: Duration, frame: &[u8]) -> io::Result<()> {
        let beyond = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let seconds = u32::try_from(now.as_secs()).map_err(beyond)?;
        let length = u32::try_from(frame.len()).map_err(beyond)?;
        if length > SNAPSHOT_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for field in [seconds, now.subsec_nanos(), length, length] {
            self.0.write_all(&field.to_le_bytes())?;
        }
        self.0.write_all(frame)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The two files of a segment. They are complete when [`SegmentPcap::finish`] succeeds.
#[derive(Debug)]
pub(crate) struct SegmentPcap {
    /// The packets that reached the segment's links.
    pub(crate) sent: PcapWriter<BufWriter<File>>,
    /// The packets that the links delivered.
    pub(crate) delivered: PcapWriter<BufWriter<File>>,
}

impl SegmentPcap {
    /// Makes `SEGMENT-sent.pcap` and `SEGMENT-delivered.pcap` in `directory`, and the directory if
    /// it is missing. An error names the file.
    pub(crate) fn create(directory: &Path, segment: &str) -> io::Result<Self> {
        let create = |what: &str| {
            let path = directory.join(format!("{segment}-{what}.pcap"));
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            };
            std::fs::create_dir_all(directory).and_then(|()| File::create(&path)).map_err(named)
        };
        Ok(Self {
            sent: PcapWriter::new(BufWriter::new(create("sent")?))?,
            delivered: PcapWriter::new(BufWriter::new(create("delivered")?))?,
        })
    }

    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.sent.flush()?;
        self.delivered.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_parser::{Linktype, parse_pcap};
    use proptest::prelude::*;

    fn read_back(file: &[u8]) -> Vec<(Duration, Vec<u8>)> {
        let (rest, capture) = parse_pcap(file).unwrap();
        assert!(rest.is_empty(), "{} bytes are left", rest.len());
        assert!(capture.header.is_nanosecond_precision());
        assert_eq!(capture.header.network, Linktype::ETHERNET);
        let block = |block: &pcap_parser::LegacyPcapBlock<'_>| {
            assert_eq!(block.origlen, block.caplen);
            (Duration::new(block.ts_sec.into(), block.ts_usec), block.data.to_vec())
        };
        capture.blocks.iter().map(block).collect()
    }

    proptest! {
        #[test]
        fn another_reader_reads_what_was_written(
            frames in prop::collection::vec((0_u64..1 << 40, prop::collection::vec(any::<u8>(), 0..80)), 0..20)
        ) {
            let mut file = Vec::new();
            let mut writer = PcapWriter::new(&mut file).unwrap();
            let frames: Vec<_> =
                frames.into_iter().map(|(nanos, frame)| (Duration::from_nanos(nanos), frame)).collect();
            for (at, frame) in &frames {
                writer.write(*at, frame).unwrap();
            }
            prop_assert_eq!(read_back(&file), frames);
        }
    }

    #[test]
    fn frames_and_times_beyond_the_limits_of_pcap_are_refused() {
        let mut writer = PcapWriter::new(Vec::new()).unwrap();
        assert!(writer.write(Duration::ZERO, &vec![0; 262_145]).is_err());
        assert!(writer.write(Duration::from_secs(1 << 32), &[0; 60]).is_err());
        assert_eq!(read_back(&writer.0), []);
    }

    #[test]
    fn a_segment_has_two_files() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("a/b");
        let mut pcap = SegmentPcap::create(&inner, "near").unwrap();
        let at = Duration::from_nanos(1_000_000_007);
        pcap.sent.write(at, &[1; 60]).unwrap();
        pcap.sent.write(2 * at, &[2; 60]).unwrap();
        pcap.delivered.write(3 * at, &[2; 60]).unwrap();
        drop(pcap);
        let file = |name: &str| read_back(&std::fs::read(inner.join(name)).unwrap());
        assert_eq!(file("near-sent.pcap"), [(at, vec![1; 60]), (2 * at, vec![2; 60])]);
        assert_eq!(file("near-delivered.pcap"), [(3 * at, vec![2; 60])]);
        let error = SegmentPcap::create(Path::new("/proc/nowhere"), "far").unwrap_err().to_string();
        assert!(error.starts_with("/proc/nowhere/far-sent.pcap: "), "{error}");
    }
}
