//! What a run amounts to, in one line.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::capture::Counters;

/// Totals since the proxy started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// UDP datagrams captured, of whatever flow.
    pub captured: u64,
    /// Datagrams that were added to sums.
    pub counted: u64,
    /// Datagrams of a session's flow that do not count, such as QUIC handshake packets. With
    /// another proxy's wire, which has no sessions: all that do not count.
    pub ignored: u64,
    /// quACKs sent.
    pub quacks: u64,
    /// Bytes of messages sent, without UDP and IP headers.
    pub bytes: u64,
    /// Times the sums were reset; only with another proxy's wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resets: Option<u64>,
    /// Sessions opened.
    pub sessions: u64,
    /// Sessions that ended because their sender fell silent.
    pub expired: u64,
    /// Sessions refused.
    pub refused: u64,
    /// Datagrams at the proxy's port that were no message to a proxy.
    pub malformed: u64,
    /// Datagrams at the proxy's port of another version of the protocol.
    pub other_version: u64,
    /// Messages that were not made by the sender that they name, or were received before.
    pub forged: u64,
    /// Markers answered: senders that look for a proxy.
    pub markers: u64,
    /// Markers not answered, because their addresses cannot be those of a flow on their interface.
    pub markers_refused: u64,
    /// Markers not answered, because there were too many from their source, or from all.
    pub markers_deferred: u64,
    /// HELLOs not taken up, because there were too many at once.
    pub deferred: u64,
    /// quACKs not sent, because the session had used up its share of bytes.
    pub withheld: u64,
    /// Captured frames whose headers contradict themselves.
    pub malformed_frames: u64,
    /// Captured IP fragments of UDP datagrams.
    pub fragments: u64,
    /// Merged frames split into their datagrams.
    pub merged_split: u64,
    /// Merged frames that could not be split: their datagrams were not counted.
    pub merged_uncounted: u64,
    /// Packets the kernel dropped before they could be read, and those thrown away since there were
    /// drops around them.
    pub capture_drops: u64,
    /// Epochs that were begun because of packets that were not seen, so that senders do not take
    /// them for losses.
    pub epochs: u64,
    /// Messages the network would not take.
    pub unsent: u64,
    /// Messages that were dropped, because the thread that serves their source had too many to
    /// read.
    pub late: u64,
}

impl Summary {
    /// Adds what a capture has seen.
    pub fn count(&mut self, seen: &Counters) {
        self.captured += seen.datagrams;
        self.malformed_frames += seen.malformed;
        self.fragments += seen.fragments;
        self.merged_split += seen.split;
        self.merged_uncounted += seen.unsplit;
        self.capture_drops += seen.dropped;
    }

    /// Adds another worker's totals.
    pub fn add(&mut self, other: &Self) {
        self.resets = match (self.resets, other.resets) {
            (Some(ours), Some(theirs)) => Some(ours + theirs),
            (ours, theirs) => ours.or(theirs),
        };
        for (ours, theirs) in [
            (&mut self.captured, other.captured),
            (&mut self.counted, other.counted),
            (&mut self.ignored, other.ignored),
            (&mut self.quacks, other.quacks),
            (&mut self.bytes, other.bytes),
            (&mut self.sessions, other.sessions),
            (&mut self.expired, other.expired),
            (&mut self.refused, other.refused),
            (&mut self.malformed, other.malformed),
            (&mut self.other_version, other.other_version),
            (&mut self.forged, other.forged),
            (&mut self.markers, other.markers),
            (&mut self.markers_refused, other.markers_refused),
            (&mut self.markers_deferred, other.markers_deferred),
            (&mut self.deferred, other.deferred),
            (&mut self.withheld, other.withheld),
            (&mut self.malformed_frames, other.malformed_frames),
            (&mut self.fragments, other.fragments),
            (&mut self.merged_split, other.merged_split),
            (&mut self.merged_uncounted, other.merged_uncounted),
            (&mut self.capture_drops, other.capture_drops),
            (&mut self.epochs, other.epochs),
            (&mut self.unsent, other.unsent),
            (&mut self.late, other.late),
        ] {
            *ours += theirs;
        }
    }
}

impl fmt::Display for Summary {
    /// The numbers everybody wants, then those of the others that are not 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "captured {}, counted {}, quACKs {}, bytes sent {}, ",
            self.captured, self.counted, self.quacks, self.bytes
        )?;
        match self.resets {
            None => write!(f, "sessions {}, malformed {}", self.sessions, self.malformed)?,
            Some(resets) => write!(f, "resets {resets}")?,
        }
        for (what, number) in [
            ("ignored", self.ignored),
            ("expired sessions", self.expired),
            ("refused", self.refused),
            ("of another version", self.other_version),
            ("forged", self.forged),
            ("markers answered", self.markers),
            ("markers with impossible addresses", self.markers_refused),
            ("markers deferred", self.markers_deferred),
            ("HELLOs deferred", self.deferred),
            ("quACKs withheld", self.withheld),
            ("malformed frames", self.malformed_frames),
            ("fragments", self.fragments),
            ("merged frames split", self.merged_split),
            ("merged frames not counted", self.merged_uncounted),
            ("dropped by the kernel", self.capture_drops),
            ("epochs begun because packets were not seen", self.epochs),
            ("unsent", self.unsent),
            ("messages dropped", self.late),
        ] {
            if number != 0 {
                write!(f, ", {what} {number}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_without_what_did_not_happen() {
        let quiet = Summary { captured: 9, counted: 7, ..Summary::default() };
        let expected = "captured 9, counted 7, quACKs 0, bytes sent 0, sessions 0, malformed 0";
        assert_eq!(quiet.to_string(), expected);
        let busy = Summary { capture_drops: 3, ..quiet };
        assert_eq!(busy.to_string(), format!("{expected}, dropped by the kernel 3"));
        assert!(!serde_json::to_string(&busy).unwrap().contains("resets"));
        let without_sessions = Summary { resets: Some(0), ..busy };
        let expected =
            "captured 9, counted 7, quACKs 0, bytes sent 0, resets 0, dropped by the kernel 3";
        assert_eq!(without_sessions.to_string(), expected);
        assert!(serde_json::to_string(&without_sessions).unwrap().contains("\"resets\":0"));
    }
}
