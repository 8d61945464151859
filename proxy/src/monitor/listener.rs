//! The TCP port of the metrics.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::str::FromStr;

use anyhow::{Result, bail};
use serde::{Serialize, Serializer};
use thiserror::Error;
use tracing::warn;

use super::subject::Program;

/// Where the proxy serves metrics by default.
pub(crate) const DEFAULT_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9252);

/// Where to serve metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsAddress {
    /// Nowhere.
    Off,
    /// At this address and TCP port.
    At(SocketAddr),
}

impl MetricsAddress {
    /// The address, unless metrics are off.
    #[must_use]
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Off => None,
            Self::At(address) => Some(address),
        }
    }
}

/// The error for a text that is not a [`MetricsAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected an address and port like {DEFAULT_ADDRESS}, or off")]
pub struct ParseAddressError;

impl FromStr for MetricsAddress {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        if text == "off" {
            Ok(Self::Off)
        } else {
            text.parse().map(Self::At).map_err(|_| ParseAddressError)
        }
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

impl Serialize for MetricsAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Opens the TCP port, unless metrics are off. For `None`, tries the program's default address, and
/// only warns if that fails.
///
/// # Errors
/// Why the port that the operator chose cannot be opened.
pub(crate) fn open(
    choice: Option<MetricsAddress>,
    program: Program,
) -> Result<Option<TcpListener>> {
    let address = match choice {
        Some(MetricsAddress::Off) => return Ok(None),
        Some(MetricsAddress::At(address)) => address,
        None => program.address,
    };
    let opened = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    let cause = match opened {
        Ok(listener) => {
            if !address.ip().is_loopback() {
                warn!(
                    "everyone who can reach {address} can read the metrics and the list of \
                     {}: keep strangers away from that port",
                    program.rows
                );
            }
            return Ok(Some(listener));
        }
        Err(cause) => cause,
    };
    let (ip, port) = (address.ip(), address.port());
    let error = match cause.kind() {
        io::ErrorKind::AddrInUse => format!(
            "TCP port {port} is in use on {ip}: stop the program that uses it, or choose another \
             port with --metrics, or off"
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("{ip} is not an address of this machine: choose one with --metrics, or off")
        }
        io::ErrorKind::PermissionDenied => format!(
            "no permission to serve metrics on {address}: choose a port above 1023 with --metrics"
        ),
        _ => format!("cannot serve metrics on {address}: {cause}"),
    };
    if choice.is_some() {
        bail!(error);
    }
    warn!("the {} serves no metrics: {error}", program.what);
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::status::Status;
    use crate::monitor::subject::ProgramStatus;

    #[test]
    fn metrics_have_an_address_or_are_off() {
        for text in ["off", "127.0.0.1:9252", "[::1]:1"] {
            assert_eq!(text.parse::<MetricsAddress>().unwrap().to_string(), text);
        }
        for text in ["", "on", "9252", "127.0.0.1", "localhost:9252"] {
            let error = text.parse::<MetricsAddress>().unwrap_err().to_string();
            assert_eq!(error, "expected an address and port like 127.0.0.1:9252, or off");
        }
    }

    #[test]
    fn errors_name_a_remedy() {
        let open = |choice| open(Some(choice), Status::PROGRAM);
        let taken = open(MetricsAddress::At("127.0.0.1:0".parse().unwrap())).unwrap().unwrap();
        let address = taken.local_addr().unwrap();
        let error = open(MetricsAddress::At(address)).unwrap_err().to_string();
        let port = address.port();
        assert_eq!(
            error,
            format!(
                "TCP port {port} is in use on 127.0.0.1: stop the program that uses it, or choose \
                 another port with --metrics, or off"
            )
        );
        let error =
            open(MetricsAddress::At("192.0.2.1:9252".parse().unwrap())).unwrap_err().to_string();
        assert_eq!(
            error,
            "192.0.2.1 is not an address of this machine: choose one with --metrics, or off"
        );
        assert!(open(MetricsAddress::Off).unwrap().is_none());
    }
}
