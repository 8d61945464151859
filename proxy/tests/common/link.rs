//! Sockets, and a link to another host.

use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::mpsc;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use sidekick_protocol::Terms;

use super::{Daemon, Peer, datagram, run};

pub fn bind(address: &str) -> UdpSocket {
    UdpSocket::bind(address).unwrap()
}

pub fn connected(address: &str, to: SocketAddr) -> UdpSocket {
    let socket = bind(address);
    socket.connect(to).unwrap();
    socket
}

/// Sends the numbered datagrams and returns them.
pub fn send(socket: &UdpSocket, to: SocketAddr, numbers: Range<u32>) -> Vec<Vec<u8>> {
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

/// A link from the proxy's host (10.9.0.1, on `near0`) to the sender's host (10.9.0.2), after these
/// command lines about it. Returns two sockets of the sender: for its flow, and to the proxy.
pub fn across_a_link(prepare: &[&str]) -> (UdpSocket, UdpSocket) {
    let sockets = || (bind("10.9.0.2:4000"), bind("10.9.0.2:4001"));
    link("near0", ("10.9.0.1/24", "10.9.0.2/24"), prepare, sockets)
}

/// A flow whose packets pass a proxy, and its session.
pub struct Session {
    pub flow: UdpSocket,
    pub destination: SocketAddr,
    pub peer: Peer,
    /// Its receiver, on loopback.
    _receiver: Option<UdpSocket>,
}

impl Session {
    /// From one socket at this address of loopback to another, with a session at `proxy`.
    pub fn on_loopback(host: &str, proxy: SocketAddr, terms: Terms) -> Self {
        let any = format!("{host}:0");
        let (flow, receiver) = (bind(&any), bind(&any));
        let (port, destination) =
            (flow.local_addr().unwrap().port(), receiver.local_addr().unwrap());
        let peer = Peer::open(connected(&any, proxy), port, destination, terms);
        Self { flow, destination, peer, _receiver: Some(receiver) }
    }

    /// From the sender's host to the host of a daemon with these flags.
    pub fn across_a_link(flags: &str, terms: Terms) -> (Daemon, Self) {
        let sockets = across_a_link(&[]);
        let daemon = Daemon::start(&format!("-i near0 --json {flags}"));
        (daemon, Self::of(sockets, terms))
    }

    /// The same with these sockets of the sender, when the daemon runs.
    pub fn of((flow, control): (UdpSocket, UdpSocket), terms: Terms) -> Self {
        let destination = ([10, 9, 0, 1], 443).into();
        control.connect("10.9.0.1:5252").unwrap();
        let peer = Peer::open(control, 4000, destination, terms);
        Self { flow, destination, peer, _receiver: None }
    }

    /// Sends the numbered datagrams of the flow, and returns them.
    pub fn send(&self, numbers: Range<u32>) -> Vec<Vec<u8>> {
        send(&self.flow, self.destination, numbers)
    }
}
