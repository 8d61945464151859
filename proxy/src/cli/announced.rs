//! Reading an address that the proxy announces.

use std::net::SocketAddr;

use crate::packet_info::is_unicast;

/// Reads an address and port to which a sender can send.
pub(super) fn announced(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|error| format!("{error}; it should look like 192.0.2.1:5252"))?;
    if is_unicast(address) {
        Ok(address)
    } else {
        Err("it is not the address and port of one program on one machine".to_owned())
    }
}
