//! The datagrams of a ClientHello that is too long for one.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The Length field of an Initial packet at the beginning of a datagram (RFC 9000, section 17.2.2).
fn length(datagram: &[u8]) -> u16 {
    // Before it: the first byte, the version, two connection IDs, and a token.
    let destination = 5;
    let source = destination + 1 + usize::from(datagram[destination]);
    let token = source + 1 + usize::from(datagram[source]);
    let at = token + 1 + usize::from(datagram[token]);
    u16::from_be_bytes([datagram[at] & 0x3f, datagram[at + 1]])
}

/// Some servers drop the first part of a ClientHello if the second part arrives first. They take
/// seconds to recover.
#[test]
fn the_first_flight_goes_out_in_order() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let url = format!("https://{}/x", server.local_addr().unwrap());
    for _ in 0..10 {
        let mut client = Command::new(env!("CARGO_BIN_EXE_h3-upload"))
            .args(["/dev/null", &url, "--insecure", "--quiet"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut datagram = [0; 2000];
        let lengths = [(); 2].map(|()| {
            let (len, _) = server.recv_from(&mut datagram).unwrap();
            length(&datagram[..len])
        });
        client.kill().unwrap();
        client.wait().unwrap();
        // The first part fills its datagram.
        assert!(lengths[0] > lengths[1], "{lengths:?}");
        // Removes this client's other datagrams before the next one starts.
        server.set_nonblocking(true).unwrap();
        while server.recv_from(&mut [0; 2000]).is_ok() {}
        server.set_nonblocking(false).unwrap();
    }
}
