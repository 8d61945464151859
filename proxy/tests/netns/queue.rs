//! Packets that wait in a queue of netfilter, between the kernel and this test in the place of the
//! agent.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

use caps::{CapSet, Capability};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use pnet_packet::ipv4::Ipv4Packet;
use pnet_packet::udp::{UdpPacket, ipv4_checksum};
use sidekick_proxy::testing::queue::{Exempt, Program, Queue, QueueError, Rules, RulesError, Tun};

use crate::common::download::{V4, V6, name, numbered, prefix};
use crate::common::link::{bind, link};
use crate::common::{PATIENCE, in_namespace, run};

/// The number of the queue, and the port whose packets do not pass it.
const QUEUE: u16 = 77;
const EXEMPT: Exempt = Exempt::From(5252);
const LONGEST: u32 = 1024;

/// This host and another, from which packets arrive by `near0`.
struct Hosts {
    sender: UdpSocket,
    receiver: UdpSocket,
    to: SocketAddr,
}

impl Hosts {
    fn new(v6: bool) -> Self {
        let (ours, theirs) = if v6 { V6.near } else { V4.near };
        let at = |ip: &str, port| SocketAddr::new(ip.parse().unwrap(), port).to_string();
        let from = at(theirs, 4000);
        let sender = link("near0", (&prefix(ours), &prefix(theirs)), &[], move || bind(&from));
        let receiver = bind(&at(ours, 7000));
        receiver.set_nonblocking(true).unwrap();
        let hosts = Self { sender, to: receiver.local_addr().unwrap(), receiver };
        // The first packets wait for the other host's address on the link, and may be lost.
        crate::common::until("through", || {
            hosts.send(0);
            if hosts.arrived().is_empty() { Err("no packet arrives".into()) } else { Ok(()) }
        });
        while !hosts.arrived().is_empty() {}
        hosts
    }

    fn send(&self, number: u32) {
        self.sender.send_to(&numbered(number, 1200), self.to).unwrap();
    }

    /// The numbers of what is in the receiver's socket now, without waiting.
    fn arrived(&self) -> Vec<u32> {
        let mut buffer = [0; 2000];
        let mut numbers = Vec::new();
        loop {
            match self.receiver.recv(&mut buffer) {
                Ok(len) => numbers.push(name(&buffer[..len])),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    return numbers;
                }
            }
        }
    }
}

/// Reads until this many packets have arrived. Returns their identifiers and bytes.
fn read(queue: &mut Queue, count: usize) -> Vec<(u32, Vec<u8>)> {
    let mut packets = Vec::new();
    while packets.len() < count {
        let timeout = PollTimeout::try_from(PATIENCE).unwrap();
        let ready = poll(&mut [PollFd::new(queue.as_fd(), PollFlags::POLLIN)], timeout);
        assert_eq!(ready, Ok(1), "{} of {count}", packets.len());
        queue.read(|id, bytes| packets.push((id, bytes.to_vec()))).unwrap();
    }
    assert_eq!(packets.len(), count);
    packets
}

fn near0() -> Vec<String> {
    vec!["near0".to_owned()]
}

fn bound() -> (Queue, Rules) {
    let queue = Queue::bind(QUEUE, LONGEST).unwrap();
    let rules = Rules::set_up(&near0(), QUEUE, EXEMPT).unwrap();
    (queue, rules)
}

