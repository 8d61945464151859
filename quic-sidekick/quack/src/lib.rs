//! The power-sum **quACK**: tells a sender *which* of its packets are missing, in a message that
//! names none of them.
//!
//! A proxy that can read nothing but ciphertext takes 32 bits of each packet as its identifier, and
//! adds them to a few running sums. The sender keeps the same sums over everything it sent, so the
//! difference describes exactly the packets that never reached the proxy, and its log identifies
//! them. The message takes 4 bytes for each packet that *may* be missing, however many arrived. It
//! is cumulative, so a quACK that is lost, late or repeated does no harm.
//!
//! ```
//! use sidekick_quack::{Decoder, Fate, PowerSums};
//!
//! let mut sent = PowerSums::new(20)?; // the sender: sums over its log
//! let log = [0x8c31_02f7, 0x1d5e_77a0, 0xe402_9b1c, 0x05f9_6623];
//! sent.insert_many(&log);
//!
//! let mut seen = PowerSums::new(20)?; // the proxy: sums over the packets it saw, in any order
//! seen.insert_many(&[0xe402_9b1c, 0x8c31_02f7, 0x05f9_6623]);
//!
//! let (mut decoder, mut fates) = (Decoder::new(20), Vec::new());
//! let missing = decoder.decode(&sent.difference(&seen)?, &log, &mut fates)?;
//! assert_eq!((missing, fates[1]), (1, Fate::Missing));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! All arithmetic is modulo the largest 32-bit prime, [`MODULUS`]. The `k`-th sum is the sum of the
//! `k`-th powers of all identifiers, for `k` from 1 to the *threshold* `t`. If `m ≤ t` packets are
//! missing, Newton's identities turn the first `m` sums of the difference into a polynomial of
//! degree `m` whose roots are the missing identifiers. The [`Decoder`] evaluates it at every
//! identifier of the log, or finds its roots and looks them up where that is faster. The remaining
//! sums (`t > m`) must agree with the same polynomial, so a log that does not match the quACK is
//! noticed.
//!
//! # What to know before use
//!
//! - **Identifiers may collide.** The sums count a multiset. If the log holds an identifier more
//!   often than it is missing, the sums cannot show which of those packets are missing: they are
//!   all [`Fate::Ambiguous`].
//! - **Identifiers are reduced modulo [`MODULUS`]**, so the five values 2³²−5 to 2³²−1 equal 0 to
//!   4. The decoder treats them as collisions.
//! - **The log must be the one that the sums cover.** A log that lacks a missing packet, or a proxy
//!   that counted a packet outside the log, gives an error and no fates. By accident such a case
//!   goes unnoticed about once in 2³² times for each remaining sum; with none remaining, only if
//!   random roots are in the log. This is no protection against a proxy that lies: a proxy that saw
//!   the packets can make sums that claim any of them.
//! - Nothing here panics, blocks, reads a clock or trusts its input. [`PowerSums::insert`] and
//!   [`PowerSums::remove`] never allocate. A [`Decoder`] allocates only the caller's list of fates,
//!   until that has the length of the log.
//! - The crate has no dependencies. Without its feature `std` it is `no_std` (it needs `alloc`),
//!   and uses the [instructions](InstructionSet) of the compilation target instead of querying the
//!   processor.
//!
//! # How wide an identifier should be
//!
//! [`PowerSums`] and [`Decoder`] use 32-bit identifiers, as the protocol does. [`PowerSumsOf`] and
//! [`DecoderOf`] also support 16 and 64 bits. For a threshold of 20 and a log of 1000 packets:
//!
//! | bits | a packet's identifier is in the log twice | bytes of sums | insert one of many | decode 20 missing |
//! |---|---|---|---|---|
//! | 16 | 1 in 66 | 40 | 5.9 ns | as 32 bits |
//! | 32 | 1 in 4.3 million | 80 | 4.1 ns | 5.5 µs |
//! | 64 | 1 in 1.8 · 10¹⁶ | 160 | 59 ns | by the portable code |
//!
//! The probability is `1 - (1 - 2^-bits)^999`. A quACK adds a count and the protocol's header. The
//! times are those of AVX-512, below. The portable code computes products of 64 bits on every
//! machine, because no vector instruction multiplies them.
//!
//! # How fast it is
//!
//! `make bench` measures it, alternating with the [`textbook`] code in one process, and counts
//! instructions. On a Xeon of 2019 (Cascade Lake at 3.1 GHz, one core of a virtual machine), with a
//! threshold of 20 and 32-bit identifiers, in nanoseconds:
//!
//! | | textbook | portable | AVX2 | AVX-512 |
//! |---|---|---|---|---|
//! | insert, of 1024 at once | 62 | 33 | 6.6 | 4.1 |
//! | insert, one by one | 62 | 35 | 9.7 | 7.3 |
//! | decode 20 of 1000 | 90 600 | 34 000 | 8 100 | 5 500 |
//! | decode 5 of 100 | 1 990 | 1 210 | 560 | 420 |
//! | detect that too many are missing | – | 5 | 5 | 5 |
//!
//! How far that is from the machine's limit, by arithmetic: A multiplication with reduction takes
//! four dependent floating-point instructions (see `vector/kernel.rs`), and the sum a fifth. An
//! identifier and a threshold of 20 take 19 · 4 + 20 = 96 of them, for 8 or 4 identifiers per
//! vector. Two can begin in each cycle:
//!
//! - *AVX-512*: 96 / 8 / 2 = 6.0 cycles, 1.9 ns. Alone such code takes 3.1 ns. Alternating with
//!   other code, as above, it also pays for the change to the lower clock of wide vectors. The rest
//!   is loading, squaring and centring each group of 32 identifiers, and adding up each batch.
//! - *AVX2*: 96 / 4 / 2 = 12 cycles, 3.9 ns. Alone it takes 6.0 ns.
//! - *Decoding 20 of 1000*: five instructions for each of 19 steps of Horner's rule, 1000 · 95 / 8
//!   / 2 = 5 900 cycles: 1.9 µs with AVX-512, and 3.8 µs with AVX2. Alone they take 4.2 and 7.0 µs.
//!   Newton's identities take about 0.6 µs of that: each of their 20 steps takes some 50 cycles and
//!   waits for the last.
//! - *Decoding 5 of 100* is bound by latency: five steps of Newton's identities, then five steps of
//!   Horner's rule for two groups of 64 candidates, 20 cycles each: 450 cycles are 0.15 µs.
//!
//! [`PowerSums`] buffers packets that arrive one by one, and adds them to the sums in batches of
//! 64.

#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

mod batch;
mod decode;
mod error;
mod fate;
mod field;
mod sums;
pub mod textbook;
mod vector;

pub use decode::{Decoder, DecoderOf};
pub use error::{DecodeError, MAX_THRESHOLD, MoreReceivedThanSent, PartsError, ThresholdError};
pub use fate::Fate;
pub use field::Identifier;
pub use sums::{PowerSums, PowerSumsOf};
pub use vector::InstructionSet;

/// The prime 2³² − 5, the modulus of sums of 32-bit identifiers.
pub const MODULUS: u32 = <u32 as Identifier>::MODULUS;
