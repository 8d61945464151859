//! The totals of a proxy.

use serde::{Deserialize, Serialize};
use sidekick_protocol::ObserverStats;

use crate::capture;
use crate::counters::counters;

counters! {
    /// Totals since the proxy started.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Summary of ObserverStats {
        captured: always "captured", "sidekick_packets_captured_total",
            "UDP datagrams captured, of any flow.";
        counted <- counted: always "counted", "sidekick_packets_counted_total",
            "Datagrams added to sums.";
        ignored <- ignored: "ignored", "sidekick_packets_ignored_total",
            "Datagrams of a session's flow that do not count, such as QUIC handshake packets.";
        quacks <- quacks_sent: always "quACKs", "sidekick_quacks_sent_total",
            "quACKs sent.";
        bytes <- bytes_sent: always "bytes sent", "sidekick_sent_bytes_total",
            "Bytes of messages sent, without UDP and IP headers.";
        sessions <- sessions_opened: always "sessions", "sidekick_sessions_opened_total",
            "Sessions opened.";
        expired <- sessions_expired: "expired sessions", "sidekick_sessions_expired_total",
            "Sessions that ended because their sender was silent.";
        refused <- refused: "refused", "sidekick_hellos_refused_total",
            "Sessions that the proxy refused.";
        malformed <- malformed: always "malformed", "sidekick_messages_malformed_total",
            "Datagrams at the proxy's port that were not a message to a proxy.";
        other_version <- other_version: "of another version",
            "sidekick_messages_other_version_total",
            "Datagrams at the proxy's port of another version of the protocol.";
        unknown_session <- unknown_session: "of unknown sessions",
            "sidekick_messages_unknown_session_total",
            "Messages of sessions that the proxy does not have, or of a sender at another \
             address.";
        forged <- forged: "forged", "sidekick_messages_forged_total",
            "Messages that failed authentication, or were replayed.";
        markers <- markers: "markers answered", "sidekick_markers_answered_total",
            "Answered markers of senders that look for a proxy.";
        markers_refused <- markers_refused: "markers with impossible addresses",
            "sidekick_markers_refused_total",
            "Markers not answered because their addresses are impossible for a flow on their \
             interface.";
        markers_deferred <- markers_deferred: "markers deferred", "sidekick_markers_deferred_total",
            "Markers not answered because too many arrived from their source, or from all \
             sources.";
        markers_other_version <- markers_other_version: "markers of another version",
            "sidekick_markers_other_version_total",
            "Markers not answered because they are of another version of the protocol.";
        deferred <- handshakes_deferred: "HELLOs deferred", "sidekick_hellos_deferred_total",
            "HELLOs dropped because too many arrived at once.";
        withheld <- quacks_withheld: "quACKs withheld", "sidekick_quacks_withheld_total",
            "quACKs not sent because the session had spent its budget of bytes.";
        malformed_frames: "malformed frames", "sidekick_frames_malformed_total",
            "Captured frames with headers that contradict themselves.";
        fragments: "fragments", "sidekick_fragments_captured_total",
            "Captured IP fragments of UDP datagrams.";
        merged_split: "merged frames split", "sidekick_merged_frames_split_total",
            "Merged frames that the proxy split into their datagrams.";
        merged_uncounted: "merged frames not counted", "sidekick_merged_frames_uncounted_total",
            "Merged frames that the proxy could not split, and therefore did not count.";
        capture_drops: "dropped by the kernel or the proxy", "sidekick_packets_dropped_total",
            "Packets that the kernel had no room for, and packets that the proxy discarded \
             beside such.";
        epochs <- epochs_unasked: "epochs begun because packets were missed",
            "sidekick_epochs_unasked_total",
            "Epochs that the proxy began by itself after it had missed packets. Otherwise \
             senders would treat these packets as lost.";
        kept <- kept: "datagrams kept", "sidekick_datagrams_kept_total",
            "Datagrams towards clients of which the proxy kept a copy.";
        kept_bytes <- kept_bytes: "bytes kept", "sidekick_kept_bytes_total",
            "Bytes of the datagrams that the proxy kept.";
        keeps <- keeps: "KEEPs", "sidekick_keeps_answered_total",
            "KEEPs that the proxy answered with the age that it grants.";
        keeps_unproven <- keeps_unproven: "KEEPs without a proof", "sidekick_keeps_unproven_total",
            "KEEPs without a proof, such as the first of each session.";
        requests <- requests: "requests for copies", "sidekick_copy_requests_answered_total",
            "Requests for copies that the proxy answered.";
        requests_deferred <- requests_deferred: "requests deferred",
            "sidekick_copy_requests_deferred_total",
            "Requests for copies dropped because too many arrived.";
        requests_unanswered <- requests_unanswered: "requests without an answer",
            "sidekick_copy_requests_unanswered_total",
            "Requests for copies that the proxy does not hold, or from senders without a proof.";
        repeats <- repeats_sent: "copies sent", "sidekick_repeats_sent_total",
            "Copies that the proxy sent.";
        repeat_bytes <- repeat_bytes: "bytes of copies sent", "sidekick_repeats_sent_bytes_total",
            "Bytes of the copies that the proxy sent.";
        repeats_withheld <- repeats_withheld: "copies withheld", "sidekick_repeats_withheld_total",
            "Copies not sent, because they were too old, sent too often or beyond the share of \
             the session.";
        parity <- parity_sent: "datagrams with parity sent", "sidekick_parity_sent_total",
            "Datagrams with parity that the proxy sent.";
        parity_bytes <- parity_bytes: "bytes of parity sent", "sidekick_parity_sent_bytes_total",
            "Bytes of the parity that the proxy sent.";
        parity_withheld <- parity_withheld: "parity withheld", "sidekick_parity_withheld_total",
            "Repair symbols not sent, because their datagrams were too old or they were beyond \
             the share of the session.";
        lists <- lists: "lists of what senders sent", "sidekick_order_lists_total",
            "Lists of what senders sent, by which the proxy put flows in order.";
        order_missing <- order_missing: "missing from flows in order",
            "sidekick_order_missing_total",
            "Packets of flows put in order that were missing when a list named them.";
        order_given_up <- order_given_up: "of these given up", "sidekick_order_given_up_total",
            "Missing packets whose repairs came too late to wait for.";
        symbols: "repair symbols of what senders sent", "sidekick_order_symbols_total",
            "Messages with parity of what senders sent.";
        rebuilt: "packets rebuilt", "sidekick_order_rebuilt_total",
            "Packets of flows put in order that the proxy rebuilt from that parity.";
        relayed <- relayed: "relayed", "sidekick_packets_relayed_total",
            "Packets put on the path that senders sent by their second link.";
        relays_refused <- relays_refused: "relays refused", "sidekick_relays_refused_total",
            "Packets that senders sent by their second link, and that may not be missing or were \
             too many.";
        uncopied: "packets not copied", "sidekick_datagrams_uncopied_total",
            "Packets that the proxy did not copy because the kernel had no room for them.";
        unsent: "unsent", "sidekick_messages_unsent_total",
            "Messages that the system did not accept.";
        late: "messages dropped", "sidekick_messages_dropped_total",
            "Messages dropped because the thread that serves their source had too many to read.";
    }
}

impl Summary {
    /// Adds the counters of a capture.
    pub fn count(&mut self, seen: &capture::Counters) {
        self.captured += seen.datagrams;
        self.malformed_frames += seen.malformed;
        self.fragments += seen.fragments;
        self.merged_split += seen.split;
        self.merged_uncounted += seen.unsplit;
        self.capture_drops += seen.dropped;
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
    }
}
