//! The proxy's UDP port on a machine with many addresses.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use crate::common::{PATIENCE, await_route_to_own, in_namespace, run};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sidekick_proxy::testing::{Arrival, PacketInfo, Port};

/// The next datagram. Over loopback a busy kernel delivers after `send` has returned.
fn await_arrival(port: &Port, buffer: &mut [u8]) -> Arrival {
    let timeout = PollTimeout::try_from(PATIENCE).unwrap();
    let ready = poll(&mut [PollFd::new(port.as_fd(), PollFlags::POLLIN)], timeout).unwrap();
    assert_eq!(ready, 1, "nothing arrived");
    port.receiver().receive(buffer).unwrap().unwrap()
}

#[test]
fn answers_come_from_the_address_of_the_message() {
    in_namespace(|| {
        for ip in ["2001:db8::7", "2001:db8::8"] {
            run(&format!("ip address add {ip}/128 dev lo nodad"));
            await_route_to_own(ip);
        }
        // All of 127.0.0.0/8 is local. By default the kernel would answer from 127.0.0.1.
        let cases = [
            ("0.0.0.0:0", "127.0.0.3"),
            ("127.0.0.4:0", "127.0.0.4"),
            ("[::]:0", "127.0.0.5"),
            ("[::]:0", "::1"),
            ("[::]:0", "2001:db8::7"),
            ("[::]:0", "2001:db8::8"),
            ("[::1]:0", "::1"),
        ];
        for (listen, spoken_to) in cases {
            let spoken_to: IpAddr = spoken_to.parse().unwrap();
            let any = if spoken_to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
            let peer = UdpSocket::bind(any).unwrap();
            peer.set_read_timeout(Some(PATIENCE)).unwrap();
            let port = Port::open(listen.parse().unwrap()).unwrap();
            peer.connect((spoken_to, port.address().port())).unwrap();
            peer.send(b"question").unwrap();
            let mut buffer = [0; 64];
            let arrival = await_arrival(&port, &mut buffer);
            assert_eq!(&buffer[..arrival.len], b"question");
            assert_eq!(arrival.from, peer.local_addr().unwrap(), "{listen}");
            let info = PacketInfo { source: arrival.local_ip, interface: None };
            port.send(b"answer", arrival.from, info).unwrap();
            // A connected socket accepts datagrams only from its peer's address.
            let len = peer.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], b"answer", "{listen} spoken to as {spoken_to}");
        }
    });
}

/// No datagram can have a broadcast address as its source.
#[test]
fn an_answer_to_a_broadcast_comes_from_an_address_of_the_machine() {
    in_namespace(|| {
        run("ip address add 10.9.0.1/24 broadcast 10.9.0.255 dev lo");
        for listen in ["0.0.0.0:0", "[::]:0"] {
            let port = Port::open(listen.parse().unwrap()).unwrap();
            let peer = UdpSocket::bind("10.9.0.1:0").unwrap();
            peer.set_read_timeout(Some(PATIENCE)).unwrap();
            peer.set_broadcast(true).unwrap();
            peer.send_to(b"question", ("10.9.0.255", port.address().port())).unwrap();
            let arrival = await_arrival(&port, &mut [0; 64]);
            let info = PacketInfo { source: arrival.local_ip, interface: None };
            port.send(b"answer", arrival.from, info).unwrap();
            let (_, from) = peer.recv_from(&mut [0; 64]).unwrap();
            assert_eq!(from, ([10, 9, 0, 1], port.address().port()).into(), "{listen}");
        }
    });
}

/// The administrator can make IPv6 sockets refuse IPv4 by default.
#[test]
fn all_addresses_include_those_of_ipv4() {
    in_namespace(|| {
        std::fs::write("/proc/sys/net/ipv6/bindv6only", "1").unwrap();
        let port = Port::open("[::]:0".parse().unwrap()).unwrap();
        let number = port.address().port();
        for ip in ["127.0.0.3", "::1"] {
            let peer = UdpSocket::bind((ip, 0)).unwrap();
            peer.send_to(b"question", (ip, number)).unwrap();
            let arrival = await_arrival(&port, &mut [0; 64]);
            assert_eq!(arrival.from, peer.local_addr().unwrap());
            assert_eq!(arrival.local_ip, Some(ip.parse().unwrap()));
        }
    });
}

/// An attacker who knows the ports forges all ICMP errors. The port neither reports them nor stops.
#[test]
fn forged_errors_do_not_reach_the_port() {
    in_namespace(|| {
        for (listen, ip) in
            [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), ("[::]:0", "::1")]
        {
            let ip: IpAddr = ip.parse().unwrap();
            let port = Port::open(listen.parse().unwrap()).unwrap();
            let peer = UdpSocket::bind((ip, 0)).unwrap();
            peer.set_read_timeout(Some(PATIENCE)).unwrap();
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/forge.py");
            let mut python = Command::new("python3");
            let mut forger =
                python.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut rounds = BufReader::new(forger.stdout.take().unwrap()).lines();
            for _ in 0..5 {
                rounds.next().unwrap().unwrap();
                port.send(b"quACK", peer.local_addr().unwrap(), PacketInfo::default()).unwrap();
                let (len, from) = peer.recv_from(&mut [0; 64]).unwrap();
                assert_eq!(len, 5);
                assert!(port.receiver().receive(&mut [0; 64]).unwrap().is_none());
                peer.send_to(b"poll", from).unwrap();
                assert_eq!(await_arrival(&port, &mut [0; 64]).len, 4);
            }
            drop(forger.stdin.take());
            rounds.for_each(drop);
            assert!(forger.wait().unwrap().success());
        }
    });
}

#[test]
fn port_errors_name_a_remedy() {
    in_namespace(|| {
        let error = Port::open("192.0.2.1:5252".parse().unwrap()).unwrap_err().to_string();
        assert_eq!(
            error,
            "192.0.2.1 is not an address of this machine: choose one with --listen, or omit it for all"
        );
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "5252 5252").unwrap();
        let any = "[::]:0".parse().unwrap();
        let only = Port::open(any).unwrap();
        let error = Port::open(any).unwrap_err().to_string();
        assert_eq!(error, "cannot open a UDP port: Address already in use (os error 98)");
        let error = Port::open(only.address()).unwrap_err().to_string();
        assert!(error.contains("choose another port with --listen"), "{error}");
    });
}
