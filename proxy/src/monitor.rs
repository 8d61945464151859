//! What operators and their tools see of a daemon that runs: metrics, health and status, over HTTP.
//!
//! A thread of its own serves them, and asks the workers by their mailboxes, so that whoever asks
//! costs the counting of packets next to nothing. [`status`] is what all pages are made from,
//! [`ask`] how another process gets it.

pub mod ask;
pub mod exposition;
mod server;
pub mod status;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::str::FromStr;

use thiserror::Error;
use tracing::warn;

pub use server::serve;

/// Where it is served if nobody says.
pub const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9252);

/// Where it is to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere.
    Off,
    /// At this address and TCP port.
    At(SocketAddr),
}

/// A text that names no [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it should look like {DEFAULT}, or be off")]
pub struct NoPlace;

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        if text == "off" { Ok(Self::Off) } else { text.parse().map(Self::At).map_err(|_| NoPlace) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

/// Why it cannot be served.
#[derive(Debug, Error)]
pub enum MonitorError {
    /// Another program has the port.
    #[error(
        "TCP port {} is in use on {}: stop the program that has it, or choose another port with --metrics, or off",
        .0.port(), .0.ip()
    )]
    InUse(SocketAddr),
    /// The address belongs to another machine.
    #[error("{} is not an address of this machine: choose one with --metrics, or off", .0.ip())]
    NotLocal(SocketAddr),
    /// Ports below 1024 are privileged.
    #[error("no permission to serve metrics on {0}: choose a port above 1023 with --metrics")]
    NotPermitted(SocketAddr),
    /// Something else went wrong.
    #[error("cannot serve metrics on {address}: {cause}")]
    Other {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
}

/// Opens the TCP port, if there is to be one. `None`: nobody has said where, so it is [`DEFAULT`],
/// or nowhere if that is taken.
///
/// # Errors
/// When it was asked for and cannot be.
pub fn open(place: Option<Place>) -> Result<Option<TcpListener>, MonitorError> {
    let address = match place {
        Some(Place::Off) => return Ok(None),
        Some(Place::At(address)) => address,
        None => DEFAULT,
    };
    let opened = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    let error = match opened {
        Ok(listener) => {
            if !address.ip().is_loopback() {
                warn!(
                    "metrics and the list of sessions are served on {address} to whoever can reach it: keep strangers \
                     away from that port"
                );
            }
            return Ok(Some(listener));
        }
        Err(cause) => match cause.kind() {
            io::ErrorKind::AddrInUse => MonitorError::InUse(address),
            io::ErrorKind::AddrNotAvailable => MonitorError::NotLocal(address),
            io::ErrorKind::PermissionDenied => MonitorError::NotPermitted(address),
            _ => MonitorError::Other { address, cause },
        },
    };
    if place.is_some() {
        return Err(error);
    }
    warn!("no metrics are served: {error}");
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_or_none() {
        for text in ["off", "127.0.0.1:9252", "[::1]:1"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        for text in ["", "on", "9252", "127.0.0.1", "localhost:9252"] {
            let error = text.parse::<Place>().unwrap_err().to_string();
            assert_eq!(error, "it should look like 127.0.0.1:9252, or be off");
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        let taken = open(Some(Place::At("127.0.0.1:0".parse().unwrap()))).unwrap().unwrap();
        let address = taken.local_addr().unwrap();
        let error = open(Some(Place::At(address))).unwrap_err().to_string();
        let port = address.port();
        assert_eq!(
            error,
            format!(
                "TCP port {port} is in use on 127.0.0.1: stop the program that has it, or choose another port with \
                 --metrics, or off"
            )
        );
        let error =
            open(Some(Place::At("192.0.2.1:9252".parse().unwrap()))).unwrap_err().to_string();
        assert_eq!(
            error,
            "192.0.2.1 is not an address of this machine: choose one with --metrics, or off"
        );
        assert!(open(Some(Place::Off)).unwrap().is_none());
    }
}
