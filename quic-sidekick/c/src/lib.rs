//! The plugin for programs in C that drive quiche by its own C interface.
//!
//! Cargo builds it as `libquicsidekick`, which has both interfaces: quiche's own `quiche.h`, and
//! `quic_sidekick.h`, which cbindgen makes from this crate. The Rust crate's pages explain the
//! functions. The header adds the rules for C.
//!
//! `unsafe` is confined to this crate, which receives pointers from C. Each function states what
//! the caller promises. Given a null pointer, it does nothing.

#![allow(unsafe_code, reason = "pointers from C; each function states what they must be")]
// The text above and the header state it once for all functions.
#![allow(clippy::missing_safety_doc, reason = "the header states once what pointers must be")]

mod address;
pub mod config;
pub mod status;

use nix::libc::c_int;
use quic_sidekick::{Driver, quiche::Connection};
use std::io;
use std::os::fd::AsRawFd as _;
use std::time::Instant;

use config::sidekick_config;

/// The time. As in quiche's own C interface, callers do not pass it.
#[allow(clippy::disallowed_methods, reason = "the edge where time enters")]
fn now() -> Instant {
    Instant::now()
}

/// The help for one connection. Only one thread at a time may use it and the connection.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct sidekick {
    driver: Driver,
}

/// Makes the help for one connection; sidekick_free() frees it. Returns NULL if `config` is NULL.
/// The caller may free the config at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_new(config: *const sidekick_config) -> *mut sidekick {
    // SAFETY: null, or made by sidekick_config_new and not freed, as the caller promises.
    let Some(config) = (unsafe { config.as_ref() }) else { return std::ptr::null_mut() };
    Box::into_raw(Box::new(sidekick { driver: Driver::new(config.terms.clone()) }))
}

/// Frees the help, and closes its socket. NULL does nothing. Free the help after the connection. To
/// end the help earlier, call sidekick_stop(), and go on with the loop.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_free(sidekick: *mut sidekick) {
    if !sidekick.is_null() {
        // SAFETY: made by sidekick_new, and freed once, as the caller promises.
        drop(unsafe { Box::from_raw(sidekick) });
    }
}

/// Both pointers as references, unless one is null.
///
/// # Safety
/// Each is null, or a valid pointer that no other code uses meanwhile.
unsafe fn both<'a>(
    sidekick: *mut sidekick,
    conn: *mut Connection,
) -> Option<(&'a mut Driver, &'a mut Connection)> {
    // SAFETY: each is null or valid and unshared, as the caller promises.
    unsafe { Some((&mut sidekick.as_mut()?.driver, conn.as_mut()?)) }
}

/// Opens a UDP socket at the connection's local address, and starts the log of sent packets. Call
/// it once, right after quiche_connect() or quiche_accept(). Returns 0, EINVAL if a pointer is
/// NULL, EALREADY if the help was attached before or has ended, or the system's error number if it
/// refuses the socket. After a refusal the connection continues unassisted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_attach(sidekick: *mut sidekick, conn: *mut Connection) -> c_int {
    // SAFETY: both are null or live and used by this thread alone, as the caller promises.
    let Some((driver, conn)) = (unsafe { both(sidekick, conn) }) else {
        return nix::libc::EINVAL;
    };
    match driver.attach(conn) {
        Ok(()) => 0,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => nix::libc::EALREADY,
        Err(error) => error.raw_os_error().unwrap_or(nix::libc::EIO),
    }
}

/// The socket of the help, for poll(); -1 if there is none, which poll() ignores. Ask before each
/// poll(), because sidekick_receive() closes a socket that failed. When it is readable, call
/// sidekick_receive(). Only the help reads, writes and closes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_fd(sidekick: *const sidekick) -> c_int {
    // SAFETY: null or live, as the caller promises.
    let socket = unsafe { sidekick.as_ref() }.and_then(|sidekick| sidekick.driver.socket());
    socket.map_or(-1, |socket| socket.as_raw_fd())
}

