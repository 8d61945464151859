//! Sockets, and a link to a machine of their own.

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;

use super::{datagram, run};

pub fn bind(address: &str) -> UdpSocket {
    UdpSocket::bind(address).unwrap()
}

pub fn connected(address: &str, to: SocketAddr) -> UdpSocket {
    let socket = bind(address);
    socket.connect(to).unwrap();
    socket
}

/// Sends the numbered datagrams and returns them.
pub fn send(socket: &UdpSocket, to: SocketAddr, numbers: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    numbers
        .map(|number| {
            let datagram = datagram(number, 1200);
            socket.send_to(&datagram, to).unwrap();
            datagram
        })
        .collect()
}

/// Moves one end of a virtual Ethernet link into a namespace of its own, which is the sender's machine
/// (10.9.0.2). Ours is the proxy's (10.9.0.1, on `near0`). Returns two sockets of the sender's: for its flow,
/// and to the proxy.
pub fn across_a_link() -> (UdpSocket, UdpSocket) {
    run("ip link add near0 type veth peer name far0");
    run("ip address add 10.9.0.1/24 dev near0");
    run("ip link set near0 up");
    let ((tell, told), (moved, wait)) = (mpsc::channel(), mpsc::channel::<()>());
    let sender = thread::spawn(move || {
        // Of this thread alone; the sockets made in it stay in its namespace.
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        tell.send(gettid()).unwrap();
        wait.recv().unwrap();
        run("ip address add 10.9.0.2/24 dev far0");
        run("ip link set far0 up");
        (bind("10.9.0.2:4000"), bind("10.9.0.2:4001"))
    });
    run(&format!("ip link set far0 netns {}", told.recv().unwrap()));
    moved.send(()).unwrap();
    sender.join().unwrap()
}
