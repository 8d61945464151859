//! The machine's interfaces and addresses.

use std::collections::HashSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use crate::addresses;

/// Most levels of devices below one another that the agent searches.
const MOST_BELOW: usize = 8;

/// The machine's addresses, and by which interfaces messages to proxies leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Host {
    /// The machine's own addresses, and those of its interfaces' hardware.
    pub(super) local: HashSet<IpAddr>,
    pub(super) hardware: HashSet<[u8; 6]>,
    /// The kernel's index of the interface by which messages leave, for each named interface in its
    /// order: itself, or the bridge or bond of which it is a port.
    egress: Vec<Option<u32>>,
}

impl Host {
    /// Reads the machine's interfaces.
    pub(super) fn read(names: &[String]) -> Self {
        let interfaces = pnet_datalink::interfaces();
        let egress = names.iter().map(|name| {
            let interface = interfaces.iter().find(|interface| interface.name == *name)?;
            addresses::egress_index(interface, &interfaces)
        });
        let local = interfaces.iter().flat_map(|it| &it.ips).map(|network| network.ip());
        let hardware = interfaces.iter().filter_map(|it| it.mac).map(|mac| mac.octets());
        Self { local: local.collect(), hardware: hardware.collect(), egress: egress.collect() }
    }

    /// The index of the interface by which messages leave for flows of the interface with this
    /// number.
    pub(super) fn egress(&self, interface: u32) -> Option<u32> {
        *self.egress.get(usize::try_from(interface).ok()?)?
    }
}

/// The names of the devices below one, such as the ports of a bridge or a bond, or the parent of a
/// VLAN.
fn below(class: &Path, name: &str) -> Vec<String> {
    let entries = fs::read_dir(class.join(name)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix("lower_").map(str::to_owned)).collect()
}

/// Pairs of named interfaces of which the second is below the first, so that each packet of the
/// first is also one of the second. `class` is a directory like `/sys/class/net`.
pub(super) fn stacked<'a>(class: &Path, names: &'a [String]) -> Vec<(&'a str, &'a str)> {
    let mut pairs = Vec::new();
    for upper in names {
        let mut layer = vec![upper.clone()];
        for _ in 0..MOST_BELOW {
            layer = layer.iter().flat_map(|name| below(class, name)).collect();
            let named = names.iter().filter(|name| layer.contains(name));
            pairs.extend(named.map(|lower| (upper.as_str(), lower.as_str())));
        }
    }
    pairs.dedup();
    pairs
}

/// A sentence if the kernel hands packets of a bridge to iptables, where the address translation of
/// this host changes the answers of proxies. `class` is a directory like `/sys/class/net`, and
/// `settings` one like `/proc/sys/net/bridge`.
pub(super) fn filtered_bridge(class: &Path, settings: &Path, names: &[String]) -> Option<String> {
    let bridged = names.iter().find(|name| {
        let of = class.join(name);
        of.join("bridge").exists() || of.join("brport").exists()
    })?;
    let setting = ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables"]
        .into_iter()
        .find(|it| fs::read_to_string(settings.join(it)).is_ok_and(|value| value.trim() == "1"))?;
    Some(format!(
        "net.bridge.{setting} = 1: if this host translates addresses, packets of {bridged} show \
         them changed, and the agent does not recognise the answers of proxies: set it to 0"
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_whose_packets_pass_iptables_is_named() {
        let (class, settings) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(class.path().join("br0/bridge")).unwrap();
        fs::create_dir_all(class.path().join("eth0/brport")).unwrap();
        fs::create_dir_all(class.path().join("eth1")).unwrap();
        let said = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            filtered_bridge(class.path(), settings.path(), &names)
        };
        assert_eq!(said(&["br0"]), None, "no such setting");
        fs::write(settings.path().join("bridge-nf-call-iptables"), "1\n").unwrap();
        assert_eq!(said(&["eth1"]), None);
        for name in ["br0", "eth0"] {
            let said = said(&["eth1", name]).unwrap();
            assert!(said.contains(name) && said.contains("bridge-nf-call-iptables = 1"), "{said}");
        }
        fs::write(settings.path().join("bridge-nf-call-iptables"), "0\n").unwrap();
        assert_eq!(said(&["br0"]), None);
    }

    #[test]
    fn devices_below_each_other_are_found() {
        let class = tempfile::tempdir().unwrap();
        for (upper, lowers) in
            [("br0", vec!["eth0.5", "wlan0"]), ("eth0.5", vec!["eth0"]), ("eth0", vec![])]
        {
            fs::create_dir_all(class.path().join(upper)).unwrap();
            for lower in lowers {
                fs::create_dir_all(class.path().join(upper).join(format!("lower_{lower}")))
                    .unwrap();
            }
        }
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (named, expected) in [
            (&["eth0", "wlan0"][..], vec![]),
            (&["eth0", "br0"], vec![("br0", "eth0")]),
            (&["wlan0", "eth0.5", "eth0"], vec![("eth0.5", "eth0")]),
            (&["br0", "wlan0", "nonesuch0"], vec![("br0", "wlan0")]),
        ] {
            assert_eq!(stacked(class.path(), &names(named)), expected, "{named:?}");
        }
    }
}
