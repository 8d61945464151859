//! A million invalid or almost valid datagrams arrive at both sockets.

use super::*;
use crate::ObserverConfig;
use crate::testing::{Near, PEER, PROXY, Simulation, configured, key};
use crate::wire::MAX_DATAGRAM_LEN;

const MS: Duration = Duration::from_millis(1);
const DATAGRAMS: u32 = 1_000_000;

/// Real datagrams of both directions.
fn recorded(s: &mut Simulation) -> Vec<Vec<u8>> {
    let mut recorded = Vec::new();
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    for _ in 0..60 {
        s.send(Some(false));
        let now = s.now;
        s.sender.poll_now(now);
        while let Some(transmit) = s.sender.poll_transmit(&mut buffer) {
            let message = &buffer[..transmit.size];
            recorded.push(message.to_vec());
            let proxy = s.proxy.as_mut().unwrap();
            let _ = proxy.handle_input(PEER.parse::<SocketAddr>().unwrap(), message, now);
            while let Some(transmit) = proxy.poll_transmit(&mut buffer) {
                recorded.push(buffer[..transmit.size].to_vec());
            }
        }
        s.run(MS);
    }
    recorded
}

/// Nothing panics, memory does not grow, and the session continues.
#[test]
fn a_million_datagrams_change_nothing() {
    let near = Near { delay: MS, jitter: Duration::ZERO, loss_percent: 0 };
    let mut s = Simulation::new(configured(), ObserverConfig::default(), near, 11);
    s.stream(200, MS);
    let mut material = recorded(&mut s);
    for first in 0..=255 {
        material.push(vec![first; 60]);
    }
    assert!(material.len() > 350);
    let mut random = Numbers::new(key(12));
    let (peer, port): (SocketAddr, SocketAddr) = (PEER.parse().unwrap(), PROXY.parse().unwrap());
    let (mut buffer, now) = ([0; MAX_DATAGRAM_LEN], s.now);
    let (epochs, opened) =
        (s.sender.stats().epochs, s.proxy.as_ref().unwrap().stats().sessions_opened);
    let proxy = s.proxy.as_mut().unwrap();
    for _ in 0..DATAGRAMS {
        let pick = usize::try_from(random.next_u32()).unwrap() % material.len();
        let mut datagram = material[pick].clone();
        for _ in 0..=random.next_u32() % 3 {
            let at = usize::try_from(random.next_u32()).unwrap() % datagram.len();
            datagram[at] =
                datagram[at].wrapping_add(u8::try_from(1 + random.next_u32() % 255).unwrap());
        }
        datagram.truncate(1 + usize::try_from(random.next_u32()).unwrap() % (2 * datagram.len()));
        let from =
            if random.next_u32().is_multiple_of(2) { peer } else { ([203, 0, 113, 1], 1).into() };
        let _ = proxy.handle_input(from, &datagram, now);
        while let Some(transmit) = proxy.poll_transmit(&mut buffer) {
            assert!(
                transmit.destination != peer || from == peer,
                "answers go only to the peer that asked"
            );
            assert!(transmit.size <= datagram.len(), "{datagram:?} causes {} bytes", transmit.size);
        }
        let from = if random.next_u32().is_multiple_of(2) { port } else { peer };
        let _ = s.sender.handle_input(from, &datagram, now);
        let _ = s.sender.handle_on_path(&datagram, now);
    }
    assert_eq!((proxy.sessions(), proxy.stats().sessions_opened), (1, opened));
    assert_eq!((s.sender.sessions.len(), s.sender.stats().epochs), (1, epochs));
    assert!(s.sender.effects.lost.capacity() < 64 && s.sender.sessions.capacity() <= MAX_SESSIONS);
    let lost = s.send(Some(true));
    s.stream(100, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    assert_eq!(s.declared.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [lost]);
}
