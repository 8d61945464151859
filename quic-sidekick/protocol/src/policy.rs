//! When a sender that knows nothing of its flow's transport sends a lost datagram again.
//!
//! Such a sender has the flow's ciphertext alone: it is an agent on the host, or a socket. It
//! re-injects from a [`Store`](crate::Store), and cannot ask the transport's controller whether
//! that helps. So [`Policy`] decides: a repair must be in time, must not hide congestion, and must
//! not be a proxy's lie. Nothing here does I/O, and one object serves one flow.
//!
//! [`Policy::config`] has what such a sender asks of a proxy, and a [`Resender`] does the rest: it
//! keeps what leaves, and hands its caller what to send again.

mod carry;
mod named;
mod resender;
mod round_trip;
mod trust;

use crate::identify::{Filter, Identification, Position};
use crate::in_order::{InOrderState, LeaveInOrder, UNKNOWN_FAR};
use crate::loss_floor::Lost;
use crate::repair::NEAR_PART;
use crate::sender::{Assistance, Sender, SenderConfig};
use crate::terms::Terms;
pub(crate) use carry::{CARRIED_WAIT_MS, MindsOrder};
pub use carry::{Carry, CarryAs, Carrying};
pub use named::Named;
pub use resender::{Leaving, Resender, Settled};
pub use round_trip::{RoundTrip, is_initial};
use std::fmt;
use std::mem;
use std::time::{Duration, Instant};
pub use trust::Trusts;
use trust::{Counts, Trust};

/// A lost datagram that is older than this is not sent again.
pub const MAX_AGE: Duration = Duration::from_millis(200);
/// How long the proxy keeps copies of arriving datagrams. A receiver cannot use older ones.
pub const KEEP: Duration = Duration::from_millis(200);
/// Most bytes of copies of one flow: what 1 Gbit/s carries in 8 ms.
const STORE: usize = 1 << 20;
/// Most datagrams of a handshake that are sent again because no proxy counted the flow yet.
const UNCOUNTED: usize = 8;

/// The proxy sends a quACK at most this long after the first unreported packet, so a repair leaves
/// this long and a near RTT after the packets that follow the lost one.
const QUACK_INTERVAL: Duration = Duration::from_millis(1);
/// Losses that a quACK can identify: at 1 Gbit/s, a fifth of the packets of that time.
const THRESHOLD: u8 = 20;
/// The same for calls, which get a quACK for each packet or two. Larger quACKs would be as long as
/// the packets.
const THRESHOLD_OF_CALLS: u8 = 4;
/// Packets without a loss before fewer quACKs are requested, of a flow whose sender slows down
/// after losses: enough for the beginning of its slow start.
const SLOW_START: u32 = 64;
/// The same for other flows.
const FEW: u32 = 8;
/// Packets that a flow remembers until a proxy accepts: at 1 Gbit/s those of 11 ms.
const UNANSWERED: usize = 1024;

/// A repair that is late by more than this part of the round trip is no help. Loss detection by
/// time allows an eighth (RFC 9002, section 6.1.2). Senders allow more once they find losses
/// spurious.
const REPAIR_SHARE: u32 = 5;
/// The longest near RTT for a flow whose receiver waits for late packets.
const WAITING_FAR: Duration = Duration::from_millis(80);

/// A repair is sent twice for this many of a flow's first packets, if its sender slows down. The
/// repair of a lost repair would be late, and one loss then ends slow start. Later, second copies
/// would take bandwidth from a full far segment.
const TWICE: u64 = 200;
/// The tag of a repair's second copy has this bit. The loss of that copy needs no repair.
const SECOND: u64 = 1 << 63;
/// How long nothing is sent again after a queue grew before the proxy.
const CONGESTION_PAUSE: Duration = Duration::from_millis(100);
/// If a queue grows for this long, the sender's own messages may fill it. The help then pauses.
const FULL: Duration = Duration::from_secs(1);
/// The first pause. Each later one is twice as long, up to the longest. A flow that had help for as
/// long as the next pause begins with the first again.
const REST: Duration = Duration::from_secs(10);
const LONGEST_REST: Duration = Duration::from_secs(320);
/// After this many losses, the policy decides whether the link reorders packets.
const JUDGED: u64 = 64;
/// In a flow whose packets overtake each other, a missing packet counts as lost after this many
/// later ones, as in senders (RFC 9002, section 6.1.1).
const REORDERED: u32 = 3;

/// What the state of a flow says while the help pauses.
pub const RESTS: &str = "a queue grew before the proxy for long: without help for a while";

