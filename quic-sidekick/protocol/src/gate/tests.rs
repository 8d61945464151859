use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const MS: Duration = Duration::from_millis(1);
const HOLD: Hold = Hold { gap: Duration::from_millis(12), list: Duration::from_millis(3) };

#[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
fn start() -> Instant {
    Instant::now()
}

fn deliveries(gate: &mut Gate<u32>) -> Vec<u32> {
    std::iter::from_fn(|| gate.poll_delivery()).map(|it| it.datagram).collect()
}

fn gaps(gate: &mut Gate<u32>) -> Vec<(u32, Option<u32>, u32)> {
    std::iter::from_fn(|| gate.poll_gap()).map(|it| (it.datagrams, it.after, it.last)).collect()
}

/// A gate to which these datagrams have arrived. The identifier is also the caller's name.
fn after(arrivals: &[u32], now: Instant) -> Gate<u32> {
    let mut gate = Gate::new(HOLD);
    arrivals.iter().for_each(|it| assert_eq!(gate.on_arrival(*it, *it, now), None));
    gate
}

#[test]
fn a_list_releases_what_is_in_order() {
    let (now, mut gate) = (start(), after(&[1, 2, 4], start()));
    assert!(deliveries(&mut gate).is_empty());
    gate.on_list(0, [1, 2], now).unwrap();
    assert_eq!(deliveries(&mut gate), [1, 2]);
    gate.on_list(0, [1, 2, 3, 4], now).unwrap();
    assert_eq!(gaps(&mut gate), [(1, Some(2), 3)]);
    assert_eq!((deliveries(&mut gate), gate.waiting()), (vec![], 1));
    assert_eq!(gate.on_copy(3, 3, now), None);
    assert_eq!((deliveries(&mut gate), gate.poll_closed()), (vec![3, 4], Some(1)));
    assert_eq!(gate.on_copy(3, 3, now), Some(3), "nothing lacks it any more");
}

#[test]
fn without_a_list_a_datagram_waits_for_a_short_time() {
    let now = start();
    let mut gate = after(&[1, 2], now);
    assert_eq!(gate.poll_timeout(), Some(now + HOLD.list));
    gate.on_timeout(now + HOLD.list);
    assert_eq!(deliveries(&mut gate), [1, 2]);
    // A late list says nothing new.
    gate.on_list(7, [1, 2], now + 9 * MS).unwrap();
    assert_eq!((gaps(&mut gate), gate.counters().missing), (vec![], 0));
}

#[test]
fn a_gap_is_given_up_and_its_copy_still_delivered() {
    let now = start();
    let mut gate = after(&[1, 3], now);
    gate.on_list(0, [1, 2, 3], now).unwrap();
    assert_eq!(deliveries(&mut gate), [1]);
    assert_eq!(gate.poll_timeout(), Some(now + HOLD.gap));
    gate.on_timeout(now + HOLD.gap);
    assert_eq!((deliveries(&mut gate), gate.poll_closed()), (vec![3], Some(1)));
    assert_eq!(gate.on_copy(2, 2, now + 20 * MS), None);
    assert_eq!(deliveries(&mut gate), [2]);
    let GateCounters { missing, in_order, late, given_up } = gate.counters();
    assert_eq!((missing, in_order, late, given_up), (1, 0, 1, 1));
}

#[test]
fn the_caller_may_give_up_a_gap_or_open_the_gate() {
    let now = start();
    for opens in [false, true] {
        let mut gate = after(&[1, 3, 4], now);
        gate.on_list(0, [1, 2, 3], now).unwrap();
        if opens {
            gate.open(now);
        } else {
            gate.give_up(1, now);
        }
        assert_eq!(deliveries(&mut gate), if opens { vec![1, 3, 4] } else { vec![1, 3] });
        assert_eq!((gate.poll_closed(), gate.waiting()), (Some(1), usize::from(!opens)));
    }
}

#[test]
fn losses_at_the_end_of_a_list_are_requested_at_once() {
    let now = start();
    let mut gate = after(&[1], now);
    gate.on_list(u32::MAX, [1, 2, 3], now).unwrap();
    assert_eq!(gaps(&mut gate), [(2, Some(1), 3)]);
    // The next one is another gap, behind the last of the first.
    gate.on_list(0, [2, 3, 4], now).unwrap();
    gate.on_list(1, [3, 4, 5], now).unwrap();
    assert_eq!(gaps(&mut gate), [(1, Some(3), 4), (1, Some(4), 5)]);
    for it in [5, 2, 4, 3] {
        assert_eq!(gate.on_copy(it, it, now), None);
    }
    assert_eq!(deliveries(&mut gate), [1, 2, 3, 4, 5]);
}

