//! Virtual time and seeded randomness for a whole thread, quiche and BoringSSL included.
//!
//! quiche reads the clock itself, draws random numbers from BoringSSL, and lets it write the date
//! in session tickets. All these come from C functions, which a program with [`in_force!`]
//! replaces. In a [`World`], the clock stands still until it is set, and the numbers follow from
//! the world's seed. Each thread has its own world, and one without uses the real clock and real
//! random numbers. This crate is for simulations and tests, never for a product.
//!
//! The date is virtual in session tickets alone. Certificates are checked against the real one
//! (`time`), and `SystemTime` is real.
//!
//! BoringSSL's innermost part has a generator of its own for each thread, which draws the keys of
//! ML-KEM and the salts of RSA-PSS. Its seed is taken from the system at the first draw, which a
//! world replaces as well. But the generator outlives a world, so a run has the same keys each time
//! only on a thread that did not use BoringSSL before.
//!
//! ```
//! use std::time::{Duration, Instant};
//! virtual_time::in_force!();
//!
//! # #[allow(clippy::disallowed_methods)]
//! fn main() -> Result<(), virtual_time::NotInForce> {
//!     let world = virtual_time::World::enter(1)?;
//!     let before = Instant::now();
//!     world.set(Duration::from_secs(3600));
//!     assert_eq!(before.elapsed(), Duration::from_secs(3600));
//!     Ok(())
//! }
//! ```

#![cfg(target_os = "linux")]
#![allow(
    unsafe_code,
    reason = "it makes the system calls of the C functions; each has a SAFETY comment"
)]

use std::cell::Cell;
use std::marker::PhantomData;
use std::thread::LocalKey;
use std::time::{Duration, Instant};

thread_local! {
    /// Nanoseconds on the virtual clock.
    static CLOCK: Cell<Option<u64>> = const { Cell::new(None) };
    static RANDOM: Cell<Option<u64>> = const { Cell::new(None) };
    /// The source of the seeds of BoringSSL's generator. It is not [`RANDOM`], so that the number
    /// of these seeds changes no other draw.
    static ENTROPY: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Where virtual time begins, in nanoseconds. It is above 0, because quiche subtracts durations
/// from instants.
const EPOCH: u64 = 1_000_000_000_000;
/// The date at which virtual time begins, in seconds of Unix time: 1 January 2026. BoringSSL writes
/// the date in session tickets.
const DATE: u64 = 1_767_225_600;
const SECOND: u64 = 1_000_000_000;

/// A thread's stay in virtual time. Its drop returns the thread to the earlier time: the real one,
/// or that of another world.
#[derive(Debug)]
pub struct World {
    start: Instant,
    before: [Option<u64>; 3],
    // A world belongs to its thread.
    _thread: PhantomData<*const ()>,
}

/// The C library's clock is still in force, because the program lacks [`in_force!`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("virtual time is not in force: the program must invoke `virtual_time::in_force!()`")]
pub struct NotInForce;

impl World {
    /// Moves this thread to virtual time, at 0, with the random numbers of `seed`.
    ///
    /// # Errors
    ///
    /// [`NotInForce`] in a program without [`in_force!`].
    #[allow(clippy::disallowed_methods, reason = "it is the virtual clock that answers")]
    pub fn enter(seed: u64) -> Result<Self, NotInForce> {
        let before =
            [CLOCK.replace(Some(EPOCH)), RANDOM.replace(Some(seed)), ENTROPY.replace(Some(!seed))];
        let world = Self { start: Instant::now(), before, _thread: PhantomData };
        world.set(Duration::from_nanos(1));
        let moved = world.start.elapsed();
        world.set(Duration::ZERO);
        if moved == Duration::from_nanos(1) { Ok(world) } else { Err(NotInForce) }
    }

    /// Sets the time since the world began, which should not run backwards. After 580 years it
    /// stands still.
    pub fn set(&self, elapsed: Duration) {
        let nanoseconds = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        CLOCK.set(Some(EPOCH.saturating_add(nanoseconds)));
    }

    /// The instant at which the world began.
    #[must_use]
    pub fn start(&self) -> Instant {
        self.start
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let [clock, random, entropy] = self.before;
        CLOCK.set(clock);
        RANDOM.set(random);
        ENTROPY.set(entropy);
    }
}

/// SplitMix64: returns the next number of a sequence of 64-bit numbers. It is for simulations, not
/// for secrets.
pub fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn fill(bytes: &mut [u8], from: &'static LocalKey<Cell<Option<u64>>>) {
    let Some(mut state) = from.get() else {
        return real_randomness(bytes);
    };
    for chunk in bytes.chunks_mut(8) {
        let random = next_random(&mut state).to_le_bytes();
        chunk.copy_from_slice(random.get(..chunk.len()).unwrap_or_default());
    }
    from.set(Some(state));
}

fn real_randomness(bytes: &mut [u8]) {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        // SAFETY: the pointer and the length are those of one slice.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => filled += got,
            // A signal interrupted the call. With a valid buffer, no other error is possible.
            Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            Err(_) => std::process::abort(),
        }
    }
}

