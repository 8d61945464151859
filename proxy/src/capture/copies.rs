//! Captures of what travels towards clients, for the copies that the proxy keeps (SPEC.md, section
//! 6.8).
//!
//! A packet to a client leaves by the interface on which the client's own packets arrive. The
//! kernel shows a leaving packet behind the interface's queueing discipline, so a datagram that
//! this queue drops is not copied, and its sender learns of the congestion. Loopback shows each
//! packet twice: only the arrival counts. On a mirror port nothing leaves: with promiscuous mode,
//! packets to other machines count, too.
//!
//! A filter in the kernel passes the datagrams of few clients alone, or of one thread's clients, so
//! other traffic costs no more than this filter.
//!
//! The worker copies each datagram out of the ring. The ring cannot hold the copies for their time.
//! The kernel reuses its slots in the order of arrival, so a busy client would push out the copies
//! of others. A slot is also as long for a short datagram as for a full one.

use std::net::IpAddr;
use std::os::fd::AsFd;

use nix::libc::{PACKET_LOOPBACK, PACKET_OTHERHOST, PACKET_OUTGOING, sock_filter};

use super::address::{End, load_word, word};
use super::bpf::{IF_EQUAL, LOAD_BYTE, MODULO, PACKET_TYPE, RETURN, op};
use super::error::CaptureError;
use super::interface::Capture;
use super::open::{Filtered, Purpose};
use super::settings::{Direction, Settings};
use super::{fanout, socket};
use crate::packet::Link;

/// Bytes of packets that may wait, if the captures that count have more: 1024 packets. A packet
/// without room is not copied, and harms nothing else.
const BUFFER: usize = 2 << 20;
/// The most clients that the filter names one by one. Each costs an instruction in the kernel for
/// each packet to another client.
const MAX_NAMED: usize = 64;
const ETHERNET_LEN: u32 = 14;

/// A capture of what travels towards clients on one interface, for one thread.
#[derive(Debug)]
pub(crate) struct CopyCapture {
    /// The capture, without any datagram before [`CopyCapture::select`].
    pub(crate) capture: Capture,
    link: Link,
    side: Side,
}

/// Which packets of an interface travel towards clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Leaving,
    /// Those that leave, and those to other machines.
    LeavingOrForeign,
    /// Those that arrive, on loopback.
    Looped,
}

/// Clients whose datagrams a capture shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    /// Those with these addresses.
    Named(Vec<IpAddr>),
    /// All clients of the thread with this index, of this many threads.
    OfShard(u16, u16),
}

impl Clients {
    /// Those with these addresses, or, if they are many, all of this shard.
    pub(crate) fn new(
        addresses: impl ExactSizeIterator<Item = IpAddr>,
        (index, of): (u16, u16),
    ) -> Self {
        if addresses.len() <= MAX_NAMED {
            Self::Named(addresses.collect())
        } else {
            Self::OfShard(index, of)
        }
    }
}

/// The kernel's part of a [`CopyCapture`]. Opening it takes milliseconds, so one is open before a
/// session asks for copies, at the cost of memory alone.
#[derive(Debug)]
pub(crate) struct SpareCapture {
    socket: Filtered,
    promiscuous: bool,
}

impl SpareCapture {
    /// Opens one for the interface called `name`.
    ///
    /// # Errors
    /// As for [`open`](super::open).
    pub(crate) fn open(name: &str, settings: Settings) -> Result<Self, CaptureError> {
        let settings = Settings { buffer: Self::buffer(settings), ..settings };
        let socket = Filtered::open(name, settings, Purpose::Copies)?;
        Ok(Self { socket, promiscuous: settings.promiscuous })
    }

    /// The bytes of packets that may wait in each.
    pub(crate) fn buffer(settings: Settings) -> usize {
        settings.buffer.min(BUFFER)
    }
}

