//! The device by which this host gets copies of datagrams that were lost on their way to it.
//!
//! A packet that the agent writes to it has the addresses of its flow. The host sees it arrive on
//! another interface. For sockets, firewalls and address translation it belongs to the same flow.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;

use anyhow::{Error, Result, anyhow};
use nix::errno::Errno;
use tracing::warn;
use tun_rs::{DeviceBuilder, SyncDevice};

use super::config::{DEFAULT_TUN, TunName};

/// A dummy address, for a host that has none (RFC 7600, section 4.8). No host sends to it.
const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// The device node by which a program creates TUN devices.
const NODE: &str = "/dev/net/tun";

/// Why the system did not create the device called `name`, for the operator.
fn no_device(name: &str, cause: &io::Error) -> Error {
    let remedy = match cause.kind() {
        // The permissions of the node refuse it. Without CAP_NET_ADMIN the error is EPERM.
        _ if cause.raw_os_error() == Some(Errno::EACCES as i32) => format!(
            "cannot open {NODE}: {cause}; grant the agent's user access to that file, or choose \
             --tun off"
        ),
        ErrorKind::PermissionDenied => "run the agent as root or with CAP_NET_ADMIN, which it \
                                        gives up after that, or choose --tun off"
            .to_owned(),
        ErrorKind::NotFound => {
            format!("there is no {NODE}; load the module tun, or choose --tun off")
        }
        // Another program has it. EINVAL: it is another kind of interface.
        ErrorKind::ResourceBusy | ErrorKind::InvalidInput => {
            return anyhow!(
                "the interface {name} exists already: stop the program that made it, or name \
                 another with --tun"
            );
        }
        _ => format!("{cause}; choose another with --tun, or off"),
    };
    anyhow!("cannot create the TUN device {name}: {remedy}")
}

/// A TUN device. It disappears with the agent.
pub struct Tun {
    device: SyncDevice,
    pub(super) name: String,
}

impl fmt::Debug for Tun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tun").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tun {
    /// The device of a setting. `None` if none is wanted, or if the default one is impossible.
    ///
    /// # Errors
    /// Why the device that the operator has named is impossible.
    pub(super) fn of(setting: Option<&TunName>) -> Result<Option<Self>> {
        match setting {
            Some(TunName::Off) => Ok(None),
            Some(TunName::Named(name)) => Self::open(name).map(Some),
            None => Ok(Self::open(DEFAULT_TUN)
                .inspect_err(|error| warn!("no help for what arrives: {error}"))
                .ok()),
        }
    }

    /// Creates the device called `name`.
    ///
    /// # Errors
    /// Why it is impossible, for the operator.
    pub fn open(name: &str) -> Result<Self> {
        // The route to the sources of its packets leads through another interface. So the kernel's
        // reverse path filter (rp_filter) drops them (RFC 3704, section 2), unless it is off, or
        // loose on an interface with an address. The setting of all interfaces and that of the
        // device both apply.
        let conf = |name: &str| format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        let is_off = fs::read_to_string(conf("all")).is_ok_and(|text| text.trim() == "0");
        let builder = DeviceBuilder::new().name(name).enable(false);
        let builder = if is_off { builder } else { builder.ipv4(DUMMY, 32, None) };
        let device = builder.build_sync().map_err(|cause| no_device(name, &cause))?;
        // The device gets no IPv6 address of its own: with one, the kernel would search for routers
        // there. Neither file exists without IPv6.
        let v6 = |key: &str| format!("/proc/sys/net/ipv6/conf/{name}/{key}");
        let _ = fs::write(v6("addr_gen_mode"), "1");
        let _ = fs::write(v6("disable_ipv6"), "0");
        device.enabled(true).map_err(|cause| no_device(name, &cause))?;
        if let Err(error) = fs::write(conf(name), if is_off { "0" } else { "2" }) {
            warn!("cannot write {}: {error}; a strict filter of sources is in the way", conf(name));
        }
        Ok(Self { device, name: name.to_owned() })
    }

    /// Hands a packet to the host.
    ///
    /// # Errors
    /// When the system does not accept the packet.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        self.device.send(packet).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_what_to_change() {
        for (errno, wanted) in [
            (Errno::EACCES, "cannot open /dev/net/tun: Permission denied"),
            (Errno::EPERM, "CAP_NET_ADMIN"),
            (Errno::ENOENT, "there is no /dev/net/tun"),
            (Errno::EBUSY, "exists already"),
            (Errno::EINVAL, "exists already"),
            (Errno::ENOMEM, "Cannot allocate memory"),
        ] {
            let said = no_device("sidekick0", &io::Error::from(errno)).to_string();
            assert!(said.contains("sidekick0") && said.contains(wanted), "{errno}: {said}");
        }
    }
}
