//! Help for what a client receives.
//!
//! A proxy can keep copies of the datagrams that it forwards to a client, and repeat those that the
//! client lacks. This module reports gaps in the packet numbers ([`GapEvent`]), holds
//! acknowledgements back until a gap is closed, and takes copies
//! ([`Connection::sidekick_recv_copy`]). A copy is authenticated like any other datagram.
//!
//! Acknowledgements wait in the Application space only. In the others the peer measures its first
//! round trip, and retransmits little.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::arrivals::Arrivals;
use super::gaps::{Arrival, GapEnd, GapEvent, Gaps, Held};
use super::late::Late;
use crate::packet::{Epoch, Header, Type};
use crate::{BufFactory, Connection, RecvInfo, Result};

/// The most events that wait for [`Connection::sidekick_gap_event`]. A gap without room is given up
/// at once.
const MAX_EVENTS: usize = 1024;
/// The most packets, and their bytes, that wait for their keys.
const MAX_UNDECRYPTED: usize = 32;
const MAX_UNDECRYPTED_BYTES: usize = 65_536;
/// A gap whose acknowledgements are not held is forgotten after this time.
const FORGET: Duration = Duration::from_secs(1);
/// The bytes that identify a datagram: the last ones, which belong to an authentication tag.
const IDENTIFIER_LEN: usize = 4;

/// A step has this many times as many packets as arrive in its interval.
const FASTER: f64 = 1.25;
/// After a short hold, a step has this part of those that wait, times [`FASTER`]: a fourth.
const LEAST_STEPS: f64 = 4.0;
/// After a long one, it has this part at least: a sixteenth.
const MOST_STEPS: usize = 16;

/// How held acknowledgements are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// How long the acknowledgements behind a gap wait at most.
    pub limit: Duration,
    /// The least number of packets to acknowledge at once when a gap is closed. It is more if
    /// packets arrive faster, or if many wait. The others follow in steps, since a sender that does
    /// not pace answers each acknowledgement with a burst.
    pub step_packets: usize,
    /// The time between two steps.
    pub step_interval: Duration,
}

impl Hold {
    /// The packets of a step, if `held` packets wait, and the oldest of them for the time `oldest`.
    /// The step has more packets than arrive in an interval. Otherwise a release would not end on a
    /// fast path.
    #[allow(clippy::cast_possible_truncation, reason = "a number that is not negative saturates")]
    fn step(&self, held: usize, oldest: Duration) -> usize {
        let intervals = oldest.as_secs_f64() / self.step_interval.as_secs_f64().max(1e-9);
        let faster = FASTER * held as f64 / intervals.max(LEAST_STEPS);
        self.step_packets.max(held / MOST_STEPS).max(faster as usize)
    }
}

/// Where the datagram comes from that `recv` reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Source {
    /// The network.
    #[default]
    Path,
    /// A proxy's copy, or a packet that waited for its keys.
    Elsewhere,
}

/// A packet that waits for its keys.
#[derive(Debug)]
struct Undecrypted {
    epoch: Epoch,
    packet: Vec<u8>,
    info: RecvInfo,
}

/// The hook's state of the packets that arrive.
#[derive(Debug, Default)]
pub(super) struct Receive {
    /// Whether gaps are reported.
    reports: bool,
    hold: Option<Hold>,
    source: Source,
    /// The identifiers of the datagram that `recv` reads, and of the one before it on the path.
    current: Option<u32>,
    previous: Option<u32>,
    /// The identifier of the datagram that raised a space's highest packet number last.
    newest: Option<u32>,
    spaces: [Gaps; 3],
    /// Of the Application space.
    late: Late,
    next_gap: u64,
    events: VecDeque<GapEvent>,
    /// When the next step of a release is due.
    next_step: Option<Instant>,
    undecrypted: VecDeque<Undecrypted>,
    copies: u64,
    received: Arrived,
    pub(super) arrivals: Arrivals,
}

/// What has arrived from the path. Copies do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Datagrams.
    pub datagrams: usize,
    /// Their bytes, without the headers of UDP and IP.
    pub bytes: usize,
    /// The bytes of the longest.
    pub longest: usize,
}

impl Receive {
    /// Whether no gap is open, and no acknowledgement waits.
    fn is_idle(&self) -> bool {
        self.next_step.is_none() && self.spaces.iter().all(Gaps::is_empty)
    }

    /// How long a gap is open at most.
    fn limit(&self) -> Duration {
        self.hold.map_or(FORGET, |hold| hold.limit)
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let limit = self.limit();
        let deadlines = self.spaces.iter().filter_map(|space| space.deadline(limit));
        deadlines.chain(self.next_step).min()
    }

