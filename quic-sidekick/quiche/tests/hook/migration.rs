//! The validation of another path (RFC 9000, section 8.2).

use std::net::SocketAddr;
use std::time::Duration;

use crate::hooked::transfer::{addresses, ends};
use quiche::{Connection, ConnectionId, PathEvent, RecvInfo};
use virtual_time::World;

/// Delivers what the sender has for the path between these addresses. Without a receiver, all of it
/// is lost. Returns the number of datagrams.
fn pass(
    sender: &mut Connection,
    mut receiver: Option<&mut Connection>,
    from: SocketAddr,
    to: SocketAddr,
) -> usize {
    let mut buffer = [0; 1500];
    let mut sent = 0;
    while let Ok((size, _)) = sender.send_on_path(&mut buffer, Some(from), Some(to)) {
        sent += 1;
        if let Some(receiver) = &mut receiver {
            receiver.recv(&mut buffer[..size], RecvInfo { from, to }).unwrap();
        }
    }
    sent
}

fn exchange(client: &mut Connection, server: &mut Connection, at: SocketAddr) {
    while pass(client, Some(server), at, addresses(false))
        + pass(server, Some(client), addresses(false), at)
        > 0
    {}
}

#[test]
fn a_lost_path_response_is_not_asked_for_again() {
    let world = World::enter(1).unwrap();
    let (mut client, mut server) = ends("cubic");
    let (first, server_address) = (addresses(true), addresses(false));
    let other = SocketAddr::new(first.ip(), first.port() + 1);
    exchange(&mut client, &mut server, first);
    client.new_scid(&ConnectionId::from_ref(&[3; 16]), 3, false).unwrap();
    server.new_scid(&ConnectionId::from_ref(&[4; 16]), 4, false).unwrap();
    exchange(&mut client, &mut server, first);

    client.probe_path(other, server_address).unwrap();
    assert_eq!(pass(&mut client, Some(&mut server), other, server_address), 1);
    assert!(pass(&mut server, None, server_address, other) > 0, "the response is lost");
    // The acknowledgement takes the first path.
    exchange(&mut client, &mut server, first);

    // If quiche has no other timer, nothing happens before the idle timeout of 300 s.
    let mut now = Duration::ZERO;
    while let Some(wait) = client.timeout().filter(|wait| now + *wait < Duration::from_secs(200)) {
        now += wait;
        world.set(now);
        client.on_timeout();
        let sent = pass(&mut client, None, other, server_address);
        assert_eq!(sent, 0, "quiche asks again after {now:?}: the remedy of interop-client can go");
    }
    let events: Vec<_> = std::iter::from_fn(|| client.path_event_next()).collect();
    let failed = |event: &PathEvent| matches!(event, PathEvent::FailedValidation(..));
    assert!(!events.iter().any(failed), "quiche gives up: {events:?}");
    assert!(!client.is_path_validated(other, server_address).unwrap());

    client.probe_path(other, server_address).unwrap();
    exchange(&mut client, &mut server, other);
    assert!(client.is_path_validated(other, server_address).unwrap());
}
