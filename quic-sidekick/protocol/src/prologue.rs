//! The Noise prologue, on which both sides must agree (SPEC.md, section 4.4).

use crate::flow::Flow;
use crate::wire::SessionNumber;
use std::net::{IpAddr, SocketAddr};

/// The name of the protocol and its version.
const NAME: &[u8; 11] = b"Sidekick v1";
/// An address and a port.
const END_LEN: usize = 18;
/// Bytes of the prologue.
pub(crate) const LEN: usize = NAME.len() + 4 + 2 * END_LEN;

/// The Noise prologue: the fields of a HELLO outside its handshake message. The handshake fails if
/// an attacker alters them.
pub(crate) fn of(session: SessionNumber, flow: &Flow) -> [u8; LEN] {
    let mut prologue = [0; LEN];
    let parts = [
        NAME.as_slice(),
        &session.0.to_be_bytes(),
        &ip(flow.source),
        &flow.source.port().to_be_bytes(),
        &ip(flow.destination),
        &flow.destination.port().to_be_bytes(),
    ];
    let bytes = parts.iter().copied().flatten();
    prologue.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    prologue
}

/// The address, an IPv4 one as IPv4-mapped IPv6.
fn ip(address: SocketAddr) -> [u8; 16] {
    match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}
