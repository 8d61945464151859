//! Random topologies.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::figures::job::Case;
use crate::units::unit_interval;

/// Delays of a segment, one way, in milliseconds. Both segments have the same range, so the near
/// one is longer in half of the topologies.
const DELAY_MS: (f64, f64) = (0.5, 100.0);
/// Rates in Mbit/s. Either segment may be the bottleneck.
const NEAR_RATE: (f64, f64) = (5.0, 100.0);
const FAR_RATE: (f64, f64) = (3.0, 50.0);
/// The size of a queue, divided by the product of bottleneck rate and round trip time.
const QUEUE: (f64, f64) = (0.3, 3.0);
/// The shortest queue: ten packets.
const LEAST_QUEUE_BYTES: f64 = 15_000.0;
/// The most near loss, in percent.
const NEAR_LOSS: f64 = 10.0;
/// Far loss in percent, if there is any.
const FAR_LOSS: (f64, f64) = (0.01, 0.5);
/// The mean length of a burst of near loss, in packets.
const BURST: (f64, f64) = (2.0, 8.0);
/// Shares of the topologies: without near loss, with bursts, and without far loss.
const WITHOUT_NEAR_LOSS: f64 = 0.1;
const WITH_BURSTS: f64 = 0.25;
const WITHOUT_FAR_LOSS: f64 = 0.6;
/// The length of a transfer at the bottleneck's rate: [`SECONDS`] or [`ROUND_TRIPS`], whichever is
/// longer, within [`BYTES`].
const SECONDS: f64 = 4.0;
const ROUND_TRIPS: f64 = 30.0;
const BYTES: (f64, f64) = (1e6, 8e6);

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
        let mut draws = Draws::new(seed, number);
        let [near_ms, far_ms] = [(); 2].map(|()| draws.by_logarithm(DELAY_MS));
        let [near_rate, far_rate] = [NEAR_RATE, FAR_RATE].map(|rate| draws.by_logarithm(rate));
        let rtt = 2.0 * (near_ms + far_ms) / 1e3;
        let bytes_per_second = near_rate.min(far_rate) * 1e6 / 8.0;
        let [near_queue, far_queue] = [(); 2]
            .map(|()| (bytes_per_second * rtt * draws.by_logarithm(QUEUE)).max(LEAST_QUEUE_BYTES));
        // Each topology draws all numbers, so a change of one share does not change the draws after
        // it.
        let (lossless, loss) = (draws.share() < WITHOUT_NEAR_LOSS, draws.evenly((0.0, NEAR_LOSS)));
        let (bursts, burst) = (draws.share() < WITH_BURSTS, draws.evenly(BURST));
        let (clean, far_loss) = (draws.share() < WITHOUT_FAR_LOSS, draws.by_logarithm(FAR_LOSS));
        let (loss, far_loss) =
            (if lossless { 0.0 } else { loss }, if clean { 0.0 } else { far_loss });
        let bytes = (bytes_per_second * SECONDS.max(ROUND_TRIPS * rtt)).clamp(BYTES.0, BYTES.1);
        let path = Case::of("upload-paper")
            .set("near.delay_ms", format!("{near_ms:.2}"))
            .set("near.rate_mbit", format!("{near_rate:.1}"))
            .set("near.queue_bytes", format!("{near_queue:.0}"))
            .set("far.delay_ms", format!("{far_ms:.2}"))
            .set("far.rate_mbit", format!("{far_rate:.1}"))
            .set("far.queue_bytes", format!("{far_queue:.0}"))
            .set("far.loss_percent", format!("{far_loss:.3}"))
            .set("flow.bytes", format!("{bytes:.0}"));
        let path = if bursts {
            // Bursts of this mean length, at such a rate that the mean loss stays the same.
            let leave = 100.0 / burst;
            path.set("near.loss_percent", 0)
                .set("near.bad_leave_percent", format!("{leave:.2}"))
                .set("near.bad_enter_percent", format!("{:.4}", leave * loss / (100.0 - loss)))
        } else {
            path.set("near.loss_percent", format!("{loss:.2}"))
        };
        Self { number, path }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The path and the transfer, without a sender.
    pub(super) fn path(&self) -> &Case {
        &self.path
    }
}
