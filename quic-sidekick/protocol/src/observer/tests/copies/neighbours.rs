//! The effects of hosts that share an address on each other's copies.

use super::*;

fn neighbour() -> SocketAddr {
    "192.0.2.1:6000".parse().unwrap()
}

/// A neighbour's session for the same flow, confirmed, with a proof of the address alone.
pub(super) fn intrude(b: &mut Bench) -> Result<(), HandleError> {
    b.hello_of(neighbour(), 2, Terms::default())?;
    b.send_from(neighbour(), 2, Message::Poll(Poll { epoch: 1, token: 1, sums: 0 }))?;
    while b.next_sent().is_some() {}
    Ok(())
}

#[test]
fn a_shared_address_takes_no_flow_that_is_kept() {
    let mut b = bench(keeping());
    b.open_keeping(1);
    assert_eq!(intrude(&mut b), Err(HandleError::Refused(RefusalCause::Taken)));
    while b.next_sent().is_some() {}
    assert_eq!(b.pass(100..110), 10);
    b.request(1, &[between(103, 105)]).unwrap();
    assert_eq!(b.drawn().0, [104]);
    // Nor does it end the session to make room, whatever it proves of its own flows.
    b.observer.reconfigure(ObserverConfig { max_sessions_per_source: 1, ..keeping() }).unwrap();
    b.flow.source.set_port(4001);
    assert_eq!(b.hello_along_path(3), Err(HandleError::Refused(RefusalCause::SessionsOfSource)));
    assert_eq!(b.observer.sessions(), 1);
    b.observer.table.check();
}

/// A sender that lost its state asks from its own address and port, where no neighbour is.
#[test]
fn a_sender_that_restarts_takes_its_flow_back() {
    let mut b = bench(keeping());
    b.open_keeping(1);
    b.open(2, Terms::default());
    assert_eq!(b.pass(0..10), 0, "the new session has proven nothing yet");
    b.prove(peer(), 2);
    assert_eq!(b.pass(100..110), 10);
    b.request(2, &[between(103, 105)]).unwrap();
    assert_eq!(b.drawn().0, [104]);
    b.observer.table.check();
}

/// The neighbour was first. Packets that passed meanwhile are in no sum, so an epoch begins.
#[test]
fn a_proof_takes_the_flow_from_a_neighbour() {
    let mut b = bench(keeping());
    b.open(1, Terms::default());
    b.capture(1, 0);
    intrude(&mut b).unwrap();
    b.capture(2, 0);
    b.prove(peer(), 1);
    assert_eq!(b.pass(100..110), 10);
    b.capture(3, 0);
    let epoch = b.with_message(1, |message| matches!(message, Message::Epoch { epoch: 2 }));
    assert_eq!(epoch, Some(true));
    b.poll(1, 2, 5).unwrap();
    assert_eq!(b.with_quack(1, |quack| (quack.token, quack.count)), Some((5, 1)));
    b.observer.table.check();
}

/// Sixteen sessions of an address get four times the rate of one, and another address its own.
#[test]
fn the_sessions_of_an_address_share_a_rate_of_requests() {
    let mut b = bench(keeping());
    let first = b.flow.source.port();
    for number in 1..=16 {
        b.flow.source.set_port(first + u16::try_from(number).unwrap());
        b.open_keeping(number);
    }
    let ip: IpAddr = "203.0.113.5".parse().unwrap();
    let elsewhere = SocketAddr::new(ip, 5000);
    b.flow.source.set_ip(ip);
    b.hello_of(elsewhere, 17, Terms::default()).unwrap();
    b.send_from(elsewhere, 17, Message::Poll(Poll { epoch: 1, token: 1, sums: 0 })).unwrap();
    while b.next_sent().is_some() {}
    b.prove(elsewhere, 17);
    let mut answered = [0_u32; 18];
    for _ in 0..1000 {
        for number in 1..=17 {
            let from = if number == 17 { elsewhere } else { peer() };
            let ranges = Ranges::new(&[ALL]);
            let request = Message::Request(Request { number: 7, ranges });
            let outcome = b.send_from(from, number, request);
            answered[number as usize] += u32::from(outcome.is_ok());
        }
        while b.next_sent().is_some() {}
        b.now += MS;
    }
    let of_address: u32 = answered[1..=16].iter().sum();
    assert!((15_900..=16_400).contains(&of_address), "{answered:?}");
    assert_eq!(answered[17], 1000, "{answered:?}");
}
