//! Which flows are helped.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use ipnetwork::IpNetwork;
use serde::{Serialize, Serializer};
use sidekick_protocol::{DEFAULT_PORT, Flow};
use thiserror::Error;

use crate::packet_info::is_unicast;

/// Destination ports of flows that the agent helps only if the operator names the port, because
/// their exchanges have few packets, and their programs repeat lost ones. They are DNS, DHCP, NTP,
/// SSDP, multicast DNS, and the messages to Sidekick proxies.
const UNHELPED_PORTS: [u16; 7] = [53, 67, 68, 123, 1900, 5353, DEFAULT_PORT];

/// A part of all flows, by the address and the port of the destination or of the source.
///
/// As text it is `PORT`, `PORT-PORT`, `ADDR`, `ADDR/PREFIX`, or an address with ports behind it:
/// `ADDR:PORT`, `ADDR/PREFIX:PORT-PORT`, `[V6]:PORT`, `[V6]/PREFIX:PORT-PORT`. With `from=` before
/// it, it is about the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    /// It is about the source.
    of_source: bool,
    /// The network of that end, or `None` for all. Its address has no bits behind the prefix, and
    /// is no IPv4-mapped one.
    network: Option<IpNetwork>,
    /// The least and the greatest port of that end, or `None` for all. From 1 on.
    ports: Option<(u16, u16)>,
}

/// A text is no [`Selector`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotASelector {
    /// The text has none of the notations.
    #[error(
        "expected a port like 443, ports like 5000-5999, an address like 192.0.2.1, a network like \
         10.0.0.0/8, or ports behind one, like 10.0.0.0/8:443 or [2001:db8::]/32:443; from= before \
         it means the source"
    )]
    Notation,
    /// The first port is greater than the last, or 0.
    #[error("expected ports from 1 to 65535, the smaller one first, like 5000-5999")]
    Ports,
    /// The prefix has more bits than the address.
    #[error("the prefix of such an address has at most {0} bits, like {1}")]
    Prefix(u8, Selector),
    /// The address has bits behind the prefix.
    #[error("the address has bits behind its prefix: write {0}")]
    Bits(Selector),
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// A network as packets show it: an IPv4-mapped one becomes one of IPv4.
fn canonical(network: IpNetwork) -> IpNetwork {
    let prefix = network.prefix().checked_sub(96).filter(|_| network.is_ipv6());
    match (network.ip().to_canonical(), prefix) {
        (v4 @ IpAddr::V4(_), Some(prefix)) => IpNetwork::new(v4, prefix).unwrap_or(network),
        _ => network,
    }
}

impl Selector {
    /// Whether this selector matches the flow. The flow is as packets show it
    /// ([`Flow::canonical`]).
    #[must_use]
    pub fn matches(&self, flow: &Flow) -> bool {
        let end = if self.of_source { flow.source } else { flow.destination };
        self.network.is_none_or(|network| network.contains(end.ip()))
            && self.ports.is_none_or(|(first, last)| (first..=last).contains(&end.port()))
    }

    /// Whether this selector names ports of the destination, and matches the flow.
    fn names_port(&self, flow: &Flow) -> bool {
        !self.of_source && self.ports.is_some() && self.matches(flow)
    }

    /// Whether it names only addresses of many receivers.
    pub(super) fn is_group(&self) -> bool {
        self.network.is_some_and(|network| {
            let first = network.ip();
            let all = if first.is_ipv4() { 4 } else { 8 };
            first.is_multicast() && network.prefix() >= all
                || first == IpAddr::V4(Ipv4Addr::BROADCAST)
        })
    }
}

/// `PORT` or `PORT-PORT`.
fn ports(text: &str) -> Result<(u16, u16), NotASelector> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| match number::<u32>(text) {
        // A number too large for the type is also too large for a port.
        None if text.is_empty() || !is_digits(text) => Err(NotASelector::Notation),
        port => port.and_then(|port| u16::try_from(port).ok()).ok_or(NotASelector::Ports),
    };
    let (first, last) = (port(first)?, port(last)?);
    if first == 0 || first > last { Err(NotASelector::Ports) } else { Ok((first, last)) }
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A number. The standard library also accepts a sign.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| is_digits(text))
}

impl FromStr for Selector {
    type Err = NotASelector;

