//! The table of all changes that the hook makes to quiche.
//!
//! The hook replaces and deletes nothing in quiche's source. Every file below `hook/` becomes the
//! module of the same path, and single lines are inserted beside named anchors ([`INSERTIONS`]). An
//! anchor is a text that occurs on exactly one line of its file. A file with an insertion must have
//! the SHA-256 in [`SHA256`], so the hook is never applied to another source than its own.

/// The version of quiche that the hook was written for.
pub const VERSION: &str = "0.30.0";

/// SHA-256 over every file below quiche's `src/`, in order of their paths; see `assemble::digest`.
pub const SHA256_OF_ALL: &str = "f6decb7c0b35e1b947e632541b0de5728cce58ee50e221f7cff6e0183c3eac06";

/// SHA-256 of each file that gets an insertion.
pub const SHA256: &[(&str, &str)] = &[
    ("lib.rs", "ba74f8c2e8e134312c30e55e76c57cf13e030872a6531512a108069540ff2fb2"),
    ("packet.rs", "f1a3272710f294a730dd090c943a199fab48db0d65ef906abbea2479009e6eec"),
    ("ranges.rs", "6d593912d7dbd50f2ec4b1c6e6323bfeebc1af157539af050ec553b7999eefc9"),
    ("recovery/mod.rs", "649bc3c1d42f62a8717b2d8316bc04e40668717b223ecd30ef4d8882cf155555"),
    (
        "recovery/congestion/mod.rs",
        "739dc321fb016b789d581bde930b2b73c2ae47467f6ccc3b09cbaa9643e0e99e",
    ),
    (
        "recovery/congestion/recovery.rs",
        "8574077a38fbb70eb0e546e4173d6c2a458ee9332382194ca2a7b960e62c7cb3",
    ),
    (
        "recovery/gcongestion/pacer.rs",
        "ad35e18573cc09b261b80e5a93cd16686077b17d4271fc6ca418e22d0d792d53",
    ),
    (
        "recovery/gcongestion/recovery.rs",
        "82881e1c8d4600954da48f67cd147bdbd8849f5979bb6ad080bd34f4709439ac",
    ),
];

/// The side of the anchor's line on which to insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}

/// An inserted line.
#[derive(Clone, Copy, Debug)]
pub struct Insertion {
    /// The file below quiche's `src/`.
    pub file: &'static str,
    /// Text that occurs on exactly one line of that file.
    pub anchor: &'static str,
    pub side: Side,
    /// The new line, to be indented like the anchor's.
    pub line: &'static str,
    pub why: &'static str,
}

