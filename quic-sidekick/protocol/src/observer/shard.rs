//! Several observers behind one port. Each serves its own sources, and they share no state.
//!
//! The kernel can distribute packets to threads by a rule of its user (`PACKET_FANOUT_CBPF` on
//! Linux), and messages name a flow or a session, so both reach the right observer by their
//! contents alone.

use crate::wire::Datagram;
use std::net::{IpAddr, SocketAddr};

/// Spreads neighbouring addresses over the shards: the odd number next to 2^32 divided by the
/// golden ratio.
const SPREAD: u32 = 0x9e37_79b1;

/// One of several observers.
///
/// The shard of a source is `((w * 0x9e3779b1) mod 2^32 >> 16) mod of`, in network byte order. `w`
/// is its IPv4 address, or the exclusive or of the four words of its IPv6 address. The numbers of
/// its sessions are `index` modulo `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u16,
    of: u16,
}

impl Default for Shard {
    /// The only shard.
    fn default() -> Self {
        Self { index: 0, of: 1 }
    }
}

impl Shard {
    /// The most observers behind one port.
    pub const MOST: u16 = 256;

    /// Shard `index`, from 0, of `of`. Returns `None` unless `index` is less than `of`, and `of` is
    /// at most [`Shard::MOST`].
    #[must_use]
    pub fn new(index: u16, of: u16) -> Option<Self> {
        (index < of && of <= Self::MOST).then_some(Self { index, of })
    }

    /// The number of shards.
    pub(super) fn count(self) -> u16 {
        self.of
    }

    /// The index of the shard, out of `of`, that serves flows from this address.
    #[must_use]
    pub fn of_source(source: IpAddr, of: u16) -> u16 {
        let word = match source.to_canonical() {
            IpAddr::V4(ip) => u32::from(ip),
            IpAddr::V6(ip) => {
                let bits = u128::from(ip);
                let word =
                    |shift: u32| u32::try_from(bits >> shift & u128::from(u32::MAX)).unwrap_or(0);
                word(96) ^ word(64) ^ word(32) ^ word(0)
            }
        };
        let spread = word.wrapping_mul(SPREAD) >> 16;
        u16::try_from(spread % u32::from(of.max(1))).unwrap_or(0)
    }

    /// The index of the shard, out of `of`, that must handle a datagram at the proxy's own port.
    /// The first shard handles datagrams that name neither flow nor session.
    #[must_use]
    pub fn of_message(from: SocketAddr, datagram: &[u8], of: u16) -> u16 {
        match Datagram::parse(datagram) {
            Ok(Datagram::Hello(hello)) => Self::of_source(hello.flow_from(from).source.ip(), of),
            Ok(Datagram::Sealed { session, .. }) => {
                u16::try_from(session.0 % u32::from(of.max(1))).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// `number`, changed so that it identifies this shard.
    pub(super) fn mark(self, number: u32) -> u32 {
        let (index, of) = (u32::from(self.index), u32::from(self.of));
        // Past the last number of this shard, wrap to its first.
        (number - number % of).checked_add(index).unwrap_or(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_session_number_identifies_its_shard(
            number in any::<u32>(),
            of in 1..=Shard::MOST,
            index in any::<prop::sample::Index>(),
        ) {
            let index = u16::try_from(index.index(of.into())).unwrap();
            for number in [number, u32::MAX, u32::MAX - 1, 0] {
                let number = Shard::new(index, of).unwrap().mark(number);
                prop_assert_eq!(number % u32::from(of), u32::from(index));
            }
        }

        #[test]
        fn any_message_has_a_shard(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            of in 0..=Shard::MOST,
        ) {
            let from = "192.0.2.1:1".parse().unwrap();
            prop_assert!(Shard::of_message(from, &bytes, of) < of.max(1));
        }
    }

    #[test]
    fn neighbouring_addresses_spread_over_the_shards() {
        for of in [2, 3, 4, 8] {
            for prefix in ["192.168.1.", "10.0.0.", "2001:db8::"] {
                let mut served = vec![0; of.into()];
                for last in 1..=200 {
                    let ip: IpAddr = format!("{prefix}{last}").parse().unwrap();
                    served[usize::from(Shard::of_source(ip, of))] += 1;
                }
                let fair = 200 / usize::from(of);
                assert!(
                    served.iter().all(|n| (fair * 2 / 3..=fair * 3 / 2).contains(n)),
                    "{prefix} {served:?}"
                );
            }
        }
        let mapped = |text: &str| Shard::of_source(text.parse().unwrap(), 7);
        assert_eq!(mapped("::ffff:192.0.2.1"), mapped("192.0.2.1"));
        assert_eq!((Shard::new(1, 1), Shard::new(0, 0), Shard::new(0, 257)), (None, None, None));
    }
}
