//! The packet socket of a capture: creates, filters and enlarges it, for the ring and for pnet.
//!
//! pnet can create the socket itself. But that socket would receive every protocol on every
//! interface until it is bound, with copies of outgoing packets, and would not mark merged frames.

use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, getsockname, getsockopt, setsockopt,
    socket, sockopt,
};
use nix::sys::utsname::uname;
use pnet_datalink::{Channel, ChannelType, Config, DataLinkReceiver, NetworkInterface};

use super::bpf::{AND, IF_EQUAL, LOAD_BYTE, LOAD_HALF, RETURN, op};
use super::source::LONGEST_READ;
use crate::packet::Link;
use options::{AttachFilter, IgnoreOutgoing, Statistics, VnetHeader};

// `if_arp.h`: links whose packets begin with an Ethernet header.
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;
// `if_arp.h`: links on which a packet socket sees the IP header first.
const ARPHRD_PPP: u16 = 512;
const ARPHRD_RAWIP: u16 = 519;
const ARPHRD_TUNNEL: u16 = 768;
const ARPHRD_TUNNEL6: u16 = 769;
const ARPHRD_SIT: u16 = 776;
const ARPHRD_IPGRE: u16 = 778;
const ARPHRD_NONE: u16 = 0xfffe;

/// Packet-socket options without a name in nix. The types are those that `packet(7)` and
/// `socket(7)` document.
pub(super) mod options {
    use nix::{getsockopt_impl, libc, setsockopt_impl, sockopt_impl};

    sockopt_impl!(
        /// Ignore what this machine sends through the interface (Linux 4.20).
        IgnoreOutgoing,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_IGNORE_OUTGOING,
        bool
    );
    sockopt_impl!(
        /// Put a `virtio_net_hdr` before each packet.
        VnetHeader,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_VNET_HDR,
        bool
    );
    sockopt_impl!(
        /// The layout of a ring.
        RingVersion,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_VERSION,
        libc::c_int
    );
    sockopt_impl!(
        /// A ring of slots that the kernel fills.
        RingRequest,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_RX_RING,
        libc::tpacket_req
    );
    sockopt_impl!(
        /// Whether to queue whole packets that are longer than a slot, too.
        CopyThreshold,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_COPY_THRESH,
        libc::c_int
    );
    sockopt_impl!(
        /// The group of sockets that share packets, and how.
        Fanout,
        Both,
        libc::SOL_PACKET,
        libc::PACKET_FANOUT,
        libc::c_int
    );
    sockopt_impl!(
        /// The classic BPF program that chooses the socket of a packet.
        FanoutProgram,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_FANOUT_DATA,
        libc::sock_fprog
    );
    sockopt_impl!(
        /// Packets and drops since the last reading.
        Statistics,
        GetOnly,
        libc::SOL_PACKET,
        libc::PACKET_STATISTICS,
        libc::tpacket_stats
    );
    sockopt_impl!(
        /// A classic BPF program that chooses the packets to keep.
        AttachFilter,
        SetOnly,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_FILTER,
        libc::sock_fprog
    );
}

/// Which options the kernel granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    /// A virtio header precedes every packet.
    pub(super) vnet_header: bool,
    /// The socket does not receive copies of outgoing packets.
    pub(super) incoming_only: bool,
}

/// Opens a packet socket whose queue holds `buffer` bytes, for arriving packets alone if
/// `incoming`. It receives nothing until it is bound to an interface.
pub(super) fn open(buffer: usize, incoming: bool) -> io::Result<(OwnedFd, Granted)> {
    // Protocol 0: the socket must not receive packets of other interfaces before the bind.
    let fd = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?;
    // More than the system's limit (net.core.rmem_max) requires CAP_NET_ADMIN, which the daemon has
    // given up when an interface returns. Then the queue for pnet has only that limit; a ring has
    // memory of its own.
    if setsockopt(&fd, sockopt::RcvBufForce, &buffer).is_err() {
        setsockopt(&fd, sockopt::RcvBuf, &buffer)?;
    }
    let granted = Granted {
        vnet_header: setsockopt(&fd, VnetHeader, &true).is_ok(),
        incoming_only: incoming && setsockopt(&fd, IgnoreOutgoing, &true).is_ok(),
    };
    Ok((fd, granted))
}