#[test]
fn an_open_gate_shows_gaps_and_holds_nothing() {
    let now = start();
    let mut gate = Gate::new(Hold::default());
    gate.on_arrival(1, 1, now);
    gate.on_arrival(3, 3, now);
    assert_eq!(deliveries(&mut gate), [1, 3]);
    gate.on_list(0, [1, 2, 3], now).unwrap();
    assert_eq!(gaps(&mut gate), [(1, Some(1), 2)]);
    assert_eq!(gate.poll_timeout(), None);
    gate.on_copy(2, 2, now);
    assert_eq!(deliveries(&mut gate), [2]);
}

#[test]
fn a_datagram_that_was_overtaken_comes_in_order() {
    let now = start();
    let mut gate = after(&[2], now);
    gate.on_list(0, [1, 2], now).unwrap();
    assert_eq!(gate.on_arrival(1, 1, now + MS), Some(1));
    assert_eq!(deliveries(&mut gate), [1, 2]);
    assert_eq!(gate.poll_closed(), Some(1));
}

#[test]
fn a_lost_list_keeps_the_order() {
    let now = start();
    let mut gate = after(&[1], now);
    gate.on_list(0, [1], now).unwrap();
    [2, 3, 4, 6].iter().for_each(|it| assert_eq!(gate.on_arrival(*it, *it, now), None));
    // That of 2 and 3 was lost, and 4 is missing in the order of no list.
    gate.on_list(3, [4, 5, 6], now).unwrap();
    assert_eq!(deliveries(&mut gate), [1, 2, 3, 4]);
    assert_eq!(gaps(&mut gate), [(1, Some(4), 5)]);
}

#[test]
fn a_contradiction_changes_nothing_and_a_jump_begins_anew() {
    let now = start();
    let mut gate = after(&[1, 3, 9], now);
    gate.on_list(5, [1, 2, 3], now).unwrap();
    assert_eq!(deliveries(&mut gate), [1]);
    let rejected = gate.on_list(6, [2, 9], now);
    assert_eq!(rejected, Err(ListRejected::Contradiction(7)));
    assert_eq!(gate.on_list(6, [0; 65], now), Err(ListRejected::TooLong));
    assert_eq!(gate.waiting(), 2);
    gate.on_list(1 << 20, [4, 5], now).unwrap();
    assert_eq!(deliveries(&mut gate), [3, 9]);
}

/// What a caller does, with bounded times.
#[derive(Clone, Debug)]
enum Action {
    Arrive(u32),
    List(u32, Vec<u32>),
    Copy(u32),
    GiveUp(u64),
    Open,
    Hold(u64),
    Wait(u64),
}

fn action() -> impl Strategy<Value = Action> {
    let id = 0..24_u32;
    prop_oneof![
        6 => id.clone().prop_map(Action::Arrive),
        4 => (prop_oneof![0..40_u32, Just(1 << 30)], prop::collection::vec(id.clone(), 0..8))
            .prop_map(|(first, list)| Action::List(first.wrapping_sub(8), list)),
        3 => id.prop_map(Action::Copy),
        1 => (0..9_u64).prop_map(Action::GiveUp),
        1 => Just(Action::Open),
        1 => (0..9_u64).prop_map(Action::Hold),
        3 => (0..5_u64).prop_map(Action::Wait),
    ]
}