    /// Notes a packet as [`arrive`](Self::arrive) would, if it is the next one while no gap is open
    /// and no acknowledgement waits. Otherwise it does nothing, and returns false.
    #[inline]
    fn arrive_in_order(&mut self, epoch: Epoch, packet_number: u64) -> bool {
        let Some(identifier) = self.current else { return false };
        let in_order = epoch == Epoch::Application
            && self.spaces[Epoch::Application].arrive_in_order(packet_number, identifier);
        if in_order {
            self.newest = Some(identifier);
        }
        in_order
    }

    /// Notes a packet that was decrypted and is not a duplicate. Returns whether its
    /// acknowledgement must wait.
    fn arrive(&mut self, epoch: Epoch, packet_number: u64, ack_eliciting: bool, now: Instant) -> bool {
        let Some(identifier) = self.current else { return false };
        self.note_late(epoch, packet_number);
        let Self { spaces, late, events, next_gap, previous, newest, hold, .. } = self;
        let gaps = &mut spaces[epoch];
        if gaps.is_highest(packet_number) {
            *newest = Some(identifier);
        }
        let mut refused = None;
        let arrival = Arrival { packet_number, identifier, previous: *previous, now };
        gaps.arrive(arrival, next_gap, |event| {
            if let (GapEvent::Found(gap), Epoch::Application) = (&event, epoch) {
                late.expect(gap, packet_number);
            }
            if !push(events, event) {
                refused = event.found();
            }
        });
        if let Some(gap) = refused {
            gaps.release(gap, GapEnd::Expired, now, |_| {});
        }
        let may_hold = hold.is_some() && epoch == Epoch::Application;
        let held = may_hold && gaps.must_wait(packet_number);
        if held {
            let packet = Held { packet_number, received: now, ack_eliciting };
            gaps.hold(packet, now, |event| { push(events, event); });
        }
        held
    }
}

impl Receive {
    /// Reports a packet that arrives from the path in a gap, or after its copy.
    fn note_late(&mut self, epoch: Epoch, packet_number: u64) {
        let Self { late, events, source, .. } = self;
        if (epoch, *source) != (Epoch::Application, Source::Path) {
            return;
        }
        if let Some(event) = late.arrive(packet_number) {
            push(events, event);
        }
    }
}

/// Queues an event, if there is room.
fn push(events: &mut VecDeque<GapEvent>, event: GapEvent) -> bool {
    let room = events.len() < MAX_EVENTS;
    if room {
        events.push_back(event);
    }
    room
}

/// The identifier of a datagram for a proxy that keeps copies: its last four bytes. They belong to
/// the authentication tag of its last packet.
fn identifier(datagram: &[u8]) -> Option<u32> {
    datagram.last_chunk::<IDENTIFIER_LEN>().map(|bytes| u32::from_be_bytes(*bytes))
}

impl<F: BufFactory> Connection<F> {
    /// Reports the gaps in what a client receives, from now on.
    ///
    /// Call it before the first `recv`: gaps before the packets that arrived by then stay unknown.
    /// Servers ignore it. From then on, duplicates are detected among the last 4096 packet numbers
    /// instead of 128, and packets that arrive before their keys wait for these.
    pub fn sidekick_report_gaps(&mut self) {
        if self.is_server || self.sidekick.receive.reports {
            return;
        }
        let gaps = &mut self.sidekick.receive.spaces;
        for (space, gaps) in self.pkt_num_spaces.iter_mut().zip(gaps) {
            let nothing = space.recv_pkt_need_ack.len() == 0 && space.largest_rx_pkt_num == 0;
            let from = if nothing { 0 } else { space.largest_rx_pkt_num + 1 };
            space.recv_pkt_num.sidekick.begin(from);
            gaps.begin(from);
        }
        self.sidekick.receive.reports = true;
    }

    /// Stops reporting gaps. The acknowledgements that are held back leave, and no event waits.
    /// Duplicates are still detected among the last 4096 packet numbers.
    pub fn sidekick_ignore_gaps(&mut self, now: Instant) {
        self.sidekick_hold(None, now);
        let receive = &mut self.sidekick.receive;
        receive.reports = false;
        receive.events.clear();
    }

    /// Holds the acknowledgements behind gaps back, or releases them and holds none.
    ///
    /// The peer must not mistake a held acknowledgement for a loss. The peer's probe timeout is
    /// longer than the round trip (RFC 9002, section 6.2.1). The limit must be shorter than the
    /// difference, less the time that the acknowledgement takes.
    pub fn sidekick_hold(&mut self, hold: Option<Hold>, now: Instant) {
        let receive = &mut self.sidekick.receive;
        receive.hold = hold.filter(|_| receive.reports);
        // Usually no gap is open.
        if receive.hold.is_none() && !receive.is_idle() {
            self.sidekick_release_gaps(now);
        }
    }

    /// The identifier of the newest datagram: the one that raised a highest packet number last.
    pub fn sidekick_newest(&self) -> Option<u32> {
        self.sidekick.receive.newest
    }

