//! Random topologies.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::figures::job::Case;
use crate::units::unit_interval;

/// The near segment's delay and rate, its loss, and the least transfer of a kind of paths. All else
/// is the same for all kinds.
pub(super) struct Ranges {
    /// One way, in milliseconds.
    pub near_ms: (f64, f64),
    /// In Mbit/s. Either segment may be the bottleneck.
    pub near_rate: (f64, f64),
    /// The share of paths without near loss.
    pub without_loss: f64,
    /// A near loss in percent.
    pub loss: fn(&mut Draws) -> f64,
    pub least_bytes: f64,
}

/// The near segment is longer in half of the topologies.
const RANGES: Ranges = Ranges {
    near_ms: (0.5, 100.0),
    near_rate: (5.0, 100.0),
    without_loss: 0.1,
    loss: |draws| draws.evenly((0.0, 10.0)),
    least_bytes: 1e6,
};
const FAR_MS: (f64, f64) = (0.5, 100.0);
const FAR_RATE: (f64, f64) = (3.0, 50.0);
/// The size of a queue, divided by the product of bottleneck rate and round trip time.
const QUEUE: (f64, f64) = (0.3, 3.0);
/// The shortest queue: ten packets.
const LEAST_QUEUE_BYTES: f64 = 15_000.0;
/// Far loss in percent, if there is any.
const FAR_LOSS: (f64, f64) = (0.01, 0.5);
/// The mean length of a burst of near loss, in packets.
const BURST: (f64, f64) = (2.0, 8.0);
/// Shares of the paths: with bursts, and without far loss.
const WITH_BURSTS: f64 = 0.25;
const WITHOUT_FAR_LOSS: f64 = 0.6;
/// The length of a transfer at the bottleneck's rate: [`SECONDS`] or [`ROUND_TRIPS`], whichever is
/// longer, up to [`MOST_BYTES`].
const SECONDS: f64 = 4.0;
const ROUND_TRIPS: f64 = 30.0;
const MOST_BYTES: f64 = 8e6;

/// A random path, and a transfer that suits it.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    number: u64,
    path: Case,
}

/// The random numbers of a topology.
pub(super) struct Draws(ChaCha8Rng);

impl Draws {
    /// Those of topology `number` of `seed`.
    pub(super) fn new(seed: u64, number: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(number);
        Self(random)
    }

    /// A number with an even distribution from 0 to 1.
    pub(super) fn share(&mut self) -> f64 {
        unit_interval(self.0.next_u64())
    }

    pub(super) fn evenly(&mut self, (low, high): (f64, f64)) -> f64 {
        low + (high - low) * self.share()
    }

    /// A number whose logarithm has an even distribution.
    pub(super) fn by_logarithm(&mut self, (low, high): (f64, f64)) -> f64 {
        self.evenly((low.ln(), high.ln())).exp()
    }

    /// A whole number below `end`, each as likely.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }
}

impl Topology {
    pub(crate) fn draw(seed: u64, number: u64) -> Self {
        let draws = &mut Draws::new(seed, number);
        Self { number, path: draw(draws, &RANGES, Case::of("upload-paper")).0 }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The path and the transfer, without a sender.
    pub(super) fn path(&self) -> &Case {
        &self.path
    }
}

/// Sets the path and the bytes of a transfer. Returns the path in words, too.
pub(super) fn draw(draws: &mut Draws, ranges: &Ranges, transfer: Case) -> (Case, String) {
    let [near_ms, far_ms] = [ranges.near_ms, FAR_MS].map(|delay| draws.by_logarithm(delay));
    let [near_rate, far_rate] = [ranges.near_rate, FAR_RATE].map(|rate| draws.by_logarithm(rate));
    let rtt = 2.0 * (near_ms + far_ms) / 1e3;
    let bytes_per_second = near_rate.min(far_rate) * 1e6 / 8.0;
    let [near_queue, far_queue] = [(); 2]
        .map(|()| (bytes_per_second * rtt * draws.by_logarithm(QUEUE)).max(LEAST_QUEUE_BYTES));
    // Each path draws all numbers, so a change of one share does not change the draws after it.
    let (lossless, loss) = (draws.share() < ranges.without_loss, (ranges.loss)(draws));
    let (bursts, burst) = (draws.share() < WITH_BURSTS, draws.evenly(BURST));
    let (clean, far_loss) = (draws.share() < WITHOUT_FAR_LOSS, draws.by_logarithm(FAR_LOSS));
    let (loss, far_loss) = (if lossless { 0.0 } else { loss }, if clean { 0.0 } else { far_loss });
    let bytes = bytes_per_second * SECONDS.max(ROUND_TRIPS * rtt);
    let path = transfer
        .set("near.delay_ms", format!("{near_ms:.2}"))
        .set("near.rate_mbit", format!("{near_rate:.1}"))
        .set("near.queue_bytes", format!("{near_queue:.0}"))
        .set("far.delay_ms", format!("{far_ms:.2}"))
        .set("far.rate_mbit", format!("{far_rate:.1}"))
        .set("far.queue_bytes", format!("{far_queue:.0}"))
        .set("far.loss_percent", format!("{far_loss:.3}"))
        .set("flow.bytes", format!("{:.0}", bytes.clamp(ranges.least_bytes, MOST_BYTES)));
    let path = if bursts {
        // Bursts of this mean length, at such a rate that the mean loss stays the same.
        let leave = 100.0 / burst;
        path.set("near.loss_percent", 0)
            .set("near.bad_leave_percent", format!("{leave:.2}"))
            .set("near.bad_enter_percent", format!("{:.4}", leave * loss / (100.0 - loss)))
    } else {
        path.set("near.loss_percent", format!("{loss:.2}"))
    };
    let how =
        if bursts && loss > 0.0 { format!(" in bursts of {burst:.1}") } else { String::new() };
    let words = format!(
        "near: RTT {:.0} ms, {near_rate:.0} Mbit/s, {:.0} kB, loss {loss:.1} %{how}; far: {:.0} ms, \
         {far_rate:.0} Mbit/s, {:.0} kB, {far_loss:.2} %",
        2.0 * near_ms,
        near_queue / 1e3,
        2.0 * far_ms,
        far_queue / 1e3,
    );
    (path, words)
}
