//! The totals of a proxy as metrics.

use crate::summary::Summary;

/// The totals since the start: name, help and number of each. The pattern names every field, so a
/// new field of the summary does not compile until it is here.
pub(super) fn totals(summary: &Summary) -> [(&'static str, &'static str, u64); 40] {
    let Summary {
        captured,
        counted,
        ignored,
        quacks,
        bytes,
        // Only in a wire format with resets; see `text`.
        resets: _,
        sessions,
        expired,
        refused,
        malformed,
        other_version,
        unknown_session,
        forged,
        markers,
        markers_refused,
        markers_deferred,
        markers_other_version,
        deferred,
        withheld,
        malformed_frames,
        fragments,
        merged_split,
        merged_uncounted,
        capture_drops,
        epochs,
        kept,
        kept_bytes,
        keeps,
        keeps_unproven,
        requests,
        requests_deferred,
        requests_unanswered,
        repeats,
        repeat_bytes,
        repeats_withheld,
        parity,
        parity_bytes,
        parity_withheld,
        uncopied,
        unsent,
        late,
    } = *summary;
    [
        ("sidekick_packets_captured_total", "UDP datagrams captured, of any flow.", captured),
        ("sidekick_packets_counted_total", "Datagrams added to the sums of a session.", counted),
        (
            "sidekick_packets_ignored_total",
            "Datagrams of a session's flow that do not count, such as QUIC handshake packets.",
            ignored,
        ),
        (
            "sidekick_packets_dropped_total",
            "Packets that the kernel had no room for, or that the proxy discarded beside such.",
            capture_drops,
        ),
        (
            "sidekick_epochs_unasked_total",
            "Epochs that the proxy began by itself after it had missed packets.",
            epochs,
        ),
        (
            "sidekick_frames_malformed_total",
            "Captured frames with headers that contradict themselves.",
            malformed_frames,
        ),
        (
            "sidekick_fragments_captured_total",
            "Captured IP fragments of UDP datagrams, which do not count.",
            fragments,
        ),
        (
            "sidekick_merged_frames_split_total",
            "Merged frames that the proxy split into their datagrams.",
            merged_split,
        ),
        (
            "sidekick_merged_frames_uncounted_total",
            "Merged frames that the proxy could not split, and therefore did not count.",
            merged_uncounted,
        ),
        ("sidekick_quacks_sent_total", "quACKs sent.", quacks),
        (
            "sidekick_quacks_withheld_total",
            "quACKs not sent because the session had spent its budget of bytes.",
            withheld,
        ),
        ("sidekick_sent_bytes_total", "Bytes of messages sent, without UDP and IP headers.", bytes),
        ("sidekick_sessions_opened_total", "Sessions opened.", sessions),
        (
            "sidekick_sessions_expired_total",
            "Sessions that ended because their sender was silent.",
            expired,
        ),
        (
            "sidekick_hellos_refused_total",
            "Sessions refused because of a limit, or because of their terms.",
            refused,
        ),
        (
            "sidekick_hellos_deferred_total",
            "HELLOs dropped because too many arrived at once.",
            deferred,
        ),
        (
            "sidekick_markers_answered_total",
            "Answered markers of senders that look for a proxy.",
            markers,
        ),
        (
            "sidekick_markers_refused_total",
            "Markers with addresses that are impossible for a flow on their interface.",
            markers_refused,
        ),
        (
            "sidekick_markers_deferred_total",
            "Markers not answered because too many arrived from their source, or from all sources.",
            markers_deferred,
        ),
        (
            "sidekick_markers_other_version_total",
            "Markers not answered because they are of another version of the protocol.",
            markers_other_version,
        ),
        (
            "sidekick_messages_malformed_total",
            "Datagrams at the proxy's port that were not a message to a proxy.",
            malformed,
        ),
        (
            "sidekick_messages_other_version_total",
            "Datagrams at the proxy's port of another version of the protocol.",
            other_version,
        ),
        (
            "sidekick_messages_unknown_session_total",
            "Messages of sessions that the proxy does not have, or of a sender at another address.",
            unknown_session,
        ),
        (
            "sidekick_messages_forged_total",
            "Messages that failed authentication, or were replayed.",
            forged,
        ),
        (
            "sidekick_datagrams_kept_total",
            "Datagrams towards clients of which the proxy kept a copy.",
            kept,
        ),
        ("sidekick_kept_bytes_total", "Bytes of the datagrams that the proxy kept.", kept_bytes),
        (
            "sidekick_keeps_answered_total",
            "KEEPs that the proxy answered with the age that it grants.",
            keeps,
        ),
        (
            "sidekick_keeps_unproven_total",
            "KEEPs without a proof, such as the first of each session.",
            keeps_unproven,
        ),
        (
            "sidekick_copy_requests_answered_total",
            "Requests for copies that the proxy answered.",
            requests,
        ),
        (
            "sidekick_copy_requests_deferred_total",
            "Requests for copies dropped because too many arrived.",
            requests_deferred,
        ),
        (
            "sidekick_copy_requests_unanswered_total",
            "Requests for copies that the proxy does not hold, or from senders without a proof.",
            requests_unanswered,
        ),
        ("sidekick_repeats_sent_total", "Copies that the proxy sent.", repeats),
        (
            "sidekick_repeats_sent_bytes_total",
            "Bytes of the copies that the proxy sent.",
            repeat_bytes,
        ),
        (
            "sidekick_repeats_withheld_total",
            "Copies not sent, because they were too old, sent too often or beyond the share of the session.",
            repeats_withheld,
        ),
        ("sidekick_parity_sent_total", "Datagrams with parity that the proxy sent.", parity),
        (
            "sidekick_parity_sent_bytes_total",
            "Bytes of the parity that the proxy sent.",
            parity_bytes,
        ),
        (
            "sidekick_parity_withheld_total",
            "Repair symbols not sent, because their datagrams were too old or they were beyond the share of the session.",
            parity_withheld,
        ),
        (
            "sidekick_datagrams_uncopied_total",
            "Packets that the proxy did not copy because the kernel had no room for them.",
            uncopied,
        ),
        ("sidekick_messages_unsent_total", "Messages that the system did not accept.", unsent),
        (
            "sidekick_messages_dropped_total",
            "Messages dropped because the thread that serves their source had too many to read.",
            late,
        ),
    ]
}
