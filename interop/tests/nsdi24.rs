//! `nsdi24-proxy` and a sender that knows only its wire format, on loopback.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../proxy/tests/common/namespace.rs"]
#[allow(unreachable_pub, reason = "the tests of other crates use this, too")]
mod namespace;

use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The modulus of the sums.
const MODULUS: u64 = 4_294_967_291;

/// Bytes 21 to 24 identify a datagram.
fn datagram(identifier: u32) -> Vec<u8> {
    [&[0xc3; 21][..], &identifier.to_be_bytes(), &[0; 1000]].concat()
}

#[test]
fn quacks_follow_the_number_and_any_datagram_resets() {
    namespace::in_namespace(|| {
        let [sender, receiver, quacks] = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        quacks.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut proxy = Command::new(env!("CARGO_BIN_EXE_nsdi24-proxy"))
            .args(["-i", "lo", "--quack-every", "1", "--threshold", "2", "--quack-to"])
            .arg(quacks.local_addr().unwrap().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(proxy.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "listening on 0.0.0.0:5252, capturing on lo\n");

        // Sends a datagram, and returns the count of the quACK that follows, after a check of its
        // first sum.
        let mut sums = vec![0];
        let mut send = |identifier: u32| {
            sender.send_to(&datagram(identifier), receiver.local_addr().unwrap()).unwrap();
            let mut quack = [0; 64];
            let (len, _) = quacks.recv_from(&mut quack).unwrap();
            assert_eq!(len, 8 + 2 * 4 + 5 + 4);
            let field = |at: usize| u32::from_le_bytes(quack[at..at + 4].try_into().unwrap());
            sums.push((sums.last().unwrap() + u64::from(identifier)) % MODULUS);
            let count = field(21);
            let before = sums[sums.len() - 1 - usize::try_from(count).unwrap()];
            let sum = (sums.last().unwrap() + MODULUS - before) % MODULUS;
            assert_eq!((u64::from(field(8)), field(17)), (sum, identifier));
            count
        };
        for number in 1_u32..=20 {
            assert_eq!(send(number.wrapping_mul(0x9e37_79b1)), number);
        }
        // Too short to count.
        sender.send_to(&[0xff; 24], receiver.local_addr().unwrap()).unwrap();
        assert_eq!(send(1), 21);
        // A reset, which does not count itself. The proxy may read it behind later datagrams.
        sender.send_to(&[0x40; 1200], "127.0.0.1:5252").unwrap();
        while send(7) != 1 {}
        assert_eq!(send(8), 2);
        proxy.kill().unwrap();
        proxy.wait().unwrap();
    });
}
