//! The machine's addresses: where senders reach the proxy, and which addresses no sender can have.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use nix::libc::IFF_UP;
use pnet_datalink::NetworkInterface;
use sidekick_protocol::Addresses;
use tracing::{info, warn};

use crate::config::Config;
use crate::monitor::listener::MetricsAddress;

/// The number of an announced address that is the same on all interfaces.
const ANY_INTERFACE: u32 = u32::MAX;

/// Most levels of bridges and bonds that the search follows.
const MAX_MASTERS: usize = 8;

/// The machine's addresses and interfaces, as the workers use them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNetwork {
    /// The machine's addresses.
    pub addresses: Addresses,
    /// The interface by which answers leave, for each interface that the proxy captures on.
    pub egress: Vec<Egress>,
}

/// The interface by which the machine sends answers to captured packets. It is the bridge or bond
/// on top of the captured interface, or that interface itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// The daemon's number of the captured interface.
    pub interface: u32,
    /// The kernel's index of the interface by which answers leave. `None`: as the table of routes
    /// says.
    pub index: Option<u32>,
}

/// An interface, or a bridge or bond on top of it.
#[derive(Debug)]
struct Layer {
    name: String,
    /// The kernel's index.
    index: u32,
}

/// An interface and the bridges and bonds of which it is a port, the topmost last.
fn stack(interface: &NetworkInterface) -> Vec<Layer> {
    let class = Path::new("/sys/class/net");
    let index = |name: &str| {
        let text = std::fs::read_to_string(class.join(name).join("ifindex")).ok()?;
        text.trim().parse::<u32>().ok()
    };
    let mut stack = vec![Layer { name: interface.name.clone(), index: interface.index }];
    // Sysfs may show another network namespace than this process has.
    if index(&interface.name) != Some(interface.index) {
        return stack;
    }
    while let Some(top) = stack.last()
        && stack.len() <= MAX_MASTERS
    {
        let master = std::fs::read_link(class.join(&top.name).join("master")).ok();
        let name = master.as_deref().and_then(Path::file_name).and_then(OsStr::to_str);
        let Some(name) = name.filter(|name| sends_for_its_ports(&class.join(name))) else { break };
        let Some(index) = index(name) else { break };
        stack.push(Layer { name: name.to_owned(), index });
    }
    stack
}

/// Whether packets to the hosts behind a port leave by its master with this directory in sysfs. A
/// VRF only has a table of routes for its ports. Open vSwitch's own master is never up.
fn sends_for_its_ports(master: &Path) -> bool {
    let read = |file: &str| std::fs::read_to_string(master.join(file)).unwrap_or_default();
    let flags = read("flags");
    let flags = flags.trim().strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
    let is_up = flags.is_some_and(|flags| flags & IFF_UP.cast_unsigned() != 0);
    is_up && !read("uevent").lines().any(|line| line == "DEVTYPE=vrf")
}

