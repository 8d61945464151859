//! Which errors of a socket end it, and which only repeat what the network says.

use std::io::{self, ErrorKind};

/// `EBADF`: the descriptor is closed.
const BAD_DESCRIPTOR: i32 = 9;
/// `EFAULT`: the buffer is not the program's.
const BAD_ADDRESS: i32 = 14;
/// `ENOTSOCK`: the descriptor is that of something else.
const NOT_A_SOCKET: i32 = if cfg!(target_os = "linux") { 88 } else { 38 };
/// `EDESTADDRREQ`: the socket is not connected, and the call names no destination.
const NO_DESTINATION: i32 = NOT_A_SOCKET + 1;

/// Whether a UDP socket's error is about the network, and the socket can still be used.
///
/// A kernel hands the socket what ICMP says about its datagrams. Anyone who knows the ports can
/// forge that. So a program that drives one of the machines counts such an error and goes on.
/// Whatever the error kept from being sent is lost, as it can be anywhere on its way. Only the
/// program's own timers end a flow whose other end is gone.
///
/// What is left are the errors of a wrong call: those come again each time. They are named here,
/// and not the others, since each system has its own table of what ICMP becomes. `WouldBlock` and
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

    /// What Linux makes of ICMP and ICMPv6 (`icmp_err_convert`, `tab_unreach`), of a packet filter
    /// and of a full queue.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_the_network_says_ends_no_socket() {
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
    fn a_wrong_call_ends_it() {
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
