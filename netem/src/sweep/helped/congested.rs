//! Random paths whose near segment is congested.

use super::super::topology::Draws;
use super::Path;
use crate::figures::job::Case;
use crate::link::RedParameters;

/// The near segment's rate, in Mbit/s.
const RATE: (f64, f64) = (5.0, 50.0);
/// The limiter that has no queue.
const POLICER: &str = "policer";
/// The rate of the far segment, divided by that of the near one.
const FAR_TIMES: f64 = 10.0;
/// The near queue, or the policer's burst, in milliseconds at the rate.
const QUEUE_MS: (f64, f64) = (1.0, 200.0);
/// The least queue, and the least burst: two full frames. A millisecond at 5 Mbit/s is less than
/// one.
const LEAST_BYTES: f64 = 3028.0;
/// Queues that are no limit, in milliseconds at the rate of the far segment.
const LARGE_QUEUE_MS: f64 = 1000.0;
/// Round trip times of the segments, in milliseconds.
const NEAR_RTT: (f64, f64) = (2.0, 60.0);
const FAR_RTT: (f64, f64) = (10.0, 100.0);
/// Random near loss in percent, if there is any.
const LOSS: (f64, f64) = (0.1, 30.0);
/// Shares of the paths: without random loss, and without a competitor.
const WITHOUT_LOSS: f64 = 0.5;
const WITHOUT_COMPETITOR: f64 = 0.25;
/// The seconds between the starts of both flows, if they do not start together.
const APART: (f64, f64) = (1.0, 5.0);
/// The duration of the helped flow, and more bytes than it can have in this time.
const SECONDS: u64 = 20;
const BYTES: u64 = 1_000_000_000;

pub(super) fn draw(seed: u64, number: u64) -> Path {
    // Each path draws all numbers, so a change of one share does not change the draws after it.
    let mut draws = Draws::new(seed, number);
    let (rate, queue_ms) = (draws.evenly(RATE), draws.by_logarithm(QUEUE_MS));
    let limiter = match draws.below(4) {
        0 => "drop-tail",
        1 => "red",
        2 => "codel",
        _ => POLICER,
    };
    let (near_rtt, far_rtt) = (draws.by_logarithm(NEAR_RTT), draws.evenly(FAR_RTT));
    let (lossless, loss) = (draws.share() < WITHOUT_LOSS, draws.by_logarithm(LOSS));
    let loss = if lossless { 0.0 } else { loss };
    let (alone, competitor) = (draws.share() < WITHOUT_COMPETITOR, draws.below(4));
    let competitor = match competitor {
        0 => "bbr2",
        1 => "cubic",
        2 => "cubic-rfc9438",
        _ => "reno",
    };
    let (order, apart) = (draws.below(3), draws.evenly(APART));
    let (start_ms, order) = match order {
        0 => (-1e3 * apart, format!("{apart:.1} s earlier")),
        1 => (0.0, "at once".to_owned()),
        _ => (1e3 * apart, format!("{apart:.1} s later")),
    };
    let (kind, mode, cc) = match draws.below(4) {
        0 | 1 => ("upload", "auto", "bbr2"),
        2 => ("download", "receive", "bbr2"),
        _ => ("download", "receive", "cubic-rfc9438"),
    };
    let case = Case::of(&format!("{kind}-paper"))
        .set("near.delay_ms", format!("{:.2}", near_rtt / 2.0))
        .set("near.loss_percent", format!("{loss:.2}"))
        .set("far.delay_ms", format!("{:.2}", far_rtt / 2.0))
        .set("far.rate_mbit", format!("{:.1}", rate * FAR_TIMES))
        .set("far.queue_bytes", large_queue(rate))
        .set("flow.cc", cc)
        .set("flow.bytes", BYTES)
        .set("flow.seconds", SECONDS);
    let case = limit(case, limiter, rate, queue_ms);
    let (case, beside) = if alone {
        (case, "alone".to_owned())
    } else {
        let case = case.set("competitor.cc", competitor);
        let case = case.set("competitor.start_ms", format!("{start_ms:.0}"));
        (case, format!("beside {competitor} {order}"))
    };
    let what = format!(
        "{kind} {cc} {beside}; {limiter} {queue_ms:.0} ms at {rate:.0} Mbit/s, RTT \
         {near_rtt:.0} and {far_rtt:.0} ms, loss {loss:.1} %"
    );
    Path { number, what, competes: !alone, mode, case }
}

/// Limits the near segment.
fn limit(case: Case, limiter: &str, rate: f64, queue_ms: f64) -> Case {
    let least = match limiter {
        "red" => RedParameters::LEAST_QUEUE_BYTES as f64,
        _ => LEAST_BYTES,
    };
    let mbit = format!("{rate:.1}");
    let bytes = format!("{:.0}", bytes(rate, queue_ms).max(least));
    if limiter == POLICER {
        // The line behind the policer is faster, so it has no queue.
        return case
            .set("near.rate_mbit", format!("{:.1}", rate * FAR_TIMES))
            .set("near.queue_bytes", large_queue(rate))
            .set("near.policer_mbit", mbit)
            .set("near.policer_burst_bytes", bytes);
    }
    case.set("near.rate_mbit", mbit).set("near.queue", limiter).set("near.queue_bytes", bytes)
}

fn large_queue(rate: f64) -> String {
    format!("{:.0}", bytes(rate * FAR_TIMES, LARGE_QUEUE_MS))
}

/// The bytes of so many milliseconds at a rate in Mbit/s.
fn bytes(mbit: f64, ms: f64) -> f64 {
    mbit * 125.0 * ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Direction, FlowKind, Queue, Scenario};

    /// The paths have every limiter, flow and competitor, and each is a valid scenario whose near
    /// segment is the bottleneck.
    #[test]
    fn paths_are_of_all_kinds_and_follow_from_the_seed() {
        let drawn: Vec<_> = (1..=400).map(|number| draw(1, number)).collect();
        let loaded: Vec<Scenario> = drawn
            .iter()
            .flat_map(|path| path.cases(1))
            .map(|case| case.jobs().next().unwrap().load().unwrap())
            .collect();
        let rates = |scenario: &Scenario| {
            let near = scenario.near.link(Direction::ToSender);
            let far = scenario.far.link(Direction::ToSender).rate;
            [near.policer.or(near.rate), far].map(|rate| rate.unwrap().bits_per_second() as f64)
        };
        assert!(loaded.iter().map(rates).all(|[near, far]| (9.8..=10.2).contains(&(far / near))));
        let count = |is: fn(&Scenario) -> bool| loaded.iter().filter(|one| is(one)).count() / 2;
        // Five standard deviations around what each share expects.
        let quarters = [
            count(|one| one.near.both.policer.is_some()),
            count(|one| one.near.queue == Queue::Red),
            count(|one| one.near.queue == Queue::CoDel),
            count(|one| one.competitor.cc.is_none()),
            count(|one| one.competitor.starts[0] > one.competitor.starts[1]),
            count(|one| one.competitor.starts[0] < one.competitor.starts[1]),
        ];
        assert!(quarters.iter().all(|count| (55..=145).contains(count)), "{quarters:?}");
        let halves = [
            count(|one| one.near.both.loss.get() > 0.0),
            count(|one| one.flow.kind == FlowKind::Upload),
        ];
        assert!(halves.iter().all(|count| (150..=250).contains(count)), "{halves:?}");
        let again = draw(1, 5);
        assert_eq!(again.cases(3), drawn[4].cases(3));
        assert_ne!(draw(2, 5).cases(3), again.cases(3));
    }
}
