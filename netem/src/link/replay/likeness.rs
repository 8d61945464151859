//! How much the fates of two packets are alike, by the time between them.

/// The first bin of lags ends here, and each further one at twice that of the one before.
const FIRST: u64 = 125;
const BINS: usize = 14;
/// No longer lag is measured.
const LONGEST: u64 = FIRST << (BINS - 1);
/// How many packets before a lost one, and how many after it, are compared with it at most.
const COMPARED: usize = 512;
/// A bin with fewer pairs says nothing.
const PAIRS: f64 = 10.0;

/// The autocorrelation of losses: 1 if two packets always share their fate, 0 if they do not care
/// for each other. It never grows with the time between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Likeness {
    /// Lags in microseconds, the shortest first, and the correlation.
    points: Vec<(f64, f64)>,
}

/// Pairs of packets whose first was lost.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    pairs: f64,
    /// Those whose second was lost, too.
    both: f64,
    /// The sum of the times between them.
    lags: f64,
}

impl Bin {
    fn share(self) -> f64 {
        self.both / self.pairs
    }

    fn and(self, other: Self) -> Self {
        Self {
            pairs: self.pairs + other.pairs,
            both: self.both + other.both,
            lags: self.lags + other.lags,
        }
    }
}

impl Likeness {
    /// Measures packets at these times, of which so many were lost before each place.
    pub(super) fn of(times: &[u64], lost: &[u32]) -> Self {
        let mean =
            f64::from(lost.last().copied().unwrap_or_default()) / (times.len().max(1) as f64);
        if mean <= 0.0 || mean >= 1.0 {
            return Self::default();
        }
        let is_lost = |pair: &[u32]| matches!(pair, [before, after] if after > before);
        let fates: Vec<bool> = lost.windows(2).map(is_lost).collect();
        let mut bins = [Bin::default(); BINS];
        for (place, at) in times.iter().enumerate() {
            let (past, rest) = times.split_at(place);
            let (past_fates, rest_fates) = fates.split_at(place);
            if rest_fates.first() != Some(&true) {
                continue;
            }
            let before = past.iter().zip(past_fates).rev().take(COMPARED);
            let after = rest.iter().zip(rest_fates).skip(1).take(COMPARED);
            let near = |(other, _): &(&u64, &bool)| at.abs_diff(**other) < LONGEST;
            for (other, is_lost) in after.take_while(near).chain(before.take_while(near)) {
                let lag = at.abs_diff(*other);
                let bin = (lag / FIRST).checked_ilog2().map_or(0, |log| log as usize + 1);
                if let Some(bin) = bins.get_mut(bin) {
                    let both = f64::from(u8::from(*is_lost));
                    *bin = bin.and(Bin { pairs: 1.0, both, lags: lag as f64 });
                }
            }
        }
        let point = |bin: Bin| {
            let correlation = (bin.share() - mean) / (1.0 - mean);
            (bin.lags / bin.pairs, correlation.clamp(0.0, 1.0))
        };
        let measured = bins.into_iter().filter(|bin| bin.pairs >= PAIRS);
        let mut points: Vec<_> = falling(measured).into_iter().map(point).collect();
        // Fades that last longer than the shortest lag go on in between, and independent losses
        // stay so: the line through the first two points shows which they are.
        let at_once = match *points.as_slice() {
            [(from, one), (to, other), ..] => one + (one - other) * from / (to - from),
            [(_, one)] => one,
            [] => 0.0,
        };
        points.insert(0, (0.0, at_once.min(1.0)));
        Self { points }
    }

    /// The correlation over a time in microseconds.
    pub(super) fn over(&self, lag: u64) -> f64 {
        if lag >= LONGEST {
            return 0.0;
        }
        let lag = lag as f64;
        let after = self.points.partition_point(|(at, _)| *at <= lag);
        let before = after.checked_sub(1).and_then(|place| self.points.get(place));
        match (before, self.points.get(after)) {
            (Some(&(from, one)), Some(&(to, other))) => {
                one + (other - one) * (lag - from) / (to - from)
            }
            (Some(&(_, last)), None) => last,
            (None, _) => 0.0,
        }
    }
}

/// Pools neighbours until no bin has a larger share than the one before.
fn falling(bins: impl Iterator<Item = Bin>) -> Vec<Bin> {
    let mut pooled: Vec<Bin> = Vec::new();
    for mut bin in bins {
        while let Some(before) = pooled.pop_if(|before| before.share() < bin.share()) {
            bin = bin.and(before);
        }
        pooled.push(bin);
    }
    pooled
}
