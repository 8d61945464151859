//! Virtual time and seeded randomness for everything in this process, quiche and BoringSSL included.
//!
//! quiche reads the clock itself and draws random numbers from BoringSSL. Both go through C symbols, which this test binary
//! defines before the libraries that would: the clock stands still until a test moves it, and the numbers follow from the
//! test's seed. Each thread is a world of its own, and a thread that has not entered one sees the real clock.

use std::cell::Cell;

thread_local! {
    static CLOCK: Cell<Option<u64>> = const { Cell::new(None) };
    static RANDOM: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Where virtual time begins, in nanoseconds; quiche subtracts durations from instants.
const EPOCH: u64 = 1_000_000_000_000;

/// From here on this thread lives in virtual time, at 0, with these random numbers.
pub fn enter(seed: u64) {
    CLOCK.set(Some(EPOCH));
    RANDOM.set(Some(seed));
}

/// Back to the real clock and to real randomness.
pub fn leave() {
    CLOCK.set(None);
    RANDOM.set(None);
}

/// Sets the time, in nanoseconds since the world began.
pub fn set_time(nanoseconds: u64) {
    CLOCK.set(Some(EPOCH + nanoseconds));
}

/// SplitMix64.
pub fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn fill(bytes: &mut [u8]) {
    let mut state = RANDOM.get();
    match &mut state {
        Some(state) => bytes.iter_mut().for_each(|byte| *byte = next_random(state).to_le_bytes()[0]),
        None => real_randomness(bytes),
    }
    RANDOM.set(state);
}

fn real_randomness(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: the pointer and the length are those of one slice.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        filled += usize::try_from(got).expect("the kernel has random bytes");
    }
}

/// Stands in for BoringSSL's function of this name.
///
/// # Safety
/// `out` must be valid for `len` writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RAND_bytes(out: *mut u8, len: usize) -> libc::c_int {
    if len > 0 {
        // SAFETY: the caller vouches for `out` and `len`.
        fill(unsafe { std::slice::from_raw_parts_mut(out, len) });
    }
    1
}

/// Stands in for the C library's function of this name.
///
/// # Safety
/// `out` must be valid for one write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, out: *mut libc::timespec) -> libc::c_int {
    match CLOCK.get() {
        Some(now) if clock == libc::CLOCK_MONOTONIC => {
            let time = libc::timespec {
                tv_sec: (now / 1_000_000_000) as libc::time_t,
                tv_nsec: (now % 1_000_000_000) as libc::c_long,
            };
            // SAFETY: the caller vouches for `out`.
            unsafe { out.write(time) };
            0
        }
        // SAFETY: the arguments are those of the system call of this name.
        _ => unsafe { libc::syscall(libc::SYS_clock_gettime, clock, out) as libc::c_int },
    }
}
