//! Arriving packets that wait in a queue for those before them.

use std::collections::BTreeSet;

use super::*;

impl Net {
    /// A download of QUIC, whose arriving packets wait in a queue, until a proxy keeps copies.
    fn download(limits: Limits) -> Self {
        let mut net = Net::new(limits, MS, 0);
        net.queued = Some(Vec::new());
        net.agent.set_local(&HashSet::from([flow(4000).source.ip()]), &HashSet::new());
        net.send(flow(4000), &initial(1));
        net.run(50 * MS);
        net.pass(0..100, MS);
        assert_eq!(net.received.len(), 100);
        net.received.clear();
        net
    }

    /// The server sends datagrams at this interval, and the client acknowledges every second one.
    fn pass(&mut self, numbers: std::ops::Range<u64>, interval: Duration) {
        for number in numbers {
            self.send_here(flow(4000), &encrypted(1 << 20 | number));
            self.run(interval);
            if number % 2 == 0 {
                self.send_next(flow(4000));
            }
        }
        self.run(100 * MS);
    }

    /// How many datagrams this host got behind later ones, how many not at all, and how often it
    /// got one twice.
    fn order(&self, numbers: std::ops::Range<u64>) -> [usize; 3] {
        let place =
            |payload: &Vec<u8>| numbers.clone().find(|it| encrypted(1 << 20 | it) == *payload);
        let got: Vec<_> = self.received.iter().filter_map(place).collect();
        let mut highest = 0;
        let mut behind = 0;
        for number in &got {
            behind += usize::from(*number < highest);
            highest = highest.max(*number);
        }
        let distinct = got.iter().collect::<BTreeSet<_>>().len();
        [behind, numbers.count() - distinct, got.len() - distinct]
    }
}

#[test]
fn a_download_arrives_in_order() {
    for (loss_percent, most) in [(4, [3, 2, 0]), (10, [12, 6, 0])] {
        let mut net = Net::download(limits());
        net.loss_percent = loss_percent;
        net.pass(100..2100, MS);
        let order = net.order(100..2100);
        let totals = net.agent.totals();
        let worst = order.iter().zip(most).all(|(it, most)| *it <= most);
        assert!(worst, "{loss_percent} %: {order:?}, {totals:?}");
        let lost = 2000 * loss_percent / 100;
        assert!((lost / 2..2 * lost).contains(&totals.delivered), "{totals:?}");
    }
}

#[test]
fn without_losses_nothing_waits() {
    let mut net = Net::download(limits());
    // The first ones wait for their lists.
    net.pass(100..400, MS);
    net.most_waiting = 0;
    net.pass(400..1100, MS);
    assert_eq!(net.order(100..1100), [0, 0, 0]);
    assert_eq!((net.agent.totals().delivered, net.most_waiting), (0, 0));
}

#[test]
fn the_end_of_the_help_lets_all_pass() {
    for closes in [false, true] {
        let mut net = Net::download(limits());
        net.loss_percent = 20;
        net.pass(100..600, MS);
        // Some wait when the help ends.
        net.send_here(flow(4000), &encrypted(1 << 20 | 600));
        net.run(2 * MS);
        let now = net.now;
        if closes {
            net.agent.close(now);
        } else {
            net.agent.stop_delivering(now);
        }
        net.drain();
        assert_eq!(net.queued.as_ref().unwrap().len(), 0, "{closes}");
        let [_, _, twice] = net.order(100..600);
        assert_eq!(twice, 0);
    }
}

#[test]
fn other_packets_pass_the_queue_at_once() {
    let mut net = Net::download(limits());
    net.agent.on_queued(9, &packet(flow(5000).reversed(), b"of a flow without help"), net.now);
    net.agent.on_queued(10, b"no packet", net.now);
    let passed: Vec<_> = std::iter::from_fn(|| net.agent.pop()).map(|(to, _)| to).collect();
    assert_eq!(passed, [To::Queued(9), To::Queued(10)]);
    // A call's receiver orders by itself.
    let mut call = Net::call(flow(4000), limits(), |number| arriving::rtp(1, number));
    call.agent.on_queued(9, &packet(flow(4000).reversed(), &arriving::rtp(1, 7)), call.now);
    assert_eq!(call.agent.pop().map(|(to, _)| to), Some(To::Queued(9)));
}

/// Another rule of the firewall lets them pass before the queue.
#[test]
fn what_passes_the_queue_by_needs_no_lists() {
    let mut net = Net::new(Limits { in_order: true, ..limits() }, MS, 0);
    net.agent.set_local(&HashSet::from([flow(4000).source.ip()]), &HashSet::new());
    net.loss_percent = 4;
    net.send(flow(4000), &initial(1));
    net.run(50 * MS);
    net.pass(0..1100, MS);
    let before = net.agent.totals();
    assert!(before.help_bytes > 0, "{before:?}");
    net.pass(1100..1400, MS);
    let [_, _, twice] = net.order(0..1400);
    assert_eq!((twice, net.agent.totals().help_bytes), (0, before.help_bytes));
    let arrivals = |net: &Net| {
        let rows = net.agent.flows(1, |_| String::new(), net.now);
        rows.into_iter().map(|row| row.arrivals).collect::<String>()
    };
    assert!(net.agent.is_passed_by());
    assert_eq!(arrivals(&net), "not in the queue");
    // The rules are there again, and are removed once more.
    net.queued = Some(Vec::new());
    net.pass(1400..1500, MS);
    assert_eq!(arrivals(&net), "in order");
    net.queued = None;
    net.pass(1500..2100, MS);
    assert!(net.agent.is_passed_by());
    assert_eq!(arrivals(&net), "not in the queue");
}

/// Packets of a transport stream. All bytes but the first look random.
fn transport_stream(number: u64) -> Vec<u8> {
    let mut payload = vec![0x47; 188];
    frames::fill(&mut payload[1..], number);
    payload
}

/// A receiver of a transport stream sends nothing, and cannot put packets in order.
#[test]
fn a_transport_stream_that_only_names_arrives_in_order() {
    let only = vec!["from=4000".parse().unwrap()];
    for (only, helped) in [(only, 1), (Vec::new(), 0)] {
        let filter = Filter { only, ..Filter::default() };
        let mut net = arriving::pinned(Limits { filter, ..limits() });
        net.queued = Some(Vec::new());
        net.programs.insert(flow(4000));
        net.stream_here((0..100).map(transport_stream), 4 * MS);
        assert_eq!(net.agent.counts().0, helped);
        net.loss_percent = 4;
        net.received.clear();
        let missing = net.stream_here((100..1100).map(transport_stream), 4 * MS);
        assert_eq!(missing < 5, helped == 1, "{missing}");
        let got = net.received.iter();
        let places = got.map(|it| (100..1100).find(|number| transport_stream(*number) == *it));
        assert!(places.is_sorted());
    }
}