impl CopyCapture {
    /// Begins a capture, which shows no packets at first.
    ///
    /// # Errors
    /// When the interface is gone, or its link type is not supported.
    pub(crate) fn begin(spare: SpareCapture) -> Result<Self, CaptureError> {
        let (interface, link, source) = spare.socket.bind()?;
        let side = match (interface.is_loopback(), spare.promiscuous) {
            (true, _) => Side::Looped,
            (false, true) => Side::LeavingOrForeign,
            (false, false) => Side::Leaving,
        };
        let direction = match side {
            Side::Leaving => Direction::Leaving,
            Side::LeavingOrForeign | Side::Looped => Direction::Arriving,
        };
        let capture = Capture::new(&interface, link, direction, source).silent();
        Ok(Self { capture, link, side })
    }

    /// Shows only the datagrams of these clients from now on.
    ///
    /// # Errors
    /// When the kernel does not accept the filter.
    pub(crate) fn select(&self, clients: &Clients) -> Result<(), CaptureError> {
        let mut filter = filter(self.link, self.side, clients);
        let refused = |cause| CaptureError::Filter { name: self.capture.name().to_owned(), cause };
        socket::filter_by(&self.capture.as_fd(), &mut filter).map_err(refused)
    }
}

/// The program that returns how many bytes of a packet to keep: all or none.
fn filter(link: Link, side: Side, clients: &Clients) -> Vec<sock_filter> {
    const WHOLE_PACKET: u32 = u32::MAX;

    let drop_packet = op(RETURN, 0, 0, 0);
    let mut program = vec![op(LOAD_BYTE, PACKET_TYPE, 0, 0)];
    let of_type = |kind, then, or_else| op(IF_EQUAL, u32::from(kind), then, or_else);
    match side {
        Side::Leaving => program.extend([of_type(PACKET_OUTGOING, 1, 0), drop_packet]),
        Side::LeavingOrForeign => program.extend([
            of_type(PACKET_OUTGOING, 2, 0),
            of_type(PACKET_OTHERHOST, 1, 0),
            drop_packet,
        ]),
        Side::Looped => program.extend([
            of_type(PACKET_OUTGOING, 1, 0),
            of_type(PACKET_LOOPBACK, 0, 1),
            drop_packet,
        ]),
    }
    let link_len = match link {
        Link::Ethernet => ETHERNET_LEN,
        Link::Ip => 0,
    };
    load_word(&mut program, link_len, End::UdpDestination);
    match clients {
        Clients::Named(addresses) => {
            let mut words: Vec<_> = addresses.iter().copied().map(word).collect();
            words.truncate(MAX_NAMED);
            // Each test jumps over those that follow and over the end.
            let tests = (0..words.len()).rev().filter_map(|behind| u8::try_from(behind + 1).ok());
            program.extend(words.iter().zip(tests).map(|(word, to)| op(IF_EQUAL, *word, to, 0)));
        }
        Clients::OfShard(index, of) => {
            program.extend(fanout::spread());
            program.extend([
                op(MODULO, u32::from((*of).max(1)), 0, 0),
                op(IF_EQUAL, u32::from(*index), 1, 0),
            ]);
        }
    }
    program.extend([drop_packet, op(RETURN, WHOLE_PACKET, 0, 0)]);
    program
}

#[cfg(test)]
mod tests {
    use nix::libc::PACKET_HOST;
    use sidekick_protocol::Shard;

    use super::super::bpf::run_for;
    use super::*;
    use crate::packet::MAX_TAGS;

    /// A frame to this address, with this many VLAN tags, and the EtherType as the kernel knows it.
    fn frame(link: Link, to: IpAddr, protocol: u8, tags: usize) -> (Vec<u8>, u16) {
        let (ip, inner) = match to {
            IpAddr::V4(to) => {
                let fields = [0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, protocol, 0, 0];
                ([&fields[..], &[198, 51, 100, 7], &to.octets(), &[7; 40]].concat(), 0x0800_u16)
            }
            IpAddr::V6(to) => {
                let fields = [0x60, 0, 0, 0, 0, 40, protocol, 64];
                ([&fields[..], &[0x20; 16], &to.octets(), &[7; 40]].concat(), 0x86dd)
            }
        };
        if link == Link::Ip {
            return (ip, inner);
        }
        let tag = [0x81, 0x00, 0x20, 0x07].repeat(tags);
        let outer = if tags == 0 { inner } else { 0x8100 };
        ([&[2; 12][..], &tag, &inner.to_be_bytes(), &ip].concat(), outer)
    }