/// Binds the socket to an interface. Returns pnet's reader of the socket.
pub(super) fn bind(
    fd: &OwnedFd,
    interface: &NetworkInterface,
    promiscuous: bool,
) -> io::Result<Box<dyn DataLinkReceiver>> {
    let config = Config {
        read_buffer_size: LONGEST_READ,
        write_buffer_size: 0,
        // The worker reads only when packets wait.
        read_timeout: Some(Duration::ZERO),
        promiscuous,
        socket_fd: Some(fd.try_clone()?.into_raw_fd()),
        ..Config::default()
    };
    match pnet_datalink::channel(interface, config)? {
        Channel::Ethernet(_, receiver) => Ok(receiver),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// The address to which a socket sends packets of this EtherType by this interface. The kernel
/// reports it only for a socket bound to that EtherType, so this binds the socket, and the caller
/// must bind it again.
pub(super) fn link_address(
    fd: &OwnedFd,
    interface: &NetworkInterface,
    ethertype: u16,
) -> io::Result<SockaddrStorage> {
    let config = Config {
        read_buffer_size: 0,
        write_buffer_size: 0,
        channel_type: ChannelType::Layer3(ethertype),
        promiscuous: false,
        socket_fd: Some(fd.try_clone()?.into_raw_fd()),
        ..Config::default()
    };
    pnet_datalink::channel(interface, config)?;
    Ok(getsockname(fd.as_raw_fd())?)
}

/// The first header of packets of a bound socket, or the number of an unsupported link type.
///
/// The socket knows it. Sysfs may show another network namespace than this process has.
pub(super) fn link(fd: &impl AsFd) -> io::Result<Result<Link, u16>> {
    // Not as a `LinkAddr`: the kernel's answer is shorter than nix requires.
    let address: SockaddrStorage = getsockname(fd.as_fd().as_raw_fd())?;
    let address = address.as_link_addr().ok_or(Errno::EAFNOSUPPORT)?;
    Ok(match address.hatype() {
        ARPHRD_ETHER | ARPHRD_LOOPBACK => Ok(Link::Ethernet),
        ARPHRD_PPP | ARPHRD_RAWIP | ARPHRD_TUNNEL | ARPHRD_TUNNEL6 | ARPHRD_SIT | ARPHRD_IPGRE
        | ARPHRD_NONE => Ok(Link::Ip),
        other => Err(other),
    })
}

/// Makes the kernel discard what cannot be UDP, before it queues and copies packets.
pub(super) fn keep_udp(fd: &impl AsFd, link: Link) -> io::Result<()> {
    filter_by(fd, &mut filter(link))
}

/// Makes the kernel discard every packet.
pub(super) fn keep_nothing(fd: &impl AsFd) -> io::Result<()> {
    filter_by(fd, &mut [op(RETURN, 0, 0, 0)])
}

/// Makes the kernel discard the packets for which a program returns 0.
pub(super) fn filter_by(fd: &impl AsFd, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    // The kernel copies the program during the call.
    Ok(setsockopt(fd, AttachFilter, &libc::sock_fprog { len, filter: program.as_mut_ptr() })?)
}

/// Packets since the last call that the kernel had no room for.
pub(super) fn drops(fd: &impl AsFd) -> u64 {
    getsockopt(fd, Statistics).map_or(0, |seen| seen.tp_drops.into())
}

/// Whether the kernel can describe where merged datagrams end: Linux from 6.2 on. An older one
/// returns an error instead of such a frame, and leaves a ring stuck.
pub(super) fn describes_merged_datagrams() -> bool {
    let Ok(system) = uname() else { return true };
    let release = system.release().to_string_lossy();
    is_at_least(&release, (6, 2))
}

/// Whether a kernel's release, such as `6.1.0-13-amd64`, is at least this version. An unreadable
/// release is.
fn is_at_least(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= version,
        _ => true,
    }
}

/// Removes and returns the error that is pending on the socket.
pub(super) fn pending_error(fd: &impl AsFd) -> Errno {
    getsockopt(fd, sockopt::SocketError).map_or_else(|error| error, Errno::from_raw)
}

/// A coarse filter. All IPv6 packets but TCP and ICMPv6 pass, since UDP may follow an extension
/// header. Frames with VLAN tags pass, too. The parser decides about these.
pub(super) fn filter(link: Link) -> Vec<libc::sock_filter> {
    const WHOLE_PACKET: u32 = u32::MAX;

    // The test of the IP version jumps to the IPv4 test, to the IPv6 test, or past both.
    let (mut program, ip, versions) = match link {
        Link::Ethernet => (vec![op(LOAD_HALF, 12, 0, 0)], 14, [0x0800, 0x86dd]),
        Link::Ip => (vec![op(LOAD_BYTE, 0, 0, 0), op(AND, 0xf0, 0, 0)], 0, [0x40, 0x60]),
    };
    program.extend([
        op(IF_EQUAL, versions[0], 1, 0),
        op(IF_EQUAL, versions[1], 2, 6),
        // IPv4: its protocol field.
        op(LOAD_BYTE, ip + 9, 0, 0),
        op(IF_EQUAL, 17, 4, 3),
        // IPv6: its next header.
        op(LOAD_BYTE, ip + 6, 0, 0),
        op(IF_EQUAL, 6, 1, 0),
        op(IF_EQUAL, 58, 0, 1),
        op(RETURN, 0, 0, 0),
        op(RETURN, WHOLE_PACKET, 0, 0),
    ]);
    program
}

#[cfg(test)]
mod tests {
    use super::super::bpf::run;
    use super::*;

    fn packet(link: Link, version: u8, protocol: u8) -> Vec<u8> {
        let mut ip = vec![0; 40];
        ip[0] = version << 4;
        ip[if version == 4 { 9 } else { 6 }] = protocol;
        match link {
            Link::Ip => ip,
            Link::Ethernet => {
                let ethertype: [u8; 2] = if version == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
                [&[2; 12][..], &ethertype, &ip].concat()
            }
        }
    }

    #[test]
    fn the_filter_keeps_udp_and_what_may_hide_it() {
        for link in [Link::Ethernet, Link::Ip] {
            let program = filter(link);
            for protocol in 0..=255 {
                let kept = run(&program, &packet(link, 4, protocol), 0) != 0;
                assert_eq!(kept, protocol == 17, "{link:?} IPv4 {protocol}");
                let kept = run(&program, &packet(link, 6, protocol), 0) != 0;
                assert_eq!(kept, protocol != 6 && protocol != 58, "{link:?} IPv6 {protocol}");
            }
        }
        let mut tagged = packet(Link::Ethernet, 4, 6);
        tagged[12..14].copy_from_slice(&[0x81, 0x00]);
        assert_eq!(run(&filter(Link::Ethernet), &tagged, 0), u32::MAX, "tags are for the parser");
    }

    #[test]
    fn releases_are_read_as_numbers() {
        for (release, later) in [
            ("6.1.0-13-amd64", false),
            ("5.15.0", false),
            ("6.2", true),
            ("6.18.5+rpt-rpi-v8", true),
            ("10.0-rc1", true),
            ("unheard of", true),
        ] {
            assert_eq!(is_at_least(release, (6, 2)), later, "{release}");
        }
    }

    #[test]
    fn the_filter_ends_on_short_packets() {
        for link in [Link::Ethernet, Link::Ip] {
            let whole = packet(link, 4, 17);
            for len in 0..whole.len() {
                run(&filter(link), &whole[..len], 0);
            }
        }
    }
}
