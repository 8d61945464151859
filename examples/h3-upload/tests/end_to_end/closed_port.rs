//! A port at which no program listens. The tests of `pubsub` and `audio` use this, too.

use std::net::UdpSocket;

/// A port of this machine that is closed until this value is dropped.
pub(crate) struct ClosedPort {
    pub(crate) number: u16,
    _socket: UdpSocket,
}

impl ClosedPort {
    /// The port has a socket that is connected to the discard port. So the system refuses everyone
    /// else's datagrams, and no other test can take the port.
    pub(crate) fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect("127.0.0.1:9").unwrap();
        Self { number: socket.local_addr().unwrap().port(), _socket: socket }
    }
}
