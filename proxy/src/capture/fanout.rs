//! One interface, many threads: the kernel gives each packet to the thread that serves its source.
//!
//! The rule is [`Shard::of_source`](sidekick_protocol::Shard::of_source) as a classic BPF program.
//! So one thread sees all packets of a source, and all of its messages at the proxy's port, and
//! shares nothing with the others.

use std::io;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{getsockopt, setsockopt};

use super::address::{End, load_word};
use super::bpf::{MULTIPLY, RETURN_A, SHIFT_RIGHT, op};
use super::socket::options::{Fanout, FanoutProgram};

/// Makes the bound sockets of one interface a group. The socket at the index of a shard receives
/// the packets of this shard's sources.
///
/// Returns whether the group ignores what this machine sends, as its sockets alone do. A group does
/// not inherit that from its sockets, and older kernels have no option for it.
///
/// # Errors
/// When the kernel has no such groups.
pub(super) fn share(sockets: &[BorrowedFd<'_>]) -> io::Result<bool> {
    let [first, others @ ..] = sockets else { return Ok(true) };
    if others.is_empty() {
        return Ok(true);
    }
    // The lower half is the group's number. The kernel chooses it for the first socket, and the
    // others name it.
    let of = |flags: libc::c_uint| libc::c_int::try_from(flags << 16).map_err(|_| Errno::EINVAL);
    let unique = libc::PACKET_FANOUT_FLAG_UNIQUEID;
    let incoming = libc::PACKET_FANOUT_CBPF | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
    let kind = match setsockopt(first, Fanout, &of(incoming | unique)?) {
        Ok(()) => incoming,
        Err(_) => {
            setsockopt(first, Fanout, &of(libc::PACKET_FANOUT_CBPF | unique)?)?;
            libc::PACKET_FANOUT_CBPF
        }
    };
    let group = getsockopt(first, Fanout)? & 0xffff;
    let mut program = program();
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    setsockopt(first, FanoutProgram, &libc::sock_fprog { len, filter: program.as_mut_ptr() })?;
    for other in others {
        setsockopt(other, Fanout, &(of(kind)? | group))?;
    }
    Ok(kind == incoming)
}

/// The program that returns a number for a packet. The kernel divides it by the number of sockets;
/// the remainder is the shard.
///
/// The program runs on what follows the link's own header, where the kernel by itself would read
/// past one VLAN tag only. The first socket receives all packets that the parser does not count,
/// such as those with too many tags.
fn program() -> Vec<libc::sock_filter> {
    let mut program = Vec::new();
    load_word(&mut program, 0, End::Source);
    program.extend(spread());
    program.push(op(RETURN_A, 0, 0, 0));
    program
}

/// Spreads the word of an address in A over all shards.
pub(super) fn spread() -> [libc::sock_filter; 2] {
    [op(MULTIPLY, 0x9e37_79b1, 0, 0), op(SHIFT_RIGHT, 16, 0, 0)]
}

#[cfg(test)]
mod tests {
    use super::super::bpf::run;
    use super::*;
    use crate::packet::MAX_TAGS;
    use sidekick_protocol::Shard;
    use std::net::IpAddr;

    /// As much of a packet as the program may look at.
    fn packet(source: IpAddr) -> Vec<u8> {
        match source {
            IpAddr::V4(ip) => [&[0x45; 12][..], &ip.octets(), &[9; 40]].concat(),
            IpAddr::V6(ip) => [&[0x60; 8][..], &ip.octets(), &[9; 40]].concat(),
        }
    }

    #[test]
    fn the_kernel_and_the_protocol_choose_the_same_thread() {
        let program = program();
        for n in 0..2000_u32 {
            let spread = n.wrapping_mul(0x85eb_ca6b);
            let v6 = u128::from(spread) << 96
                | u128::from(n) << 64
                | u128::from(!spread) << 32
                | u128::from(n ^ 7);
            for (source, ethertype) in
                [(IpAddr::V4(spread.into()), 0x0800_u16), (IpAddr::V6(v6.into()), 0x86dd)]
            {
                let packet = packet(source);
                for of in 1..=8 {
                    let shard = u32::from(Shard::of_source(source, of));
                    assert_eq!(
                        run(&program, &packet, ethertype) % u32::from(of),
                        shard,
                        "{source} of {of}"
                    );
                    let protocol: [u8; 2] = if source.is_ipv4() { [0, 0x21] } else { [0, 0x57] };
                    let session = [&[0x11, 0, 0, 1, 0, 40][..], &protocol, &packet].concat();
                    assert_eq!(run(&program, &session, 0x8864) % u32::from(of), shard, "{source}");
                    let tagged = [&[0x20, 7, 0x88, 0x64][..], &session].concat();
                    assert_eq!(run(&program, &tagged, 0x8100) % u32::from(of), shard, "{source}");
                    for tag in [0x8100_u16, 0x88a8, 0x9100] {
                        let mut tagged =
                            [&[0x20, 7][..], &ethertype.to_be_bytes(), &packet].concat();
                        for tags in 1..=MAX_TAGS {
                            let found = run(&program, &tagged, tag) % u32::from(of);
                            assert_eq!(found, shard, "{source} of {of}, {tags} tags of {tag:x}");
                            tagged = [&[0x20, 7][..], &tag.to_be_bytes(), &tagged].concat();
                        }
                        assert_eq!(run(&program, &tagged, tag), 0, "deeper than the parser looks");
                    }
                }
            }
        }
        assert_eq!(run(&program, &packet("10.0.0.9".parse().unwrap()), 0x0806), 0, "ARP");
        assert_eq!(
            run(&program, &[&[0x11, 0, 0, 1, 0, 9, 0xc0, 0x21][..], &[9; 40]].concat(), 0x8864),
            0,
            "LCP"
        );
        for len in 0..40 {
            let packet = packet("2001:db8::1".parse().unwrap());
            for ethertype in [0x0800, 0x86dd, 0x8100, 0x8864] {
                run(&program, &packet[..len], ethertype);
            }
        }
    }
}
