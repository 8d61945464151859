//! Links whose losses are known, and a load that varies, for tests.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;
use std::time::Duration;

/// Packets of this size, and their usual rate in packets a second: 12 Mbit/s.
pub(crate) const BYTES: usize = 1500;
pub(crate) const USUAL: f64 = 1000.0;

/// How much more or less than usual is sent at this time. The load begins low, doubles until it is
/// usual, and then varies by a quarter, as in the cycle of BBR2.
pub(crate) fn load(at: f64) -> f64 {
    match (at, at % 2.5) {
        (early, _) if early < 0.5 => (2.0_f64).powf(early * 10.0 - 5.0),
        (_, cycle) if cycle < 0.1 => 1.25,
        (_, cycle) if cycle < 0.2 => 0.75,
        _ => 1.0,
    }
}

/// Whether an event of this chance happens.
fn strikes(random: &mut ChaCha20Rng, chance: f64) -> bool {
    f64::from(random.next_u32()) < chance * f64::from(u32::MAX)
}

/// What a link does to a packet: it may lose it, and delays it in a queue.
pub(crate) type Link = Box<dyn FnMut(&mut ChaCha20Rng, f64) -> (bool, Duration)>;

/// Loses this share of the packets, whatever the load is.
pub(crate) fn random(share: f64) -> Link {
    Box::new(move |random, _| (strikes(random, share), Duration::ZERO))
}

/// Has a queue of so many packets before a line of this rate, in packets a second, and loses this
/// share of them at random besides.
pub(crate) fn limited(rate: f64, room: f64, share: f64) -> Link {
    let (mut waiting, mut before) = (0.0_f64, 0.0);
    Box::new(move |random, at| {
        waiting = (waiting - (at - before) * rate).max(0.0);
        before = at;
        let lost = strikes(random, share);
        let full = waiting + 1.0 > room;
        waiting += f64::from(u8::from(!full && !lost));
        (lost || full, Duration::from_secs_f64(waiting / rate))
    })
}

/// Loses everything for a while now and then.
pub(crate) fn outages(share: f64, mean: f64) -> Link {
    let mut is_out = false;
    Box::new(move |random, _| {
        let chance = if is_out { 1.0 / mean } else { share / mean };
        is_out ^= strikes(random, chance);
        (is_out, Duration::ZERO)
    })
}