proptest! {
    /// Whatever arrives, in whatever order: nothing is lost, doubled or late.
    #[test]
    fn every_datagram_leaves_once_and_in_time(
        actions in prop::collection::vec(action(), 1..300)
    ) {
        let (mut now, mut gate, mut longest) = (start(), Gate::new(HOLD), HOLD.longest());
        let (mut next, mut inside) = (0, BTreeMap::new());
        let mut closed = BTreeSet::new();
        for action in actions {
            let mut enters = |now| {
                next += 1;
                inside.insert(next, now);
                next
            };
            match action {
                Action::Arrive(id) => {
                    let datagram = enters(now);
                    gate.on_arrival(id, datagram, now);
                }
                Action::Copy(id) => {
                    let datagram = enters(now);
                    if let Some(unwanted) = gate.on_copy(id, datagram, now) {
                        prop_assert_eq!(unwanted, datagram);
                        inside.remove(&unwanted);
                    }
                }
                Action::List(first, list) => {
                    let _ = gate.on_list(first, list, now);
                }
                Action::GiveUp(gap) => gate.give_up(gap, now),
                Action::Open => gate.open(now),
                Action::Hold(ms) => {
                    let hold = Hold { gap: 2 * MS * u32::try_from(ms).unwrap(), list: MS };
                    gate.set_hold(hold, now);
                    longest = longest.max(hold.longest());
                }
                Action::Wait(ms) => {
                    let until = now + Duration::from_millis(ms);
                    while let Some(at) = gate.poll_timeout().filter(|at| *at <= until) {
                        now = now.max(at);
                        gate.on_timeout(now);
                        prop_assert!(gate.poll_timeout().is_none_or(|next| next > now));
                    }
                    now = until;
                }
            }
            while let Some(Delivery { datagram, waited }) = gate.poll_delivery() {
                let entered = inside.remove(&datagram);
                prop_assert!(entered.is_some(), "{} left twice", datagram);
                prop_assert!(waited <= longest);
            }
            prop_assert_eq!(gate.waiting(), inside.len());
            while let Some(gap) = gate.poll_closed() {
                prop_assert!(closed.insert(gap), "{} closed twice", gap);
            }
        }
        gate.open(now);
        prop_assert_eq!(deliveries(&mut gate).len(), inside.len());
    }
}

/// A path of a flow with one datagram each millisecond. The seed decides what is lost.
struct Path {
    random: u64,
    loss: u64,
    list_loss: u64,
}

