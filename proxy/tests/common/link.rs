//! Sockets, and a link to another host.

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

/// Creates a virtual Ethernet link for jumbo frames, called `name`, to another host. The other end
/// is called `name`-peer. The addresses are those of our end and of the other. The command lines of
/// `prepare` run before the link is up. `there` runs afterwards in the other host's namespace,
/// where the sockets that it opens stay.
pub fn link<T: Send + 'static>(
    name: &str,
    (ours, theirs): (&str, &str),
    prepare: &[&str],
    there: impl FnOnce() -> T + Send + 'static,
) -> T {
    let peer = format!("{name}-peer");
    run(&format!("ip link add {name} mtu 9000 type veth peer name {peer} mtu 9000"));
    prepare.iter().for_each(|line| run(line));
    run(&format!("ip address add {ours} dev {name}"));
    run(&format!("ip link set {name} up"));
    let ((tell, told), (moved, wait)) = (mpsc::channel(), mpsc::channel::<()>());
    let address = format!("ip address add {theirs} dev {peer}");
    let up = format!("ip link set {peer} up");
    let host = thread::spawn(move || {
        // Only for this thread.
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        tell.send(gettid()).unwrap();
        wait.recv().unwrap();
        run(&address);
        run(&up);
        there()
    });
    run(&format!("ip link set {name}-peer netns {}", told.recv().unwrap()));
    moved.send(()).unwrap();
    host.join().unwrap()
}

/// Gives an interface another name. It is down meanwhile.
pub fn rename(from: &str, to: &str) {
    run(&format!("ip link set {from} down"));
    run(&format!("ip link set {from} name {to}"));
    run(&format!("ip link set {to} up"));
}

/// A link from the proxy's host (10.9.0.1, on `near0`) to the sender's host (10.9.0.2). Returns two
/// sockets of the sender: for its flow, and to the proxy.
pub fn across_a_link() -> (UdpSocket, UdpSocket) {
    across_a_prepared_link(&[])
}

/// As [`across_a_link`], after these command lines about the link.
pub fn across_a_prepared_link(prepare: &[&str]) -> (UdpSocket, UdpSocket) {
    let sockets = || (bind("10.9.0.2:4000"), bind("10.9.0.2:4001"));
    link("near0", ("10.9.0.1/24", "10.9.0.2/24"), prepare, sockets)
}
