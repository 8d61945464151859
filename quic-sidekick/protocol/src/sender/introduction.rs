//! Which addresses the sender asks for help because an answer to a marker named them.
//!
//! An answer shows that its sender is on the flow's path, as a proxy is. But markers also reach the
//! flow's destination, so any server can answer, and name any address as that of a proxy. It must
//! not make the sender's machine send to its own programs, to its neighbours, or much to others.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// The most sessions that are requested within [`PERIOD`] from addresses that never answered. A
/// session sends at most seven messages before it gives up.
const MOST: usize = 4;
const PERIOD: Duration = Duration::from_secs(60);
/// The most addresses that have answered, and are remembered.
const PROXIES: usize = 4;

/// How far an address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Host,
    Link,
    /// RFC 1918, RFC 6598 (between a carrier's NAT and its customers), or RFC 4193 (unique local
    /// addresses of IPv6).
    Private,
    Global,
}

impl Scope {
    fn of(ip: IpAddr) -> Self {
        match ip {
            // RFC 1122, section 3.2.1.3: 0/8 is this host.
            IpAddr::V4(ip) if ip.is_loopback() || ip.octets()[0] == 0 => Self::Host,
            // RFC 1112, section 4: reserved. Nobody has such an address.
            IpAddr::V4(ip) if ip.octets()[0] >= 240 => Self::Host,
            IpAddr::V4(ip) if ip.is_link_local() => Self::Link,
            IpAddr::V4(ip) if ip.is_private() || matches!(ip.octets(), [100, 64..=127, ..]) => {
                Self::Private
            }
            IpAddr::V6(ip) if ip.is_loopback() || ip.is_unspecified() => Self::Host,
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Self::Link,
            IpAddr::V6(ip) => match ip.segments() {
                // A translator or a tunnel leads on to an IPv4 address (RFC 6052, RFC 3056).
                [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
                    Self::of(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)).into())
                }
                // IPv4-compatible addresses and the discard prefix (RFC 4291, RFC 6666).
                [0, 0, 0, 0, 0, 0, ..] | [0x100, 0, 0, 0, ..] => Self::Host,
                // Translators of a network, unique local and site-local addresses (RFC 8215, RFC
                // 4193, RFC 3879).
                [0x64, 0xff9b, 1, ..] | [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => {
                    Self::Private
                }
                _ => Self::Global,
            },
            IpAddr::V4(_) => Self::Global,
        }
    }
}

/// What the sender knows of addresses that answers named.
#[derive(Debug, Default)]
pub(super) struct Introductions {
    /// Those of proxies. The one that answered last comes first.
    proxies: Vec<SocketAddr>,
    /// When the latest sessions were requested from others.
    asked: [Option<Instant>; MOST],
    /// The caller expects a proxy at this address.
    pub(super) expected: Option<SocketAddr>,
}

impl Introductions {
    /// Whether to ask the proxy at an address for help for a flow from `source`.
    pub(super) fn admits(&self, proxy: SocketAddr, source: IpAddr, now: Instant) -> bool {
        // A wildcard socket does not show its address. Most such hosts are behind a NAT.
        let own = if source.is_unspecified() { Scope::Private } else { Scope::of(source) };
        let scope = Scope::of(proxy.ip());
        // A proxy in a private network is a home router, or belongs to a network operator and
        // stands before the operator's NAT. Hosts there have private addresses as well. A host with
        // a public address is in no such network, so an answer that names a private address to it
        // would lead to one of its neighbours.
        let leads_out = scope >= own || scope == Scope::Private && self.expected == Some(proxy);
        let unicast = proxy.port() != 0
            && !proxy.ip().is_multicast()
            && !matches!(proxy.ip(), IpAddr::V4(ip) if ip.is_broadcast());
        // Its own machine, unless the whole flow stays there.
        let own_host = proxy.ip() == source && own != Scope::Host;
        let rested = self.asked[MOST - 1].is_none_or(|asked| now >= asked + PERIOD);
        leads_out && unicast && !own_host && (rested || self.proxies.contains(&proxy))
    }

    /// Records that a session was requested from an address.
    pub(super) fn on_asked(&mut self, proxy: SocketAddr, now: Instant) {
        if !self.proxies.contains(&proxy) {
            self.asked.rotate_right(1);
            self.asked[0] = Some(now);
        }
    }