/// What the policy must know of a flow's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// One loss costs its sender as much as many: it slows down.
    pub slows_down: bool,
    /// Its receiver puts packets in order by itself, and waits for late ones.
    pub waits: bool,
    /// Its receiver takes later packets for proof of a loss, so a proxy may put what leaves in
    /// order.
    pub minds_order: bool,
    /// A call, of few and small packets.
    pub is_call: bool,
}

impl Traits {
    /// Those of QUIC.
    pub const QUIC: Self =
        Self { slows_down: true, waits: false, minds_order: true, is_call: false };
    /// Those of a call by SRTP.
    pub const CALL: Self =
        Self { slows_down: false, waits: true, minds_order: false, is_call: true };

    /// The terms to request for such a flow, whose packets have their identifier there.
    #[must_use]
    pub fn terms(self, position: Position) -> Terms {
        let threshold = if self.is_call { THRESHOLD_OF_CALLS } else { THRESHOLD };
        let every = Some(QUACK_INTERVAL);
        let identification = Identification { position, filter: Filter::All };
        Terms { threshold, every_packets: None, every, identification }
    }

    /// Packets that must arrive without a loss before fewer quACKs are requested.
    fn frugal_after(self) -> u32 {
        if self.slows_down { SLOW_START } else { FEW }
    }
}

/// Why lost packets are not sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// A queue grows before the proxy: the flow's sender must detect its losses.
    Congested,
    /// A repair would arrive too late.
    Far,
    /// The proxy gets parity, from which it rebuilds what is lost sooner than a repair arrives.
    Protected,
    /// Nothing shows yet that a repair would be in time.
    Unmeasured,
    /// The losses that the proxy reports are not plausible.
    Unbelieved,
}

/// Whether copies may be requested for what arrives, which `order` puts in order, if anything does.
/// Then a copy is in time from farther away than a repair.
fn may_fetch(withheld: Option<Withheld>, order: Option<InOrderState>) -> bool {
    match withheld {
        None => true,
        Some(Withheld::Far | Withheld::Protected) => {
            order.is_some_and(|state| state != InOrderState::Idle)
        }
        Some(_) => false,
    }
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Congested => "a queue grows before the proxy",
            Self::Far => "the proxy is too far away for a repair in time",
            Self::Protected => "parity repairs at the proxy",
            Self::Unmeasured => "the near RTT is not measured yet",
            Self::Unbelieved => "the proxy reports more losses than messages to it suffer",
        })
    }
}

/// The names under which a lost datagram is sent again, one for each copy. A tag of the flow's own
/// datagrams is below 2^63.
fn names(tag: u64, traits: Traits) -> impl Iterator<Item = u64> {
    let second = (traits.slows_down && tag < TWICE).then_some(tag | SECOND);
    std::iter::once(tag).chain(second)
}

/// The name of a copy whose loss needs no repair.
fn last_name(tag: u64) -> u64 {
    tag | SECOND
}

/// Whether the loss of the datagram with this name needs no repair.
fn is_last(name: u64) -> bool {
    name & SECOND != 0
}

/// When a flow's losses are repaired.
#[derive(Debug)]
pub struct Policy {
    round_trip: RoundTrip,
    congested_until: Option<Instant>,
    /// Since when a queue grows before the proxy.
    full_since: Option<Instant>,
    /// The help pauses until then, after a queue grew for long.
    rests_until: Option<Instant>,
    /// When the latest pause ended.
    woke: Option<Instant>,
    /// The next pause.
    rest: Duration,
    /// The losses at the last decision about reordering, and how many of them turned out to be
    /// late.
    judged: (u64, u64),
    /// What the proxy's trust does not know yet: counts, and bytes of the program's packets.
    news: (Counts, usize),
    /// The sender's polls and answers that it knows.
    polls: (u64, u64),
    /// The proxy's reports are not believed.
    is_unbelieved: bool,
    /// The flow's packets overtake each other.
    reorders: bool,
    /// When a proxy puts them in order.
    leaves: LeaveInOrder,
}

impl Policy {
    /// For a flow whose earlier packets have shown this round trip.
    #[must_use]
    pub fn new(round_trip: RoundTrip) -> Self {
        Self {
            round_trip,
            congested_until: None,
            full_since: None,
            rests_until: None,
            woke: None,
            rest: REST,
            judged: (0, 0),
            news: Default::default(),
            polls: (0, 0),
            is_unbelieved: false,
            reorders: false,
            leaves: LeaveInOrder::new(false),
        }
    }

    /// The same, which may send parity of what leaves to a proxy that puts it in order, from a near
    /// round trip of 10 ms on.
    #[must_use]
    pub fn protecting(mut self, may_protect: bool) -> Self {
        self.leaves = self.leaves.protecting(may_protect);
        self
    }

