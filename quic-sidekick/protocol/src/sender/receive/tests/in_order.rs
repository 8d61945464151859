//! The gate between a proxy and a receiver that minds order.

use super::*;
use crate::repair::ReceiveRepair;
use crate::{GateCounters, InOrder, InOrderState, List, Protect};
use std::collections::BTreeSet;

/// A receiver, what it got, and when its datagrams passed the proxy.
struct Ordered {
    download: Download,
    order: InOrder<u32>,
    delivered: Vec<(u32, Instant)>,
    held: Vec<Duration>,
    /// By how much every seventh datagram is late, and those that were.
    late: Option<Duration>,
    delayed: BTreeSet<u32>,
}

impl Ordered {
    fn new(seed: u64, loss_percent: u32, is_clean: bool) -> Self {
        Self::at(DELAY, ReceiveRepair::Auto, seed, loss_percent, is_clean)
    }

    /// The proxy is this far away.
    fn at(
        delay: Duration,
        repair: ReceiveRepair,
        seed: u64,
        loss_percent: u32,
        is_clean: bool,
    ) -> Self {
        let mut download = Download::new(keeping(), seed, loss_percent);
        download.queue = delay - DELAY;
        download.requests = false;
        download.run(2000 * MS + 20 * delay);
        assert!(download.sender.is_kept(), "seed {seed}");
        let order = InOrder::new(repair, is_clean);
        let (delivered, held) = (Vec::new(), Vec::new());
        Self { download, order, delivered, held, late: None, delayed: BTreeSet::new() }
    }

    fn deliver(&mut self) {
        while let Some(delivery) = self.order.poll_delivery() {
            self.delivered.push((delivery.datagram, self.download.now));
            self.held.push(delivery.waited);
        }
        self.download.drain();
    }

    fn handle(&mut self, event: Event) {
        let Self { download, order, .. } = self;
        let now = download.now;
        match event {
            Event::Arrive(bytes) => {
                let id = number(&bytes);
                if id.is_multiple_of(7)
                    && let Some(late) = self.late
                    && self.delayed.insert(id)
                {
                    return download.schedule(now + late, Event::Arrive(bytes));
                }
                order.on_arrival(&bytes, Some(id), id, &mut download.sender, now);
            }
            Event::ToSender(bytes) => {
                let port = PROXY.parse().unwrap();
                if let Ok(Some(copy)) = download.sender.handle_input(port, &bytes, now) {
                    let payload = copy.bytes(&bytes);
                    let id = number(payload);
                    order.on_copy(payload, id, id, &mut download.sender, now);
                }
                order.update(&mut download.sender, now);
            }
            event => download.handle_event(event),
        }
    }

    /// Passes one datagram each `interval`.
    fn stream(&mut self, first: u32, count: u32, interval: Duration) {
        self.download.stream(first, count, interval, &[]);
        let until = self.download.now + interval * count + 200 * MS;
        loop {
            let Self { download, order, .. } = self;
            let event = download.events.peek().map(|Reverse((at, ..))| *at);
            let timers = [download.sender.poll_timeout(), download.proxy.poll_timeout()];
            let timers = timers.into_iter().chain([event, order.poll_timeout()]).flatten();
            let Some(next) = timers.min().filter(|at| *at <= until) else { break };
            download.now = download.now.max(next);
            let now = download.now;
            if event.is_some_and(|at| at <= now)
                && let Some(Reverse((_, _, event))) = download.events.pop()
            {
                self.handle(event);
            }
            let Self { download, order, .. } = self;
            download.sender.on_timeout(now);
            download.proxy.on_timeout(now);
            order.update(&mut download.sender, now);
            let mut rebuilt = Vec::new();
            while order.next_rebuilt(&mut rebuilt, &mut download.sender, now) {
                let id = number(&rebuilt);
                order.on_copy(&rebuilt, id, id, &mut download.sender, now);
            }
            self.deliver();
        }
        self.download.now = until;
    }

    /// How many datagrams came behind a later one.
    fn overtaken(&self) -> usize {
        let mut highest = 0;
        let behind = |(id, _): &&(u32, Instant)| {
            let is_behind = *id < highest;
            highest = highest.max(*id);
            is_behind
        };
        self.delivered.iter().filter(behind).count()
    }
}

