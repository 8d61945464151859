//! The machine's addresses: where senders reach the proxy, and which addresses no sender can have.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use pnet_datalink::NetworkInterface;
use sidekick_protocol::Addresses;
use tracing::{info, warn};

use crate::config::Config;

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
    /// The kernel's index of the interface by which answers leave.
    pub index: u32,
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
        let Some(name) = name else { break };
        let Some(index) = index(name) else { break };
        stack.push(Layer { name: name.to_owned(), index });
    }
    stack
}

/// The kernel's index of the interface by which the machine answers packets of this interface: the
/// bridge or bond on top of it, or itself.
pub(crate) fn egress_index(interface: &NetworkInterface) -> Option<u32> {
    Some(stack(interface).last()?.index)
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
    let egress = captured().filter_map(|(number, interface)| {
        Some(Egress { interface: number, index: egress_index(interface)? })
    });
    HostNetwork {
        addresses: Addresses {
            announced: announced(config, listen, &interfaces),
            // RFC 4291, section 2.6.1: a router also has each network's own address.
            local: networks().flat_map(|network| [network.ip(), network.network()]).collect(),
            broadcast: broadcast.collect(),
            loopback: loopback.collect(),
        },
        egress: egress.collect(),
    }
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

/// Warns of interfaces where the proxy has no address to announce. Another warning names those that
/// do not exist.
fn warn_of_silence(config: &Config, addresses: &Addresses) {
    let everywhere = addresses.announced.iter().any(|(number, _)| *number == ANY_INTERFACE);
    for (number, name) in config.numbered_interfaces() {
        let here = addresses.announced.iter().any(|(of, _)| *of == number);
        let exists = nix::net::if_::if_nametoindex(name).is_ok();
        if config.discovery && exists && !everywhere && !here {
            warn!(
                "{name} has no address to announce: senders that look for a proxy do not find \
                 this one there; name an address with --announce"
            );
        }
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