/// The table of insertions.
pub const INSERTIONS: &[Insertion] = &[
    // The sent log, and the application's interface.
    Insertion {
        file: "lib.rs",
        anchor: "mod buffers;",
        side: Side::Before,
        line: "pub mod sidekick;",
        why: "the hook's root module, which can access the connection's private fields",
    },
    Insertion {
        file: "lib.rs",
        anchor: "pkt_num_manager: packet::PktNumManager,",
        side: Side::After,
        line: "sidekick: sidekick::State,",
        why: "the sent log of a connection",
    },
    Insertion {
        file: "lib.rs",
        anchor: "pkt_num_manager: packet::PktNumManager::new(),",
        side: Side::After,
        line: "sidekick: sidekick::State::default(),",
        why: "the sent log is off at first",
    },
    Insertion {
        file: "lib.rs",
        anchor: "let recovery_config = recovery::RecoveryConfig::from_config(config);",
        side: Side::After,
        line: "let recovery_config = sidekick::with_own_initial_rtt(recovery_config);",
        why: "lets event loops that keep their config to themselves assume another round trip",
    },
    Insertion {
        file: "lib.rs",
        anchor: "if has_initial && left > 0 && done < MIN_CLIENT_INITIAL_LEN {",
        side: Side::Before,
        line: "self.sidekick_record(send_pid, &out[..done], now);",
        why: "logs each datagram that begins with a 1-RTT packet, and keeps those of the \
              handshake that may be sent again",
    },
    Insertion {
        file: "lib.rs",
        anchor: "let timers = [self.idle_timer, path_timer, key_update_timer];",
        side: Side::After,
        line: "let timers = [timers[0], timers[1], timers[2], self.sidekick.due()];",
        why: "wakes the event loop when a repetition of the handshake or an acknowledgement is due",
    },
    Insertion {
        file: "lib.rs",
        anchor: "if let Some(timer) = self.idle_timer {",
        side: Side::Before,
        line: "self.sidekick_on_timeout(now);",
        why: "sends due repetitions of the handshake, and acknowledgements",
    },
    Insertion {
        file: "lib.rs",
        anchor: "cmp::max(self.pkt_num_spaces[epoch].ack_elicited, ack_elicited);",
        side: Side::After,
        line: "self.sidekick_defer_ack(epoch, now);",
        why: "lets an acknowledgement wait",
    },
    Insertion {
        file: "lib.rs",
        anchor: "let left_before_packing_ack_frame = left;",
        side: Side::After,
        line: "if self.sidekick.asks() && pkt_type == Type::Short && !is_closing && path.active() && !path.pmtud.as_ref().is_some_and(|pmtud| pmtud.should_probe()) { let asked = self.sidekick.ask(&mut b, left, now); left -= asked; path.needs_ack_eliciting |= asked > 0; }",
        why: "requests fewer acknowledgements from a receiver without the hook; with a PING if \
              nothing else elicits one, not in a probe, whose size is fixed, and not on a path \
              that is not active",
    },
    Insertion {
        file: "lib.rs",
        anchor: "path.recovery.cwnd_available().saturating_sub(overhead);",
        side: Side::After,
        line: "let cwnd_available = if pkt_type == Type::Short && !is_closing { self.sidekick.room(cwnd_available, left, || path.recovery.bytes_in_flight()) } else { cwnd_available };",
        why: "waits for room for a whole packet, if enabled, instead of filling the rest of a \
              window with a tiny one; not with the frame that closes the connection",
    },
    // A hang of quiche 0.30.0 that early losses would make frequent.
    Insertion {
        file: "lib.rs",
        anchor: "stream_data_skipped = true;",
        side: Side::Before,
        line: "if !stream.is_flushable() { let idle = Arc::clone(&stream.priority_key); self.streams.remove_flushable(&idle); continue; }",
        why: "a stream whose data to resend was acknowledged has nothing to send, and would block \
              the others for good",
    },
    // The side channel: datagrams that are not QUIC, on the connection's own path.
    Insertion {
        file: "lib.rs",
        anchor: "let recv_pid = self.paths.path_id_from_addrs(&(info.to, info.from));",
        side: Side::Before,
        line: "if self.sidekick_intercept(buf, &info) { return Ok(len); }",
        why: "intercepts datagrams that are not QUIC before they count as broken packets",
    },
    Insertion {
        file: "lib.rs",
        anchor: "let send_path = self.paths.get_mut(send_pid)?;",
        side: Side::Before,
        line: "if let Some(sent) = self.sidekick_write_extra(send_pid, out, now) { return Ok(sent); }",
        why: "sends datagrams that are not QUIC from the connection's own address and port",
    },
    Insertion {
        file: "packet.rs",
        anchor: "let dcid = b.get_bytes(dcid_len)?;",
        side: Side::Before,
        line: "let answered = crate::sidekick::answered_connection(b.buf(), dcid_len);",
        why: "finds the connection of an answer to a marker, under the answer's mask",
    },
    Insertion {
        file: "packet.rs",
        anchor: "let dcid = b.get_bytes(dcid_len)?;",
        side: Side::After,
        line: "let dcid = answered.as_deref().unwrap_or(dcid.buf());",
        why: "lets a socket that several connections share pass the answer to that connection",
    },
    // Help for what a client receives.
    Insertion {
        file: "lib.rs",
        anchor: "// Process coalesced packets.",
        side: Side::Before,
        line: "self.sidekick_arrive(buf);",
        why: "identifies the datagram before its packets are decrypted in place",
    },
    Insertion {
        file: "lib.rs",
        anchor: "let e = drop_pkt_on_err(",
        side: Side::Before,
        line: "if let Some(kept) = self.sidekick_keep_undecrypted(&hdr, &b.buf()[..b.off() + payload_len], info) { return Ok(kept); }",
        why: "keeps packets that overtook those that carry their keys, if enabled",
    },
    Insertion {
        file: "lib.rs",
        anchor: "self.process_undecrypted_0rtt_packets()?;",
        side: Side::After,
        line: "self.sidekick_recv_undecrypted()?;",
        why: "reads these packets once the keys are there",
    },
    Insertion {
        file: "lib.rs",
        anchor: "let aead_tag_len = aead.alg().tag_len();",
        side: Side::After,
        line: "let sidekick_read = b.off() + payload_len;",
        why: "the length of this packet of the datagram",
    },
    Insertion {
        file: "lib.rs",
        anchor: "let pn_len = hdr.pkt_num_len;",
        side: Side::After,
        line: "let pn = self.sidekick_decode(epoch, pn, hdr.pkt_num, pn_len);",
        why: "a proxy's copy can be older than the truncated packet number allows for",
    },
    Insertion {
        file: "lib.rs",
        anchor: "trace!(\"{} ignored duplicate packet {}\", self.trace_id, pn);",
        side: Side::After,
        line: "if self.sidekick_duplicate(epoch, pn) { return Ok(sidekick_read); }",
        why: "notes what its copy has overtaken, and reads the packets behind it, if enabled",
    },
    Insertion {
        file: "lib.rs",
        anchor: "// We only record the time of arrival of the largest packet number",
        side: Side::Before,
        line: "let sidekick_before = self.pkt_num_spaces[epoch].largest_rx_pkt_time;",
        why: "the arrival time to use if the acknowledgement of this packet waits",
    },
    Insertion {
        file: "lib.rs",
        anchor: "self.pkt_num_spaces[epoch].recv_pkt_need_ack.push_item(pn);",
        side: Side::After,
        line: "let ack_elicited = !self.sidekick_arrived(epoch, pn, ack_elicited, sidekick_before, now) && ack_elicited;",
        why: "lets the acknowledgement of a packet behind a gap wait, if enabled",
    },
    Insertion {
        file: "packet.rs",
        anchor: "window: u128,",
        side: Side::After,
        line: "pub(crate) sidekick: crate::sidekick::WideWindow,",
        why: "a wider window for duplicates, since a repaired packet can be old",
    },
    Insertion {
        file: "packet.rs",
        anchor: "pub fn insert(&mut self, seq: u64) {",
        side: Side::After,
        line: "self.sidekick.insert(seq);",
        why: "the numbers in the wider window",
    },
    Insertion {
        file: "packet.rs",
        anchor: "return true;",
        side: Side::Before,
        line: "if let Some(seen) = self.sidekick.contains(seq) { return seen; }",
        why: "asks the wider window before an old packet is taken for a duplicate",
    },
    Insertion {
        file: "ranges.rs",
        anchor: "const MAX_INLINE_CAPACITY: usize = 4;",
        side: Side::Before,
        line: "mod sidekick;",
        why: "the hook's module below the ranges, which can remove the last number",
    },
    // Early loss in the legacy stack.
    Insertion {
        file: "recovery/congestion/recovery.rs",
        anchor: "struct AckedDetectionResult {",
        side: Side::Before,
        line: "mod sidekick;",
        why: "the hook's module below the recovery, which can access the record of sent packets",
    },
    Insertion {
        file: "recovery/congestion/recovery.rs",
        anchor: "lost_frames_pto: Vec<frame::Frame>,",
        side: Side::After,
        line: "sidekick: crate::sidekick::EarlyLosses,",
        why: "early losses whose fate is open",
    },
    Insertion {
        file: "recovery/congestion/recovery.rs",
        anchor: "let AckedDetectionResult {",
        side: Side::Before,
        line: "self.sidekick_on_ack(peer_sent_ack_ranges, epoch, now);",
        why: "closes early losses that were acknowledged after all, before they count as \
              reordering",
    },
    Insertion {
        file: "recovery/congestion/recovery.rs",
        anchor: "// Mark packet as lost, or set time when it should be marked.",
        side: Side::Before,
        line: "if self.sidekick.holds(unacked.pkt_num, now, &mut self.loss_time) { continue; }",
        why: "suspends the loss detection of a packet that was sent again",
    },
    Insertion {
        file: "recovery/congestion/recovery.rs",
        anchor: "self.sent_packets.pop_front();",
        side: Side::Before,
        line: "if self.sent_packets.front().is_some_and(|packet| self.sidekick.is_open(packet.pkt_num)) { break; }",
        why: "keeps the record of an early loss until the receiver confirms it",
    },
    Insertion {
        file: "recovery/congestion/recovery.rs",
        anchor: "if let Some(pkt) = loss.largest_lost_pkt {",
        side: Side::Before,
        line: "self.sidekick_confirm(epoch, now);",
        why: "reports to the controller the early losses that the receiver confirmed",
    },
    // Early loss in the gcongestion stack.
    Insertion {
        file: "recovery/gcongestion/recovery.rs",
        anchor: "struct AckedDetectionResult {",
        side: Side::Before,
        line: "mod sidekick;",
        why: "the hook's module below the recovery, which can access the record of sent packets",
    },
    Insertion {
        file: "recovery/gcongestion/recovery.rs",
        anchor: "lost_frames_pto: VecDeque<frame::Frame>,",
        side: Side::After,
        line: "sidekick: crate::sidekick::EarlyLosses,",
        why: "early losses whose fate is open",
    },
    Insertion {
        file: "recovery/gcongestion/recovery.rs",
        anchor: "let AckedDetectionResult {",
        side: Side::Before,
        line: "self.sidekick_on_ack(peer_sent_ack_ranges, epoch, now);",
        why: "closes early losses that were acknowledged after all, before they count as \
              reordering",
    },
    Insertion {
        file: "recovery/gcongestion/recovery.rs",
        anchor: "let loss_by_time = *time_sent <= lost_send_time;",
        side: Side::Before,
        line: "if self.sidekick.holds(*pkt_num, now, &mut self.loss_time) { continue; }",
        why: "suspends the loss detection of a packet that was sent again",
    },
    Insertion {
        file: "recovery/gcongestion/recovery.rs",
        anchor: "self.sent_packets.pop_front();",
        side: Side::Before,
        line: "if self.sent_packets.front().is_some_and(|packet| self.sidekick.is_open(packet.pkt_num)) { break; }",
        why: "keeps the record of an early loss until the receiver confirms it",
    },
    Insertion {
        file: "recovery/gcongestion/recovery.rs",
        anchor: "fn least_unacked(&self) -> u64 {",
        side: Side::After,
        line: "if let Some(least) = self.sidekick.least_open(|| self.sent_packets.iter().find(|packet| matches!(packet.status, SentStatus::Sent { .. })).map(|packet| packet.pkt_num)) { return least; }",
        why: "keeps BBR2's state of such a packet, too",
    },
    Insertion {
        file: "recovery/gcongestion/recovery.rs",
        anchor: "for pkt in pmtud_lost_packets {",
        side: Side::Before,
        line: "self.sidekick_confirm(epoch, now);",
        why: "reports to BBR2 the early losses that the receiver confirmed, together with those \
              detected end to end",
    },
    Insertion {
        file: "recovery/gcongestion/pacer.rs",
        anchor: "use super::Acked;",
        side: Side::Before,
        line: "mod sidekick;",
        why: "the hook's module below the pacer",
    },
    Insertion {
        file: "recovery/gcongestion/pacer.rs",
        anchor: "pacing_limited: bool,",
        side: Side::After,
        line: "sidekick_repairs: usize,",
        why: "the number of packets that repair near losses",
    },
    Insertion {
        file: "recovery/gcongestion/pacer.rs",
        anchor: "pacing_limited: false,",
        side: Side::After,
        line: "sidekick_repairs: 0,",
        why: "none at first",
    },
    Insertion {
        file: "recovery/gcongestion/pacer.rs",
        anchor: "let allow_burst = self.burst_tokens > 0 || self.lumpy_tokens > 0;",
        side: Side::Before,
        line: "if let Some(release) = self.sidekick_release() { return release; }",
        why: "releases a repair at once",
    },
    Insertion {
        file: "recovery/gcongestion/pacer.rs",
        anchor: "// If in recovery, the connection is not coming out of quiescence.",
        side: Side::Before,
        line: "if self.sidekick_repaired() { return; }",
        why: "keeps the schedule of the others when a repair is sent",
    },
    // The controller cubic-rfc9438.
    Insertion {
        file: "recovery/mod.rs",
        anchor: "Bbr2Gcongestion = 4,",
        side: Side::After,
        line: "#[doc = \"CUBIC as in RFC 9438, and PACUBIC. `cubic-rfc9438` in a string form.\"] CubicRfc9438 = 9438,",
        why: "names the new controller",
    },
    Insertion {
        file: "recovery/mod.rs",
        anchor: "_ => Err(crate::Error::CongestionControl),",
        side: Side::Before,
        line: "\"cubic-rfc9438\" => Ok(CongestionControlAlgorithm::CubicRfc9438),",
        why: "lets applications choose it by name",
    },
    Insertion {
        file: "recovery/congestion/mod.rs",
        anchor: "mod cubic;",
        side: Side::After,
        line: "mod cubic_rfc9438;",
        why: "the hook's module below the congestion state, which can access the window",
    },
    Insertion {
        file: "recovery/congestion/mod.rs",
        anchor: "cubic_state: cubic::State,",
        side: Side::After,
        line: "cubic_rfc9438_state: cubic_rfc9438::State,",
        why: "the new controller's variables",
    },
    Insertion {
        file: "recovery/congestion/mod.rs",
        anchor: "cubic_state: cubic::State::default(),",
        side: Side::After,
        line: "cubic_rfc9438_state: cubic_rfc9438::State::default(),",
        why: "the new controller's variables, before the first congestion event",
    },
    Insertion {
        file: "recovery/congestion/mod.rs",
        anchor: "CongestionControlAlgorithm::CUBIC => &cubic::CUBIC,",
        side: Side::After,
        line: "CongestionControlAlgorithm::CubicRfc9438 => &cubic_rfc9438::CUBIC_RFC9438,",
        why: "finds the new controller by its name",
    },
    // The controller hybla.
    Insertion {
        file: "recovery/mod.rs",
        anchor: "Bbr2Gcongestion = 4,",
        side: Side::After,
        line: "#[doc = \"TCP Hybla, for satellites. `hybla` in a string form.\"] Hybla = 2004,",
        why: "names the new controller",
    },
    Insertion {
        file: "recovery/mod.rs",
        anchor: "_ => Err(crate::Error::CongestionControl),",
        side: Side::Before,
        line: "\"hybla\" => Ok(CongestionControlAlgorithm::Hybla),",
        why: "lets applications choose it by name",
    },
    Insertion {
        file: "recovery/congestion/mod.rs",
        anchor: "mod cubic;",
        side: Side::After,
        line: "mod hybla;",
        why: "the hook's module below the congestion state, which can access the window",
    },
    Insertion {
        file: "recovery/congestion/mod.rs",
        anchor: "cubic_state: cubic::State,",
        side: Side::After,
        line: "hybla_state: hybla::State,",
        why: "the new controller's variable",
    },
    Insertion {
        file: "recovery/congestion/mod.rs",
        anchor: "cubic_state: cubic::State::default(),",
        side: Side::After,
        line: "hybla_state: hybla::State::default(),",
        why: "the new controller's variable, before the first acknowledgement",
    },
    Insertion {
        file: "recovery/congestion/mod.rs",
        anchor: "CongestionControlAlgorithm::CUBIC => &cubic::CUBIC,",
        side: Side::After,
        line: "CongestionControlAlgorithm::Hybla => &hybla::HYBLA,",
        why: "finds the new controller by its name",
    },
    // For quiche's own unit tests.
    Insertion {
        file: "lib.rs",
        anchor: "pub mod test_utils;",
        side: Side::After,
        line: "#[cfg(test)] macro_rules! env { (\"CARGO_MANIFEST_DIR\") => { std::env!(\"QUICHE_PRISTINE\") }; ($other:tt) => { std::env!($other) } }",
        why: "quiche's own tests read example files beside its own manifest",
    },
];