    /// What the sender of a new flow asks of the proxy that `config` names. `position` is that of
    /// its packets' identifier.
    #[must_use]
    pub fn config(config: SenderConfig, traits: Traits, position: Position) -> SenderConfig {
        SenderConfig {
            terms: traits.terms(position),
            keep: None,
            unanswered: UNANSWERED,
            // Most links keep the order, and the next packet may be far away in time.
            packet_threshold: 1,
            frugal: Some(traits.frugal_after()),
            ..config
        }
    }

    /// Notes a datagram of the program that left. `begins` says that it begins the flow's
    /// handshake, and `spins` that short headers have a spin bit.
    fn on_leaving(&mut self, payload: &[u8], begins: bool, spins: bool, now: Instant) {
        self.round_trip.on_leaving(payload, begins, spins, now);
        self.leaves.on_sent(payload.len());
        let (counts, bytes) = &mut self.news;
        counts.packets += 1;
        *bytes += payload.len();
    }

    /// Notes a datagram that was sent again.
    fn on_repaired(&mut self) {
        self.news.0.packets += 1;
    }

    /// Notes a datagram of this length that arrived.
    pub fn on_arriving(&mut self, bytes: usize, now: Instant) {
        self.leaves.on_received(bytes);
        self.round_trip.on_arriving(now);
    }

    /// Whether what arrives mostly acknowledges what leaves.
    #[must_use]
    pub fn is_acknowledged(&self) -> bool {
        self.leaves.is_acknowledged()
    }

    /// Begins anew, because the flow left its path. What was measured and what was decided does not
    /// apply to another.
    fn begin_again(&mut self, traits: Traits, sender: &mut Sender) {
        let stats = sender.stats();
        *self = Self {
            judged: (stats.early_lost, stats.turned_up),
            news: mem::take(&mut self.news),
            polls: self.polls,
            is_unbelieved: self.is_unbelieved,
            ..Self::new(RoundTrip::unknown()).protecting(self.leaves.is_protecting())
        };
        self.apply_order(traits, sender);
    }

    /// Whether the help pauses.
    #[must_use]
    pub fn rests(&self) -> bool {
        self.rests_until.is_some()
    }

    /// Ends a pause that is over. Returns whether one was.
    fn wake(&mut self, now: Instant) -> bool {
        let woke = self.rests_until.take_if(|until| *until <= now).is_some();
        if woke {
            (self.full_since, self.woke) = (None, Some(now));
        }
        woke
    }

    /// Whether a proxy reports the flow now.
    #[must_use]
    pub fn is_assisted(&self, sender: &Sender) -> bool {
        !self.rests() && sender.assistance() == Assistance::Assisted
    }

    /// Notes whether a queue grows. Pauses the help, and stops the sender, if it grows for long.
    fn note_queue(&mut self, sender: &mut Sender, now: Instant) {
        if !sender.near_queue_grows() && !sender.keeper_queue_grows() {
            self.full_since = None;
            return;
        }
        self.congested_until = Some(now + CONGESTION_PAUSE);
        // The session must see that the first link falls silent. And where losses are told apart, a
        // queue is no reason to stop.
        if sender.has_second_link(now) || sender.tells_congestion(now) {
            self.full_since = None;
            return;
        }
        if self.rests_until.is_none() && *self.full_since.get_or_insert(now) + FULL <= now {
            if self.woke.is_some_and(|woke| woke + self.rest <= now) {
                self.rest = REST;
            }
            self.rests_until = Some(now + self.rest);
            self.rest = (2 * self.rest).min(LONGEST_REST);
            sender.stop();
        }
    }

    /// Declares losses later from now on if more than a quarter of the last ones turned out to be
    /// late.
    fn judge(&mut self, traits: Traits, sender: &mut Sender) {
        let stats = sender.stats();
        let (lost, turned_up) = (stats.early_lost - self.judged.0, stats.turned_up - self.judged.1);
        if lost >= JUDGED {
            self.judged = (stats.early_lost, stats.turned_up);
            if turned_up > lost / 4 {
                self.reorders = true;
                self.apply_order(traits, sender);
            }
        }
    }

    /// Declares losses as early as the order of packets allows. Where they overtake each other, few
    /// quACKs do not show whether one is lost or late. Call this when the flow's traits change.
    fn apply_order(&self, traits: Traits, sender: &mut Sender) {
        let (threshold, frugal) =
            if self.reorders { (REORDERED, None) } else { (1, Some(traits.frugal_after())) };
        sender.set_packet_threshold(threshold);
        sender.set_frugal(frugal);
    }