/// The rules of the firewall, by whichever program.
fn rules_now() -> String {
    let said = |line: &str| {
        let mut words = line.split(' ');
        let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    ["iptables -t mangle -S", "ip6tables -t mangle -S", "nft list tables"].map(said).concat()
}

fn jumps() -> usize {
    rules_now().matches("-A PREROUTING -j SIDEKICK-77").count()
}

/// A verdict has delivered its packet when the call returns: the test does not wait.
#[test]
fn packets_arrive_in_the_order_of_their_verdicts() {
    in_namespace(|| {
        for v6 in [false, true] {
            let hosts = Hosts::new(v6);
            let (mut queue, rules) = bound();
            (0..50).for_each(|number| hosts.send(number));
            let packets = read(&mut queue, 50);
            let numbers: Vec<_> = packets.iter().map(|(_, bytes)| name(bytes)).collect();
            assert_eq!(numbers, (0..50).collect::<Vec<_>>(), "the order of arrival");
            let version = if v6 { 0x60 } else { 0x45 };
            assert!(packets.iter().all(|(_, bytes)| bytes[0] == version));
            assert_eq!(hosts.arrived(), [0_u32; 0], "they wait");
            for (id, _) in packets.iter().rev() {
                queue.accept(*id);
            }
            assert_eq!(hosts.arrived(), [0_u32; 0], "so do verdicts");
            queue.flush().unwrap();
            assert_eq!(hosts.arrived(), (0..50).rev().collect::<Vec<_>>());
            // A second verdict comes too late.
            queue.accept(packets[0].0);
            queue.flush().unwrap();
            queue.read(|_, _| panic!("no packet waits")).unwrap();
            let counters = queue.counters();
            assert_eq!((counters.read, counters.accepted, counters.late), (50, 51, 1));
            assert_eq!((counters.discarded, counters.unread), (0, 0));
            rules.remove().unwrap();
            drop(queue);
            run("ip link delete near0");
        }
        assert!(!rules_now().to_lowercase().contains("sidekick"), "{}", rules_now());
    });
}

/// Every tenth packet is dropped, and written to the agent's device instead.
#[test]
fn a_packet_by_the_device_keeps_its_place() {
    in_namespace(|| {
        for v6 in [false, true] {
            let hosts = Hosts::new(v6);
            let tun = Tun::open("sidekick0").unwrap();
            let (mut queue, _rules) = bound();
            let mut arrived = Vec::new();
            for first in (0..2000).step_by(50) {
                (first..first + 50).for_each(|number| hosts.send(number));
                for (id, bytes) in read(&mut queue, 50) {
                    if name(&bytes) % 10 == 5 {
                        queue.discard(id);
                        queue.flush().unwrap();
                        tun.send(&bytes).unwrap();
                    } else {
                        queue.accept(id);
                    }
                }
                queue.flush().unwrap();
                arrived.extend(hosts.arrived());
            }
            assert_eq!(arrived, (0..2000).collect::<Vec<_>>());
            assert_eq!(queue.counters().discarded, 200);
            run("ip link delete near0");
        }
    });
}

/// The kernel splits what the other host's kernel has merged, and completes the checksums that it
/// leaves to a network card.
#[test]
fn merged_datagrams_are_split() {
    in_namespace(|| {
        let hosts = Hosts::new(false);
        let (mut queue, _rules) = bound();
        setsockopt(&hosts.sender, UdpGsoSegment, &1200).unwrap();
        let train: Vec<u8> = (0..20).flat_map(|number| numbered(number, 1200)).collect();
        hosts.sender.send_to(&train, hosts.to).unwrap();
        let packets = read(&mut queue, 20);
        for ((id, bytes), number) in packets.iter().zip(0..) {
            let ip = Ipv4Packet::new(bytes).unwrap();
            let udp = UdpPacket::new(&bytes[20..]).unwrap();
            assert_eq!((bytes.len(), name(bytes)), (1228, number));
            let sum = ipv4_checksum(&udp, &ip.get_source(), &ip.get_destination());
            assert_eq!(udp.get_checksum(), sum);
            queue.accept(*id);
        }
        queue.flush().unwrap();
        assert_eq!(hosts.arrived(), (0..20).collect::<Vec<_>>());
    });
}

/// What passes unread overtakes what waits.
#[test]
fn a_full_queue_lets_packets_pass() {
    in_namespace(|| {
        let hosts = Hosts::new(false);
        let mut queue = Queue::bind(QUEUE, 8).unwrap();
        let _rules = Rules::set_up(&near0(), QUEUE, EXEMPT).unwrap();
        (0..20).for_each(|number| hosts.send(number));
        assert_eq!(hosts.arrived(), (8..20).collect::<Vec<_>>());
        for (id, _) in read(&mut queue, 8) {
            queue.accept(id);
        }
        queue.flush().unwrap();
        assert_eq!(hosts.arrived(), (0..8).collect::<Vec<_>>());
        assert_eq!(queue.counters().unread, 0);
    });
}

/// Packets are lost neither when the program ends, nor when it only stops to hold them.
#[test]
fn what_waits_at_the_end_passes() {
    in_namespace(|| {
        let hosts = Hosts::new(false);
        let (mut queue, rules) = bound();
        (0..10).for_each(|number| hosts.send(number));
        // These were read, the others not.
        read(&mut queue, 10);
        (10..20).for_each(|number| hosts.send(number));
        assert_eq!(hosts.arrived(), [0_u32; 0]);
        queue.pass().unwrap();
        assert_eq!(hosts.arrived(), (0..20).collect::<Vec<_>>());
        (20..30).for_each(|number| hosts.send(number));
        assert_eq!(hosts.arrived(), (20..30).collect::<Vec<_>>(), "from then on at once");
        drop(queue);

        let queue = Queue::bind(QUEUE, LONGEST).unwrap();
        (0..10).for_each(|number| hosts.send(number));
        assert_eq!(hosts.arrived(), [0_u32; 0]);
        drop(queue);
        assert_eq!(hosts.arrived(), (0..10).collect::<Vec<_>>());
        // Without a program.
        hosts.send(10);
        assert_eq!(hosts.arrived(), [10]);
        drop(rules);
        assert_eq!(jumps(), 0);
    });
}

/// Packets from the exempt port pass, and so do those of other interfaces, and those of programs
/// without a rule.
#[test]
fn only_what_the_rules_name_waits() {
    in_namespace(|| {
        let hosts = Hosts::new(false);
        let mut queue = Queue::bind(QUEUE, LONGEST).unwrap();
        let port = hosts.sender.local_addr().unwrap().port();
        let rules =
            Rules::set_up(&["lo".to_owned(), "near0".to_owned()], QUEUE, Exempt::From(port))
                .unwrap();
        hosts.send(1);
        assert_eq!(hosts.arrived(), [1], "exempt");
        rules.remove().unwrap();
        let rules = Rules::set_up(&["lo".to_owned()], QUEUE, EXEMPT).unwrap();
        hosts.send(2);
        assert_eq!(hosts.arrived(), [2], "by another interface");
        rules.remove().unwrap();
        hosts.send(3);
        assert_eq!(hosts.arrived(), [3], "without a rule");
        assert_eq!(queue.read(|_, _| panic!("a packet waits")).unwrap(), 0);
    });
}

/// Whether this run of the test program is to be a program with a queue that will be killed.
const HOLDER: &str = "SIDEKICK_TEST_HOLDER";

/// A program with a queue and rules, which holds all packets. As a test it does nothing.
#[test]
fn a_program_that_holds() {
    if std::env::var_os(HOLDER).is_none() {
        return;
    }
    match Queue::bind(QUEUE, LONGEST) {
        Ok(mut queue) => {
            let _rules = Rules::set_up(&near0(), QUEUE, EXEMPT).unwrap();
            fs::write(std::env::var_os(HOLDER).unwrap(), "held").unwrap();
            loop {
                poll(&mut [PollFd::new(queue.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE)
                    .unwrap();
                queue.read(|_, _| ()).unwrap();
            }
        }
        Err(error) => fs::write(std::env::var_os(HOLDER).unwrap(), error.to_string()).unwrap(),
    }
}

/// Starts that program under these words of a command. Returns it, and what it says.
fn holder(under: &[&str]) -> (Child, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let program = std::env::current_exe().unwrap();
    let mut words: Vec<OsString> = under.iter().map(OsString::from).collect();
    words.push(program.into());
    let child = Command::new(&words[0])
        .args(&words[1..])
        .args(["--exact", "queue::a_program_that_holds", "--nocapture"])
        .env(HOLDER, file.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let said = crate::common::until("held", || match fs::read_to_string(file.path()).unwrap() {
        said if said.is_empty() => Err("nothing said".into()),
        said => Ok(said),
    });
    (child, said)
}

#[test]
fn packets_pass_when_the_program_is_killed() {
    in_namespace(|| {
        let hosts = Hosts::new(false);
        let (mut child, said) = holder(&[]);
        assert_eq!(said, "held");
        hosts.send(1);
        assert_eq!(hosts.arrived(), [0_u32; 0]);
        assert!(matches!(Queue::bind(QUEUE, LONGEST), Err(QueueError::Taken(QUEUE))));
        kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        let families = jumps();
        assert!(families > 0, "{}", rules_now());
        (2..10).for_each(|number| hosts.send(number));
        // What it held is lost.
        assert_eq!(hosts.arrived(), (2..10).collect::<Vec<_>>());

        // The next start has rules of its own.
        let (mut queue, rules) = bound();
        assert_eq!(jumps(), families);
        hosts.send(10);
        let packets = read(&mut queue, 1);
        queue.accept(packets[0].0);
        queue.flush().unwrap();
        assert_eq!(hosts.arrived(), [10]);

        // Another program removes them with its own.
        for program in ["iptables", "ip6tables"] {
            run(&format!("{program} -t mangle -F"));
            run(&format!("{program} -t mangle -X"));
        }
        hosts.send(11);
        assert_eq!((hosts.arrived(), jumps()), (vec![11], 0));
        rules.renew(&near0(), EXEMPT).unwrap();
        assert_eq!(jumps(), families);
        drop(queue);
        // As when that one is killed, too.
        std::mem::forget(rules);
        Rules::clean(QUEUE).unwrap();
        assert!(!rules_now().to_lowercase().contains("sidekick"), "{}", rules_now());
        Rules::clean(QUEUE).unwrap();
    });
}

#[test]
fn an_impossible_queue_has_a_sentence() {
    in_namespace(|| {
        let queue = Queue::bind(QUEUE, LONGEST).unwrap();
        let said = Queue::bind(QUEUE, LONGEST).unwrap_err().to_string();
        assert!(said.starts_with("another program has the netfilter queue 77"), "{said}");
        drop(queue);
        let dropped = ["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"];
        let (mut child, said) = holder(&dropped);
        child.wait().unwrap();
        assert!(said.starts_with("a netfilter queue requires CAP_NET_ADMIN"), "{said}");
    });
}

/// The kernel asks for the privilege at each message. So the agent keeps it as long as it holds
/// packets.
#[test]
fn a_verdict_requires_the_privilege() {
    in_namespace(|| {
        let hosts = Hosts::new(false);
        let (mut queue, rules) = bound();
        hosts.send(1);
        let packets = read(&mut queue, 1);
        caps::drop(None, CapSet::Effective, Capability::CAP_NET_ADMIN).unwrap();
        queue.accept(packets[0].0);
        queue.flush().unwrap();
        let error = queue.read(|_, _| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert_eq!(hosts.arrived(), [0_u32; 0]);
        caps::raise(None, CapSet::Effective, Capability::CAP_NET_ADMIN).unwrap();
        queue.pass().unwrap();
        assert_eq!(hosts.arrived(), [1]);
        rules.remove().unwrap();
    });
}

/// Rules that fail leave nothing. Whether nft can have a rule for a queue depends on the kernel.
#[test]
fn rules_by_nft_work_or_have_a_sentence() {
    in_namespace(|| {
        let hosts = Hosts::new(false);
        let mut queue = Queue::bind(QUEUE, LONGEST).unwrap();
        match Rules::set_up_by(Program::Nft, &near0(), QUEUE, EXEMPT) {
            Ok(rules) => {
                hosts.send(1);
                let packets = read(&mut queue, 1);
                queue.accept(packets[0].0);
                queue.flush().unwrap();
                rules.remove().unwrap();
            }
            Err(error) => {
                assert!(matches!(error, RulesError::NoExpression(_)), "{error}");
                let said = error.to_string();
                assert!(said.contains("lacks its module nft_queue: install iptables"), "{said}");
                assert_eq!(said.lines().count(), 1, "{said}");
                hosts.send(1);
            }
        }
        assert_eq!(hosts.arrived(), [1]);
        assert!(!rules_now().contains("sidekick"), "{}", rules_now());
    });
}

/// The time that this thread has had a processor, in nanoseconds.
fn processor_time() -> i64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

/// Prints what a packet costs the agent: the call that reads it, and the verdict, which takes it to
/// the socket of its receiver. The senders' part is not in it, and neither is the wait.
#[test]
fn a_packet_costs_little() {
    in_namespace(|| {
        const PACKETS: u32 = 100_000;
        let hosts = Hosts::new(false);
        let (mut queue, _rules) = bound();
        for together in [1, 4, 32] {
            let (mut reading, mut deciding, mut received) = (0, 0, 0);
            let mut ids = Vec::new();
            for number in 0..PACKETS {
                hosts.send(number);
                if (number + 1) % together != 0 {
                    continue;
                }
                let begun = processor_time();
                queue.read(|id, _| ids.push(id)).unwrap();
                let read = processor_time();
                ids.drain(..).for_each(|id| queue.accept(id));
                queue.flush().unwrap();
                deciding += processor_time() - read;
                reading += read - begun;
                received += hosts.arrived().len();
            }
            assert_eq!(received, PACKETS as usize);
            let each = |time: i64| time as f64 / 1e3 / f64::from(PACKETS);
            let (reading, deciding) = (each(reading), each(deciding));
            eprintln!("{together} a call: {reading:.2} us to read, {deciding:.2} us to accept");
        }
    });
}
