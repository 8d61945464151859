//! The totals of a proxy.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::capture::Counters;

/// Totals since the proxy started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// UDP datagrams captured, of any flow.
    pub captured: u64,
    /// Datagrams added to sums.
    pub counted: u64,
    /// Datagrams of a session's flow that do not count, such as QUIC handshake packets. For a wire
    /// format without sessions: all datagrams that do not count.
    pub ignored: u64,
    /// quACKs sent.
    pub quacks: u64,
    /// Bytes of messages sent, without UDP and IP headers.
    pub bytes: u64,
    /// Resets of the sums, if the wire format has resets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resets: Option<u64>,
    /// Sessions opened.
    pub sessions: u64,
    /// Sessions that ended because their sender was silent.
    pub expired: u64,
    /// Sessions that the proxy refused.
    pub refused: u64,
    /// Datagrams at the proxy's port that were not a message to a proxy.
    pub malformed: u64,
    /// Datagrams at the proxy's port of another version of the protocol.
    pub other_version: u64,
    /// Messages of sessions that the proxy does not have, or of a sender at another address.
    pub unknown_session: u64,
    /// Messages that failed authentication, or were replayed.
    pub forged: u64,
    /// Answered markers of senders that look for a proxy.
    pub markers: u64,
    /// Markers not answered because their addresses are impossible for a flow on their interface.
    pub markers_refused: u64,
    /// Markers not answered because too many arrived from their source, or from all sources.
    pub markers_deferred: u64,
    /// Markers not answered because they are of another version of the protocol.
    pub markers_other_version: u64,
    /// HELLOs dropped because too many arrived at once.
    pub deferred: u64,
    /// quACKs not sent because the session had spent its budget of bytes.
    pub withheld: u64,
    /// Captured frames with headers that contradict themselves.
    pub malformed_frames: u64,
    /// Captured IP fragments of UDP datagrams.
    pub fragments: u64,
    /// Merged frames that the proxy split into their datagrams.
    pub merged_split: u64,
    /// Merged frames that the proxy could not split, and therefore did not count.
    pub merged_uncounted: u64,
    /// Packets that the kernel had no room for, and packets that the proxy discarded beside such.
    pub capture_drops: u64,
    /// Epochs that the proxy began by itself after it had missed packets. Otherwise senders would
    /// treat these packets as lost.
    pub epochs: u64,
    /// Datagrams towards clients of which the proxy kept a copy.
    pub kept: u64,
    /// Bytes of the datagrams that the proxy kept.
    pub kept_bytes: u64,
    /// KEEPs that the proxy answered with the age that it grants.
    pub keeps: u64,
    /// KEEPs without a proof, such as the first of each session.
    pub keeps_unproven: u64,
    /// Requests for copies that the proxy answered.
    pub requests: u64,
    /// Requests for copies dropped because too many arrived.
    pub requests_deferred: u64,
    /// Requests for copies that the proxy does not hold, or from senders without a proof.
    pub requests_unanswered: u64,
    /// Copies that the proxy sent.
    pub repeats: u64,
    /// Bytes of the copies that the proxy sent.
    pub repeat_bytes: u64,
    /// Copies not sent, because they were too old, sent too often or beyond the share of the
    /// session.
    pub repeats_withheld: u64,
    /// Datagrams with parity that the proxy sent.
    pub parity: u64,
    /// Bytes of the parity that the proxy sent.
    pub parity_bytes: u64,
    /// Repair symbols not sent, because their datagrams were too old or they were beyond the share
    /// of the session.
    pub parity_withheld: u64,
    /// Packets that the proxy did not copy because the kernel had no room for them.
    pub uncopied: u64,
    /// Messages that the system did not accept.
    pub unsent: u64,
    /// Messages dropped because the thread that serves their source had too many to read.
    pub late: u64,
}

