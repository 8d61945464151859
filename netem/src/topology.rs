//! Sender, proxy and receiver in network namespaces of their own, joined by veth pairs.
//!
//! ```text
//! backend user:
//!   sender [near] -- [near-s] lab [near-p] -- [near] proxy
//!   proxy [far] -- [far-p] lab [far-r] -- [far] receiver
//! backend tc:
//!   sender [near] -- [near-s bridge near-p] -- [near] proxy
//!   proxy [far] -- [far-p bridge far-r] -- [far] receiver
//! ```
//!
//! The proxy forwards by the kernel's own routing. Addresses and neighbours are fixed, and no
//! device merges or splits packets, so a packet from one end is one frame everywhere on the path.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::namespace::{Namespace, NamespaceError, OTHER};

/// The sender.
pub const SENDER: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 1);
/// The proxy, as the sender sees it.
pub const PROXY_NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 2);
/// The proxy, as the receiver sees it.
pub const PROXY_FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 1);
/// The proxy behind a middle segment, which exists only in virtual time.
pub const SECOND_PROXY: Ipv4Addr = Ipv4Addr::new(10, 77, 3, 1);
/// The sender on its second uplink.
pub const SENDER_SECOND: Ipv4Addr = Ipv4Addr::new(10, 77, 4, 1);
/// The proxy, as the sender sees it there.
pub const PROXY_BESIDE: Ipv4Addr = Ipv4Addr::new(10, 77, 4, 2);
/// The receiver.
pub const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 2);

/// The sender's IPv6 address, if the path [has IPv6](Topology::add_ipv6).
pub const SENDER_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 1, 0, 0, 0, 1);
/// The proxy's IPv6 address, as the sender sees it.
pub const PROXY_NEAR_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 1, 0, 0, 0, 2);
/// The proxy's IPv6 address, as the receiver sees it.
pub const PROXY_FAR_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 2, 0, 0, 0, 1);
/// The receiver's IPv6 address.
pub const RECEIVER_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 2, 0, 0, 0, 2);

/// An address on the near segment without a host.
pub const UNUSED_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 77);

/// The port of the receiver's server.
pub const SERVER_PORT: u16 = 4433;
/// The port of the proxy.
pub const PROXY_PORT: u16 = 5252;

/// The interface on the near segment, in the sender's and in the proxy's namespace.
pub const NEAR: &str = "near";
/// The interface on the second near segment, in the sender's and in the proxy's namespace.
pub const SECOND: &str = "second";
/// The interface on the far segment, in the proxy's and in the receiver's namespace.
pub const FAR: &str = "far";

/// The lab's ends of the near segment: the sender's side, and the proxy's side.
pub const NEAR_ENDS: (&str, &str) = ("near-s", "near-p");
/// The lab's ends of the second near segment, in the same order.
pub const SECOND_ENDS: (&str, &str) = ("second-s", "second-p");
/// The lab's ends of the far segment: the proxy's side, and the receiver's side.
pub const FAR_ENDS: (&str, &str) = ("far-p", "far-r");

const PREFIX: &str = "10.77.0.0/16";
const PREFIX_V6: &str = "fd77::/32";

/// Offloads that merge or split frames, or leave checksums to hardware that does not exist.
const OFFLOADS: [&str; 7] = ["tx", "rx", "sg", "tso", "gso", "gro", "tx-udp-segmentation"];

/// The three hosts of a path.
#[derive(Debug)]
pub struct Topology {
    /// The host of the client.
    pub sender: Namespace,
    /// The host of the proxy.
    pub proxy: Namespace,
    /// The host of the server.
    pub receiver: Namespace,
    /// The sender has a second uplink.
    has_second: bool,
}

/// One host's end of a segment.
struct Port<'a> {
    host: &'a Namespace,
    interface: &'static str,
    address: Ipv4Addr,
    peer: Ipv4Addr,
    /// Address and peer, if the path has IPv6.
    v6: Option<(Ipv6Addr, Ipv6Addr)>,
    /// The lab's end.
    end: &'static str,
}

impl Topology {
    /// Three hosts whose segments end in the lab's namespace, at [`NEAR_ENDS`] and [`FAR_ENDS`],
    /// and with a second uplink at [`SECOND_ENDS`]. A relay there must carry the frames across.
    pub(crate) fn through_lab(lab: &Namespace, has_second: bool) -> Result<Self, NamespaceError> {
        let hosts = Self::hosts(has_second)?;
        for Port { host, interface, address, end, .. } in hosts.ports() {
            let peer = format!("{interface} address {} netns {OTHER}", mac(address));
            lab.run_beside(host, &format!("ip link add {end} type veth peer name {peer}"))?;
            plain_frames(lab, end)?;
            lab.run(&format!("ip link set {end} up"))?;
        }
        hosts.configure()?;
        // Until then, a frame that a host sends is lost at the other end.
        for Port { end, .. } in hosts.ports() {
            lab.run_until(&format!("ip -oneline link show {end}"), "state UP")?;
        }
        Ok(hosts)
    }

