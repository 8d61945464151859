//! Losses by load, or by delay, and what they prove.

/// Standard deviations that a floor leaves to chance.
const DEVIATIONS: f32 = 2.5;
/// The runs that are assumed before any is seen: so many losses, two in a row each.
const ASSUMED: f32 = 2.0;

/// Packets, and losses among them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Count {
    packets: f32,
    lost: f32,
    /// The sum of the squares of the lengths of runs of losses.
    squares: f32,
}

impl Count {
    #[allow(clippy::cast_possible_truncation, reason = "an interval has no more packets")]
    pub(super) fn packets(self) -> u32 {
        self.packets as u32
    }

    pub(super) fn send(&mut self) {
        self.packets += 1.0;
    }

    /// Counts a packet that was taken out before. Returns the difference.
    pub(super) fn send_again(&mut self) -> Self {
        let more = Self { packets: 1.0, ..Self::default() };
        *self += more;
        more
    }

    /// Takes a packet out again. Returns the difference.
    pub(super) fn unsend(&mut self) -> Self {
        let more = Self { packets: -1.0, ..Self::default() };
        *self += more;
        more
    }

    /// Counts the loss of one of the packets, after `before` others in a row. Returns the
    /// difference.
    pub(super) fn lose(&mut self, before: usize) -> Self {
        let more = Self { packets: 0.0, lost: 1.0, squares: 2.0 * before as f32 + 1.0 };
        *self += more;
        more
    }

    /// Takes back the loss of a packet. Returns the difference.
    pub(super) fn find(&mut self) -> Self {
        let lost = self.lost.min(1.0);
        let squares = if lost > 0.0 { self.squares / self.lost * lost } else { 0.0 };
        let more = Self { packets: 0.0, lost: -lost, squares: -squares };
        *self += more;
        more
    }

    /// So many consecutive packets that were lost, and so many that arrived.
    pub(super) fn of(lost: u32, arrived: u32) -> Self {
        let (lost, arrived) = (lost as f32, arrived as f32);
        Self { packets: lost + arrived, lost, squares: lost * lost }
    }

    pub(super) fn fade(&mut self, factor: f32) {
        self.packets *= factor;
        self.lost *= factor;
        self.squares *= factor;
    }

    /// The mean length of a lost packet's run.
    fn run(self) -> f32 {
        (self.squares + 2.0 * ASSUMED) / (self.lost + ASSUMED)
    }

    fn rate(self) -> f32 {
        self.lost / self.packets.max(1.0)
    }
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.lost += other.lost;
        self.squares += other.squares;
    }
}

impl std::ops::SubAssign for Count {
    fn sub_assign(&mut self, other: Self) {
        self.packets = (self.packets - other.packets).max(0.0);
        self.lost = (self.lost - other.lost).max(0.0);
        self.squares = (self.squares - other.squares).max(0.0);
    }
}

/// What the evidence says about losses of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Verdict {
    /// The packets of this class, those that equal it, and those above that say something about it,
    /// and the share of them that is lost.
    pub(super) packets: f32,
    pub(super) rate: f32,
    /// The mean length of the run of such a loss.
    pub(super) run: f32,
    /// The loss of the classes below that have the least.
    pub(super) floor: f32,
    /// The packets of these classes.
    pub(super) below: f32,
    /// Chance does not explain why the classes below lose less.
    pub(super) exceeds: bool,
    /// How many independent losses the classes below had shown, had they lost as many.
    pub(super) expected: f32,
}

/// Packets by classes of a quantity.
#[derive(Debug)]
pub(super) struct Evidence {
    lowest: f32,
    per_octave: f32,
    /// A class belongs to those below if it is at least so far below. Nearer ones are equal as far
    /// as the measurement goes.
    distance: usize,
    /// Classes so far above always say something about one.
    reach: usize,
    classes: Box<[Count]>,
}

impl Evidence {
    /// By bytes a second, from 1 kB/s to 1 GB/s.
    pub(super) fn by_load() -> Self {
        Self::new(1e3, 8, 160)
    }

    /// By seconds in a queue, from 0.5 ms to 2 s.
    pub(super) fn by_queue() -> Self {
        Self::new(5e-4, 2, 24)
    }

    /// A quarter of an octave is as far as the measurement goes, and a controller varies its load
    /// by half an octave.
    fn new(lowest: f32, per_octave: u8, classes: usize) -> Self {
        let octave = usize::from(per_octave);
        let (distance, reach) = ((octave / 4).max(1), octave / 2);
        let classes = vec![Count::default(); classes].into();
        Self { lowest, per_octave: per_octave.into(), distance, reach, classes }
    }

    /// The same, where all classes above say something about one, because the measurement does not
    /// tell them apart.
    pub(super) fn of_any_reach(self) -> Self {
        Self { reach: self.classes.len(), ..self }
    }

    /// The class of this value.
    #[allow(clippy::cast_possible_truncation, reason = "a float saturates")]
    pub(super) fn class(&self, value: f32) -> usize {
        let above = (value / self.lowest).max(1.0).log2() * self.per_octave;
        (above as usize).min(self.classes.len() - 1)
    }

    pub(super) fn add(&mut self, class: usize, count: Count) {
        if let Some(class) = self.classes.get_mut(class) {
            *class += count;
            // What was counted may have faded before it is taken out.
            class.packets = class.packets.max(0.0);
            class.lost = class.lost.max(0.0);
            class.squares = class.squares.max(0.0);
        }
    }

