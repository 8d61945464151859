//! The configuration, for a program in C.

use crate::address::from_c;
use nix::libc::{sockaddr, socklen_t};
use quic_sidekick::{Config, Mode};
use std::ffi::{CStr, c_char, c_int};
use std::num::NonZeroU16;
use std::ptr;
use std::time::Duration;

/// The proxy, the mode and the requested terms; for any number of connections.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct sidekick_config {
    pub(crate) terms: Config,
}

/// Reads a text; `None` for null and for text that is not UTF-8.
///
/// # Safety
/// `text` is null, or ends with a zero byte.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, and ends with a zero byte, as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// Makes a configuration for any proxy that is discovered on the path, with the default terms.
/// sidekick_config_free() frees it. `mode` is one of "early-loss", "pacubic", "path-aware-bbr",
/// "reinject", "ack-reduction", "auto", "receive". Returns NULL for any other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_config_new(mode: *const c_char) -> *mut sidekick_config {
    // SAFETY: null or a text, as the caller promises.
    let mode: Option<Mode> = unsafe { text(mode) }.and_then(|mode| mode.parse().ok());
    mode.map_or(ptr::null_mut(), |mode| {
        Box::into_raw(Box::new(sidekick_config { terms: Config::discover(mode) }))
    })
}

/// Frees the configuration. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_config_free(config: *mut sidekick_config) {
    if !config.is_null() {
        // SAFETY: made by sidekick_config_new, and freed once, as the caller promises.
        drop(unsafe { Box::from_raw(config) });
    }
}

/// The name of the mode's congestion controller, for quiche_config_set_cc_algorithm_name(); NULL if
/// the mode works with any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_config_congestion_control(
    config: *const sidekick_config,
) -> *const c_char {
    // SAFETY: null or live, as the caller promises.
    let Some(config) = (unsafe { config.as_ref() }) else { return ptr::null() };
    match config.terms.mode.congestion_control() {
        Some("cubic") => c"cubic".as_ptr(),
        Some("cubic-rfc9438") => c"cubic-rfc9438".as_ptr(),
        Some("bbr2_gcongestion") => c"bbr2_gcongestion".as_ptr(),
        Some(_) | None => ptr::null(),
    }
}

/// Changes a configuration. Returns 0, or -1 if `config` is null or `change` fails.
///
/// # Safety
/// `config` is null or live.
unsafe fn change(
    config: *mut sidekick_config,
    change: impl FnOnce(&mut Config) -> Option<()>,
) -> c_int {
    // SAFETY: null or live, as the caller promises.
    let config = unsafe { config.as_mut() };
    if config.and_then(|config| change(&mut config.terms)).is_some() { 0 } else { -1 }
}

/// Uses the proxy at this address, and discovers no other. Returns 0, or -1 if it is not an IPv4 or
/// IPv6 address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_config_set_proxy(
    config: *mut sidekick_config,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: `address` is null or an address of `len` bytes, and `config` null or live, as the
    // caller promises.
    unsafe {
        change(config, |config| {
            config.proxy = Some(from_c(address, len)?);
            Some(())
        })
    }
}

/// Accepts only the proxy with this public key, in hexadecimal as the proxy prints it. Returns 0,
/// or -1 if it is not a public key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_config_set_key(
    config: *mut sidekick_config,
    key: *const c_char,
) -> c_int {
    // SAFETY: `key` is null or a text, and `config` null or live, as the caller promises.
    unsafe {
        change(config, |config| {
            config.key = Some(text(key)?.parse().ok()?);
            Some(())
        })
    }
}

/// Sets how the proxy repairs what the connection receives: "auto", "requests", "parity" or "both".
/// Returns 0, or -1 for any other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_config_set_receive_repair(
    config: *mut sidekick_config,
    repair: *const c_char,
) -> c_int {
    // SAFETY: `repair` is null or a text, and `config` null or live, as the caller promises.
    unsafe {
        change(config, |config| {
            config.receive_repair = text(repair)?.parse().ok()?;
            Some(())
        })
    }
}

/// Requests a quACK of `sums` sums after every `packets` packets and every `milliseconds`. 0
/// disables either. While packets are lost, the modes "auto", "reinject" and "receive" request one
/// every 5 ms or more often. Returns 0, or -1 if both are 0, or `sums` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_config_set_quacks(
    config: *mut sidekick_config,
    packets: u16,
    milliseconds: u32,
    sums: u8,
) -> c_int {
    let every_packets = NonZeroU16::new(packets);
    let every = (milliseconds > 0).then(|| Duration::from_millis(milliseconds.into()));
    // SAFETY: `config` is null or live, as the caller promises.
    unsafe {
        change(config, |config| {
            if sums == 0 || every_packets.is_none() && every.is_none() {
                return None;
            }
            (config.every_packets, config.every, config.threshold) = (every_packets, every, sums);
            Some(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_its_name_and_controller() {
        for &mode in Mode::ALL {
            let name = std::ffi::CString::new(mode.to_string()).unwrap();
            // SAFETY: the text and the config live, and the config is freed once.
            unsafe {
                let config = sidekick_config_new(name.as_ptr());
                let controller = text(sidekick_config_congestion_control(config));
                assert_eq!(controller, mode.congestion_control());
                sidekick_config_free(config);
            }
        }
    }

    #[test]
    fn invalid_values_change_nothing() {
        // SAFETY: null is allowed, the texts and the config live, and the config is freed once.
        unsafe {
            assert!(sidekick_config_new(c"cubic".as_ptr()).is_null());
            assert!(sidekick_config_new(ptr::null()).is_null());
            assert!(sidekick_config_new(c"\xff".as_ptr()).is_null());
            let config = sidekick_config_new(c"pacubic".as_ptr());
            let before = format!("{config:?}", config = *config);
            assert_eq!(sidekick_config_set_proxy(config, ptr::null(), 16), -1);
            assert_eq!(sidekick_config_set_key(config, c"12".as_ptr()), -1);
            assert_eq!(sidekick_config_set_quacks(config, 0, 0, 20), -1);
            assert_eq!(sidekick_config_set_quacks(config, 2, 0, 0), -1);
            assert_eq!(format!("{config:?}", config = *config), before);
            assert_eq!(sidekick_config_set_quacks(config, 2, 0, 10), 0);
            assert_eq!(
                ((*config).terms.every_packets, (*config).terms.every),
                (NonZeroU16::new(2), None)
            );
            sidekick_config_free(config);
            assert_eq!(sidekick_config_set_quacks(ptr::null_mut(), 2, 0, 10), -1);
            sidekick_config_free(ptr::null_mut());
            assert!(sidekick_config_congestion_control(ptr::null()).is_null());
        }
    }
}
