//! When a link loses packets because of the time, for links that others emulate.

use std::time::Duration;

use super::weather::Weather;
use super::{Fading, LinkConfig, Outages};
use crate::units::Percent;

/// The fades and outages of one direction of a link. A [`Link`](super::Link) of the same seed and
/// stream has the same.
#[derive(Debug)]
pub(crate) struct Timetable {
    fading: Option<Fading>,
    outages: Outages,
    weather: Weather,
}

impl Timetable {
    /// `None` if time changes nothing.
    pub(crate) fn of(config: &LinkConfig, seed: u64, stream: u64) -> Option<Self> {
        config.is_timed().then(|| Self {
            fading: config.fading,
            outages: config.outages.clone(),
            weather: Weather::of_segment(seed, stream),
        })
    }

    /// The chance of a packet to be lost at a time, unless that is the loss model's, and when this
    /// changes next.
    pub(crate) fn at(&mut self, at: Duration) -> (Option<Percent>, Option<Duration>) {
        let turn = self.fading.map(|fading| (fading.loss, self.weather.turn_of(fading, at)));
        let fades = turn.and_then(|(loss, (is_bad, _))| is_bad.then_some(loss));
        let is_out = self.outages.contains(at);
        let edges = self.outages.iter().flat_map(|it| [it.from, it.from + it.length]);
        let edges = edges.chain(turn.map(|(_, (_, end))| end)).filter(|edge| *edge > at);
        (if is_out { Percent::new(100.0) } else { fades }, edges.min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Direction, Scenario};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn timetable(settings: &[&str]) -> Option<Timetable> {
        let scenario = Scenario::with("upload-paper", settings).unwrap();
        Timetable::of(&scenario.near.link(Direction::ToSender), 3, 1)
    }

    #[test]
    fn outages_go_before_fades_and_every_change_is_named() {
        assert!(timetable(&[]).is_none());
        let fades = ["near.good_ms=400", "near.bad_ms=20", "near.bad_loss_percent=50"];
        let mut alone = timetable(&fades).unwrap();
        let mut both = timetable(&[&fades[..], &["near.outages_ms=5000+300"]].concat()).unwrap();
        let mut at = Duration::ZERO;
        let (mut faded, mut changes) = (Duration::ZERO, 0);
        while at < ms(600_000) {
            let (loss, next) = both.at(at);
            let next = next.unwrap();
            let is_out = (ms(5000)..ms(5300)).contains(&at);
            assert_eq!(
                loss.map(Percent::get),
                if is_out { Some(100.0) } else { alone.at(at).0.map(Percent::get) }
            );
            assert_eq!(both.at(next - Duration::from_nanos(1)).0, loss, "at {at:?}");
            if loss.is_some() && !is_out {
                assert_eq!(loss.map(Percent::get), Some(50.0));
                faded += next - at;
            }
            (at, changes) = (next, changes + 1);
        }
        let share = faded.as_secs_f64() / 600.0;
        assert!((0.035..0.06).contains(&share) && changes > 2000, "{share}, {changes}");
        assert_eq!(timetable(&["near.outages_ms=5+5"]).unwrap().at(ms(10)), (None, None));
    }
}
