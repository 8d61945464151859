//! Which of the proxies that answer markers the agent asks for help, without I/O.
//!
//! An answer shows that its sender is on the flow's path, as a proxy is. But markers also reach the
//! flow's destination. So any server can answer, and name any address as that of a proxy. It must
//! not make the agent send to programs of this machine, to its neighbours, or much to others.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use sidekick_protocol::{Flow, Sender, SenderConfig};
use tracing::debug;

use super::flow::HelpedFlow;
use crate::packet_info::is_unicast;

/// Sessions that all flows together request from an address that has not answered. A session sends
/// at most seven messages before it gives up.
const MOST_REQUESTS: u32 = 4;
/// After this time, the agent may request as many more.
const REQUEST_PERIOD: Duration = Duration::from_secs(60);
/// Most addresses that the agent remembers.
const MOST: usize = 64;
/// Most of them that have not answered, so that these displace no proxy for long.
const MOST_STRANGERS: usize = 32;

/// The state of an address.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// It has answered as a proxy, most recently at this time.
    Proxy(Instant),
    /// The agent requested this many sessions from it since this time. It has not answered.
    Silent(u32, Instant),
}

/// The addresses that answers have named.
#[derive(Debug, Default)]
pub(super) struct Named(HashMap<SocketAddr, Known>);

impl Named {
    /// Whether to ask the proxy at an address for help for a flow from `source`. `chosen` states
    /// whether the operator has named this proxy or its key. Then no server can impersonate it.
    pub(super) fn admits(
        &mut self,
        proxy: SocketAddr,
        source: IpAddr,
        chosen: bool,
        now: Instant,
    ) -> bool {
        let is_possible = is_unicast(proxy) && !is_near(proxy.ip());
        // A proxy in a private network is a home router, or belongs to a network operator and
        // stands before the operator's NAT. Hosts there have private addresses as well. A host with
        // a public address is in no such network. So an answer that names a private address to it
        // would lead to one of its neighbours.
        let is_private = is_private(proxy.ip()) && !is_private(source);
        is_possible && (chosen || !is_private) && self.has_room(proxy, now)
    }

    /// Whether the agent may request another session from an address.
    fn has_room(&mut self, proxy: SocketAddr, now: Instant) -> bool {
        match self.0.get(&proxy) {
            Some(Known::Proxy(_)) => true,
            Some(Known::Silent(asked, since)) => {
                *asked < MOST_REQUESTS || now >= *since + REQUEST_PERIOD
            }
            None => {
                self.0.retain(|_, known| match known {
                    Known::Proxy(_) => true,
                    Known::Silent(_, since) => now < *since + REQUEST_PERIOD,
                });
                let strangers = self.0.values().filter(|it| matches!(it, Known::Silent(..)));
                strangers.count() < MOST_STRANGERS
            }
        }
    }

    /// Notes that a session was requested from an address.
    pub(super) fn on_asked(&mut self, proxy: SocketAddr, now: Instant) {
        self.make_room(proxy);
        match self.0.entry(proxy).or_insert(Known::Silent(0, now)) {
            Known::Proxy(_) => {}
            Known::Silent(asked, since) if now < *since + REQUEST_PERIOD => *asked += 1,
            silent @ Known::Silent(..) => *silent = Known::Silent(1, now),
        }
    }

    /// Notes that a proxy answered from an address.
    pub(super) fn on_answer(&mut self, proxy: SocketAddr, now: Instant) {
        self.make_room(proxy);
        self.0.insert(proxy, Known::Proxy(now));
    }

    /// Makes room for an address. If there are too many, it forgets the proxy whose last answer is
    /// the oldest.
    fn make_room(&mut self, address: SocketAddr) {
        if self.0.len() < MOST || self.0.contains_key(&address) {
            return;
        }
        let proxies = self.0.iter().filter_map(|(address, known)| match known {
            Known::Proxy(at) => Some((*at, *address)),
            Known::Silent(..) => None,
        });
        if let Some((_, oldest)) = proxies.min() {
            self.0.remove(&oldest);
        }
    }
}

/// Asks the proxy that an answer names for help, if the address is plausible.
pub(super) fn on_answer(
    (named, local): (&mut Named, &HashSet<IpAddr>),
    chosen: &SenderConfig,
    helped: &mut HelpedFlow,
    answer: &[u8],
    now: Instant,
) {
    // The answer contains the address under which the proxy sees this machine.
    if helped.sender.handle_proof(answer, now) {
        return;
    }
    let Flow { source, destination } = helped.flow;
    let proxy = Sender::answering_proxy(answer);
    if let Some(proxy) = proxy {
        let is_chosen = chosen.proxy.is_some() || chosen.key.is_some();
        let is_other = chosen.proxy.is_some_and(|chosen| chosen != proxy);
        let is_own = local.contains(&proxy.ip()) && !is_chosen;
        if is_own || is_other || !named.admits(proxy, source.ip(), is_chosen, now) {
            debug!(
                "an answer on the path to {destination} names {proxy}: the agent does not ask it"
            );
            return;
        }
    }
    let latest = helped.sender.session_numbers().last();
    // An error changes only the sender's counters.
    let _ = helped.sender.handle_on_path(answer, now);
    if helped.sender.session_numbers().last() != latest
        && let Some(proxy) = proxy
    {
        helped.log_answer(proxy);
        named.on_asked(proxy, now);
    }
}