    /// Records that a proxy answered from an address.
    pub(super) fn on_answer(&mut self, proxy: SocketAddr) {
        if self.proxies.first() != Some(&proxy) {
            self.proxies.retain(|known| *known != proxy);
            self.proxies.truncate(PROXIES - 1);
            self.proxies.insert(0, proxy);
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_at_least_as_far_as_the_flows_own() {
        // The proxy's address, and whether the sender asks it for a flow from a public address, for
        // one from a private address, for one from an unknown address, and if it is expected.
        for (proxy, expected) in [
            ("198.51.100.1:5252", [true, true, true, true]),
            ("[2001:db8::1]:5252", [true, true, true, true]),
            ("10.0.0.1:5252", [false, true, true, true]),
            ("[64:ff9b::10.0.0.1]:5252", [false, true, true, true]),
            ("[64:ff9b::198.51.100.1]:5252", [true, true, true, true]),
            ("[2002:a00:1::1]:5252", [false, true, true, true]),
            ("[2002:7f00:1::1]:5252", [false, false, false, false]),
            ("[64:ff9b:1::1]:5252", [false, true, true, true]),
            ("[fec0::1]:5252", [false, true, true, true]),
            ("[::10.0.0.1]:5252", [false, false, false, false]),
            ("[100::1]:5252", [false, false, false, false]),
            ("240.0.0.1:5252", [false, false, false, false]),
            ("172.16.0.1:5252", [false, true, true, true]),
            ("172.32.0.1:5252", [true, true, true, true]),
            ("192.168.1.1:1900", [false, true, true, true]),
            ("192.168.1.20:5252", [false, false, true, true]),
            ("100.64.0.1:5252", [false, true, true, true]),
            ("100.127.0.1:5252", [false, true, true, true]),
            ("100.128.0.1:5252", [true, true, true, true]),
            ("[fd00::1]:5252", [false, true, true, true]),
            ("127.0.0.1:161", [false; 4]),
            ("127.9.9.9:161", [false; 4]),
            ("[::1]:161", [false; 4]),
            ("169.254.169.254:80", [false; 4]),
            ("[fe80::1]:5252", [false; 4]),
            ("0.0.0.0:5252", [false; 4]),
            ("0.1.2.3:5252", [false; 4]),
            ("[::]:5252", [false; 4]),
            ("224.0.0.251:5353", [false; 4]),
            ("[ff02::fb]:5353", [false; 4]),
            ("255.255.255.255:67", [false; 4]),
            ("198.51.100.1:0", [false; 4]),
            ("203.0.113.5:5252", [false, true, true, false]),
        ] {
            let proxy: SocketAddr = proxy.parse().unwrap();
            let cases = [("203.0.113.5", false), ("192.168.1.20", false), ("0.0.0.0", false)];
            let asks = cases.into_iter().chain([("203.0.113.5", true)]).map(|(source, chosen)| {
                let expected = chosen.then_some(proxy);
                let known = Introductions { expected, ..Introductions::default() };
                known.admits(proxy, source.parse().unwrap(), Instant::now())
            });
            assert_eq!(asks.collect::<Vec<_>>(), expected, "{proxy}");
        }
        let known = Introductions::default();
        let local = "127.0.0.1:5252".parse().unwrap();
        assert!(known.admits(local, "127.0.0.1".parse().unwrap(), Instant::now()));
    }

    #[test]
    fn silent_addresses_are_asked_seldom() {
        let mut known = Introductions::default();
        let source = "192.0.2.1".parse().unwrap();
        let at = |number: u8| SocketAddr::from(([198, 51, 100, number], 53));
        let mut now = Instant::now();
        let mut asks = |known: &mut Introductions, number, seconds| {
            now += Duration::from_secs(seconds);
            let admitted = known.admits(at(number), source, now);
            if admitted {
                known.on_asked(at(number), now);
            }
            admitted
        };
        for (number, seconds, admitted) in
            [(1, 0, true), (1, 10, true), (2, 1, true), (3, 1, true), (4, 1, false), (1, 46, false)]
        {
            assert_eq!(asks(&mut known, number, seconds), admitted, "{number} after {seconds}");
        }
        assert!(asks(&mut known, 1, 1) && !asks(&mut known, 1, 1));
        known.on_answer(at(9));
        assert!((0..100).all(|_| asks(&mut known, 9, 0)), "a proxy that answers");
        (10..20).for_each(|number| known.on_answer(at(number)));
        assert_eq!(known.proxies.len(), PROXIES);
    }
}
