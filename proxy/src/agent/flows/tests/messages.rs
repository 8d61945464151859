//! How many messages accompany the packets of flows.

use super::*;

#[test]
fn without_loss_only_markers_and_messages_are_sent() {
    let mut net = Net::new(limits(), MS, 0);
    net.stream(flow(4000), 1000);
    let totals = net.agent.totals();
    assert_eq!((totals.lost, totals.resent), (0, 0));
    assert!(totals.markers <= 6 && totals.messages < 40, "{totals:?}");
}

/// What passes each time.
type Each<'a> = &'a dyn Fn(&mut Net, u16);

#[test]
fn one_loss_causes_no_polls_for_ever() {
    let mut net = Net::new(limits(), MS, 0);
    net.stream(flow(4000), 300);
    net.loss_percent = 100;
    net.send_next(flow(4000));
    net.loss_percent = 0;
    // The reports of the terms, and the polls, end some time after the loss.
    let seconds = |net: &mut Net, count: usize| {
        let before = net.agent.totals().messages + net.answers;
        net.stream(flow(4000), count * 1000);
        net.agent.totals().messages + net.answers - before
    };
    assert!(seconds(&mut net, 5) > 500);
    seconds(&mut net, 15);
    let quiet = seconds(&mut net, 10);
    assert!(quiet <= 200, "{quiet}");
}

/// Messages of the agent and of the proxy in a minute without loss.
fn messages_of(spacing: Duration, each: impl Fn(&mut Net, u16)) -> [u64; 2] {
    let mut net = Net::call(flow(4000), limits(), |number| arriving::rtp(1, number));
    let packets = u16::try_from(60_000 / spacing.as_millis()).unwrap();
    let count = |net: &Net| {
        let totals = net.agent.totals();
        [totals.messages + totals.markers, net.answers]
    };
    let mut before = [0; 2];
    for number in 0..packets + 100 {
        each(&mut net, number);
        net.run(spacing);
        if number == 99 {
            before = count(&net);
        }
    }
    let [after_agent, after_proxy] = count(&net);
    [after_agent - before[0], after_proxy - before[1]]
}

#[test]
fn without_loss_few_messages_accompany_the_packets() {
    let up = |net: &mut Net, number| net.send(flow(4000), &arriving::rtp(2, number));
    let down = |net: &mut Net, number| net.send_here(flow(4000), &arriving::rtp(1, number));
    let encrypted = |net: &mut Net, _: u16| drop(net.send_next(flow(4001)));
    // Behind each tenth packet of a call comes one without a number.
    let control = |net: &mut Net, number: u16| {
        net.send_here(flow(4000), &arriving::rtp(1, number));
        if number.is_multiple_of(10) {
            let mut report = arriving::rtp(1, number);
            report[1] = 200;
            net.send_here(flow(4000), &report);
        }
    };
    let kinds: [Each<'_>; 4] = [&up, &down, &encrypted, &control];
    for (kind, each) in kinds.into_iter().enumerate() {
        for spacing in [1, 3, 20, 50, 200] {
            // Two in a hundred packets, or two in a second.
            let most = if spacing <= 20 { 60_000 / spacing / 50 } else { 120 };
            let [agent, proxy] = messages_of(Duration::from_millis(spacing), each);
            // Where packets come in bursts, the proxy also reports the silences between them.
            let proxy = if kind == 3 { 0 } else { proxy };
            assert!(agent + proxy <= most, "{kind} {spacing}: {agent} + {proxy}");
        }
    }
}

#[test]
fn losses_are_repaired_although_few_messages_come_before() {
    for spacing in [1, 20] {
        let mut net = Net::new(limits(), MS, 0);
        let missing = |net: &mut Net, count: u32| {
            let sent = (0..count).map(|_| {
                let sent = net.send_next(flow(4000));
                net.run(spacing * MS);
                sent
            });
            let sent: Vec<_> = sent.collect();
            sent.iter().filter(|payload| !net.passed.contains(*payload)).count()
        };
        assert_eq!(missing(&mut net, 2000), 0);
        net.loss_percent = 1;
        let missing = missing(&mut net, 4000);
        // The first one is detected late.
        assert!(missing <= 2, "{missing}: {:?}", net.agent.totals());
    }
}
