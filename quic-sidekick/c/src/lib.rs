//! The plugin for programs in C that drive quiche by its own C interface.
//!
//! Built as `libquicsidekick`, which holds both interfaces: `quiche.h`, as quiche has it, and
//! `quic_sidekick.h`, which is made from this crate. What the functions do, the Rust crate's pages
//! say at length; here stands what C has to know.
//!
//! `unsafe` is confined to this crate: it is what pointers from C take. Each function tells what
//! the caller promises, and takes a null pointer for nothing to do.

#![allow(unsafe_code, reason = "pointers from C; each function says what it asks of them")]
// Said once, above and in the header, and not for each of the functions.
#![allow(
    clippy::missing_safety_doc,
    reason = "each function's words for C say what its pointers have to be"
)]

mod address;
mod clock;
pub mod config;
pub mod status;

use address::{from_c, to_c};
use clock::now;
use nix::libc::{sockaddr, sockaddr_storage, socklen_t};
use quic_sidekick::{MAX_DATAGRAM_LEN, Sidekick, quiche::Connection};
use std::slice;

use config::sidekick_config;

/// Bytes that sidekick_send() wants room for: as many as fit into every path that carries QUIC.
pub const SIDEKICK_MAX_DATAGRAM_LEN: usize = 1200;

const _: () = assert!(SIDEKICK_MAX_DATAGRAM_LEN >= MAX_DATAGRAM_LEN);

/// The help for one connection. It is used from one thread at a time, as the connection is.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct sidekick {
    help: Sidekick,
}

/// Makes the help for one connection, to be freed by sidekick_free(). NULL if `config` is NULL. The
/// config can be freed after.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_new(config: *const sidekick_config) -> *mut sidekick {
    // SAFETY: null, or made by sidekick_config_new and not freed, as the caller promises.
    let Some(config) = (unsafe { config.as_ref() }) else { return std::ptr::null_mut() };
    Box::into_raw(Box::new(sidekick { help: Sidekick::new(config.terms.clone()) }))
}

/// Frees it; NULL is nothing. The connection goes on as plain QUIC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_free(sidekick: *mut sidekick) {
    if !sidekick.is_null() {
        // SAFETY: made by sidekick_new, and freed once, as the caller promises.
        drop(unsafe { Box::from_raw(sidekick) });
    }
}

/// Both of a pair of pointers, unless one is null.
///
/// # Safety
/// Each is null, or a valid pointer that nobody else uses meanwhile.
unsafe fn both<'a>(
    sidekick: *mut sidekick,
    conn: *mut Connection,
) -> Option<(&'a mut Sidekick, &'a mut Connection)> {
    // SAFETY: as this function's.
    unsafe { Some((&mut sidekick.as_mut()?.help, conn.as_mut()?)) }
}

/// Has the connection keep a log of what it sends: right after quiche_connect().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_attach(sidekick: *mut sidekick, conn: *mut Connection) {
    // SAFETY: both are null or live and used by this thread alone, as the caller promises.
    if let Some((sidekick, conn)) = unsafe { both(sidekick, conn) } {
        sidekick.attach(conn);
    }
}

/// Tells the local port of the adjacent socket, in the machine's byte order: a proxy that is found
/// on the path can then answer there. Not needed where the config names the proxy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_set_adjacent_port(sidekick: *mut sidekick, port: u16) {
    // SAFETY: null or live, as the caller promises.
    if let Some(sidekick) = unsafe { sidekick.as_mut() } {
        sidekick.help.set_adjacent_port(port);
    }
}

/// To be called when quiche_conn_send() has said QUICHE_ERR_DONE and all was sent. True if it is
/// worth asking quiche_conn_send() again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_on_sent(sidekick: *mut sidekick, conn: *mut Connection) -> bool {
    // SAFETY: as in sidekick_attach.
    unsafe { both(sidekick, conn) }.is_some_and(|(sidekick, conn)| sidekick.on_sent(conn, now()))
}

/// To be called when the time of sidekick_timeout_as_nanos() has passed; harmless before. True if
/// it is worth asking quiche_conn_send() again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_on_timeout(
    sidekick: *mut sidekick,
    conn: *mut Connection,
) -> bool {
    // SAFETY: as in sidekick_attach.
    unsafe { both(sidekick, conn) }.is_some_and(|(sidekick, conn)| sidekick.on_timeout(conn, now()))
}

