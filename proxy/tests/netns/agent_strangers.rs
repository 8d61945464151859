//! Packets of strangers that a host receives or only sees. About flows in which the host itself has
//! not sent, the agent sends nothing.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use crate::common::link::link;
use crate::common::script::Script;
use crate::common::{Daemon, agent, in_namespace, run};
use serde_json::Value;

/// Sends packets of a call with gaps to the host with this hardware address, and to another one
/// that the link does not have. Prints how many datagrams of UDP the host sent meanwhile, and in
/// the two seconds behind.
const STRANGER: &str = r#"
import select, socket, struct, sys, time
host = b"\x02\x00\x00\x00\x00\x01"
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
link.bind(("near0-peer", 0))
sys.stdin.readline()
sent = 0
def listen(seconds):
    global sent
    end = time.monotonic() + seconds
    while select.select([link], [], [], max(0, end - time.monotonic()))[0]:
        frame = link.recv(4096)
        udp = (frame[12:14], frame[23:24]) == (b"\x08\x00", b"\x11")
        sent += frame[6:12] == host and udp
def frame(hardware, address, number):
    call = struct.pack(">BBHII", 0x80, 111, number, number, 7) + bytes([number % 256]) * 160
    udp = struct.pack(">HHHH", 5004, 4000, 8 + len(call), 0) + call
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), number, 0x4000, 64, 17, 0)
    ip += socket.inet_aton("10.9.0.2") + socket.inet_aton(address)
    total = sum(struct.unpack(">10H", ip))
    total = ~((total & 0xffff) + (total >> 16)) & 0xffff
    ip = ip[:10] + total.to_bytes(2, "big") + ip[12:]
    return hardware + b"\x02\x00\x00\x00\x00\x02\x08\x00" + ip + udp
for number in range(300):
    if number % 7 == 3:
        continue
    link.send(frame(host, "10.9.0.1", number))
    link.send(frame(b"\x02\x00\x00\x00\x00\x77", "10.9.0.77", number))
    listen(0.005)
listen(2)
print(sent, flush=True)
# The link ends with this.
sys.stdin.read()
"#;

/// The datagrams that an agent's host sent while a stranger sent, and the agent's totals. `during`
/// is called all the while with the socket to which some of the packets go.
fn attacked(during: impl Fn(&UdpSocket)) -> (u64, Value) {
    let address = "ip link set near0 address 02:00:00:00:00:01";
    let mut stranger =
        link("near0", ("10.9.0.1/24", "10.9.0.2/24"), &[address], || Script::start(STRANGER, &[]));
    // As under tcpdump. A bridge or a switch that floods shows such packets, too.
    run("ip link set near0 promisc on");
    let socket = UdpSocket::bind("10.9.0.1:4000").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let agent = Daemon::begin(&mut agent("-i near0 --json --metrics off"));
    stranger.tell("begin");
    while !stranger.has_word() {
        during(&socket);
        let _ = socket.recv(&mut [0; 2000]);
    }
    (stranger.hears().parse().unwrap(), agent.stop().summary())
}

/// Sends a receiver's report about the call.
fn report(socket: &UdpSocket) -> std::io::Result<usize> {
    socket.send_to(&[0x80, 201, 0, 1, 0, 0, 0, 9], "10.9.0.2:5004")
}

#[test]
fn strangers_get_no_answer() {
    in_namespace(|| {
        let (sent, totals) = attacked(|_| ());
        assert_eq!(sent, 0, "{totals}");
        assert!(totals["arrived"].as_u64() > Some(400), "the agent saw them: {totals}");
        assert_eq!((&totals["flows"], &totals["markers"]), (&Value::from(0), &Value::from(0)));
    });
}

#[test]
fn nothing_leaves_that_the_firewall_keeps_back() {
    in_namespace(|| {
        run("nft add table inet closed");
        // One argument, as nft takes it.
        let chain =
            "add chain inet closed out { type filter hook output priority 0; policy drop; }";
        assert!(Command::new("nft").arg(chain).status().unwrap().success());
        let (sent, totals) = attacked(|socket| drop(report(socket).unwrap_err()));
        assert_eq!(sent, 0, "{totals}");
    });
}

#[test]
fn a_flow_in_which_the_host_sends_is_helped() {
    in_namespace(|| {
        let (sent, totals) = attacked(|socket| assert_eq!(report(socket).unwrap(), 8));
        assert!(totals["markers"].as_u64() > Some(0) && sent > 0, "{totals}");
        assert_eq!(totals["flows"], 1, "not the other host's: {totals}");
    });
}