impl Path {
    fn loses(&mut self, percent: u64) -> bool {
        // splitmix64
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % 100 < percent
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Event {
    Arrival(u32),
    List(u32, Vec<u32>),
    Copy(u32),
}

/// The same decisions without any structure: everything is looked up in the whole past.
#[derive(Default)]
struct Oracle {
    /// What each position holds, and how long it is waited for.
    listed: BTreeMap<u32, (u32, Instant)>,
    arrived: Vec<(u32, Instant)>,
    done: BTreeSet<u32>,
    given_up: BTreeSet<u32>,
    out: Vec<u32>,
}

impl Oracle {
    fn list(&mut self, list: &[u32], now: Instant) {
        let is_new = |id: &&u32| !self.listed.contains_key(*id);
        let new: Vec<_> = list.iter().filter(is_new).copied().collect();
        let waits = |(id, _): &&(u32, Instant)| new.contains(id) && !self.done.contains(id);
        let oldest = self.arrived.iter().filter(waits).map(|(_, at)| *at + HOLD.longest()).min();
        let until = oldest.into_iter().fold(now + HOLD.gap, Instant::min);
        self.listed.extend(new.into_iter().map(|id| (id, (id, until))));
    }

    fn serve(&mut self, now: Instant) {
        loop {
            let next = self
                .listed
                .values()
                .find(|(id, _)| !self.done.contains(id) && !self.given_up.contains(id));
            if let Some((id, until)) = next.copied() {
                if self.arrived.iter().any(|(other, _)| *other == id) {
                    self.done.insert(id);
                    self.out.push(id);
                } else if now >= until {
                    self.given_up.insert(id);
                } else {
                    break;
                }
                continue;
            }
            let names = |id: &u32| self.listed.values().any(|(other, _)| other == id);
            let unlisted = self.arrived.iter().find(|(id, at)| {
                !self.done.contains(id) && (!names(id) && now >= *at + HOLD.list || names(id))
            });
            let Some((id, _)) = unlisted.copied() else { break };
            self.done.insert(id);
            self.out.push(id);
        }
    }
}

/// Runs a flow through the gate. Returns what left it, and what the oracle says.
fn run(seed: u64, loss: u64, list_loss: u64) -> (Vec<u32>, Vec<u32>, GateCounters) {
    const DATAGRAMS: u32 = 150;
    let mut path = Path { random: seed, loss, list_loss };
    let (begin, mut gate) = (start(), Gate::new(HOLD));
    let mut events: BTreeMap<(Duration, u32), Event> = BTreeMap::new();
    let mut order = 0;
    let mut add = |events: &mut BTreeMap<_, _>, at, event| {
        order += 1;
        events.insert((at, order), event);
    };
    for id in 0..DATAGRAMS {
        let at = MS * id;
        if id < 2 || !path.loses(path.loss) {
            add(&mut events, at, Event::Arrival(id));
        }
        // Each list names twelve, and one in four of them for the first time.
        if id % 4 == 3 && !path.loses(path.list_loss) {
            let first = id.saturating_sub(11);
            let list = Event::List(first.wrapping_sub(5), (first..=id).collect());
            add(&mut events, at + MS / 2, list);
        }
    }
    let (mut oracle, mut out) = (Oracle::default(), Vec::new());
    let serve = |gate: &mut Gate<u32>, oracle: &mut Oracle, out: &mut Vec<u32>, now| {
        gate.on_timeout(now);
        oracle.serve(now);
        out.extend(deliveries(gate));
    };
    while let Some(((at, _), event)) = events.pop_first() {
        let now = begin + at;
        // Deadlines are multiples of half a millisecond.
        for earlier in (0..1000_u32).map(|step| begin + MS / 2 * step).take_while(|it| *it < now) {
            if earlier + 2 * MS > now {
                serve(&mut gate, &mut oracle, &mut out, earlier);
            }
        }
        match event {
            Event::Arrival(id) => {
                gate.on_arrival(id, id, now);
                oracle.arrived.push((id, now));
            }
            Event::Copy(id) => {
                gate.on_copy(id, id, now);
                if !oracle.arrived.iter().any(|(other, _)| *other == id) {
                    oracle.arrived.push((id, now));
                }
            }
            Event::List(first, list) => {
                gate.on_list(first, list.iter().copied(), now).unwrap();
                oracle.list(&list, now);
            }
        }
        serve(&mut gate, &mut oracle, &mut out, now);
        while let Some(gap) = gate.poll_gap() {
            let first = gap.after.map_or(0, |after| after + 1);
            for id in first..first + gap.datagrams {
                if !path.loses(path.loss) {
                    add(&mut events, at + 2 * MS, Event::Copy(id));
                }
            }
        }
    }
    for step in 0..60 {
        serve(&mut gate, &mut oracle, &mut out, begin + MS * DATAGRAMS + MS / 2 * step);
    }
    (out, oracle.out, gate.counters())
}

#[test]
fn the_gate_decides_as_the_naive_oracle() {
    for seed in 0..20 {
        for (loss, list_loss) in [(0, 0), (4, 0), (4, 4), (20, 0), (20, 20), (40, 10)] {
            let (gate, oracle, _) = run(seed, loss, list_loss);
            assert_eq!(gate, oracle, "seed {seed}, {loss} % and {list_loss} % lost");
        }
    }
}

#[test]
fn with_all_lists_and_copies_nothing_is_out_of_order() {
    for seed in 0..20 {
        let (mut lost, mut path) = (0, Path { random: seed, loss: 10, list_loss: 0 });
        let (now, mut gate) = (start(), Gate::new(HOLD));
        let mut out = Vec::new();
        for id in 0..1000_u32 {
            let at = now + MS * id;
            let is_lost = path.loses(path.loss) && path.list_loss == 0;
            lost += u64::from(is_lost);
            if !is_lost {
                gate.on_arrival(id, id, at);
            }
            gate.on_list(id, [id], at).unwrap();
            let copies: Vec<_> = std::iter::from_fn(|| gate.poll_gap()).collect();
            out.extend(deliveries(&mut gate));
            for gap in copies {
                let id = gap.after.map_or(0, |after| after + 1);
                assert_eq!(gate.on_copy(id, id, at + MS / 4), None);
                out.extend(deliveries(&mut gate));
            }
        }
        assert!(out.is_sorted() && out.len() == 1000, "seed {seed}");
        assert_eq!((gate.counters().in_order, gate.counters().given_up), (lost, 0));
    }
}

/// A proxy that lies, and strangers that send, cost bounded memory.
#[test]
fn the_memory_is_bounded() {
    let (now, mut gate) = (start(), Gate::new(HOLD));
    let mut most = 0;
    for round in 0..1000_u32 {
        gate.on_arrival(round.wrapping_mul(77), round, now);
        gate.on_list(8 * round, (0..64).map(|it| 8 * round + it), now).unwrap();
        while gate.poll_gap().is_some() {}
        while gate.poll_closed().is_some() {}
        while gate.poll_delivery().is_some() {}
        most = most.max(gate.slots.len() + gate.unlisted.len());
    }
    assert!(most <= MAX_POSITIONS + MAX_WAITING, "{most}");
    assert!(gate.left.len() <= REMEMBERED && gate.given_up.len() <= REMEMBERED);
    assert!(gate.gaps.len() <= MAX_POSITIONS);
}
