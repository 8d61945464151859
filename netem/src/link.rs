//! One direction of an emulated link, without I/O and without a clock.
//!
//! A packet passes these stages in this order: random loss, outages, the MTU, corruption and
//! duplication, each independent of the others. Then come the policer, the queue with its
//! discipline, the rate limit or trace, and the delay with its jitter. Reordering lets some packets
//! skip the delay. A link that fades, replays a recording or sends lost frames again loses them
//! after the rate limit, not before. The caller passes the time with each call, as a [`Duration`]
//! since any fixed start:
//!
//! 1. [`Link::push`] when a packet reaches the link; a dropped packet comes straight back as a
//!    [`Verdict`];
//! 2. [`Link::poll_timeout`] returns when to call again;
//! 3. [`Link::pop`] yields the packets that are due, oldest first, until it returns `None`.
//!
//! Time must not run backwards. The fate of the n-th packet under random loss depends only on the
//! seed and n, so two runs with one seed lose the same packets in the same order, unless the link
//! fades or replays: then it also depends on when the packet comes. Every other impairment draws
//! from its own stream: jitter does not change which packets are lost.

mod codel;
mod config;
mod fifo;
mod frame;
mod jitter;
mod loss;
mod policer;
mod queue;
mod red;
pub(crate) mod replay;
mod timetable;
mod trace;
mod transmitter;
mod weather;

use std::collections::BTreeMap;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

pub use codel::CoDelConfig;
pub use config::{Discipline, LinkConfig, Outage, Outages, Retries};
use frame::ETHERNET_HEADER;
pub(crate) use frame::flip_a_bit;
pub use frame::{Ecn, EthernetFrame, Frame};
pub use jitter::{Jitter, JitterShape};
pub use loss::LossModel;
use loss::LossState;
use policer::Policer;
use queue::{Line, Queue};
pub use red::RedParameters;
use replay::Player;
pub use replay::{Replay, ReplayError};
pub(crate) use timetable::Timetable;
pub use trace::{Trace, TraceError};
use transmitter::Transmitter;
use weather::Weather;
pub use weather::{Fading, Handovers};

/// Packets that have begun to leave, sorted by arrival and then by their order.
#[derive(Debug)]
struct InFlight<P> {
    packets: BTreeMap<(Duration, u64), P>,
    /// The number of packets that have begun to leave.
    begun: u64,
    /// The latest arrival of the packets that keep their order.
    latest: Duration,
}

/// One direction of an emulated link that carries packets of type `P`.
#[derive(Debug)]
pub struct Link<P> {
    config: LinkConfig,
    random: RandomStreams,
    loss: LossState,
    weather: Weather,
    player: Player,
    policer: Policer,
    queue: Queue<P>,
    transmitter: Transmitter,
    in_flight: InFlight<P>,
    counters: LinkCounters,
}

impl<P: Frame> Link<P> {
    /// A link whose random numbers follow from `seed` and `stream`. The links of one run share the
    /// seed and differ in the stream, which must be below 2^32. An even stream and the next one are
    /// the directions of one segment, and share its weather and the beginning of its replay.
    pub fn new(config: LinkConfig, seed: u64, stream: u64) -> Self {
        Self {
            random: RandomStreams::new(seed, stream),
            loss: LossState::default(),
            weather: Weather::of_segment(seed, stream),
            player: Player::new(seed, [stream + 10 * CAUSES_APART, of_segment(stream, 11)]),
            policer: Policer::default(),
            queue: Queue::new(&config),
            transmitter: Transmitter::new(&config),
            in_flight: InFlight { packets: BTreeMap::new(), begun: 0, latest: Duration::ZERO },
            counters: LinkCounters::default(),
            config,
        }
    }