/// Reads the socket of the help, and serves its timers. Call it in each round of the loop, before
/// quiche_conn_send(). Returns whether quiche_conn_send() has something to send because of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_receive(sidekick: *mut sidekick, conn: *mut Connection) -> bool {
    // SAFETY: as in sidekick_attach.
    unsafe { both(sidekick, conn) }.is_some_and(|(driver, conn)| driver.receive(conn, now()))
}

/// Records the packets that the connection has sent, and sends messages to the proxy. Call it in
/// each round of the loop, after quiche_conn_send() returned QUICHE_ERR_DONE and the program sent
/// all. Returns whether quiche_conn_send() has something to send again: then repeat both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_on_sent(sidekick: *mut sidekick, conn: *mut Connection) -> bool {
    // SAFETY: as in sidekick_attach.
    unsafe { both(sidekick, conn) }.is_some_and(|(driver, conn)| driver.on_sent(conn, now()))
}

/// Nanoseconds until sidekick_receive() is due, or UINT64_MAX. Wait for the shorter of this and
/// quiche_conn_timeout_as_nanos().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_timeout_as_nanos(sidekick: *const sidekick) -> u64 {
    // SAFETY: null or live, as the caller promises.
    let at = unsafe { sidekick.as_ref() }.and_then(|sidekick| sidekick.driver.poll_timeout());
    at.map_or(u64::MAX, |at| {
        u64::try_from(at.saturating_duration_since(now()).as_nanos()).unwrap_or(u64::MAX)
    })
}

/// Nanoseconds to wait before the next call of quiche_conn_send(). Send what it returns at once:
/// quiche's BBR2 uses the time of that call as the time on the wire, and quiche's own C interface
/// does not offer this time. 0 for other controllers, which do not pace. A packet that the program
/// holds back beyond sidekick_on_sent() counts as lost before the proxy.
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

/// Ends the session with the proxy. Call it once, before quiche_conn_close(). If the connection
/// goes on, continue to call sidekick_receive() and sidekick_on_sent(): they end what the help has
/// changed in the connection, such as held acknowledgements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_stop(sidekick: *mut sidekick) {
    // SAFETY: null or live, as the caller promises.
    if let Some(sidekick) = unsafe { sidekick.as_mut() } {
        sidekick.driver.stop();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use quic_sidekick::quiche::{Config, ConnectionId, PROTOCOL_VERSION, connect};
    use std::ffi::{CStr, c_char, c_void};
    use std::net::SocketAddr;
    use std::sync::{Mutex, PoisonError};

    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

    // quiche's logger and the plugin's one warning are the process's. So no other test may use
    // them.
    extern "C" fn keep(line: *const c_char, _: *mut c_void) {
        // SAFETY: quiche passes a text that ends in a zero byte.
        let line = unsafe { CStr::from_ptr(line) }.to_string_lossy().into_owned();
        // A panic here would abort the process.
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    unsafe extern "C" {
        safe fn quiche_enable_debug_logging(
            log: extern "C" fn(*const c_char, *mut c_void),
            argument: *mut c_void,
        ) -> c_int;
    }

    #[test]
    fn quiches_log_has_the_plugins_warnings() {
        assert_eq!(quiche_enable_debug_logging(keep, std::ptr::null_mut()), 0);
        let mut settings = Config::new(PROTOCOL_VERSION).unwrap();
        settings.set_cc_algorithm_name("reno").unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 443));
        let id = ConnectionId::from_ref(&[7; 16]);
        let mut conn = connect(None, &id, address, address, &mut settings).unwrap();
        // SAFETY: each object lives until it is freed, once.
        unsafe {
            let config = config::sidekick_config_new(c"pacubic".as_ptr());
            let sidekick = sidekick_new(config);
            config::sidekick_config_free(config);
            assert_eq!(sidekick_attach(sidekick, &raw mut conn), 0);
            sidekick_free(sidekick);
        }
        let lines = std::mem::take(&mut *LINES.lock().unwrap());
        let warns = |line: &&String| {
            line.starts_with("quic_sidekick") && line.contains("cubic-rfc9438, and this connection")
        };
        assert!(lines.iter().any(|line| warns(&line)), "{lines:?}");
    }
}