/// Whether an address is loopback, link-local, or another that does not lead beyond this link.
fn is_near(ip: IpAddr) -> bool {
    match ip {
        // RFC 1122, section 3.2.1.3: 0/8 is this host.
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local() || ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local(),
    }
}

/// Whether an address is one of RFC 1918, of RFC 6598 (between a carrier's NAT and its customers)
/// or of RFC 4193 (unique local addresses of IPv6).
fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_private() || matches!(ip.octets(), [100, 64..=127, ..]),
        IpAddr::V6(ip) => ip.is_unique_local(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::runtime::clock;

    const PUBLIC: &str = "203.0.113.5";
    const PRIVATE: &str = "192.168.1.20";

    #[test]
    fn addresses_of_this_machine_and_its_neighbours_are_refused() {
        // The proxy's address, and whether the agent asks it for a flow from a public address, for
        // one from a private address, and if the operator has chosen it.
        for (proxy, expected) in [
            ("198.51.100.1:5252", [true, true, true]),
            ("[2001:db8::1]:5252", [true, true, true]),
            ("10.0.0.1:5252", [false, true, true]),
            ("172.16.0.1:5252", [false, true, true]),
            ("172.32.0.1:5252", [true, true, true]),
            ("192.168.1.1:1900", [false, true, true]),
            ("100.64.0.1:5252", [false, true, true]),
            ("100.127.0.1:5252", [false, true, true]),
            ("100.128.0.1:5252", [true, true, true]),
            ("[fd00::1]:5252", [false, true, true]),
            ("127.0.0.1:161", [false; 3]),
            ("127.9.9.9:161", [false; 3]),
            ("[::1]:161", [false; 3]),
            ("169.254.169.254:80", [false; 3]),
            ("[fe80::1]:5252", [false; 3]),
            ("0.0.0.0:5252", [false; 3]),
            ("0.1.2.3:5252", [false; 3]),
            ("[::]:5252", [false; 3]),
            ("224.0.0.251:5353", [false; 3]),
            ("[ff02::fb]:5353", [false; 3]),
            ("255.255.255.255:67", [false; 3]),
            ("198.51.100.1:0", [false; 3]),
        ] {
            let cases = [(PUBLIC, false), (PRIVATE, false), (PUBLIC, true)];
            let admitted = cases.map(|(source, chosen)| {
                let (proxy, source) = (proxy.parse().unwrap(), source.parse().unwrap());
                Named::default().admits(proxy, source, chosen, clock())
            });
            assert_eq!(admitted, expected, "{proxy}");
        }
    }

    #[test]
    fn an_address_that_never_answers_gets_few_messages() {
        let (mut named, mut now) = (Named::default(), clock());
        let source = PUBLIC.parse().unwrap();
        let proxy = |number: u8| SocketAddr::from(([198, 51, 100, number], 5252));
        let mut asked = [0; 2];
        // A thousand answers a second for ten minutes, which name one address or many.
        for second in 0..600 {
            for number in 0..1000_u16 {
                for (many, asked) in asked.iter_mut().enumerate() {
                    let address = proxy(if many == 0 { 0 } else { 1 + (number % 250) as u8 });
                    if named.admits(address, source, false, now) {
                        named.on_asked(address, now);
                        *asked += 1;
                    }
                }
            }
            if second == 300 {
                assert_eq!(asked[0], 6 * MOST_REQUESTS);
                named.on_answer(proxy(0), now);
            }
            now += Duration::from_secs(1);
        }
        assert_eq!(asked[0], 6 * MOST_REQUESTS + 299 * 1000);
        let rounds = 600 / 60;
        assert!((1..=rounds * 32 * MOST_REQUESTS).contains(&asked[1]), "{asked:?}");
        assert!(named.0.len() <= MOST);
    }

    #[test]
    fn proxies_are_remembered_up_to_a_limit() {
        let (mut named, now) = (Named::default(), clock());
        let source = PUBLIC.parse().unwrap();
        let address = |number: u32| SocketAddr::from((number.to_be_bytes(), 5252));
        for number in 0..1000 {
            let proxy = address(0x0909_0000 + number);
            assert!(named.admits(proxy, source, false, now), "{number}");
            named.on_answer(proxy, now + Duration::from_millis(number.into()));
            assert!(named.0.len() <= MOST);
        }
    }
}
