//! Which socket errors are fatal, and which only report the state of the network.

use std::io::{self, ErrorKind};

/// Windows adds this to the numbers of BSD: its `WSAEBADF` is 10009.
const BASE: i32 = if cfg!(windows) { 10_000 } else { 0 };
/// `EBADF`: the descriptor is closed.
const BAD_DESCRIPTOR: i32 = BASE + 9;
/// `EFAULT`: the buffer is outside the program's memory.
const BAD_ADDRESS: i32 = BASE + 14;
/// `ENOTSOCK`: the descriptor is not a socket.
const NOT_A_SOCKET: i32 = BASE + if cfg!(target_os = "linux") { 88 } else { 38 };
/// `EDESTADDRREQ`: the socket is unconnected, and the call names no destination.
const NO_DESTINATION: i32 = NOT_A_SOCKET + 1;

/// Whether an error of a UDP socket is about the network, so that the socket remains usable.
///
/// A kernel reports ICMP errors about a socket's datagrams to the socket, and an attacker that
/// knows the ports can forge them. So a program that drives a state machine counts such an error
/// and continues: the datagram is lost, as any datagram can be, and only the program's own timers
/// end a flow whose peer has disappeared.
///
/// The other errors come from a wrong call, which repeats them each time. This function lists
/// these, because each system maps ICMP to errors by a table of its own. `WouldBlock` and
/// `Interrupted` are not about the network, either.
#[must_use]
pub fn is_network_error(error: &io::Error) -> bool {
    let about_the_call = match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::InvalidInput => true,
        _ => {
            matches!(
                error.raw_os_error(),
                Some(BAD_DESCRIPTOR | BAD_ADDRESS | NOT_A_SOCKET | NO_DESTINATION)
            )
        }
    };
    !about_the_call
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// The errors that Linux maps ICMP and ICMPv6 to (`icmp_err_convert`, `tab_unreach`), and those
    /// of a packet filter and of a full queue.
    #[cfg(target_os = "linux")]
    #[test]
    fn network_errors_are_not_fatal() {
        let (eperm, enomem, eacces, enonet, eproto, emsgsize, enoprotoopt, eopnotsupp) =
            (1, 12, 13, 64, 71, 90, 92, 95);
        let (enetdown, enetunreach, enobufs, econnrefused, ehostdown, ehostunreach) =
            (100, 101, 105, 111, 112, 113);
        for number in [
            eperm,
            enomem,
            eacces,
            enonet,
            eproto,
            emsgsize,
            enoprotoopt,
            eopnotsupp,
            enetdown,
            enetunreach,
            enobufs,
            econnrefused,
            ehostdown,
            ehostunreach,
        ] {
            let error = io::Error::from_raw_os_error(number);
            assert!(is_network_error(&error), "{error}");
        }
    }

    #[test]
    fn errors_of_a_wrong_call_are_fatal() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        for error in [
            socket.send(b"x").unwrap_err(),
            socket.recv(&mut [0]).unwrap_err(),
            socket.send_to(b"x", "127.0.0.1:0").unwrap_err(),
            io::Error::from_raw_os_error(BAD_DESCRIPTOR),
            io::Error::from_raw_os_error(BAD_ADDRESS),
            io::Error::from_raw_os_error(NOT_A_SOCKET),
            ErrorKind::Interrupted.into(),
        ] {
            assert!(!is_network_error(&error), "{error}");
        }
    }
}
