//! The machine's addresses: where senders reach the proxy, and what no sender can have.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use pnet_datalink::NetworkInterface;
use sidekick_protocol::Addresses;
use tracing::{info, warn};

use crate::cli::Options;
use crate::crew::Crew;

/// The number of an address that belongs to no interface in particular.
const ANY_INTERFACE: u32 = u32::MAX;

/// The name and the kernel's index of the bridge or bond that an interface is a port of.
pub(crate) fn master(interface: &NetworkInterface) -> Option<(String, u32)> {
    let directory = Path::new("/sys/class/net").join(&interface.name);
    let index = |path: &Path| std::fs::read_to_string(path.join("ifindex")).ok()?.trim().parse::<u32>().ok();
    // sysfs may show another network namespace than this process has.
    if index(&directory)? != interface.index {
        return None;
    }
    let master = std::fs::read_link(directory.join("master")).ok()?;
    Some((master.file_name()?.to_str()?.to_owned(), index(&directory.join("master"))?))
}

/// The machine's addresses as they are now. `listen` is the address of the proxy's port.
pub(crate) fn present(options: &Options, listen: SocketAddr) -> Addresses {
    let interfaces = pnet_datalink::interfaces();
    let networks = || interfaces.iter().flat_map(|interface| &interface.ips);
    let broadcast = networks().filter_map(|network| match network.broadcast() {
        // RFC 3021: two hosts at the ends of a link need none.
        IpAddr::V4(v4) if network.prefix() < 31 => Some(v4),
        _ => None,
    });
    let named = |name: &str| interfaces.iter().find(|interface| interface.name == name);
    let loopback = (0_u32..)
        .zip(options.distinct_interfaces())
        .filter(|(_, name)| named(name).is_some_and(NetworkInterface::is_loopback))
        .map(|(number, _)| number);
    Addresses {
        announced: announced(options, listen, &interfaces),
        own: networks().map(|network| network.ip()).collect(),
        broadcast: broadcast.collect(),
        loopback: loopback.collect(),
    }
}

/// Where senders reach the proxy: the addresses that the operator names, the one that it listens on, or those of the
/// interfaces on which it captures.
fn announced(
    options: &Options,
    listen: SocketAddr,
    interfaces: &[NetworkInterface],
) -> Vec<(u32, SocketAddr)> {
    if options.no_discovery {
        return Vec::new();
    }
    if !options.announce.is_empty() {
        return options.announce.iter().map(|address| (ANY_INTERFACE, *address)).collect();
    }
    if !listen.ip().is_unspecified() {
        return vec![(ANY_INTERFACE, listen)];
    }
    let mut announced = Vec::new();
    for (number, name) in (0_u32..).zip(options.distinct_interfaces()) {
        // The port of a bridge has no address of its own; the bridge has.
        let bridge = interfaces.iter().find(|i| i.name == name).and_then(master).map(|(bridge, _)| bridge);
        let its = interfaces.iter().filter(|i| i.name == name || Some(&i.name) == bridge.as_ref());
        let usable =
            its.flat_map(|interface| &interface.ips).map(|network| network.ip()).filter(|ip| match ip {
                IpAddr::V4(ip) => !ip.is_link_local(),
                // An IPv6 socket that listens on all addresses takes IPv4 in, too.
                IpAddr::V6(ip) => listen.is_ipv6() && !ip.is_unicast_link_local(),
            });
        announced.extend(usable.map(|ip| (number, SocketAddr::new(ip, listen.port()))));
    }
    announced
}

/// Warns of interfaces where senders do not find the proxy.
fn warn_of_silence(options: &Options, addresses: &Addresses) {
    let everywhere = addresses.announced.iter().any(|(number, _)| *number == ANY_INTERFACE);
    for (number, name) in (0_u32..).zip(options.distinct_interfaces()) {
        let here = addresses.announced.iter().any(|(of, _)| *of == number);
        if !options.no_discovery && !everywhere && !here {
            warn!(
                "{name} has no address to tell senders that look for a proxy: they will not find this one there; \
                 name one with --announce"
            );
        }
    }
}

/// Keeps the workers informed of the machine's addresses, which change while the proxy runs.
#[derive(Debug)]
pub(crate) struct Watch {
    listen: SocketAddr,
    known: Addresses,
}

impl Watch {
    /// The addresses as they are when the proxy starts.
    pub(crate) fn begin(options: &Options, listen: SocketAddr) -> Self {
        let known = present(options, listen);
        warn_of_silence(options, &known);
        Self { listen, known }
    }

    /// The addresses that were last found.
    pub(crate) fn known(&self) -> &Addresses {
        &self.known
    }

    /// Looks again, and informs the workers of a change.
    pub(crate) fn refresh(&mut self, options: &Options, crew: &Crew) {
        let present = present(options, self.listen);
        if present != self.known && crew.set_addresses(&present) {
            info!("the addresses of this machine have changed");
            warn_of_silence(options, &present);
            self.known = present;
        }
    }
}
