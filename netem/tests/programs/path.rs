//! The emulated path, end to end. Real sockets send datagrams in real namespaces, and the tests
//! compare their fate with the link model.
//!
//! Each test starts this program again inside an enclosure, where it does its work.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use sidekick_netem::namespace::Namespace;
use sidekick_netem::path::{Backend, Path, streams};
use sidekick_netem::scenario::{Direction, Scenario};
use sidekick_netem::topology::{RECEIVER, RECEIVER_V6, SENDER, SENDER_V6};

use crate::support::enclosed::in_enclosure;
use crate::support::survivors::survivors;

/// Datagrams that are sent before the receiver reads the survivors. They fit the buffer of every
/// socket.
const BATCH: usize = 40;
/// A datagram that does not arrive within this time is lost.
const LONG: Duration = Duration::from_secs(20);

fn scenario(settings: &[&str]) -> Scenario {
    let mut scenario = Scenario::load("upload-paper").unwrap();
    // Without a rate limit, the order of events does not depend on the load of this machine.
    scenario
        .apply(&["near.rate_mbit=unlimited", "far.rate_mbit=unlimited", "far.delay_ms=2"])
        .unwrap();
    scenario.apply(settings).unwrap();
    scenario
}

fn socket(host: &Namespace, address: impl Into<IpAddr>) -> UdpSocket {
    let address: IpAddr = address.into();
    let socket = host.enter(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

/// Sends the numbers 0.. `count`. Asserts that exactly `expected` arrive, unchanged and in order.
fn carry(from: &UdpSocket, to: &UdpSocket, count: u32, expected: &[u32]) {
    let numbers: Vec<u32> = (0..count).collect();
    let mut expected = expected.iter().peekable();
    let payload = |number: u32| -> Vec<u8> {
        let length = 4 + (number as usize * 37) % 1400;
        number
            .to_be_bytes()
            .into_iter()
            .chain((4..length).map(|i| i.to_le_bytes()[0] ^ number.to_le_bytes()[0]))
            .collect()
    };
    for batch in numbers.chunks(BATCH) {
        for &number in batch {
            from.send_to(&payload(number), to.local_addr().unwrap()).unwrap();
        }
        while let Some(&number) = expected.next_if(|number| batch.contains(number)) {
            let mut buffer = [0_u8; 2048];
            let (length, _) =
                to.recv_from(&mut buffer).unwrap_or_else(|error| panic!("{number}: {error}"));
            assert_eq!(buffer[..length], payload(number), "datagram {number} expected");
        }
    }
}

#[test]
fn the_path_loses_the_packets_of_the_model() {
    in_enclosure(|| {
        let seed = 42;
        let scenario = scenario(&["near.loss_percent=5", "far.loss_percent=2"]);
        let mut path = Path::build(Backend::User, &scenario, seed).unwrap();
        let (sender, receiver) =
            (socket(&path.topology().sender, SENDER), socket(&path.topology().receiver, RECEIVER));
        let count = 3000;
        let sent: Vec<u32> = (0..count).collect();

        let at_proxy =
            survivors(&sent, &scenario.near, Direction::ToReceiver, seed, streams::NEAR.0);
        let arrived =
            survivors(&at_proxy, &scenario.far, Direction::ToReceiver, seed, streams::FAR.0);
        carry(&sender, &receiver, count, &arrived);

        let back_at_proxy =
            survivors(&sent, &scenario.far, Direction::ToSender, seed, streams::FAR.1);
        let back =
            survivors(&back_at_proxy, &scenario.near, Direction::ToSender, seed, streams::NEAR.1);
        carry(&receiver, &sender, count, &back);

        let counters = path.counters().unwrap();
        assert_eq!(counters.overruns(), 0, "{counters:?}");
        for (link, entered, left) in [
            (counters.near.to_receiver.link, sent.len(), at_proxy.len()),
            (counters.far.to_receiver.link, at_proxy.len(), arrived.len()),
            (counters.far.to_sender.link, sent.len(), back_at_proxy.len()),
            (counters.near.to_sender.link, back_at_proxy.len(), back.len()),
        ] {
            assert_eq!(link.packets, entered as u64, "seed {seed}: {counters:?}");
            assert_eq!(link.lost_random, (entered - left) as u64, "seed {seed}: {counters:?}");
            assert_eq!(link.lost_queue, 0, "seed {seed}: {counters:?}");
        }
        // Five standard deviations of the binomial distribution, for both losses together.
        let chance = 1.0 - 0.95 * 0.98;
        let (n, lost) = (f64::from(count), (sent.len() - arrived.len()) as f64);
        assert!(
            (lost - n * chance).abs() < 5.0 * (n * chance * (1.0 - chance)).sqrt(),
            "seed {seed}: {lost} lost"
        );
    });
}

#[test]
fn a_corrupted_packet_is_lost_at_its_receiver() {
    in_enclosure(|| {
        let seed = 6;
        let scenario = scenario(&["near.corrupt_percent=30", "near.loss_percent=10"]);
        let directory = tempfile::tempdir().unwrap();
        let mut path =
            Path::build_with_pcap(Backend::User, &scenario, seed, Some(directory.path())).unwrap();
        let (sender, receiver) =
            (socket(&path.topology().sender, SENDER), socket(&path.topology().receiver, RECEIVER));
        let count = 300;
        let sent: Vec<u32> = (0..count).collect();
        let unharmed =
            survivors(&sent, &scenario.near, Direction::ToReceiver, seed, streams::NEAR.0);
        // Once the last packet has arrived, none is on its way.
        assert_eq!(unharmed.last(), sent.last(), "choose another seed");
        carry(&sender, &receiver, count, &unharmed);
        let near = path.counters().unwrap().near.to_receiver.link;
        assert_eq!(
            near.corrupted + near.lost_random,
            u64::from(count) - unharmed.len() as u64,
            "{near:?}"
        );
        drop(path);
        let frames = |name: &str| {
            let file = std::fs::read(directory.path().join(name)).unwrap();
            let (_, capture) = pcap_parser::parse_pcap(&file).unwrap();
            capture.blocks.len() as u64
        };
        assert_eq!(
            (frames("near-sent.pcap"), frames("near-delivered.pcap")),
            (near.packets, near.delivered)
        );
    });
}

#[test]
fn nothing_but_the_experiment_is_on_the_path() {
    in_enclosure(|| {
        let mut path = Path::build(Backend::User, &scenario(&["near.loss_percent=0"]), 1).unwrap();
        let (sender, receiver) =
            (socket(&path.topology().sender, SENDER), socket(&path.topology().receiver, RECEIVER));
        carry(&sender, &receiver, 10, &(0..10).collect::<Vec<_>>());
        carry(&receiver, &sender, 10, &(0..10).collect::<Vec<_>>());
        let counters = path.counters().unwrap();
        for segment in [counters.near, counters.far] {
            assert_eq!(segment.to_receiver.link.packets, 10, "{counters:?}");
            assert_eq!(segment.to_sender.link.packets, 10, "{counters:?}");
        }

        path.topology().add_ipv6().unwrap();
        let (sender, receiver) = (
            socket(&path.topology().sender, SENDER_V6),
            socket(&path.topology().receiver, RECEIVER_V6),
        );
        carry(&sender, &receiver, 10, &(0..10).collect::<Vec<_>>());
        carry(&receiver, &sender, 10, &(0..10).collect::<Vec<_>>());
        let counters = path.counters().unwrap();
        for segment in [counters.near, counters.far] {
            assert_eq!(segment.to_receiver.link.packets, 20, "{counters:?}");
            assert_eq!(segment.to_sender.link.packets, 20, "{counters:?}");
        }
    });
}

#[test]
fn the_kernel_makes_links_without_loss_and_delay() {
    in_enclosure(|| {
        let scenario = Scenario::with(
            "upload-paper",
            &["near.delay_ms=0", "near.loss_percent=0", "far.delay_ms=0"],
        )
        .unwrap();
        let mut path = Path::build(Backend::Tc, &scenario, 1).unwrap();
        let (sender, receiver) =
            (socket(&path.topology().sender, SENDER), socket(&path.topology().receiver, RECEIVER));
        let count = 400;
        let all: Vec<u32> = (0..count).collect();
        carry(&sender, &receiver, count, &all);
        carry(&receiver, &sender, count, &all);
        let counters = path.counters().unwrap();
        for segment in [counters.near, counters.far] {
            for direction in [segment.to_receiver, segment.to_sender] {
                assert_eq!(direction.link.delivered, u64::from(count), "{counters:?}");
                assert_eq!(direction.link.lost(), 0, "{counters:?}");
            }
        }
    });
}

#[test]
fn the_kernels_queue_drops_its_tail() {
    in_enclosure(|| {
        let mut scenario = Scenario::load("upload-paper").unwrap();
        let settings = [
            "near.delay_ms=0",
            "near.loss_percent=0",
            "near.rate_mbit=unlimited",
            "far.delay_ms=0",
        ];
        scenario.apply(&settings).unwrap();
        scenario.apply(&["far.rate_mbit=0.1", "far.queue_bytes=3000"]).unwrap();
        let mut path = Path::build(Backend::Tc, &scenario, 1).unwrap();
        let (sender, receiver) =
            (socket(&path.topology().sender, SENDER), socket(&path.topology().receiver, RECEIVER));
        // At 0.1 Mbit/s, a frame of 1,042 bytes takes 83 ms. Of a burst, two frames pass in the
        // bucket, and the queue holds two.
        for number in 0..50_u8 {
            sender.send_to(&[number; 1000], receiver.local_addr().unwrap()).unwrap();
        }
        let mut buffer = [0_u8; 2048];
        for number in 0..3_u8 {
            let (length, _) = receiver.recv_from(&mut buffer).unwrap();
            assert_eq!((length, buffer[0]), (1000, number));
        }
        let link = path.counters().unwrap().far.to_receiver.link;
        assert!(link.lost_queue >= 40 && link.lost_random == 0, "{link:?}");
    });
}

#[test]
fn a_kernel_without_netem_is_reported() {
    in_enclosure(|| {
        let scenario = Scenario::load("upload-paper").unwrap();
        // If the kernel has netem, the path works. If not, the one sentence states the remedy.
        if let Err(error) = Path::build(Backend::Tc, &scenario, 1) {
            assert_eq!(error.to_string(), "this kernel has no sch_netem; use --backend user");
        }
    });
}
