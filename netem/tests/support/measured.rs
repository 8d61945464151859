//! What an agent measured, beside what the link did.

use sidekick_netem::link::LinkCounters;
use sidekick_netem::record::RunRecord;
use sidekick_proxy::Summary;

pub(crate) fn measured(record: &RunRecord) -> Summary {
    record.measured.clone().unwrap()
}

/// The share of packets that a direction lost at the link, in percent.
pub(crate) fn lost(link: &LinkCounters) -> f64 {
    100.0 * (link.lost_random + link.lost_outage) as f64 / link.packets as f64
}

pub(crate) fn assert_near(value: f64, truth: f64, tolerance: f64, what: &str) {
    assert!((value / truth - 1.0).abs() <= tolerance, "{what}: {value} where {truth} is true");
}
