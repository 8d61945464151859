//! Socket addresses, as C has them.

use nix::libc::{
    AF_INET, AF_INET6, c_int, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage,
    socklen_t,
};
use nix::sys::socket::{SockaddrIn, SockaddrIn6, SockaddrLike, SockaddrStorage};
use std::net::SocketAddr;
use std::ptr;

/// An IPv4 or IPv6 address; `None` for null and for any other.
///
/// # Safety
/// `address` is null, or points at `len` bytes.
pub(crate) unsafe fn from_c(address: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    let has = |bytes: usize| usize::try_from(len).is_ok_and(|len| len >= bytes);
    if address.is_null() || !has(size_of::<sa_family_t>()) {
        return None;
    }
    // SAFETY: the family is what an address begins with, and there are as many bytes.
    let family = unsafe { address.cast::<sa_family_t>().read_unaligned() };
    let complete = match c_int::from(family) {
        AF_INET => has(size_of::<sockaddr_in>()),
        AF_INET6 => has(size_of::<sockaddr_in6>()),
        _ => false,
    };
    if !complete {
        return None;
    }
    // SAFETY: it points at as many bytes as an address of its family has.
    let address = unsafe { SockaddrStorage::from_raw(address, Some(len)) }?;
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}

/// Writes an address, and how long it is.
///
/// # Safety
/// Both are valid for writing.
pub(crate) unsafe fn to_c(address: SocketAddr, to: *mut sockaddr_storage, len: *mut socklen_t) {
    // SAFETY: as this function's; each address has room in the storage.
    unsafe {
        ptr::write_bytes(to, 0, 1);
        match address {
            SocketAddr::V4(v4) => write(&SockaddrIn::from(v4), to, len),
            SocketAddr::V6(v6) => write(&SockaddrIn6::from(v6), to, len),
        }
    }
}

/// # Safety
/// Both are valid for writing.
unsafe fn write(address: &impl SockaddrLike, to: *mut sockaddr_storage, len: *mut socklen_t) {
    let bytes = usize::try_from(address.len()).unwrap_or(0).min(size_of::<sockaddr_storage>());
    // SAFETY: the address has so many bytes, no more than there is room for, and they do not
    // overlap.
    unsafe {
        ptr::copy_nonoverlapping(address.as_ptr().cast::<u8>(), to.cast::<u8>(), bytes);
        len.write(address.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        for text in ["192.0.2.254:5252", "[2001:db8::1%7]:443", "[::ffff:192.0.2.1]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut storage = std::mem::MaybeUninit::<sockaddr_storage>::uninit();
            let mut len = 0;
            // SAFETY: both are valid for writing, and then the address is read as it was written.
            let back = unsafe {
                to_c(address, storage.as_mut_ptr(), &raw mut len);
                from_c(storage.as_ptr().cast(), len)
            };
            assert_eq!(back, Some(address));
            // SAFETY: the storage holds more bytes than the call names.
            let short = unsafe { from_c(storage.as_ptr().cast(), len - 1) };
            assert_eq!(short, None, "{text} cut short");
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { from_c(ptr::null(), 16) }, None);
    }
}