/// The implementation of BoringSSL's `RAND_bytes`.
#[doc(hidden)]
pub fn rand_bytes(bytes: &mut [u8]) {
    fill(bytes, &RANDOM);
}

/// The implementation of BoringSSL's `CRYPTO_sysrand`.
#[doc(hidden)]
pub fn entropy(bytes: &mut [u8]) {
    fill(bytes, &ENTROPY);
}

/// The implementation of the C library's `clock_gettime`: the virtual time for the clocks that have
/// one.
#[doc(hidden)]
#[must_use]
pub fn virtual_clock(clock: libc::clockid_t) -> Option<libc::timespec> {
    let now = CLOCK.get().filter(|_| clock == libc::CLOCK_MONOTONIC)?;
    #[allow(clippy::cast_possible_wrap, reason = "2^64 ns are 2^34 s")]
    let time = libc::timespec {
        tv_sec: (now / SECOND) as libc::time_t,
        tv_nsec: (now % SECOND) as libc::c_long,
    };
    Some(time)
}

/// The implementation of the C library's `gettimeofday`: the date and time, in virtual time.
#[doc(hidden)]
#[must_use]
pub fn virtual_date() -> Option<libc::timeval> {
    let elapsed = Duration::from_nanos(CLOCK.get()?.saturating_sub(EPOCH));
    #[allow(clippy::cast_possible_wrap, reason = "2^64 ns are 2^34 s")]
    let seconds = (DATE + elapsed.as_secs()) as libc::time_t;
    Some(libc::timeval { tv_sec: seconds, tv_usec: elapsed.subsec_micros().into() })
}

#[doc(hidden)]
pub use libc;

/// Puts virtual time in force in a program: defines `clock_gettime` and `gettimeofday` of the C
/// library, and BoringSSL's `RAND_bytes`, `CRYPTO_sysrand` and `CRYPTO_rdrand`. Invoke it once, in
/// the program's own crate, because only the program's symbols come before those of all libraries.
/// Outside a world, a system call then reads the clock. It takes some hundred nanoseconds, while
/// the C library takes twenty.
#[macro_export]
macro_rules! in_force {
    () => {
        #[allow(
            unsafe_code,
            reason = "it replaces C and C++ functions; each call has a SAFETY comment"
        )]
        mod in_force {
            use $crate::libc;

            /// Replaces BoringSSL's function of this name.
            ///
            /// # Safety
            /// `out` must be valid for `len` writes.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn RAND_bytes(out: *mut u8, len: usize) -> libc::c_int {
                if len > 0 {
                    // SAFETY: the caller vouches for `out` and `len`.
                    $crate::rand_bytes(unsafe { std::slice::from_raw_parts_mut(out, len) });
                }
                1
            }

            /// Replaces `bssl::CRYPTO_sysrand`, which seeds BoringSSL's own generator.
            ///
            /// # Safety
            /// `out` must be valid for `len` writes.
            #[unsafe(export_name = "_ZN4bssl14CRYPTO_sysrandEPhm")]
            unsafe extern "C" fn sysrand(out: *mut u8, len: usize) {
                if len > 0 {
                    // SAFETY: the caller vouches for `out` and `len`.
                    $crate::entropy(unsafe { std::slice::from_raw_parts_mut(out, len) });
                }
            }

            /// Replaces `bssl::CRYPTO_init_sysrand`, whose object file the linker then leaves out.
            #[unsafe(export_name = "_ZN4bssl19CRYPTO_init_sysrandEv")]
            extern "C" fn init_sysrand() {}

            /// Replaces `bssl::CRYPTO_get_fork_generation`. A program in virtual time
            /// forks only to start another. Where the kernel cannot detect a fork, BoringSSL would
            /// draw more seeds.
            #[unsafe(export_name = "_ZN4bssl26CRYPTO_get_fork_generationEv")]
            extern "C" fn fork_generation() -> u64 {
                1
            }

            /// Replaces BoringSSL's function of this name, which asks the processor for a number.
            /// Without that number, BoringSSL uses its generator alone.
            #[unsafe(no_mangle)]
            extern "C" fn CRYPTO_rdrand(_out: *mut u8) -> libc::c_int {
                0
            }

            /// Replaces BoringSSL's function of this name, like `CRYPTO_rdrand`.
            #[unsafe(no_mangle)]
            extern "C" fn CRYPTO_rdrand_multiple8_buf(_out: *mut u8, _len: usize) -> libc::c_int {
                0
            }

            /// Replaces the C library's function of this name.
            ///
            /// # Safety
            /// `out` must be null or valid for one write. `zone` must be null, or valid for it.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn gettimeofday(
                out: *mut libc::timeval,
                zone: *mut libc::c_void,
            ) -> libc::c_int {
                match $crate::virtual_date() {
                    Some(date) if !out.is_null() => {
                        // SAFETY: the caller vouches for `out`.
                        unsafe { out.write(date) };
                        0
                    }
                    #[allow(clippy::cast_possible_truncation, reason = "it returns 0 or -1")]
                    // SAFETY: the arguments are those of the system call of this name.
                    _ => unsafe { libc::syscall(libc::SYS_gettimeofday, out, zone) as libc::c_int },
                }
            }

            /// Replaces the C library's function of this name.
            ///
            /// # Safety
            /// `out` must be valid for one write.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn clock_gettime(
                clock: libc::clockid_t,
                out: *mut libc::timespec,
            ) -> libc::c_int {
                if let Some(time) = $crate::virtual_clock(clock) {
                    // SAFETY: the caller vouches for `out`.
                    unsafe { out.write(time) };
                    return 0;
                }
                #[allow(clippy::cast_possible_truncation, reason = "it returns 0 or -1")]
                // SAFETY: the arguments are those of the system call of this name.
                unsafe {
                    libc::syscall(libc::SYS_clock_gettime, clock, out) as libc::c_int
                }
            }
        }
    };
}