    /// Accepts or drops a packet that reaches the link at `now`. If the link duplicates the packet,
    /// the verdict is that of the first.
    pub fn push(&mut self, now: Duration, mut packet: P) -> Verdict {
        self.counters.packets += 1;
        let draws = self.random.draw();
        if !self.loses_on_air() && self.loses(now, draws) {
            self.counters.lost_random += 1;
            return Verdict::LostAtRandom;
        }
        if self.config.outages.contains(now) || self.handover(now).0 {
            self.counters.lost_outage += 1;
            return Verdict::LostInOutage;
        }
        if self.config.mtu_bytes.is_some_and(|most| packet.bytes() > most + ETHERNET_HEADER as u64)
        {
            self.counters.lost_mtu += 1;
            return Verdict::TooLarge;
        }
        if self.config.corrupt.strikes(draws.corrupt) {
            self.counters.corrupted += 1;
            packet.corrupt(draws.corrupt_place);
        }
        let second = self.config.duplicate.strikes(draws.duplicate).then(|| packet.clone());
        let verdict = self.enqueue(now, packet);
        if let Some(second) = second {
            self.counters.duplicated += 1;
            self.enqueue(now, second);
        }
        verdict
    }

    /// When to call [`Link::pop`] next: at the next arrival, or earlier if that is not certain yet;
    /// `None` when the link is empty.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let arrival = self.in_flight.packets.keys().next().map(|&(arrival, _)| arrival);
        let start = self.queue.fifo.since().map(|since| self.transmitter.ready_at(since));
        match (arrival, start) {
            // A waiting packet cannot arrive first, unless it may overtake others.
            (Some(arrival), Some(start)) if self.reorders() => Some(arrival.min(start)),
            (arrival, start) => arrival.or(start),
        }
    }

    /// The oldest packet that has arrived by `now`, if any.
    pub fn pop(&mut self, now: Duration) -> Option<P> {
        self.start_transmissions(now);
        let next = self.in_flight.packets.first_entry().filter(|next| next.key().0 <= now)?;
        let packet = next.remove();
        self.counters.delivered += 1;
        self.counters.delivered_bytes += packet.bytes();
        Some(packet)
    }

    /// Applies another configuration from `now` on. Waiting packets use the new rate and delay, but
    /// do not overtake earlier ones. Packets in transmission do not change. A smaller limit drops
    /// no accepted packet.
    pub fn set_config(&mut self, now: Duration, config: LinkConfig) {
        self.start_transmissions(now);
        self.transmitter.set_config(now, &config);
        self.queue.set_config(&self.config, &config);
        self.config = config;
    }

    /// The current counts.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Accepted packets that were neither popped nor dropped by CoDel.
    pub fn in_flight(&self) -> usize {
        self.queue.fifo.len() + self.in_flight.packets.len()
    }

    /// Whether packets are lost after they have left the queue, when time or retries decide.
    fn loses_on_air(&self) -> bool {
        let LinkConfig { retries, fading, replay, .. } = &self.config;
        retries.is_some() || fading.is_some() || replay.is_some()
    }

    /// Whether a frame that is on the air at this time is lost.
    fn loses(&mut self, at: Duration, draws: Draws) -> bool {
        let lost = self.loss.strikes(self.config.loss, self.config.loss_model, &draws);
        let replay = self.config.replay.as_ref();
        let replayed = replay.is_some_and(|replay| self.player.loses(replay, at));
        match self.config.fading {
            Some(fading) if self.weather.is_bad(fading, at) => {
                fading.loss.strikes(draws.loss) || replayed
            }
            _ => lost || replayed,
        }
    }

    fn handover(&mut self, at: Duration) -> (bool, Duration) {
        self.config
            .handovers
            .map_or((false, Duration::ZERO), |handovers| self.weather.handover(handovers, at))
    }

    /// Puts a frame on the line at `start`, and returns when it has left. The weather is that of
    /// `on_air`.
    fn transmit(&mut self, start: Duration, on_air: Duration, bytes: u64) -> Duration {
        let rate = match self.config.fading {
            Some(fading) if self.weather.is_bad(fading, on_air) => Some(fading.rate),
            _ => None,
        };
        self.transmitter.send(start, bytes, rate)
    }

    /// Whether packets can overtake others.
    fn reorders(&self) -> bool {
        let LinkConfig { reorder, jitter, replay, .. } = &self.config;
        reorder.get() > 0.0 || jitter.reorders || replay.is_some()
    }

    fn enqueue(&mut self, now: Duration, packet: P) -> Verdict {
        let LinkConfig { policer, policer_burst_bytes, .. } = self.config;
        if policer.is_some_and(|rate| {
            !self.policer.admits(now, packet.bytes(), rate, policer_burst_bytes)
        }) {
            self.counters.lost_policer += 1;
            return Verdict::Policed;
        }
        self.start_transmissions(now);
        let idle_at = self.transmitter.idle_at();
        let line = Line {
            busy: !self.queue.fifo.is_empty() || self.transmitter.ready_at(now) > now,
            idle_since: (self.queue.fifo.is_empty() && idle_at <= now).then_some(idle_at),
        };
        let (verdict, marked) = self.queue.offer(now, packet, line, &mut self.random.red);
        self.counters.marked += u64::from(marked);
        match verdict {
            Verdict::QueueFull => self.counters.lost_queue += 1,
            Verdict::DroppedEarly => self.counters.lost_aqm += 1,
            _ => self.start_transmissions(now),
        }
        verdict
    }

    /// Starts the transmission of every packet that has begun to leave by `now`, each at its own
    /// time.
    fn start_transmissions(&mut self, now: Duration) {
        while let Some(since) = self.queue.fifo.since() {
            let start = self.transmitter.ready_at(since);
            if start > now {
                break;
            }
            let taken = self.queue.take(start);
            self.counters.lost_aqm += taken.dropped;
            self.counters.marked += u64::from(taken.marked);
            if let Some(waiting) = taken.packet {
                self.send(start, waiting.packet);
            }
        }
    }

    fn send(&mut self, start: Duration, packet: P) {
        let mut end = self.transmit(start, start, packet.bytes());
        if self.loses_on_air() {
            let Retries { most, after } = self.config.retries.unwrap_or_default();
            let (mut tries, mut waited) = (0, Duration::ZERO);
            loop {
                let draws = self.random.draw_again();
                if !self.loses(end + waited, draws) {
                    break;
                }
                if tries == most {
                    self.counters.lost_random += 1;
                    // The receiver waits for it until it is given up.
                    let given_up = end + waited + self.config.delay;
                    self.in_flight.latest = self.in_flight.latest.max(given_up);
                    return;
                }
                (tries, waited) = (tries + 1, waited + after);
                self.counters.retried += 1;
                end = self.transmit(end, end + waited, packet.bytes());
            }
            end += waited;
        }
        let (_, later) = self.handover(end);
        let (later, late) = match &self.config.replay {
            Some(replay) => {
                let late = self.player.lateness(replay, end);
                (later + self.player.jitter(replay, end), late)
            }
            None => (later, None),
        };
        let arrival = if self.config.reorder.strikes(self.random.reorder.next_u64()) {
            self.counters.reordered += 1;
            end
        } else {
            let delay =
                self.config.jitter.delay(self.config.delay, &mut self.random.jitter) + later;
            let overtakes = end + delay < self.in_flight.latest && self.config.jitter.reorders;
            self.counters.reordered += u64::from(overtakes);
            self.in_flight.latest = self.in_flight.latest.max(end + delay);
            let arrival = if overtakes { end + delay } else { self.in_flight.latest };
            self.counters.reordered += u64::from(late.is_some());
            // Later packets do not wait for it.
            arrival + late.unwrap_or_default()
        };
        self.in_flight.packets.insert((arrival, self.in_flight.begun), packet);
        self.in_flight.begun += 1;
    }
}

