//! The machine's addresses: where senders reach the proxy, and what no sender can have.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use pnet_datalink::NetworkInterface;
use sidekick_protocol::Addresses;
use tracing::{info, warn};

use crate::config::Config;

/// The number of an address that belongs to no interface in particular.
const ANY_INTERFACE: u32 = u32::MAX;

/// Bridges and bonds on top of each other: more are not looked through.
const MAX_MASTERS: usize = 8;

/// What the workers need to know of the machine's interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The machine's addresses.
    pub addresses: Addresses,
    /// The kernel's index of the interface by which the machine sends to where packets come from,
    /// for each interface that is captured on: of the bridge or bond on top of it, or its own.
    pub egress: Vec<(u32, u32)>,
}

/// The names and the kernel's indices of an interface and of the bridges and bonds that it is a
/// port of, the topmost last.
fn stack(interface: &NetworkInterface) -> Vec<(String, u32)> {
    let class = Path::new("/sys/class/net");
    let index = |name: &str| {
        let text = std::fs::read_to_string(class.join(name).join("ifindex")).ok()?;
        text.trim().parse::<u32>().ok()
    };
    let mut stack = vec![(interface.name.clone(), interface.index)];
    // sysfs may show another network namespace than this process has.
    if index(&interface.name) != Some(interface.index) {
        return stack;
    }
    while let Some((name, _)) = stack.last()
        && stack.len() <= MAX_MASTERS
    {
        let master = std::fs::read_link(class.join(name).join("master")).ok();
        let master =
            master.as_deref().and_then(Path::file_name).and_then(OsStr::to_str).map(str::to_owned);
        let Some((master, index)) = master.and_then(|name| index(&name).map(|index| (name, index)))
        else {
            break;
        };
        stack.push((master, index));
    }
    stack
}

/// The machine's interfaces as they are now. `listen` is the address of the proxy's port.
fn look(config: &Config, listen: SocketAddr) -> Surroundings {
    let interfaces = pnet_datalink::interfaces();
    let networks = || interfaces.iter().flat_map(|interface| &interface.ips);
    let broadcast = networks().filter_map(|network| match network.broadcast() {
        // RFC 3021: two hosts at the ends of a link need none.
        IpAddr::V4(v4) if network.prefix() < 31 => Some(v4),
        _ => None,
    });
    let named = |name: &str| interfaces.iter().find(|interface| interface.name == name);
    let captured =
        || config.numbered_interfaces().filter_map(|(number, name)| Some((number, named(name)?)));
    let loopback =
        captured().filter(|(_, interface)| interface.is_loopback()).map(|(number, _)| number);
    let egress =
        captured().filter_map(|(number, interface)| Some((number, stack(interface).last()?.1)));
    Surroundings {
        addresses: Addresses {
            announced: announced(config, listen, &interfaces),
            // RFC 4291, section 2.6.1: a router also has each network's own address.
            own: networks().flat_map(|network| [network.ip(), network.network()]).collect(),
            broadcast: broadcast.collect(),
            loopback: loopback.collect(),
        },
        egress: egress.collect(),
    }
}

/// Where senders reach the proxy: the addresses that the operator names, the one that it listens
/// on, or those of the interfaces on which it captures.
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
        let its = interfaces.iter().filter(|i| stack.iter().any(|(name, _)| *name == i.name));
        let usable =
            its.flat_map(|interface| &interface.ips).map(|network| network.ip()).filter(|ip| {
                match ip {
                    IpAddr::V4(ip) => !ip.is_link_local(),
                    // An IPv6 socket that listens on all addresses takes IPv4 in, too.
                    IpAddr::V6(ip) => listen.is_ipv6() && !ip.is_unicast_link_local(),
                }
            });
        announced.extend(usable.map(|ip| (number, SocketAddr::new(ip, listen.port()))));
    }
    announced
}

/// Warns of interfaces where senders do not find the proxy.
fn warn_of_silence(config: &Config, addresses: &Addresses) {
    let everywhere = addresses.announced.iter().any(|(number, _)| *number == ANY_INTERFACE);
    for (number, name) in config.numbered_interfaces() {
        let here = addresses.announced.iter().any(|(of, _)| *of == number);
        if config.discovery && !everywhere && !here {
            warn!(
                "{name} has no address to tell senders that look for a proxy: they will not find this one there; \
                 name one with --announce"
            );
        }
    }
}

/// The machine's interfaces as the workers know them. They change while the proxy runs.
#[derive(Debug)]
pub(crate) struct Watch {
    listen: SocketAddr,
    known: Surroundings,
}

impl Watch {
    /// The interfaces as they are when the proxy starts.
    pub(crate) fn begin(config: &Config, listen: SocketAddr) -> Self {
        let known = look(config, listen);
        warn_of_silence(config, &known.addresses);
        Self { listen, known }
    }

    /// What was last found.
    pub(crate) fn known(&self) -> &Surroundings {
        &self.known
    }

    /// Looks again, and passes a change to `inform`, which returns whether all workers have it. If
    /// not, the next look passes it again.
    pub(crate) fn refresh(&mut self, config: &Config, inform: impl FnOnce(&Surroundings) -> bool) {
        let found = look(config, self.listen);
        if found != self.known && inform(&found) {
            info!("the addresses or interfaces of this machine have changed");
            warn_of_silence(config, &found.addresses);
            self.known = found;
        }
    }
}