    fn from_str(text: &str) -> Result<Self, NotASelector> {
        use NotASelector::Notation;

        if let Some(source) = text.strip_prefix("from=") {
            let selector: Self = source.parse()?;
            let of_source = !selector.of_source;
            return if of_source { Ok(Self { of_source, ..selector }) } else { Err(Notation) };
        }
        if !text.contains(['.', ':', '[', '/']) {
            return Ok(Self { of_source: false, network: None, ports: Some(ports(text)?) });
        }
        // The address, and what is behind it.
        let (address, rest) = match text.strip_prefix('[') {
            Some(inside) => {
                let (address, rest) = inside.split_once(']').ok_or(Notation)?;
                (IpAddr::V6(address.parse().map_err(|_| Notation)?), rest)
            }
            None => {
                // A colon may be one of an IPv6 address.
                let slash = text.find('/').unwrap_or(text.len());
                let ends = match text[..slash].parse::<IpAddr>() {
                    Ok(_) => slash,
                    Err(_) => text.find(':').unwrap_or(slash),
                };
                let (address, rest) = text.split_at(ends);
                (address.parse().map_err(|_| Notation)?, rest)
            }
        };
        let (prefix, of_ports) = match rest.split_once(':') {
            Some((prefix, of_ports)) => (prefix, Some(ports(of_ports)?)),
            None => (rest, None),
        };
        let selector = |network: IpNetwork| Self {
            of_source: false,
            network: Some(canonical(network)),
            ports: of_ports,
        };
        let whole = IpNetwork::from(address);
        let network = match prefix.strip_prefix('/') {
            None if prefix.is_empty() => whole,
            None => return Err(Notation),
            Some(digits) if digits.is_empty() || !is_digits(digits) => return Err(Notation),
            Some(digits) => {
                let prefix = number::<u8>(digits);
                let network = prefix.and_then(|prefix| IpNetwork::new(address, prefix).ok());
                let too_long = || NotASelector::Prefix(bits(address), selector(whole));
                network.ok_or_else(too_long)?
            }
        };
        match IpNetwork::new(network.network(), network.prefix()) {
            Ok(first) if first != network => Err(NotASelector::Bits(selector(first))),
            _ => Ok(selector(network)),
        }
    }
}

impl fmt::Display for Selector {
    /// In the shortest notation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.of_source {
            f.write_str("from=")?;
        }
        if let Some(network) = self.network {
            match network.ip() {
                IpAddr::V6(v6) if self.ports.is_some() => write!(f, "[{v6}]")?,
                address => write!(f, "{address}")?,
            }
            if network.prefix() != bits(network.ip()) {
                write!(f, "/{}", network.prefix())?;
            }
            if self.ports.is_some() {
                f.write_str(":")?;
            }
        }
        match self.ports {
            None => Ok(()),
            Some((first, last)) if first == last => write!(f, "{first}"),
            Some((first, last)) => write!(f, "{first}-{last}"),
        }
    }
}

/// Which flows an agent helps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// These flows alone; if empty, all.
    pub only: Vec<Selector>,
    /// Never these.
    pub except: Vec<Selector>,
}