#[cfg(test)]
mod tests;

/// The outcome of a push. CoDel drops packets that were accepted before: see
/// [`LinkCounters::lost_aqm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The link accepted the packet. On a link that fades, replays or retries, it may be lost yet.
    Accepted,
    /// Lost at random.
    LostAtRandom,
    /// Lost in an outage.
    LostInOutage,
    /// Larger than the MTU.
    TooLarge,
    /// Dropped by the policer.
    Policed,
    /// Dropped by RED.
    DroppedEarly,
    /// The queue was full.
    QueueFull,
}

/// Counts of one direction of a link. Bytes count whole frames.
///
/// `packets + duplicated` always equals `delivered + lost()` plus the packets in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkCounters {
    /// Packets that reached the link.
    pub packets: u64,
    /// Packets that left at the other end, with damaged and duplicate ones.
    pub delivered: u64,
    /// Bytes of the delivered packets.
    pub delivered_bytes: u64,
    /// Packets lost at random.
    pub lost_random: u64,
    /// Packets dropped by a full queue.
    pub lost_queue: u64,
    /// Packets that RED or CoDel dropped before the queue was full.
    pub lost_aqm: u64,
    /// Packets that exceeded the rate of the policer.
    pub lost_policer: u64,
    /// Packets lost in an outage or a handover.
    pub lost_outage: u64,
    /// Packets lost because they were larger than the MTU.
    pub lost_mtu: u64,
    /// Packets that the link duplicated.
    pub duplicated: u64,
    /// Packets that were damaged. The checksum at the receiver drops them.
    pub corrupted: u64,
    /// Packets that skipped the delay, or came late in a replay.
    pub reordered: u64,
    /// Packets that RED or CoDel marked.
    pub marked: u64,
    /// Frames that the link sent again because they were lost.
    pub retried: u64,
}

