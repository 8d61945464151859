//! The status of the help, for a program in C.

use crate::sidekick;
use quic_sidekick::Assistance;
use std::ffi::c_char;
use std::ptr;

/// Whether a connection is assisted, and counters since it began. Later versions of the library add
/// fields only at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct sidekick_status {
    /// Whether a proxy assists it now.
    pub assisted: bool,
    /// The near segment's smoothed round-trip time in nanoseconds; 0 until it is measured, and when
    /// a discovered proxy's session has ended.
    pub near_rtt_nanos: u64,
    /// Packets that the help declared lost or re-injected. quiche's own count of lost packets does
    /// not include them.
    pub early_lost: u64,
    /// Of these, packets whose first transmission the receiver acknowledged.
    pub spurious: u64,
    /// quACKs received.
    pub quacks: u64,
    /// Bytes of quACKs.
    pub quack_bytes: u64,
    /// quACKs that could not be decoded.
    pub undecodable: u64,
    /// Epochs begun.
    pub epochs: u64,
    /// Polls sent.
    pub polls: u64,
    /// Ranges of datagrams that were requested of the proxy, because the connection lacks them;
    /// with repetitions.
    pub repeats_requested: u64,
    /// Copies of such datagrams that arrived.
    pub repeats_received: u64,
    /// Gaps in the received packet numbers that closed while the connection waited for repairs: by
    /// copies, by parity, or by packets that were only late.
    pub repaired_near: u64,
    /// Datagrams that the proxy's parity rebuilt.
    pub parity_rebuilt: u64,
    /// Errors that the network reported at the socket of the help. They do not end the help,
    /// because anyone can forge them.
    pub socket_errors: u64,
}

/// Writes the status to `out`, cut to `size` bytes. `size` is `sizeof(sidekick_status)` in the
/// program, so that it fits even if the library knows more fields. Fields that the library does not
/// know become 0. If `sidekick` is null, writes the status of a connection without help.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_get_status(
    sidekick: *const sidekick,
    out: *mut sidekick_status,
    size: usize,
) {
    // SAFETY: null or live, as the caller promises.
    let status = unsafe { sidekick.as_ref() }.map(status_of).unwrap_or_default();
    if !out.is_null() {
        let known = size.min(size_of::<sidekick_status>());
        // SAFETY: there are `size` bytes at `out`, as the caller promises, and no more are written.
        // They do not overlap with `status`, of which no more bytes than it has are read.
        unsafe {
            ptr::copy_nonoverlapping((&raw const status).cast::<u8>(), out.cast::<u8>(), known);
            out.cast::<u8>().add(known).write_bytes(0, size - known);
        }
    }
}

fn status_of(sidekick: &sidekick) -> sidekick_status {
    let status = sidekick.driver.status();
    sidekick_status {
        assisted: status.assistance == Assistance::Assisted,
        near_rtt_nanos: status
            .near_rtt
            .map_or(0, |rtt| u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX)),
        early_lost: status.stats.early_lost,
        spurious: status.stats.spurious,
        quacks: status.stats.quacks_received,
        quack_bytes: status.stats.quack_bytes,
        undecodable: status.stats.undecodable,
        epochs: status.stats.epochs,
        polls: status.stats.polls,
        repeats_requested: status.stats.repeats_requested,
        repeats_received: status.stats.repeats_received,
        repaired_near: status.received.filled,
        parity_rebuilt: status.received.rebuilt,
        socket_errors: sidekick.driver.socket_errors(),
    }
}

/// Writes a sentence for a user to `out`, such as "assisted by the proxy", with a zero byte at its
/// end, cut to `len` bytes. Returns the length of the whole sentence, without the zero byte. If
/// `sidekick` is null, the sentence says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidekick_assistance(
    sidekick: *const sidekick,
    out: *mut c_char,
    len: usize,
) -> usize {
    // SAFETY: null or live, as the caller promises.
    let sentence = match unsafe { sidekick.as_ref() } {
        Some(sidekick) => sidekick.driver.status().assistance.to_string(),
        None => "unassisted: there is no sidekick, because sidekick_new returned NULL".to_owned(),
    };
    if !out.is_null() && len > 0 {
        let written = sentence.len().min(len - 1);
        // SAFETY: there are `len` bytes at `out`, as the caller promises, and no more are written;
        // they do not overlap.
        unsafe {
            ptr::copy_nonoverlapping(sentence.as_ptr(), out.cast::<u8>(), written);
            out.add(written).write(0);
        }
    }
    sentence.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{sidekick_config_free, sidekick_config_new};
    use crate::{sidekick_free, sidekick_new};
    use std::ffi::CStr;

    #[test]
    fn a_new_help_reports_no_assistance() {
        // SAFETY: each object lives until it is freed, once, and the buffers have the stated
        // length.
        unsafe {
            let config = sidekick_config_new(c"auto".as_ptr());
            let sidekick = sidekick_new(config);
            sidekick_config_free(config);
            let mut status = sidekick_status { polls: 7, ..Default::default() };
            sidekick_get_status(sidekick, &raw mut status, size_of_val(&status));
            assert_eq!(status, sidekick_status::default());
            status.polls = 7;
            let mut out = [1; 8];
            let len = sidekick_assistance(sidekick, out.as_mut_ptr(), out.len());
            let sentence = CStr::from_ptr(out.as_ptr()).to_str().unwrap();
            assert_eq!(sentence.len(), 7, "{sentence}");
            assert!(len > 7);
            assert_eq!(sidekick_assistance(sidekick, ptr::null_mut(), 0), len);
            sidekick_free(sidekick);
            sidekick_free(ptr::null_mut());
            // The buffers of a program that did not check for null hold nothing else.
            sidekick_get_status(ptr::null(), &raw mut status, size_of_val(&status));
            assert_eq!(status, sidekick_status::default());
            let mut out = [1; 99];
            let len = sidekick_assistance(ptr::null(), out.as_mut_ptr(), out.len());
            let sentence = CStr::from_ptr(out.as_ptr()).to_str().unwrap();
            assert_eq!(sentence.len(), len);
            assert!(sentence.starts_with("unassisted: "), "{sentence}");
        }
    }

    #[test]
    fn a_program_may_know_more_or_fewer_fields_than_the_library() {
        let known = size_of::<sidekick_status>();
        for size in [0, 16, known, known + 24] {
            let mut bytes = vec![0xff_u8; known + 48];
            // SAFETY: there are `size` bytes, and the function aligns no access to them.
            unsafe { sidekick_get_status(ptr::null(), bytes.as_mut_ptr().cast(), size) };
            // The search from the end reads no padding, because no size ends in it.
            let written = bytes.iter().rposition(|byte| *byte == 0).map_or(0, |last| last + 1);
            assert_eq!(written, size);
            assert!(size == 0 || bytes[0] == 0);
        }
    }
}