/// Nanoseconds until sidekick_on_timeout() is to be called, or UINT64_MAX: wait for the shorter of
/// this and quiche_conn_timeout_as_nanos().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_timeout_as_nanos(sidekick: *const sidekick) -> u64 {
    // SAFETY: null or live, as the caller promises.
    let at = unsafe { sidekick.as_ref() }.and_then(|sidekick| sidekick.help.timeout_instant());
    at.map_or(u64::MAX, |at| {
        u64::try_from(at.saturating_duration_since(now()).as_nanos()).unwrap_or(u64::MAX)
    })
}

/// Takes a datagram that has come to the adjacent socket, `len` bytes at `buf` from the address
/// `from`. True if it is worth asking quiche_conn_send() again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_recv(
    sidekick: *mut sidekick,
    conn: *mut Connection,
    buf: *const u8,
    len: usize,
    from: *const sockaddr,
    from_len: socklen_t,
) -> bool {
    // SAFETY: as in sidekick_attach.
    let pair = unsafe { both(sidekick, conn) };
    // SAFETY: `from` is null, or an address of so many bytes, as the caller promises.
    let from = unsafe { from_c(from, from_len) };
    let (Some((sidekick, conn)), Some(from), false) = (pair, from, buf.is_null()) else {
        return false;
    };
    // SAFETY: not null, and there are so many bytes, as the caller promises.
    let datagram = unsafe { slice::from_raw_parts(buf, len) };
    sidekick.recv(datagram, from, conn, now())
}

/// Writes the next datagram for the adjacent socket to `out`, which has SIDEKICK_MAX_DATAGRAM_LEN
/// bytes at least, and its destination to `to`; gives its length, and 0 when there is none. To be
/// called until then after each call of sidekick_on_sent(), sidekick_on_timeout() and
/// sidekick_recv().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_send(
    sidekick: *mut sidekick,
    out: *mut u8,
    out_len: usize,
    to: *mut sockaddr_storage,
    to_len: *mut socklen_t,
) -> usize {
    // SAFETY: null or live, as the caller promises.
    let Some(sidekick) = (unsafe { sidekick.as_mut() }) else { return 0 };
    if out.is_null() || out_len < SIDEKICK_MAX_DATAGRAM_LEN || to.is_null() || to_len.is_null() {
        return 0;
    }
    // The bytes need not have been written before: they are now.
    // SAFETY: there are so many bytes at `out`, as the caller promises.
    let out = unsafe {
        std::ptr::write_bytes(out, 0, out_len);
        slice::from_raw_parts_mut(out, out_len)
    };
    let Some((len, proxy)) = sidekick.help.send(out) else { return 0 };
    // SAFETY: both are valid for writing, as the caller promises.
    unsafe { to_c(proxy, to, to_len) };
    len
}

/// Nanoseconds to wait before quiche_conn_send() is asked for the next packet, which is to be sent
/// at once then: quiche's own interface does not tell, and its BBR2 takes the time of that call for
/// the time on the wire. 0 for other controllers, which do not pace. A packet that is held back
/// beyond sidekick_on_sent() is taken for lost before the proxy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_release_as_nanos(conn: *const Connection) -> u64 {
    // SAFETY: null or live, as the caller promises.
    let Some(conn) =
        (unsafe { conn.as_ref() }).filter(|conn| conn.gcongestion_enabled() == Some(true))
    else {
        return 0;
    };
    let now = now();
    let at = conn.get_next_release_time().and_then(|release| release.time(now));
    // Packets may go a little early, so that not each of them wakes the program.
    let wait = at
        .unwrap_or(now)
        .saturating_duration_since(now)
        .saturating_sub(conn.max_release_into_future());
    u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)
}

/// Goes on without the proxy, which is told so by what sidekick_send() gives next. Before the
/// connection is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_stop(sidekick: *mut sidekick) {
    // SAFETY: null or live, as the caller promises.
    if let Some(sidekick) = unsafe { sidekick.as_mut() } {
        sidekick.help.stop();
    }
}