impl Serialize for Selector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Filter {
    /// Whether a flow gets help. The flow is as packets show it ([`Flow::canonical`]).
    ///
    /// A flow to many receivers, or to none, gets no help: a multicast address, 255.255.255.255, an
    /// unspecified address, port 0. Nor does a flow from such an address. A flow to one of
    /// [`UNHELPED_PORTS`] gets help only if `only` names its port.
    #[must_use]
    pub fn allows(&self, flow: &Flow) -> bool {
        let matched = |list: &[Selector]| list.iter().any(|selector| selector.matches(flow));
        is_unicast(flow.destination)
            // A group's packets arrive from a flow whose source would be the group.
            && is_unicast(flow.source)
            && !matched(&self.except)
            && (self.only.is_empty() || matched(&self.only))
            && (!UNHELPED_PORTS.contains(&flow.destination.port())
                || self.only.iter().any(|selector| selector.names_port(flow)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::SocketAddr;

    fn to(destination: &str) -> Flow {
        let destination: SocketAddr = destination.parse().unwrap();
        let source = match destination {
            SocketAddr::V4(_) => "10.0.0.2:4000",
            SocketAddr::V6(_) => "[2001:db8::2]:4000",
        };
        Flow { source: source.parse().unwrap(), destination }
    }

    fn selector(text: &str) -> Selector {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn each_notation_matches_what_it_says() {
        for (text, inside, outside) in [
            ("443", &["192.0.2.1:443", "[2001:db8::1]:443"][..], &["192.0.2.1:444"][..]),
            (
                "5000-5002",
                &["192.0.2.1:5000", "192.0.2.1:5002"],
                &["192.0.2.1:4999", "192.0.2.1:5003"],
            ),
            ("192.0.2.1", &["192.0.2.1:1"], &["192.0.2.2:1", "[2001:db8::1]:1"]),
            ("2001:db8::1", &["[2001:db8::1]:1"], &["[2001:db8::2]:1", "32.1.13.184:1"]),
            ("[2001:db8::1]", &["[2001:db8::1]:1"], &["[2001:db8::2]:1"]),
            ("10.0.0.0/8", &["10.255.0.1:9"], &["11.0.0.1:9"]),
            ("192.0.2.128/25", &["192.0.2.128:9", "192.0.2.255:9"], &["192.0.2.127:9"]),
            ("0.0.0.0/0", &["192.0.2.1:9", "255.0.0.1:9"], &["[2001:db8::1]:9"]),
            ("::/0", &["[2001:db8::1]:9"], &["192.0.2.1:9"]),
            ("192.0.2.1:443", &["192.0.2.1:443"], &["192.0.2.1:444", "192.0.2.2:443"]),
            ("10.0.0.0/8:443", &["10.1.1.1:443"], &["10.1.1.1:444", "11.1.1.1:443"]),
            ("10.0.0.0/8:1-9", &["10.1.1.1:9"], &["10.1.1.1:10"]),
            ("[2001:db8::]/33:443", &["[2001:db8:7fff::1]:443"], &["[2001:db8:8000::1]:443"]),
            ("2001:db8::/33:443", &["[2001:db8:7fff::1]:443"], &["[2001:db8::]:444"]),
            ("[2001:db8::1]:4-5", &["[2001:db8::1]:4"], &["[2001:db8::1]:3"]),
            // Packets show these addresses as IPv4.
            ("::ffff:192.0.2.1", &["192.0.2.1:1"], &["192.0.2.2:1"]),
            ("[::ffff:10.0.0.0]/104:7", &["10.9.9.9:7"], &["11.9.9.9:7"]),
        ] {
            for destination in inside {
                assert!(selector(text).matches(&to(destination)), "{text}: {destination}");
            }
            for destination in outside {
                assert!(!selector(text).matches(&to(destination)), "{text}: {destination}");
            }
        }
    }

    #[test]
    fn a_flow_may_be_selected_by_its_source() {
        let flow = to("192.0.2.1:443");
        for (text, matches) in [
            ("from=10.0.0.2", true),
            ("from=10.0.0.0/8:4000", true),
            ("from=4000", true),
            ("from=443", false),
            ("from=192.0.2.1", false),
        ] {
            assert_eq!(selector(text).matches(&flow), matches, "{text}");
        }
        // A port of the source does not name DNS.
        let only = vec![selector("from=4000")];
        assert!(!Filter { only, except: Vec::new() }.allows(&to("192.0.2.1:53")));
    }

    #[test]
    fn groups_are_recognised() {
        for (text, is_group) in [
            ("239.0.0.0/8", true),
            ("224.0.0.0/4:5004", true),
            ("ff02::fb", true),
            ("255.255.255.255", true),
            ("0.0.0.0/0", false),
            ("224.0.0.0/3", false),
            ("::/0", false),
            ("443", false),
        ] {
            assert_eq!(selector(text).is_group(), is_group, "{text}");
        }
    }

    #[test]
    fn an_error_names_the_right_notation() {
        let says = |text: &str| text.parse::<Selector>().unwrap_err().to_string();
        for text in [
            "",
            "https",
            "-",
            "443-",
            "-443",
            "+443",
            "1,2",
            "example.org",
            "192.0.2",
            "10.0.0.0/",
            "10.0.0.0/x",
            "10.0.0.0/+8",
            "10.0.0.0/8:",
            "10.0.0.0:/8",
            "[10.0.0.0]/8",
            "[::1",
            "[::1]443",
            "[::1]x:443",
            "/8",
            ":443",
            "fe80::1%eth0",
            "from=",
            "from=from=443",
        ] {
            assert!(says(text).starts_with("expected a port like 443, ports like"), "{text}");
            assert!(
                says(text).ends_with("[2001:db8::]/32:443; from= before it means the source"),
                "{text}"
            );
        }
        for text in ["0", "0-5", "9-8", "65536", "1-65536", "192.0.2.1:0", "99999999999"] {
            let said = "expected ports from 1 to 65535, the smaller one first, like 5000-5999";
            assert_eq!(says(text), said, "{text}");
        }
        for (text, said) in [
            ("10.0.0.0/33", "the prefix of such an address has at most 32 bits, like 10.0.0.0"),
            ("10.0.0.0/999", "the prefix of such an address has at most 32 bits, like 10.0.0.0"),
            ("[::1]/129:7", "the prefix of such an address has at most 128 bits, like [::1]:7"),
            ("10.0.0.1/8", "the address has bits behind its prefix: write 10.0.0.0/8"),
            ("2001:db8::1/32", "the address has bits behind its prefix: write 2001:db8::/32"),
            ("10.0.0.1/0:9", "the address has bits behind its prefix: write 0.0.0.0/0:9"),
        ] {
            assert_eq!(says(text), said, "{text}");
        }
    }

    #[test]
    fn a_filter_helps_the_selected_flows() {
        let filter = |only: &[&str], except: &[&str]| Filter {
            only: only.iter().copied().map(selector).collect(),
            except: except.iter().copied().map(selector).collect(),
        };
        let usual = filter(&[], &[]);
        for destination in ["192.0.2.1:443", "[2001:db8::1]:443", "10.0.0.255:5004"] {
            assert!(usual.allows(&to(destination)), "{destination}");
        }
        // Flows to many receivers, or to none: the agent never helps them.
        let broad = filter(&["1-65535", "0.0.0.0/0", "::/0"], &[]);
        for destination in [
            "224.0.0.251:5004",
            "239.1.1.1:5004",
            "255.255.255.255:5004",
            "0.0.0.0:5004",
            "192.0.2.1:0",
            "[ff02::fb]:5004",
            "[::]:5004",
        ] {
            assert!(!usual.allows(&to(destination)), "{destination}");
            assert!(!broad.allows(&to(destination)), "{destination}");
        }
        for port in UNHELPED_PORTS {
            let destination = to(&format!("192.0.2.1:{port}"));
            let named = port.to_string();
            assert!(!usual.allows(&destination), "{port}");
            assert!(!filter(&["192.0.2.0/24"], &[]).allows(&destination), "{port}");
            assert!(!filter(&["192.0.2.0/24", "443"], &[]).allows(&destination), "{port}");
            assert!(filter(&[&named], &[]).allows(&destination), "{port}");
            assert!(!filter(&[&named], &[&named]).allows(&destination), "{port}");
            assert!(broad.allows(&destination), "{port}");
        }
        let some = filter(&["443", "10.0.0.0/8"], &["10.1.0.0/16", "192.0.2.7:443"]);
        for (destination, helped) in [
            ("192.0.2.1:443", true),
            ("192.0.2.1:444", false),
            ("192.0.2.7:443", false),
            ("10.2.0.1:444", true),
            ("10.1.0.1:443", false),
        ] {
            assert_eq!(some.allows(&to(destination)), helped, "{destination}");
        }
    }

    /// Any selector, with a network of either family and ports, or one of them.
    fn selectors() -> impl Strategy<Value = Selector> {
        let v4 = (any::<[u8; 4]>(), 0..=32_u8).prop_map(|(bits, prefix)| (bits.into(), prefix));
        let v6 = (any::<[u8; 16]>(), 0..=128_u8).prop_map(|(bits, prefix)| (bits.into(), prefix));
        let network = prop_oneof![v4, v6].prop_map(|(address, prefix): (IpAddr, u8)| {
            let first = IpNetwork::new(address, prefix).unwrap().network();
            canonical(IpNetwork::new(first, prefix).unwrap())
        });
        let network = proptest::option::of(network);
        let ports = proptest::option::of(
            (1..=u16::MAX, 1..=u16::MAX).prop_map(|(one, other)| (one.min(other), one.max(other))),
        );
        (any::<bool>(), network, ports)
            .prop_filter("it selects something", |(_, network, ports)| {
                network.is_some() || ports.is_some()
            })
            .prop_map(|(of_source, network, ports)| Selector { of_source, network, ports })
    }

    proptest! {
        #[test]
        fn its_text_can_be_read(selector in selectors()) {
            prop_assert_eq!(selector.to_string().parse(), Ok(selector));
        }

        #[test]
        fn any_text_is_a_selector_or_an_error(text in "[0-9a-f.:/\\[\\]-]{0,24}") {
            if let Ok(selector) = text.parse::<Selector>() {
                prop_assert_eq!(selector.to_string().parse(), Ok(selector));
            }
        }
    }
}
