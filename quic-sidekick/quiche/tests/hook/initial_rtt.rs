//! The round trip that a connection assumes until it measures one.

use std::net::SocketAddr;
use std::time::Duration;

use quiche::sidekick::with_initial_rtt;
use quiche::{Config, ConnectionId};

/// The round trip that a new client assumes.
fn assumed() -> Duration {
    let mut config = Config::new(quiche::PROTOCOL_VERSION).unwrap();
    let (id, address) = (ConnectionId::from_ref(&[7; 16]), SocketAddr::from(([127, 0, 0, 1], 443)));
    let conn = quiche::connect(None, &id, address, address, &mut config).unwrap();
    let rtt = conn.path_stats().next().unwrap().rtt;
    rtt
}

#[test]
fn only_connections_made_within_have_it() {
    let (short, long) = (Duration::from_millis(40), Duration::from_millis(700));
    let nested = with_initial_rtt(long, || [with_initial_rtt(short, assumed), assumed()]);
    assert_eq!(nested, [short, long]);
    assert_eq!(assumed(), Duration::from_millis(333));
}
