//! Socket addresses from C.

use nix::libc::{
    AF_INET, AF_INET6, c_int, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, socklen_t,
};
use nix::sys::socket::{SockaddrLike as _, SockaddrStorage};
use std::net::SocketAddr;

/// Reads an IPv4 or IPv6 address; `None` for null and for any other family.
///
/// # Safety
/// `address` is null, or points at `len` bytes.
pub(crate) unsafe fn from_c(address: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    let has = |bytes: usize| usize::try_from(len).is_ok_and(|len| len >= bytes);
    if address.is_null() || !has(size_of::<sa_family_t>()) {
        return None;
    }
    // SAFETY: an address begins with its family, and has at least this many bytes.
    let family = unsafe { address.cast::<sa_family_t>().read_unaligned() };
    let complete = match c_int::from(family) {
        AF_INET => has(size_of::<sockaddr_in>()),
        AF_INET6 => has(size_of::<sockaddr_in6>()),
        _ => false,
    };
    if !complete {
        return None;
    }
    // SAFETY: it points at a complete address of its family.
    let address = unsafe { SockaddrStorage::from_raw(address, Some(len)) }?;
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{SockaddrIn, SockaddrIn6, SockaddrLike};

    /// Reads a whole address, and one that is a byte short, to compare the results.
    fn check(address: SocketAddr, written: &impl SockaddrLike) {
        // SAFETY: the address has at least as many bytes as the calls name.
        let (whole, short) = unsafe {
            let at = written.as_ptr();
            (from_c(at, written.len()), from_c(at, written.len() - 1))
        };
        assert_eq!((whole, short), (Some(address), None), "{address}");
    }

    #[test]
    fn addresses_are_read_as_the_system_writes_them() {
        for text in ["192.0.2.254:5252", "[2001:db8::1%7]:443", "[::ffff:192.0.2.1]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            match address {
                SocketAddr::V4(v4) => check(address, &SockaddrIn::from(v4)),
                SocketAddr::V6(v6) => check(address, &SockaddrIn6::from(v6)),
            }
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { from_c(std::ptr::null(), 16) }, None);
    }
}