    /// Multiplies everything by this factor.
    pub(super) fn fade(&mut self, factor: f32) {
        self.classes.iter_mut().for_each(|class| class.fade(factor));
    }

    /// Whether chance does not explain why these packets were lost more often than those of all
    /// classes. Their own runs are no measure of chance: of an answer that it has no room for, a
    /// policer lets only the beginning pass.
    pub(super) fn is_exceeded_by(&self, packets: Count, chance: f32) -> bool {
        let mut sum = Count::default();
        self.classes.iter().for_each(|class| sum += *class);
        deviations(sum, packets, sum.run().max(1.0)) > chance
    }

    /// Judges losses of this class, in runs of at least `run`, by the classes below. `similar` are
    /// those of its packets, and of the classes above, that are like the lost ones. `more` counts
    /// packets that are not added yet, and `chance` is how many standard deviations of an excess
    /// prove nothing.
    pub(super) fn judge(
        &self,
        similar: &Self,
        class: usize,
        more: Count,
        run: f32,
        chance: f32,
    ) -> Verdict {
        let (floor, spread, end) = self.floor(class, run);
        let exceeds = |count: Count| deviations(floor, count, spread) > chance;
        let mut above = more;
        let mut is_proven = exceeds(above);
        for count in similar.between(class, similar.top(class, more, run, chance)).rev() {
            above += count;
            is_proven |= exceeds(above);
        }
        // Losses do not become fewer with more load, so classes between the two count as well.
        let mut with_lower = above;
        for count in similar.between(end.saturating_add(self.distance - 1), class).rev() {
            with_lower += count;
            is_proven |= exceeds(with_lower);
        }
        let equals = class.saturating_sub(self.distance - 1)..class;
        similar.between(equals.start, equals.end).for_each(|count| above += count);
        let rate = above.rate();
        let (below, expected) = (floor.packets, rate * floor.packets / spread);
        let (packets, floor, run) = (above.packets, floor.rate(), above.run());
        Verdict { packets, rate, run, floor, below, exceeds: is_proven, expected }
    }

    /// The class before which those above this one say something about it: those of up to half an
    /// octave, as a controller varies its load and a span does not show it exactly, and the further
    /// ones until all above lose more. After a slow start has overrun a queue, these are about it.
    fn top(&self, class: usize, more: Count, run: f32, chance: f32) -> usize {
        let mut top = (class + self.reach + 1).min(self.classes.len());
        let (mut equal, mut higher) = (more, Count::default());
        self.between(class, top).for_each(|count| equal += count);
        self.between(top, usize::MAX).for_each(|count| higher += count);
        while let Some(count) = self.classes.get(top) {
            if higher.packets < 1.0 || deviations(equal, higher, equal.run().max(run)) > chance {
                break;
            }
            equal += *count;
            higher -= *count;
            top += 1;
        }
        top
    }

    /// The counts of the classes from `first` until before `end` that have any.
    fn between(&self, first: usize, end: usize) -> impl DoubleEndedIterator<Item = Count> {
        let classes = self.classes.get(first..end.min(self.classes.len())).unwrap_or_default();
        classes.iter().copied().filter(|count| count.packets > 0.0)
    }

    /// The classes below this one that prove the least loss: from the lowest up to one of them.
    /// Also returns how much more their losses vary than independent ones, and the class after
    /// them.
    fn floor(&self, class: usize, run: f32) -> (Count, f32, usize) {
        let (mut least, mut least_bound) = ((Count::default(), run.max(1.0), class), f32::INFINITY);
        let mut sum = Count::default();
        let end = (class + 1).saturating_sub(self.distance);
        for (count, next) in self.classes.get(..end).unwrap_or_default().iter().zip(1..) {
            if count.packets == 0.0 {
                continue;
            }
            sum += *count;
            let spread = sum.run().max(run).max(1.0);
            let bound = bound(sum, spread);
            if bound < least_bound {
                (least, least_bound) = ((sum, spread, next), bound);
            }
        }
        least
    }
}

/// The greatest rate of loss that explains this count: the upper end of Wilson's interval for few
/// losses, whose variance is `spread` times that of independent losses.
fn bound(count: Count, spread: f32) -> f32 {
    let z = DEVIATIONS * DEVIATIONS * spread;
    (count.lost + z / 2.0 + (z * count.lost + z * z / 4.0).sqrt()) / count.packets
}

/// By how many standard deviations the rate of `upper` exceeds that of `lower`, if the variance of
/// their losses is `spread` times that of independent ones: the root of twice the logarithm of the
/// likelihood ratio (the G-test). 0 if it does not exceed it.
fn deviations(lower: Count, upper: Count, spread: f32) -> f32 {
    if lower.packets < 1.0 || upper.rate() <= lower.rate() {
        return 0.0;
    }
    let together = (lower.lost + upper.lost) / (lower.packets + upper.packets);
    let gain = |count: Count| {
        let arrived = (count.packets - count.lost).max(0.0);
        entropy(count.lost, count.packets * together)
            + entropy(arrived, count.packets * (1.0 - together))
    };
    (2.0 * (gain(lower) + gain(upper)).max(0.0) / spread).sqrt()
}

/// A term of the logarithm of the likelihood ratio.
fn entropy(seen: f32, expected: f32) -> f32 {
    if seen > 0.0 && expected > 0.0 { seen * (seen / expected).ln() } else { 0.0 }
}