    /// Tells the proxy's trust what is new, and polls the proxy to test it. `lost` packets were
    /// reported as lost. Returns the trust, which spends the bytes of repairs.
    fn report<'a>(
        &mut self,
        sender: &mut Sender,
        trusts: &'a mut Trusts,
        lost: u64,
        now: Instant,
    ) -> Option<&'a mut Trust> {
        let Some((proxy, _)) = sender.proxy() else {
            (self.news, self.is_unbelieved) = (Default::default(), false);
            return None;
        };
        trusts.note(self.news.1);
        let trust = trusts.of(proxy, now);
        let stats = sender.stats();
        let (polls, answers) = mem::replace(&mut self.polls, (stats.polls, stats.polls_answered));
        let (counts, bytes) = mem::take(&mut self.news);
        let polls = stats.polls.saturating_sub(polls);
        let answers = stats.polls_answered.saturating_sub(answers);
        trust.note(Counts { lost, polls, answers, ..counts }, bytes, now);
        self.is_unbelieved = !trust.believes(now);
        let spacing = sender.near_rtt().map(|near| near + near / 4);
        if spacing.is_some_and(|spacing| trust.wants_poll(spacing, now)) {
            sender.poll_now(now);
        }
        Some(trust)
    }

    /// Whether a queue grows or grew a short time ago. No copy is requested meanwhile.
    fn queue_grew(&self, now: Instant) -> bool {
        self.congested_until.is_some_and(|until| now < until)
    }

    /// Why nothing is sent again now, or `None` if losses are repaired.
    #[must_use]
    pub fn withheld(&self, traits: Traits, sender: &Sender, now: Instant) -> Option<Withheld> {
        if self.is_unbelieved {
            return Some(Withheld::Unbelieved);
        }
        if self.queue_grew(now) && !sender.tells_congestion(now) {
            return Some(Withheld::Congested);
        }
        let Some(near) = near(sender) else { return Some(Withheld::Unmeasured) };
        if sender.covers_order() {
            return Some(Withheld::Protected);
        }
        (near > self.longest_near(traits, sender, near)).then_some(Withheld::Far)
    }

    /// Asks the proxy to put a flow in order whose receiver minds that, or no longer. `withheld`
    /// says why these losses are not sent again, if they are not; so many datagrams reached the
    /// proxy.
    fn order(
        &mut self,
        traits: Traits,
        withheld: Option<Withheld>,
        (received, lost): (usize, &[Lost]),
        sender: &mut Sender,
        now: Instant,
    ) {
        let is_calm = !matches!(withheld, Some(Withheld::Congested | Withheld::Unbelieved));
        let distance = self.distance(traits, sender).filter(|_| is_calm);
        let is_far = distance.is_some_and(|(near, most)| near > most);
        // Parity would grow with what a queue drops.
        let protects = distance.filter(|_| !self.queue_grew(now)).is_some_and(|(near, _)| {
            self.leaves.may_protect(near, is_far, withheld == Some(Withheld::Protected))
        });
        if withheld.is_none() || protects {
            for Lost { congestion, .. } in lost {
                self.leaves.on_lost(!congestion, sender, now);
            }
        }
        self.leaves.note_fates(received, lost);
        let whole = self.rtt(sender);
        if !protects || !self.leaves.protect(whole, sender, now) {
            self.leaves.update(distance.is_some() && !is_far, whole, sender, now);
        }
    }

    /// The near RTT without a queue, and the longest with which repairs are in time; `None` until
    /// it is measured.
    #[must_use]
    pub fn distance(&self, traits: Traits, sender: &Sender) -> Option<(Duration, Duration)> {
        near(sender).map(|near| (near, self.longest_near(traits, sender, near)))
    }

    /// The longest near RTT with which repairs are in time.
    fn longest_near(&self, traits: Traits, sender: &Sender, near: Duration) -> Duration {
        // Behind a proxy that puts them in order, nothing overtakes repairs.
        let in_order = traits.minds_order && sender.may_order();
        let share = if in_order { NEAR_PART } else { REPAIR_SHARE };
        match self.round_trip.get(near) {
            _ if traits.waits => WAITING_FAR,
            // Anyone can send what looks like an answer, and would end the help.
            Some(rtt) if self.round_trip.certain(near).is_none() => UNKNOWN_FAR.max(rtt / share),
            Some(rtt) => rtt / share,
            None => UNKNOWN_FAR,
        }
    }

    /// The whole path's round trip, if the flow showed it.
    #[must_use]
    pub fn rtt(&self, sender: &Sender) -> Option<Duration> {
        self.round_trip.get(near(sender).unwrap_or_default())
    }
}

/// The near RTT without a queue: a queue is a reason of its own.
fn near(sender: &Sender) -> Option<Duration> {
    let queue = sender.near_queueing().unwrap_or_default();
    Some(sender.near_rtt()?.saturating_sub(queue))
}