    /// What has arrived from the path since the last call, or since gaps are reported.
    #[inline]
    pub fn sidekick_take_arrived(&mut self) -> Arrived {
        std::mem::take(&mut self.sidekick.receive.received)
    }

    /// The number of packets whose acknowledgements are held.
    pub fn sidekick_held(&self) -> usize {
        self.sidekick.receive.spaces[Epoch::Application].held()
    }

    /// Whether a gap is open, an acknowledgement waits, or an event of a gap does.
    pub fn sidekick_has_gaps(&self) -> bool {
        let receive = &self.sidekick.receive;
        !receive.events.is_empty() || !receive.is_idle()
    }

    /// Removes and returns the oldest event of a gap. Call it until it returns `None`.
    pub fn sidekick_gap_event(&mut self) -> Option<GapEvent> {
        self.sidekick.receive.events.pop_front()
    }

    /// Gives up a gap: acknowledges the packets that waited for it alone. It has no effect if the
    /// gap is closed.
    pub fn sidekick_release_gap(&mut self, id: u64, now: Instant) {
        let Receive { spaces, events, .. } = &mut self.sidekick.receive;
        for space in spaces {
            space.release(id, GapEnd::Released, now, |event| { push(events, event); });
        }
        self.sidekick_release(now);
    }

    /// Gives up all gaps.
    pub fn sidekick_release_gaps(&mut self, now: Instant) {
        let Receive { spaces, events, .. } = &mut self.sidekick.receive;
        for space in spaces {
            space.release_all(now, |event| { push(events, event); });
        }
        self.sidekick_release(now);
    }

    /// Takes a proxy's copy of a datagram, as if it had arrived from `info.from`.
    ///
    /// The copy need not be true: the connection authenticates it. The call ignores packets that
    /// carry no authentication of their own (Version Negotiation and Retry), and every copy while
    /// gaps are not reported.
    ///
    /// # Errors
    /// As `recv`.
    pub fn sidekick_recv_copy(&mut self, datagram: &mut [u8], info: RecvInfo) -> Result<usize> {
        let authentic = match &*datagram {
            // A long header (RFC 9000, section 17.2); version 0 is Version Negotiation.
            [first, version @ ..] if first & 0x80 != 0 => {
                first >> 4 & 3 != 3 && version.first_chunk().is_some_and(|version| *version != [0; 4])
            }
            [first, ..] => first & 0x40 != 0,
            [] => false,
        };
        if !self.sidekick.receive.reports || !authentic {
            return Ok(datagram.len());
        }
        self.sidekick.receive.copies += 1;
        self.sidekick_recv_from_elsewhere(datagram, info)
    }

    /// The number of copies taken.
    pub fn sidekick_copies(&self) -> u64 {
        self.sidekick.receive.copies
    }

    fn sidekick_recv_from_elsewhere(&mut self, datagram: &mut [u8], info: RecvInfo) -> Result<usize> {
        let before = std::mem::replace(&mut self.sidekick.receive.source, Source::Elsewhere);
        let current = self.sidekick.receive.current;
        self.sidekick.receive.current = identifier(datagram);
        let read = self.recv(datagram, info);
        self.sidekick.receive.source = before;
        self.sidekick.receive.current = current;
        read
    }

    /// Notes a datagram before `recv` decrypts it.
    #[inline]
    pub(crate) fn sidekick_arrive(&mut self, datagram: &[u8]) {
        let receive = &mut self.sidekick.receive;
        if receive.reports && receive.source == Source::Path {
            receive.previous = receive.current.or(receive.previous);
            receive.current = identifier(datagram);
            receive.received.datagrams += 1;
            receive.received.bytes += datagram.len();
            receive.received.longest = receive.received.longest.max(datagram.len());
            receive.arrivals.note(datagram);
        }
    }

    /// The packet number of a copy whose header has the low `len` bytes `truncated`. `decoded` is
    /// the number nearest to the next expected one, as for any packet (RFC 9000, appendix A.3). A
    /// copy can be older than that. Then it is a missing number.
    #[inline]
    pub(crate) fn sidekick_decode(&self, epoch: Epoch, decoded: u64, truncated: u64, len: usize) -> u64 {
        let receive = &self.sidekick.receive;
        if receive.source == Source::Path {
            return decoded;
        }
        let span = 1_u64.checked_shl(8 * u32::try_from(len).unwrap_or(8)).unwrap_or(u64::MAX);
        receive.spaces[epoch].missing_like(decoded, truncated % span, span).unwrap_or(decoded)
    }