/// The kernel's index of the interface by which the machine answers packets of this interface, of
/// all interfaces: the bridge or bond on top of it, or itself. `None` if that has no address: below
/// a session of PPPoE, the table of routes names the session's own interface.
pub(crate) fn egress_index(
    interface: &NetworkInterface,
    interfaces: &[NetworkInterface],
) -> Option<u32> {
    let index = stack(interface).last()?.index;
    let top = interfaces.iter().find(|other| other.index == index).unwrap_or(interface);
    top.ips.iter().any(|network| !is_link_local(network.ip())).then_some(index)
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Reads the machine's interfaces. `listen` is the address of the proxy's port.
fn read(config: &Config, listen: SocketAddr) -> HostNetwork {
    let interfaces = pnet_datalink::interfaces();
    let networks = || interfaces.iter().flat_map(|interface| &interface.ips);
    let broadcast = networks().filter_map(|network| match network.broadcast() {
        // RFC 3021: the two hosts of a point-to-point link have no broadcast address.
        IpAddr::V4(v4) if network.prefix() < 31 => Some(v4),
        _ => None,
    });
    let named = |name: &str| interfaces.iter().find(|interface| interface.name == name);
    let captured =
        || config.numbered_interfaces().filter_map(|(number, name)| Some((number, named(name)?)));
    let loopback =
        captured().filter(|(_, interface)| interface.is_loopback()).map(|(number, _)| number);
    let egress = captured().map(|(number, interface)| Egress {
        interface: number,
        index: egress_index(interface, &interfaces),
    });
    HostNetwork {
        addresses: Addresses {
            announced: announced(config, listen, &interfaces),
            local: interfaces.iter().flat_map(as_router).collect(),
            broadcast: broadcast.collect(),
            loopback: loopback.collect(),
        },
        egress: egress.collect(),
    }
}

/// The addresses at which a router answers on an interface: its own, and those of the networks (RFC
/// 4291, section 2.6.1). On a link of two hosts, the latter belongs to one of them (RFC 3021, RFC
/// 6164).
fn as_router(interface: &NetworkInterface) -> impl Iterator<Item = IpAddr> {
    interface.ips.iter().flat_map(|network| {
        let bits = if network.is_ipv4() { 32 } else { 128 };
        let of_all = (network.prefix() + 1 < bits).then(|| network.network());
        [network.ip()].into_iter().chain(of_all)
    })
}

/// Where senders reach the proxy: the addresses of --announce, the one on which the proxy listens,
/// or those of the captured interfaces.
fn announced(
    config: &Config,
    listen: SocketAddr,
    interfaces: &[NetworkInterface],
) -> Vec<(u32, SocketAddr)> {
    if !config.discovery {
        return Vec::new();
    }
    if !config.announce.is_empty() {
        return config.announce.iter().map(|address| (ANY_INTERFACE, *address)).collect();
    }
    if !listen.ip().is_unspecified() {
        return vec![(ANY_INTERFACE, listen)];
    }
    let mut announced = Vec::new();
    for (number, name) in config.numbered_interfaces() {
        // The port of a bridge has no address of its own; the bridge has.
        let stack = interfaces.iter().find(|i| i.name == name).map(stack).unwrap_or_default();
        let layers = interfaces.iter().filter(|i| stack.iter().any(|layer| layer.name == i.name));
        let usable =
            layers.flat_map(|interface| &interface.ips).map(|network| network.ip()).filter(|ip| {
                match ip {
                    IpAddr::V4(ip) => !ip.is_link_local(),
                    // An IPv6 socket that listens on all addresses also receives IPv4.
                    IpAddr::V6(ip) => listen.is_ipv6() && !ip.is_unicast_link_local(),
                }
            });
        announced.extend(usable.map(|ip| (number, SocketAddr::new(ip, listen.port()))));
    }
    announced
}

/// A sentence for each interface where the proxy has no address to announce. Another sentence names
/// those that do not exist.
fn silent_interfaces(config: &Config, addresses: &Addresses) -> Vec<String> {
    let everywhere = addresses.announced.iter().any(|(number, _)| *number == ANY_INTERFACE);
    let silent = config.numbered_interfaces().filter(|(number, name)| {
        let here = addresses.announced.iter().any(|(of, _)| of == number);
        let exists = nix::net::if_::if_nametoindex(*name).is_ok();
        config.discovery && exists && !everywhere && !here
    });
    let sentences = silent.map(|(_, name)| {
        format!(
            "{name} has no address to announce: senders that look for a proxy do not find this \
             one there; name an address with --announce"
        )
    });
    sentences.collect()
}

fn warn_of_silence(config: &Config, addresses: &Addresses) {
    for sentence in silent_interfaces(config, addresses) {
        warn!("{sentence}");
    }
}

/// Remarks on the addresses of a proxy's configuration that do not fit this machine now. Opens no
/// socket.
pub(crate) fn remarks(config: &Config) -> Vec<String> {
    let listen = config.listen();
    let own = OwnAddresses::read();
    let mut remarks = Vec::new();
    remarks.extend(own.foreign("listen", config.listen));
    remarks.extend(own.foreign("metrics", config.metrics.and_then(MetricsAddress::address)));
    if config.discovery {
        let own_senders = config.interfaces.iter().all(|name| own.is_loopback(name));
        let announced = config.announce.iter();
        remarks.extend(announced.filter_map(|at| own.unreachable(*at, listen, own_senders)));
    }
    remarks.extend(silent_interfaces(config, &read(config, listen).addresses));
    remarks
}

/// The addresses and interfaces of this machine.
pub(crate) struct OwnAddresses(Vec<NetworkInterface>);

impl OwnAddresses {
    /// Reads them.
    pub(crate) fn read() -> Self {
        Self(pnet_datalink::interfaces())
    }

    /// Whether an address is one of this machine.
    pub(crate) fn contains(&self, ip: IpAddr) -> bool {
        // All of 127/8 is this machine, and no interface lists it.
        ip.is_loopback() || self.0.iter().flat_map(|it| &it.ips).any(|network| network.ip() == ip)
    }

    fn is_loopback(&self, name: &str) -> bool {
        self.0.iter().any(|interface| interface.name == *name && interface.is_loopback())
    }

    /// A remark if a program cannot listen at the address of the setting `key` on this machine now.
    pub(crate) fn foreign(&self, key: &str, address: Option<SocketAddr>) -> Option<String> {
        let ip = address?.ip();
        let version = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
        (!ip.is_unspecified() && !self.contains(ip)).then(|| {
            format!(
                "{key}: {ip} is not an address of this machine now: unless \
                 net.{version}.ip_nonlocal_bind is 1, the program does not start before it is"
            )
        })
    }

    /// A remark if senders do not reach a proxy that listens on `listen` at an announced address.
    /// `own_senders`: all of them are on this machine.
    fn unreachable(
        &self,
        announced: SocketAddr,
        listen: SocketAddr,
        own_senders: bool,
    ) -> Option<String> {
        let ip = announced.ip();
        // An IPv6 socket that listens on all addresses also receives IPv4.
        let hears_ip = if listen.ip().is_unspecified() {
            listen.is_ipv6() || ip.is_ipv4()
        } else {
            listen.ip() == ip
        };
        let is_heard = hears_ip && announced.port() == listen.port();
        let why = if ip.is_loopback() && !own_senders {
            format!("only this machine reaches {ip}: name an address that senders reach")
        } else if is_link_local(ip) {
            format!("agents ask no proxy at the link-local address {ip}: name another")
        } else if !self.contains(ip) {
            let later = if is_heard { "once it is, or " } else { "" };
            format!(
                "{ip} is not an address of this machine now: senders reach the proxy at \
                 {announced} only {later}if another machine forwards that to port {} of this one",
                listen.port()
            )
        } else if !is_heard {
            format!("the proxy does not listen on {announced}, but on {listen}")
        } else {
            return None;
        };
        Some(format!("announce: {why}"))
    }
}

/// The machine's network as the workers know it, and its changes while the proxy runs.
#[derive(Debug)]
pub(crate) struct NetworkMonitor {
    listen: SocketAddr,
    known: HostNetwork,
}

impl NetworkMonitor {
    /// Reads the interfaces for the first time.
    pub(crate) fn new(config: &Config, listen: SocketAddr) -> Self {
        let known = read(config, listen);
        warn_of_silence(config, &known.addresses);
        Self { listen, known }
    }

    /// The addresses and interfaces that the workers use.
    pub(crate) fn known(&self) -> &HostNetwork {
        &self.known
    }

    /// Reads the interfaces again, and passes a change to `inform`, which returns whether all
    /// workers use it. If not, the next call passes it again.
    pub(crate) fn refresh(&mut self, config: &Config, inform: impl FnOnce(&HostNetwork) -> bool) {
        let found = read(config, self.listen);
        if found != self.known && inform(&found) {
            info!("the addresses or interfaces of this machine have changed");
            warn_of_silence(config, &found.addresses);
            self.known = found;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn own() -> OwnAddresses {
        let interface = |name: &str, ip: &str, flags| NetworkInterface {
            name: name.to_owned(),
            description: String::new(),
            index: 1,
            mac: None,
            ips: vec![ip.parse().unwrap()],
            flags,
        };
        let loopback = nix::libc::IFF_LOOPBACK.unsigned_abs();
        OwnAddresses(vec![
            interface("lo", "::1/128", loopback),
            interface("eth0", "192.0.2.1/24", 0),
            interface("eth0", "2001:db8::1/64", 0),
        ])
    }

    #[test]
    fn the_other_host_of_a_link_of_two_is_not_this_one() {
        for (ip, expected) in [
            ("10.0.0.1/31", &["10.0.0.1"][..]),
            ("10.0.0.1/32", &["10.0.0.1"]),
            ("10.0.0.1/30", &["10.0.0.1", "10.0.0.0"]),
            ("2001:db8::1/127", &["2001:db8::1"]),
            ("2001:db8::1/126", &["2001:db8::1", "2001:db8::"]),
        ] {
            let OwnAddresses(mut interfaces) = own();
            interfaces[0].ips = vec![ip.parse().unwrap()];
            let found: Vec<_> = as_router(&interfaces[0]).map(|ip| ip.to_string()).collect();
            assert_eq!(found, expected, "{ip}");
        }
    }

    #[test]
    fn a_master_that_sends_nothing_itself_is_no_way_out() {
        let master = tempfile::tempdir().unwrap();
        let writes = |flags: &str, uevent: &str| {
            std::fs::write(master.path().join("flags"), flags).unwrap();
            std::fs::write(master.path().join("uevent"), uevent).unwrap();
            sends_for_its_ports(master.path())
        };
        assert!(writes("0x1003\n", "DEVTYPE=bridge\nINTERFACE=br0\nIFINDEX=3\n"));
        assert!(writes("0x1443\n", "INTERFACE=team0\nIFINDEX=3\n"));
        assert!(!writes("0x4c1\n", "DEVTYPE=vrf\nINTERFACE=blue\nIFINDEX=3\n"));
        assert!(!writes("0x1002\n", "INTERFACE=ovs-system\nIFINDEX=3\n"));
        std::fs::remove_file(master.path().join("flags")).unwrap();
        assert!(!sends_for_its_ports(master.path()));
    }

    #[test]
    fn an_address_of_another_machine_is_named() {
        for at in ["0.0.0.0:1", "[::]:1", "127.0.0.9:1", "[::1]:1", "192.0.2.1:1"] {
            assert_eq!(own().foreign("listen", at.parse().ok()), None, "{at}");
        }
        assert_eq!(own().foreign("listen", None), None);
        assert_eq!(
            own().foreign("metrics", "192.0.2.9:1".parse().ok()).unwrap(),
            "metrics: 192.0.2.9 is not an address of this machine now: unless \
             net.ipv4.ip_nonlocal_bind is 1, the program does not start before it is"
        );
        let remark = own().foreign("listen", "[2001:db8::9]:1".parse().ok()).unwrap();
        assert!(remark.contains("unless net.ipv6.ip_nonlocal_bind is 1"), "{remark}");
    }

    #[test]
    fn an_announced_address_that_senders_do_not_reach_is_named() {
        let says = |announced: &str, listen: &str, own_senders| {
            let remark =
                own().unreachable(announced.parse().unwrap(), listen.parse().unwrap(), own_senders);
            remark.unwrap_or_default()
        };
        for (announced, listen, own_senders, said) in [
            ("192.0.2.1:5252", "[::]:5252", false, ""),
            ("192.0.2.1:5252", "0.0.0.0:5252", false, ""),
            ("192.0.2.1:5252", "192.0.2.1:5252", false, ""),
            ("[2001:db8::1]:5252", "[::]:5252", false, ""),
            ("127.0.0.1:5252", "[::]:5252", true, ""),
            ("127.0.0.1:5252", "[::]:5252", false, "only this machine reaches 127.0.0.1"),
            ("[::1]:5252", "[::]:5252", false, "only this machine reaches ::1"),
            ("169.254.1.1:5252", "[::]:5252", false, "the link-local address 169.254.1.1"),
            ("[fe80::1]:5252", "[::]:5252", true, "the link-local address fe80::1"),
            (
                "192.0.2.9:5252",
                "[::]:5252",
                false,
                "at 192.0.2.9:5252 only once it is, or if another machine forwards that to port \
                 5252 of this one",
            ),
            (
                "192.0.2.9:443",
                "[::]:5252",
                false,
                "at 192.0.2.9:443 only if another machine forwards that to port 5252 of this one",
            ),
            (
                "192.0.2.9:5252",
                "192.0.2.1:5252",
                false,
                "at 192.0.2.9:5252 only if another machine forwards that to port 5252",
            ),
            ("192.0.2.1:5353", "[::]:5252", false, "does not listen on 192.0.2.1:5353, but on"),
            ("[2001:db8::1]:5252", "0.0.0.0:5252", false, "does not listen on [2001:db8::1]:5252"),
            ("192.0.2.1:5252", "[2001:db8::1]:5252", false, "but on [2001:db8::1]:5252"),
        ] {
            let remark = says(announced, listen, own_senders);
            assert!(remark.contains(said) && remark.is_empty() == said.is_empty(), "{remark}");
            assert!(said.is_empty() || remark.starts_with("announce: "), "{remark}");
        }
    }
}