#[cfg(test)]
in_force!();

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[allow(clippy::disallowed_methods, reason = "the clock is what is tested")]
    fn now() -> Instant {
        Instant::now()
    }

    #[test]
    fn time_stands_still_until_it_is_set_and_comes_back_at_the_end() {
        let real = now();
        let world = World::enter(1).unwrap();
        assert_eq!(now(), world.start());
        world.set(Duration::from_millis(1500));
        assert_eq!(now() - world.start(), Duration::from_millis(1500));
        let elsewhere = std::thread::spawn(now).join().unwrap();
        assert!(elsewhere >= real, "another thread has the real clock");
        drop(world);
        assert!(now() >= elsewhere);
    }

    /// What the C library says, in microseconds.
    fn date() -> i64 {
        let mut date = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: the first pointer is valid for one write, and the second may be null.
        assert_eq!(unsafe { libc::gettimeofday(&raw mut date, std::ptr::null_mut()) }, 0);
        date.tv_sec * 1_000_000 + date.tv_usec
    }

    #[test]
    fn the_date_is_virtual_too() {
        let world = World::enter(1).unwrap();
        let begun = date();
        assert_eq!(begun, 1_767_225_600_000_000);
        world.set(Duration::from_millis(1500));
        assert_eq!(date() - begun, 1_500_000);
        drop(world);
        #[allow(clippy::disallowed_methods, reason = "it is what the date is compared with")]
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert!(u128::try_from(date()).unwrap() >= since.as_micros(), "the date is real again");
    }

    #[test]
    fn a_world_within_a_world_leaves_the_outer_one_as_it_was() {
        let draw = |nested: bool| {
            let outer = World::enter(1).unwrap();
            outer.set(Duration::from_secs(5));
            if nested {
                let inner = World::enter(2).unwrap();
                inner.set(Duration::from_secs(9));
                rand_bytes(&mut [0; 8]);
            }
            let mut bytes = [0; 8];
            rand_bytes(&mut bytes);
            (now() - outer.start(), bytes)
        };
        assert_eq!(draw(true), draw(false));
    }

    #[test]
    fn a_seed_gives_the_same_bytes_in_any_portions() {
        let draw = |seed, sizes: &[usize]| {
            let _world = World::enter(seed).unwrap();
            let mut all = Vec::new();
            for &size in sizes {
                let mut bytes = vec![0; size];
                rand_bytes(&mut bytes);
                all.extend(bytes);
            }
            all
        };
        assert_eq!(draw(1, &[8, 16, 32]), draw(1, &[56]));
        assert_ne!(draw(1, &[32]), draw(2, &[32]));
    }

    #[test]
    fn without_a_world_the_numbers_are_the_systems() {
        let draw = || {
            let mut bytes = [0; 32];
            rand_bytes(&mut bytes);
            bytes
        };
        assert_ne!(draw(), draw());
    }
}