#[test]
fn losses_arrive_in_order() {
    for (loss_percent, most_behind, least) in [(1, 0, 1999), (4, 2, 1999), (10, 10, 1985)] {
        let (mut missing, mut in_order) = (0, 0);
        for seed in 0..10 {
            let mut ordered = Ordered::new(seed, loss_percent, false);
            ordered.stream(0, 2000, MS);
            let behind = ordered.overtaken();
            assert!(behind <= most_behind, "seed {seed}, {loss_percent} %: {behind} overtaken");
            // One may pass the proxy before the request for lists does.
            assert!(ordered.delivered.len() >= least, "seed {seed}: {}", ordered.delivered.len());
            assert_eq!(ordered.order.state(), InOrderState::Ordering);
            ordered.held.sort_unstable();
            let [p50, p99] = [50, 99].map(|part| ordered.held[part * ordered.held.len() / 100]);
            assert!(p50 <= MS && p99 <= 17 * MS, "seed {seed}: {p50:?}, {p99:?}");
            let counters = ordered.order.counters();
            // A copy for each, and another for those that were lost as well.
            let repeats = ordered.download.proxy.stats().repeats_sent;
            assert!(repeats <= counters.missing * 5 / 4 + 20, "seed {seed}: {repeats}");
            missing += counters.missing;
            in_order += counters.in_order;
        }
        assert!(in_order >= missing * 99 / 100, "{in_order} of {missing} at {loss_percent} %");
    }
}

/// Parity rebuilds most of what is lost before a distant proxy, and what waited leaves in steps.
#[test]
fn losses_arrive_in_order_from_afar() {
    for (delay, whole, loss_percent, interval) in [
        (10, 80, 4, MS / 2),
        (10, 80, 10, MS / 2),
        (30, 160, 4, MS / 2),
        (30, 160, 10, MS / 2),
        (30, 160, 4, 2 * MS),
        (30, 160, 4, 4 * MS),
        (30, 160, 4, 8 * MS),
        (280, 580, 4, MS),
    ] {
        let case = format!("{delay} ms of {whole}, {loss_percent} %, {interval:?}");
        let (mut missing, mut in_order, mut requested) = (0, 0, 0);
        for seed in 0..10 {
            let mut ordered =
                Ordered::at(delay * MS, ReceiveRepair::Auto, seed, loss_percent, false);
            ordered.order.set_whole(whole * MS);
            ordered.stream(0, 4000, interval);
            assert_eq!(ordered.order.state(), InOrderState::Protected, "seed {seed}, {case}");
            let behind = ordered.overtaken();
            assert!(behind <= 4000 / 50, "seed {seed}, {case}: {behind} overtaken");
            ordered.held.sort_unstable();
            let at = |per_mille: usize| ordered.held[per_mille * (ordered.held.len() - 1) / 1000];
            assert!(at(500) <= 4 * MS + 2 * interval, "seed {seed}, {case}: {:?}", at(500));
            assert!(at(1000) <= 100 * MS, "seed {seed}, {case}: {:?}", at(1000));
            let mut steps = BTreeMap::<_, usize>::new();
            ordered.delivered.iter().for_each(|(_, at)| *steps.entry(*at).or_default() += 1);
            // But for those that waited when losses began to look like congestion.
            let long = steps.into_values().filter(|step| *step > 20).sum::<usize>();
            assert!(long <= 4000 / 20, "seed {seed}, {case}: {long} in long steps");
            missing += ordered.order.counters().missing;
            in_order += ordered.order.counters().in_order;
            requested += ordered.download.sender.stats().repeats_requested;
        }
        println!("{case}: {in_order} of {missing}, {requested} requested");
        // A change of the share reaches the geostationary proxy half a second late.
        let least = if delay < 280 { 99 } else { 96 };
        assert!(in_order >= missing * least / 100, "{case}: {in_order} of {missing}");
        // In a slow flow the next repair symbol may come after the copy.
        let most = if interval < MS { missing / 4 } else { 2 * missing };
        assert!(requested <= most, "{case}: {requested} of {missing} requested");
    }
}

#[test]
fn a_receiver_that_authenticates_nothing_gets_no_parity() {
    let mut ordered = Ordered::at(30 * MS, ReceiveRepair::Requests, 1, 4, false);
    ordered.order.set_whole(160 * MS);
    ordered.stream(0, 1000, MS);
    assert_eq!(ordered.order.state(), InOrderState::Idle);
    assert_eq!(ordered.download.proxy.stats().parity_sent, 0);
}

