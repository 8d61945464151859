use super::*;
use crate::scenario::Scenario;

/// The faults of a scenario with these events, and the start of its run.
#[allow(clippy::disallowed_methods, reason = "any instant will do for a start")]
pub(super) fn schedule(scenario: &Scenario, events: &str) -> (Schedule, Instant) {
    let mut scenario = scenario.clone();
    scenario.set("faults.events", events).unwrap();
    let start = Instant::now();
    (Schedule::new(start, scenario.faults), start)
}

#[test]
fn a_draw_is_made_whether_the_fault_is_in_force_or_not() {
    let half = Percent::new(50.0);
    let (mut one, mut other) = (Chance::new(1, 0), Chance::new(1, 0));
    let all: Vec<bool> = (0..100).map(|_| one.strikes(half)).collect();
    let late: Vec<bool> = (0..100).map(|draw| other.strikes(half.filter(|_| draw >= 50))).collect();
    assert_eq!(all[50..], late[50..]);
    assert!(!late[..50].contains(&true));
}