    fn passes(link: Link, side: Side, clients: &Clients, to: &str, tags: usize, kind: u8) -> bool {
        let (frame, ethertype) = frame(link, to.parse().unwrap(), 17, tags);
        run_for(&filter(link, side, clients), &frame, ethertype, kind) != 0
    }

    #[test]
    fn datagrams_to_named_clients_pass() {
        let named = ["10.0.0.7", "2001:db8::7", "10.0.0.9"].map(|ip| ip.parse().unwrap());
        let clients = Clients::new(named.into_iter(), (0, 1));
        for link in [Link::Ethernet, Link::Ip] {
            for tags in 0..=if link == Link::Ip { 0 } else { MAX_TAGS } {
                let passes =
                    |to: &str| passes(link, Side::Leaving, &clients, to, tags, PACKET_OUTGOING);
                assert!(named.iter().all(|to| passes(&to.to_string())), "{link:?} {tags}");
                for other in ["10.0.0.8", "2001:db8::8", "0.0.0.0"] {
                    assert!(!passes(other), "{link:?} {tags} {other}");
                }
            }
            let none = Clients::Named(Vec::new());
            assert!(!passes(link, Side::Leaving, &none, "10.0.0.7", 0, PACKET_OUTGOING));
            for (to, protocol) in [("10.0.0.7", 6), ("2001:db8::7", 6), ("2001:db8::7", 58)] {
                let (frame, ethertype) = frame(link, to.parse().unwrap(), protocol, 0);
                let program = filter(link, Side::Leaving, &clients);
                let kept = run_for(&program, &frame, ethertype, PACKET_OUTGOING);
                assert_eq!(kept, 0, "{to} {protocol} is no datagram");
                for len in 0..frame.len() {
                    run_for(&program, &frame[..len], ethertype, PACKET_OUTGOING);
                }
            }
        }
    }

    #[test]
    fn many_clients_pass_by_their_shard() {
        let addresses = (0..=MAX_NAMED).map(|n| IpAddr::from([10, 1, 0, n.to_be_bytes()[7]]));
        let all: Vec<_> = addresses.collect();
        assert!(matches!(Clients::new(all[1..].iter().copied(), (1, 3)), Clients::Named(_)));
        let clients = Clients::new(all.into_iter(), (1, 3));
        assert_eq!(clients, Clients::OfShard(1, 3));
        let mut passed = 0;
        for n in 0..300_u32 {
            for to in [
                IpAddr::from((0x0a02_0000 + n).to_be_bytes()),
                IpAddr::from((0x2001_0db8_u128 << 96 | u128::from(n) << 40).to_be_bytes()),
            ] {
                let ours = Shard::of_source(to, 3) == 1;
                let to = to.to_string();
                let side = Side::Leaving;
                assert_eq!(
                    passes(Link::Ethernet, side, &clients, &to, 1, PACKET_OUTGOING),
                    ours,
                    "{to}"
                );
                passed += usize::from(ours);
            }
        }
        assert!((150..250).contains(&passed), "{passed}");
    }

    #[test]
    fn a_packet_counts_once_on_its_way() {
        let clients = Clients::OfShard(0, 1);
        for (side, shown) in [
            (Side::Leaving, [false, true, false]),
            (Side::LeavingOrForeign, [false, true, true]),
            (Side::Looped, [true, false, true]),
        ] {
            let kinds = [PACKET_HOST, PACKET_OUTGOING, PACKET_OTHERHOST];
            let found = kinds.map(|kind| passes(Link::Ip, side, &clients, "10.0.0.7", 0, kind));
            assert_eq!(found, shown, "{side:?}");
        }
    }
}