impl Summary {
    /// Adds the counters of a capture.
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
            (&mut self.unknown_session, other.unknown_session),
            (&mut self.forged, other.forged),
            (&mut self.markers, other.markers),
            (&mut self.markers_refused, other.markers_refused),
            (&mut self.markers_deferred, other.markers_deferred),
            (&mut self.markers_other_version, other.markers_other_version),
            (&mut self.deferred, other.deferred),
            (&mut self.withheld, other.withheld),
            (&mut self.malformed_frames, other.malformed_frames),
            (&mut self.fragments, other.fragments),
            (&mut self.merged_split, other.merged_split),
            (&mut self.merged_uncounted, other.merged_uncounted),
            (&mut self.capture_drops, other.capture_drops),
            (&mut self.epochs, other.epochs),
            (&mut self.kept, other.kept),
            (&mut self.kept_bytes, other.kept_bytes),
            (&mut self.keeps, other.keeps),
            (&mut self.keeps_unproven, other.keeps_unproven),
            (&mut self.requests, other.requests),
            (&mut self.requests_deferred, other.requests_deferred),
            (&mut self.requests_unanswered, other.requests_unanswered),
            (&mut self.repeats, other.repeats),
            (&mut self.repeat_bytes, other.repeat_bytes),
            (&mut self.repeats_withheld, other.repeats_withheld),
            (&mut self.parity, other.parity),
            (&mut self.parity_bytes, other.parity_bytes),
            (&mut self.parity_withheld, other.parity_withheld),
            (&mut self.uncopied, other.uncopied),
            (&mut self.unsent, other.unsent),
            (&mut self.late, other.late),
        ] {
            *ours += theirs;
        }
    }
}

impl fmt::Display for Summary {
    /// The main totals, then the others that are not 0.
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
            ("of unknown sessions", self.unknown_session),
            ("forged", self.forged),
            ("markers answered", self.markers),
            ("markers with impossible addresses", self.markers_refused),
            ("markers deferred", self.markers_deferred),
            ("markers of another version", self.markers_other_version),
            ("HELLOs deferred", self.deferred),
            ("quACKs withheld", self.withheld),
            ("malformed frames", self.malformed_frames),
            ("fragments", self.fragments),
            ("merged frames split", self.merged_split),
            ("merged frames not counted", self.merged_uncounted),
            ("dropped by the kernel or the proxy", self.capture_drops),
            ("epochs begun because packets were missed", self.epochs),
            ("datagrams kept", self.kept),
            ("bytes kept", self.kept_bytes),
            ("KEEPs", self.keeps),
            ("KEEPs without a proof", self.keeps_unproven),
            ("requests for copies", self.requests),
            ("requests deferred", self.requests_deferred),
            ("requests without an answer", self.requests_unanswered),
            ("copies sent", self.repeats),
            ("bytes of copies sent", self.repeat_bytes),
            ("copies withheld", self.repeats_withheld),
            ("datagrams with parity sent", self.parity),
            ("bytes of parity sent", self.parity_bytes),
            ("parity withheld", self.parity_withheld),
            ("packets not copied", self.uncopied),
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
    fn one_line_without_zeros() {
        let quiet = Summary { captured: 9, counted: 7, ..Summary::default() };
        let expected = "captured 9, counted 7, quACKs 0, bytes sent 0, sessions 0, malformed 0";
        assert_eq!(quiet.to_string(), expected);
        let busy = Summary { capture_drops: 3, ..quiet };
        assert_eq!(busy.to_string(), format!("{expected}, dropped by the kernel or the proxy 3"));
        assert!(!serde_json::to_string(&busy).unwrap().contains("resets"));
        let without_sessions = Summary { resets: Some(0), ..busy };
        let expected = "captured 9, counted 7, quACKs 0, bytes sent 0, resets 0, \
                        dropped by the kernel or the proxy 3";
        assert_eq!(without_sessions.to_string(), expected);
        assert!(serde_json::to_string(&without_sessions).unwrap().contains("\"resets\":0"));
    }
}
