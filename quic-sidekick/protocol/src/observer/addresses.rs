//! The addresses that a proxy announces, and those that no sender on its path can have (SPEC.md,
//! section 6.1).

use crate::identify::{Flow, canonical};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The most announced addresses. Further ones are ignored.
const MAX_ANNOUNCED: usize = 256;

/// The addresses of the proxy's machine, supplied by the caller. Interfaces are numbered as for
/// [`Observer::observe`](super::Observer::observe).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The address of the proxy's port, by the interface on which a sender's packets arrive. The
    /// observer uses the first 256 entries. It answers no marker of a family without an entry.
    pub announced: Vec<(u32, SocketAddr)>,
    /// All addresses of the machine. The observer answers no marker of a flow with one of them as
    /// source or destination, except on a loopback interface.
    pub local: Vec<IpAddr>,
    /// The broadcast addresses of the machine's networks.
    pub broadcast: Vec<Ipv4Addr>,
    /// The loopback interfaces: only there can a sender have a loopback address.
    pub loopback: Vec<u32>,
}

impl Addresses {
    /// Announces one address on one interface, without any addresses of the machine.
    #[must_use]
    pub fn announcing(interface: u32, address: SocketAddr) -> Self {
        Self { announced: vec![(interface, address)], ..Self::default() }
    }

    /// The same with canonical addresses (IPv4-mapped ones as IPv4) and without duplicates.
    pub(super) fn canonical(self) -> Self {
        let mut announced = Vec::new();
        for (interface, address) in self.announced {
            let entry = (interface, canonical(address));
            if announced.len() < MAX_ANNOUNCED && !announced.contains(&entry) {
                announced.push(entry);
            }
        }
        let local = self.local.iter().map(IpAddr::to_canonical).collect();
        Self { announced, local, ..self }
    }

    /// The address to announce to this flow's sender: of the flow's family, and of this interface
    /// if possible.
    pub(super) fn announced_for(&self, interface: u32, flow: &Flow) -> Option<SocketAddr> {
        let reachable = || {
            self.announced.iter().filter(|(_, address)| address.is_ipv4() == flow.source.is_ipv4())
        };
        let here = reachable().find(|(number, _)| *number == interface);
        here.or_else(|| reachable().next()).map(|(_, address)| *address)
    }

    /// Whether a flow between two other hosts can have these canonical addresses on this interface.
    /// If not, they are forged, or an answer would stay on the machine or reach many hosts.
    pub(super) fn can_cross(&self, interface: u32, flow: &Flow) -> bool {
        let Flow { source, destination } = flow;
        let looped = self.loopback.contains(&interface);
        let usable = |end: &SocketAddr| {
            end.port() != 0
                && (looped && end.ip().is_loopback() || self.is_of_another_host(end.ip()))
        };
        source.is_ipv4() == destination.is_ipv4()
            && source != destination
            && usable(source)
            && usable(destination)
    }

    /// Whether an answer to a KEEP can seem to come from the destination of a flow whose source has
    /// proven its address. The destination may be this machine: senders can download from it.
    pub(super) fn can_answer(&self, flow: &Flow) -> bool {
        let Flow { source, destination } = flow;
        let looped = source.ip().is_loopback() && destination.ip().is_loopback();
        let ours = self.local.contains(&destination.ip());
        source.is_ipv4() == destination.is_ipv4()
            && source != destination
            && source.port() != 0
            && destination.port() != 0
            && (looped
                || ours && !destination.ip().is_loopback()
                || self.is_of_another_host(destination.ip()))
    }

    fn is_of_another_host(&self, ip: IpAddr) -> bool {
        let special = match ip {
            // RFC 6890: this network, link-local, reserved (with the limited broadcast address).
            IpAddr::V4(v4) => {
                let first = v4.octets()[0];
                first == 0 || first >= 240 || v4.is_link_local() || self.broadcast.contains(&v4)
            }
            IpAddr::V6(v6) => v6.is_unspecified() || v6.is_unicast_link_local(),
        };
        !special && !ip.is_loopback() && !ip.is_multicast() && !self.local.contains(&ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: u32 = 7;

    fn addresses() -> Addresses {
        Addresses {
            announced: Vec::new(),
            local: vec!["192.0.2.254".parse().unwrap(), "::ffff:192.0.2.253".parse().unwrap()],
            broadcast: vec!["192.0.2.255".parse().unwrap()],
            loopback: vec![LOOPBACK],
        }
        .canonical()
    }

    #[test]
    fn an_answer_to_a_keep_seems_to_come_from_a_host() {
        let addresses = addresses();
        let answers = |source: &str, destination: &str| {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            addresses.can_answer(&Flow { source, destination })
        };
        for destination in ["198.51.100.7:443", "192.0.2.254:443"] {
            assert!(answers("192.0.2.1:4000", destination), "{destination}");
        }
        assert!(answers("127.0.0.1:4000", "127.0.0.1:443") && answers("[::1]:1", "[::1]:2"));
        for destination in [
            "198.51.100.7:0",
            "0.0.0.0:443",
            "127.0.0.1:443",
            "169.254.1.1:443",
            "224.0.0.1:443",
            "255.255.255.255:443",
            "192.0.2.255:443",
            "192.0.2.1:4000",
            "[2001:db8::1]:443",
        ] {
            assert!(!answers("192.0.2.1:4000", destination), "{destination}");
        }
        for destination in ["[::]:443", "[::1]:443", "[fe80::1]:443", "[ff02::1]:443"] {
            assert!(!answers("[2001:db8::2]:4000", destination), "{destination}");
        }
        assert!(!answers("192.0.2.1:0", "198.51.100.7:443"));
    }

    #[test]
    fn only_addresses_of_other_hosts_cross() {
        let addresses = addresses();
        let crosses = |interface, source: &str, destination: &str| {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            addresses.can_cross(interface, &Flow { source, destination })
        };
        let (v4, v6) = ("198.51.100.7:443", "[2001:db8:1::7]:443");
        for source in ["192.0.2.1:1", "10.0.0.1:4000", "203.0.113.80:65535"] {
            assert!(crosses(0, source, v4) && crosses(0, v4, source), "{source}");
        }
        assert!(crosses(0, "[2001:db8::1]:1", v6));
        for bad in [
            "0.0.0.0:53",
            "0.1.2.3:53",
            "127.0.0.1:53",
            "127.9.9.9:53",
            "169.254.1.1:53",
            "224.0.0.1:53",
            "239.255.255.250:53",
            "240.0.0.1:53",
            "255.255.255.255:53",
            "192.0.2.255:53",
            "192.0.2.254:53",
            "192.0.2.253:53",
            "192.0.2.1:0",
        ] {
            assert!(!crosses(0, bad, v4) && !crosses(0, v4, bad), "{bad}");
        }
        for bad in ["[::]:53", "[::1]:53", "[fe80::1]:53", "[ff02::1]:53", "[2001:db8::1]:0"] {
            assert!(!crosses(0, bad, v6) && !crosses(0, v6, bad), "{bad}");
        }
        assert!(!crosses(0, v4, v4), "source equals destination");
        assert!(!crosses(0, v4, v6), "of two families");
        assert!(
            crosses(LOOPBACK, "127.0.0.1:1", "127.0.0.1:2")
                && crosses(LOOPBACK, "[::1]:1", "[::1]:2")
        );
        assert!(!crosses(LOOPBACK, "224.0.0.1:1", "127.0.0.1:2"));
    }
}