impl LinkCounters {
    /// Packets that the link dropped, whatever the cause.
    pub fn lost(&self) -> u64 {
        self.lost_random + self.congested() + self.lost_outage + self.lost_mtu
    }

    /// Packets that the link dropped because too many came: by a full queue, RED, CoDel or the
    /// policer.
    pub fn congested(&self) -> u64 {
        self.lost_queue + self.lost_aqm + self.lost_policer
    }
}

/// Each impairment draws from the link's stream plus a multiple of this number. A link's own stream
/// must be below it.
const CAUSES_APART: u64 = 1 << 32;

/// The stream of a cause that both directions of a segment share.
fn of_segment(stream: u64, cause: u64) -> u64 {
    (stream & !1) + cause * CAUSES_APART
}

/// The random numbers of a link.
#[derive(Debug)]
struct RandomStreams {
    loss: ChaCha8Rng,
    loss_state: ChaCha8Rng,
    jitter: ChaCha8Rng,
    reorder: ChaCha8Rng,
    duplicate: ChaCha8Rng,
    corrupt: ChaCha8Rng,
    red: ChaCha8Rng,
    again: ChaCha8Rng,
}

/// The random numbers for one packet that reaches the link.
#[derive(Clone, Copy, Debug, Default)]
struct Draws {
    loss: u64,
    loss_state: u64,
    duplicate: u64,
    corrupt: u64,
    corrupt_place: u64,
}

impl RandomStreams {
    fn new(seed: u64, stream: u64) -> Self {
        let cause = |number: u64| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(stream.wrapping_add(number * CAUSES_APART));
            random
        };
        Self {
            loss: cause(0),
            loss_state: cause(1),
            jitter: cause(2),
            reorder: cause(3),
            duplicate: cause(4),
            corrupt: cause(5),
            red: cause(6),
            again: cause(9),
        }
    }

    /// Draws all numbers for the next packet, also those of impairments that are off. So the draws
    /// of the n-th packet depend only on n.
    fn draw(&mut self) -> Draws {
        Draws {
            loss: self.loss.next_u64(),
            loss_state: self.loss_state.next_u64(),
            duplicate: self.duplicate.next_u64(),
            corrupt: self.corrupt.next_u64(),
            corrupt_place: self.corrupt.next_u64(),
        }
    }

    /// Draws the fate of a frame on a link that sends lost ones again.
    fn draw_again(&mut self) -> Draws {
        let (loss, loss_state) = (self.again.next_u64(), self.again.next_u64());
        Draws { loss, loss_state, ..Draws::default() }
    }
}