    /// Adds a bridge for each segment, so that the kernel carries the frames across the lab's
    /// namespace, and no segment loses packets at a host's own interface: proxies and agents
    /// capture only packets that it sends.
    pub(crate) fn bridge(lab: &Namespace) -> Result<(), NamespaceError> {
        for (name, ends) in [(NEAR, NEAR_ENDS), (FAR, FAR_ENDS)] {
            // A bridge that learns multicast groups sends its own reports.
            lab.run(&format!("ip link add {name} type bridge mcast_snooping 0"))?;
            for end in [ends.0, ends.1] {
                lab.run(&format!("ip link set {end} master {name}"))?;
            }
            lab.run(&format!("ip link set {name} up"))?;
        }
        Ok(())
    }

    fn hosts(has_second: bool) -> Result<Self, NamespaceError> {
        Ok(Self {
            sender: Namespace::create("sender")?,
            proxy: Namespace::create("proxy")?,
            receiver: Namespace::create("receiver")?,
            has_second,
        })
    }

    fn ports(&self) -> impl Iterator<Item = Port<'_>> {
        let Self { sender, proxy, receiver, .. } = self;
        let port = |host, interface, address, peer, v6, end| Port {
            host,
            interface,
            address,
            peer,
            v6,
            end,
        };
        let (near, far) = ((SENDER_V6, PROXY_NEAR_V6), (PROXY_FAR_V6, RECEIVER_V6));
        let [near_back, far_back] = [near, far].map(|(one, other)| (other, one));
        let beside = [
            port(sender, SECOND, SENDER_SECOND, PROXY_BESIDE, None, SECOND_ENDS.0),
            port(proxy, SECOND, PROXY_BESIDE, SENDER_SECOND, None, SECOND_ENDS.1),
        ];
        let all = [
            port(sender, NEAR, SENDER, PROXY_NEAR, Some(near), NEAR_ENDS.0),
            port(proxy, NEAR, PROXY_NEAR, SENDER, Some(near_back), NEAR_ENDS.1),
            port(proxy, FAR, PROXY_FAR, RECEIVER, Some(far), FAR_ENDS.0),
            port(receiver, FAR, RECEIVER, PROXY_FAR, Some(far_back), FAR_ENDS.1),
        ];
        all.into_iter().chain(beside.into_iter().filter(|_| self.has_second))
    }

    fn configure(&self) -> Result<(), NamespaceError> {
        for Port { host, interface, address, peer, .. } in self.ports() {
            plain_frames(host, interface)?;
            host.run(&format!("ip address add {address}/24 dev {interface}"))?;
            host.run(&format!("ip link set {interface} up"))?;
            neighbour(host, interface, peer.into(), &mac(peer))?;
        }
        self.sender.run(&format!("ip route add {PREFIX} via {PROXY_NEAR}"))?;
        self.receiver.run(&format!("ip route add {PREFIX} via {PROXY_FAR}"))?;
        if self.has_second {
            // For sockets of this interface alone.
            let route = format!("{PREFIX} via {PROXY_BESIDE} dev {SECOND} metric 1000");
            self.sender.run(&format!("ip route add {route}"))?;
        }
        self.proxy.set("net/ipv4/ip_forward", "1")
    }

    /// Adds IPv6 addresses to the hosts. The kernel then sends a few packets by itself. They report
    /// an address's multicast groups to routers.
    ///
    /// # Errors
    ///
    /// [`NamespaceError`] of the step that failed, also if the kernel has no IPv6.
    pub fn add_ipv6(&self) -> Result<(), NamespaceError> {
        for Port { host, interface, peer, v6, .. } in self.ports() {
            let Some((address, peer_v6)) = v6 else { continue };
            // Without a link-local address, the kernel does not search for routers.
            host.run(&format!("ip link set {interface} addrgenmode none"))?;
            host.set(&format!("net/ipv6/conf/{interface}/disable_ipv6"), "0")?;
            host.run(&format!("ip address add {address}/64 dev {interface} nodad"))?;
            neighbour(host, interface, peer_v6.into(), &mac(peer))?;
            host.run_until(&format!("ip route get {address}"), "local ")?;
        }
        self.sender.run(&format!("ip route add {PREFIX_V6} via {PROXY_NEAR_V6}"))?;
        self.receiver.run(&format!("ip route add {PREFIX_V6} via {PROXY_FAR_V6}"))?;
        self.proxy.set("net/ipv6/conf/all/forwarding", "1")
    }
}

/// A fixed hardware address, made from the IP address.
fn mac(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

fn neighbour(
    host: &Namespace,
    interface: &str,
    peer: IpAddr,
    mac: &str,
) -> Result<(), NamespaceError> {
    let command = format!("ip neighbour add {peer} lladdr {mac} dev {interface} nud permanent");
    host.run(&command).map(drop)
}

fn plain_frames(host: &Namespace, interface: &str) -> Result<(), NamespaceError> {
    let offloads = OFFLOADS.map(|offload| format!("{offload} off")).join(" ");
    host.run(&format!("ethtool -K {interface} {offloads}")).map(drop)
}
