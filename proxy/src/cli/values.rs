//! Reads single values, of flags and of the file.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use sidekick_protocol::DEFAULT_PORT;

use crate::monitor::listener::MetricsAddress;
use crate::packet_info::is_unicast;

/// An address and port to listen on.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    address(text, SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT)))
}

/// Reads the address and port where a running program serves its metrics, `default` by default.
pub(crate) fn metrics(
    default: SocketAddr,
) -> impl Fn(&str) -> Result<SocketAddr, String> + Clone + Send + Sync + 'static {
    move |text| address(text, default)
}

/// Reads an address and port to serve metrics on, such as `default`, or `off`.
pub(crate) fn metrics_or_off(
    default: SocketAddr,
) -> impl Fn(&str) -> Result<MetricsAddress, String> + Clone + Send + Sync + 'static {
    move |text| {
        text.parse().or_else(|_| {
            address(text, default)
                .map(MetricsAddress::At)
                .map_err(|message| format!("{message}, or off"))
        })
    }
}

/// An address of this machine and a port to which a sender can send.
pub(crate) fn announced(text: &str) -> Result<SocketAddr, String> {
    unicast(text, "write an address of this machine and a port")
}

/// An address and port at which a proxy can listen.
pub(crate) fn proxy(text: &str) -> Result<SocketAddr, String> {
    unicast(text, "write an address of the proxy and its port")
}

/// An address and port of one program. `instead` says what to write in place of another.
fn unicast(text: &str, instead: &str) -> Result<SocketAddr, String> {
    let example = SocketAddr::from(([192, 0, 2, 1], DEFAULT_PORT));
    let address = address(text, example)?;
    if is_unicast(address) { Ok(address) } else { Err(format!("{instead}, like {example}")) }
}

/// An address and port. The error shows one like `example`.
pub(crate) fn address(text: &str, example: SocketAddr) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        if let Ok(port) = text.parse::<u16>() {
            let whole = SocketAddr::new(example.ip(), port);
            return format!("write an address before the port, like {whole}");
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        match bare.parse::<IpAddr>() {
            Ok(ip) => {
                format!("add a port to it, like {}", SocketAddr::new(ip, example.port()))
            }
            Err(_) => format!("write an address and port like {example}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::listener::DEFAULT_ADDRESS;

    #[test]
    fn an_error_says_what_to_write() {
        for (text, expected) in [
            ("5252", "write an address before the port, like [::]:5252"),
            ("192.0.2.1", "add a port to it, like 192.0.2.1:5252"),
            ("::", "add a port to it, like [::]:5252"),
            ("[::]", "add a port to it, like [::]:5252"),
            ("gateway:5252", "write an address and port like [::]:5252"),
            ("", "write an address and port like [::]:5252"),
        ] {
            assert_eq!(listen(text).unwrap_err(), expected, "{text}");
        }
        assert_eq!(
            metrics_or_off(DEFAULT_ADDRESS)("9000").unwrap_err(),
            "write an address before the port, like 127.0.0.1:9000, or off"
        );
        assert_eq!(
            announced("5252").unwrap_err(),
            "write an address before the port, like 192.0.2.1:5252"
        );
    }

    #[test]
    fn one_program_has_the_address() {
        for text in ["0.0.0.0:5252", "192.0.2.1:0", "[ff02::1]:5252", "255.255.255.255:5252"] {
            let said = announced(text).unwrap_err();
            assert_eq!(said, "write an address of this machine and a port, like 192.0.2.1:5252");
            let said = proxy(text).unwrap_err();
            assert_eq!(said, "write an address of the proxy and its port, like 192.0.2.1:5252");
        }
        assert_eq!(proxy("[2001:db8::1]:9"), Ok("[2001:db8::1]:9".parse().unwrap()));
    }
}
