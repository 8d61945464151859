//! The real daemon with the wire format of the programs published at NSDI '24, and a sender that
//! knows only this format.

use std::net::{SocketAddr, UdpSocket};

use crate::common::{Daemon, Ended, PATIENCE, datagram, in_namespace, naive_sums};
use nix::sys::socket::{setsockopt, sockopt};
use sidekick_proxy::testing::Nsdi24Quack as Quack;

/// A sender, a receiver, and the sender's socket for quACKs.
struct Path {
    sender: UdpSocket,
    receiver: SocketAddr,
    quacks: UdpSocket,
    sent: Vec<Vec<u8>>,
    _receiver: UdpSocket,
}

impl Path {
    fn new(any: &str) -> Self {
        let [sender, receiver, quacks] = [(); 3].map(|()| UdpSocket::bind(any).unwrap());
        quacks.set_read_timeout(Some(PATIENCE)).unwrap();
        let address = receiver.local_addr().unwrap();
        Self { sender, receiver: address, quacks, sent: Vec::new(), _receiver: receiver }
    }

    /// A daemon that sends its quACKs to this sender.
    fn daemon(&self, more: &str) -> Daemon {
        let to = self.quacks.local_addr().unwrap();
        Daemon::start(&format!("--interface lo --json --compat nsdi24 --quack-to {to} {more}"))
    }

    /// Sends one more datagram of this length.
    fn send(&mut self, len: usize) {
        let datagram = datagram(u32::try_from(self.sent.len()).unwrap(), len);
        self.sender.send_to(&datagram, self.receiver).unwrap();
        self.sent.push(datagram);
    }

    /// The next quACK, and its source.
    fn quack(&self) -> (Quack, SocketAddr) {
        let mut buffer = [0; 2048];
        let (len, from) = self.quacks.recv_from(&mut buffer).unwrap();
        (Quack::parse(&buffer[..len]).unwrap(), from)
    }

    /// The quACK for these datagrams.
    fn expected(datagrams: &[Vec<u8>], threshold: usize) -> Quack {
        Quack {
            sums: naive_sums(datagrams, threshold),
            last: datagrams.last().map(|last| u32::from_be_bytes(last[21..25].try_into().unwrap())),
            count: u32::try_from(datagrams.len()).unwrap(),
        }
    }
}

/// The numbers of a summary by their names.
fn numbers<const N: usize>(ended: &Ended, names: [&str; N]) -> [u64; N] {
    let summary = ended.summary();
    names.map(|name| summary[name].as_u64().unwrap_or_else(|| panic!("{name} in {summary}")))
}

#[test]
fn quacks_follow_the_number_and_any_datagram_resets() {
    in_namespace(|| {
        let mut path = Path::new("127.0.0.1:0");
        let daemon = path.daemon("--quack-every 1 --threshold 5");
        // A short datagram does not count. A QUIC packet with a long header does.
        path.sender.send_to(&[0xff; 24], path.receiver).unwrap();
        path.sender.send_to(b"", path.receiver).unwrap();
        for number in 1..=40 {
            path.send(if number % 2 == 0 { 25 } else { 1200 });
            let (quack, from) = path.quack();
            assert_eq!(quack, Path::expected(&path.sent, 5));
            assert_eq!(from, SocketAddr::from(([127, 0, 0, 1], 5252)));
        }
        path.sender.send_to(&[0xc7; 25], path.receiver).unwrap();
        path.sent.push(vec![0xc7; 25]);
        assert_eq!(path.quack().0, Path::expected(&path.sent, 5), "the proxy ignores headers");

        // Any datagram is a reset, and the proxy does not count it, even a long one. The quACKs
        // show when the proxy has read it: exactly one of them restarts the count.
        let stranger = UdpSocket::bind("127.0.0.8:0").unwrap();
        stranger.send_to(&[0x40; 1200], "127.0.0.1:5252").unwrap();
        let mut reset_after = None;
        while reset_after.is_none_or(|after| path.sent.len() < after + 10) {
            let before = path.sent.len();
            path.send(100);
            let (quack, _) = path.quack();
            if reset_after.is_none() && quack.count == 1 {
                reset_after = Some(before);
            }
            assert_eq!(quack, Path::expected(&path.sent[reset_after.unwrap_or(0)..], 5));
        }

        let sent = u64::try_from(path.sent.len()).unwrap();
        let ended = daemon.stop();
        let names = ["counted", "quacks", "resets", "bytes", "sessions", "capture_drops", "unsent"];
        assert_eq!(numbers(&ended, names), [sent, sent, 1, sent * (8 + 20 + 5 + 4), 0, 0, 0]);
        // The proxy captures its quACKs, too, since they cross the same interface.
        let [captured, ignored] = numbers(&ended, ["captured", "ignored"]);
        assert!(captured > sent && ignored > sent, "{ended:?}");
    });
}

#[test]
fn quacks_by_time_are_steady() {
    in_namespace(|| {
        for (any, listen) in
            [("127.0.0.1:0", "--listen 0.0.0.0:5252"), ("[::1]:0", ""), ("127.0.0.1:0", "")]
        {
            let mut path = Path::new(any);
            let daemon = path.daemon(&format!("--quack-every 3ms {listen}"));
            for _ in 0..4 {
                path.send(300);
                let expected = Path::expected(&path.sent, 20);
                // A quACK that left before the datagram arrived repeats the previous one.
                let mut quack = path.quack().0;
                while quack != expected {
                    assert_eq!(
                        quack,
                        Path::expected(&path.sent[..path.sent.len() - 1], 20),
                        "{listen}"
                    );
                    quack = path.quack().0;
                }
                assert_eq!(path.quack().0, expected, "and again, without anything new");
            }
            let ended = daemon.stop();
            let [counted, quacks, resets] = numbers(&ended, ["counted", "quacks", "resets"]);
            assert_eq!((counted, resets), (4, 0), "{ended:?}");
            assert!(quacks >= 8, "{ended:?}");
        }
    });
}

#[test]
fn the_default_is_a_quack_of_97_bytes_by_time() {
    in_namespace(|| {
        let mut path = Path::new("127.0.0.1:0");
        let daemon = path.daemon("--listen 127.0.0.2:7000");
        path.send(25);
        let (quack, from) = path.quack();
        assert_eq!((quack.wire_len(), from), (97, daemon.address()));
        assert_eq!(quack, Path::expected(&path.sent, 20));
        daemon.stop();
    });
}

#[test]
fn the_datagrams_of_a_merged_frame_count_one_by_one() {
    in_namespace(|| {
        let mut path = Path::new("127.0.0.1:0");
        let daemon = path.daemon("--quack-every 5");
        setsockopt(&path.sender, sockopt::UdpGsoSegment, &1200).unwrap();
        path.sent = (0..12).map(|number| datagram(number, 1200)).collect();
        path.sender.send_to(&path.sent.concat(), path.receiver).unwrap();
        for number in [5, 10] {
            assert_eq!(path.quack().0, Path::expected(&path.sent[..number], 20));
        }
        let ended = daemon.stop();
        assert_eq!(numbers(&ended, ["counted", "quacks", "merged_split"]), [12, 2, 1], "{ended:?}");
    });
}

#[test]
fn the_final_sentence_names_quacks() {
    in_namespace(|| {
        let daemon = Daemon::start("-i lo --compat nsdi24 --quack-to 127.0.0.1:9");
        let ended = daemon.stop();
        let expected =
            "stopped: captured 0, counted 0, quACKs 0, bytes sent 0, sessions 0, malformed 0\n";
        assert_eq!(ended.stdout, expected, "{ended:?}");
    });
}