    /// Notes a packet that is not a duplicate and was added to those to acknowledge. Returns
    /// whether its acknowledgement waits instead. `before` is when the largest of the others
    /// arrived.
    #[inline]
    pub(crate) fn sidekick_arrived(
        &mut self,
        epoch: Epoch,
        packet_number: u64,
        ack_eliciting: bool,
        before: Instant,
        now: Instant,
    ) -> bool {
        // This runs for every packet, and few connections ask for it. Of those that do, few packets
        // show a gap, or arrive behind one.
        let receive = &mut self.sidekick.receive;
        receive.reports
            && !receive.arrive_in_order(epoch, packet_number)
            && self.sidekick_note_arrival(epoch, packet_number, ack_eliciting, before, now)
    }

    #[cold]
    #[inline(never)]
    fn sidekick_note_arrival(
        &mut self,
        epoch: Epoch,
        packet_number: u64,
        ack_eliciting: bool,
        before: Instant,
        now: Instant,
    ) -> bool {
        let held = self.sidekick.receive.arrive(epoch, packet_number, ack_eliciting, now);
        if held {
            let space = &mut self.pkt_num_spaces[epoch];
            space.recv_pkt_need_ack.sidekick_remove_last(packet_number);
            space.largest_rx_pkt_time = before;
        }
        self.sidekick_release(now);
        held
    }

    /// Lets the next `send` acknowledge the packets that no gap holds back, a step at a time.
    fn sidekick_release(&mut self, now: Instant) {
        let receive = &mut self.sidekick.receive;
        let gaps = &mut receive.spaces[Epoch::Application];
        if gaps.held() == 0 {
            receive.next_step = None;
            return;
        }
        let step = match receive.hold {
            Some(hold) if !gaps.is_full() => hold.step(gaps.held(), gaps.oldest(now)),
            _ => usize::MAX,
        };
        if step < usize::MAX && receive.next_step.is_some_and(|next| next > now) {
            return;
        }
        receive.next_step = None;
        let space = &mut self.pkt_num_spaces[Epoch::Application];
        for released in 0.. {
            if released == step && gaps.is_releasable() {
                receive.next_step = receive.hold.map(|hold| now + hold.step_interval);
                return;
            }
            let Some(packet) = gaps.pop_released() else { return };
            if space.recv_pkt_need_ack.last() < Some(packet.packet_number) {
                space.largest_rx_pkt_time = packet.received;
            }
            space.recv_pkt_need_ack.push_item(packet.packet_number);
            space.ack_elicited |= packet.ack_eliciting;
        }
    }

    /// Gives up gaps whose time is over, and takes the next step of a release.
    pub(super) fn sidekick_receive_due(&mut self, now: Instant) {
        let limit = self.sidekick.receive.limit();
        let Receive { spaces, events, .. } = &mut self.sidekick.receive;
        for space in spaces {
            space.expire(limit, now, |event| { push(events, event); });
        }
        self.sidekick_release(now);
    }

    /// Keeps a packet that has no keys yet. Returns its length if it is kept.
    pub(crate) fn sidekick_keep_undecrypted(
        &mut self,
        header: &Header<'_>,
        packet: &[u8],
        info: &RecvInfo,
    ) -> Option<usize> {
        let waits = matches!(header.ty, Type::Handshake | Type::Short) && !self.handshake_confirmed;
        let receive = &mut self.sidekick.receive;
        let bytes: usize = receive.undecrypted.iter().map(|kept| kept.packet.len()).sum();
        let room = receive.undecrypted.len() < MAX_UNDECRYPTED
            && bytes + packet.len() <= MAX_UNDECRYPTED_BYTES;
        if !receive.reports || !waits || !room {
            return None;
        }
        let epoch = header.ty.to_epoch().ok()?;
        receive.undecrypted.push_back(Undecrypted { epoch, packet: packet.to_vec(), info: *info });
        Some(packet.len())
    }

    /// Reads the kept packets whose keys are there.
    pub(crate) fn sidekick_recv_undecrypted(&mut self) -> Result<()> {
        for _ in 0..self.sidekick.receive.undecrypted.len() {
            let Some(mut kept) = self.sidekick.receive.undecrypted.pop_front() else { break };
            if self.crypto_ctx[kept.epoch].crypto_open.is_some() {
                self.sidekick_recv_from_elsewhere(&mut kept.packet, kept.info)?;
            } else if !self.handshake_confirmed {
                self.sidekick.receive.undecrypted.push_back(kept);
            }
        }
        Ok(())
    }

    /// Notes a packet that is a duplicate, such as one that its copy has overtaken. Returns whether
    /// `recv` reads on in the datagram. The rest may be new if the peer put other packets into it
    /// when it sent the packet first.
    pub(crate) fn sidekick_duplicate(&mut self, epoch: Epoch, packet_number: u64) -> bool {
        let receive = &mut self.sidekick.receive;
        if receive.reports {
            receive.note_late(epoch, packet_number);
        }
        receive.reports
    }
}

#[cfg(test)]
mod tests;