#[test]
fn each_datagram_is_in_three_lists_of_the_proxy() {
    let mut download = Download::new(keeping(), 1, 0);
    download.run(2000 * MS);
    download.sender.protect(Some(Protect::lists(4, 12, 2 * MS)), download.now);
    download.drain();
    download.run(10 * MS);
    assert_eq!(download.proxy.stats().protects, 2, "one of them may be lost");
    let (mut first, mut named) = (0, BTreeMap::<u32, u32>::new());
    // Silences end some lists early.
    for burst in [4, 1, 2, 1, 4, 3, 1, 1, 4] {
        download.stream(first, burst, MS / 8, &[]);
        first += burst;
        for _ in 0..80 {
            download.run(MS / 8);
            let list = download.sender.take_list();
            for id in list.iter().flat_map(List::identifiers) {
                *named.entry(*id).or_default() += 1;
            }
        }
    }
    let last = [1, 4].iter().sum::<u32>();
    assert_eq!(named.len(), first as usize, "{named:?}");
    assert!(named.iter().all(|(id, times)| *id >= first - last || *times == 3), "{named:?}");
}

/// The gate of a link that loses nothing delays nothing, and lists are rare.
#[test]
fn without_losses_nothing_waits() {
    for is_clean in [true, false] {
        let mut ordered = Ordered::new(1, 0, is_clean);
        ordered.stream(0, 20_000, MS);
        assert_eq!((ordered.delivered.len(), ordered.overtaken()), (20_000, 0));
        let late = ordered.held[ordered.held.len() / 2..].iter().max();
        assert_eq!(late, Some(&Duration::ZERO), "all but the first");
        assert_eq!(ordered.order.state(), InOrderState::Watching);
        let stats = ordered.download.proxy.stats();
        // Each list has a header of UDP and IP, too.
        let lists = stats.parity_bytes + 28 * stats.parity_sent;
        assert!(!is_clean || 200 * lists <= stats.kept_bytes, "{lists} of {}", stats.kept_bytes);
    }
}

/// Here and there a list overtakes the latest datagram that it names.
#[test]
fn a_datagram_behind_its_list_is_no_loss() {
    let mut ordered = Ordered::new(1, 0, true);
    ordered.late = Some(2 * MS);
    ordered.stream(0, 5000, MS);
    assert_eq!(ordered.delivered.len(), 5000);
    assert!(ordered.order.counters().missing > 5, "{:?}", ordered.order.counters());
    assert_eq!(ordered.order.state(), InOrderState::Watching);
    let waited = ordered.held.iter().filter(|wait| **wait > Duration::ZERO).count();
    assert!(waited < 50, "{waited}");
}

/// The first loss comes too late to be hidden, and the next ones do not.
#[test]
fn the_first_loss_closes_the_gate() {
    let mut ordered = Ordered::new(1, 0, true);
    ordered.stream(0, 500, MS);
    assert_eq!(ordered.order.state(), InOrderState::Watching);
    ordered.download.loss_percent = 4;
    ordered.stream(500, 2000, MS);
    assert_eq!(ordered.order.state(), InOrderState::Ordering);
    let GateCounters { missing, in_order, .. } = ordered.order.counters();
    // A link that begins to lose looks congested at first.
    assert!(in_order + 8 >= missing && missing > 50, "{in_order} of {missing}");
}

/// A queue of 2 ms loses a tenth of what passes it, and nothing is lost without a queue.
#[test]
fn losses_by_congestion_open_the_gate() {
    let mut ordered = Ordered::new(1, 0, false);
    for phase in 0..240 {
        let is_full = phase % 4 == 3;
        (ordered.download.queue, ordered.download.loss_percent) =
            if is_full { (2 * MS, 10) } else { (Duration::ZERO, 0) };
        ordered.stream(50 * phase, 50, MS);
    }
    assert_eq!(ordered.order.state(), InOrderState::Congested);
    let waited = ordered.held.iter().rev().take(400).max();
    assert_eq!(waited, Some(&Duration::ZERO), "{waited:?}");
}

#[test]
fn nothing_waits_for_a_queue_or_a_distant_proxy() {
    let mut far = Ordered::new(1, 4, false);
    far.order.set_whole(5 * MS);
    far.stream(0, 500, MS);
    assert_eq!(far.order.state(), InOrderState::Idle);
    let mut queued = Ordered::new(1, 4, false);
    queued.order.set_whole(500 * MS);
    for queue in 0..40 {
        queued.download.queue = queue * MS;
        queued.stream(50 * queue, 50, MS);
    }
    assert_eq!(queued.order.state(), InOrderState::Congested);
    for ordered in [far, queued] {
        let waited = ordered.held.iter().rev().take(200).max();
        assert!(waited <= Some(&MS), "{waited:?}");
    }
}
