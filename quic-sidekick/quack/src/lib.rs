//! The power-sum **quACK**: find out *which* packets of a log are missing, from a message that
//! names none of them.
//!
//! A proxy sees opaque packets pass. For each it takes a 32-bit identifier out of the ciphertext
//! and adds it to a few running sums. Now and then it sends those sums to the sender, who keeps the
//! same sums over everything it sent. The difference of the two describes exactly the packets that
//! never reached the proxy, and the sender's own log tells which ones they are. The message is
//! small (4 bytes for each packet that may be missing), its size does not depend on how many
//! packets passed, and it is cumulative: a quACK that is lost, late or repeated does no harm.
//!
//! ```
//! use sidekick_quack::{Decoder, Fate, PowerSums};
//!
//! let mut sent = PowerSums::new(20)?; // the sender: sums over its log
//! let log = [0x8c31_02f7, 0x1d5e_77a0, 0xe402_9b1c, 0x05f9_6623];
//! sent.insert_many(&log);
//!
//! let mut seen = PowerSums::new(20)?; // the proxy: sums over what went past, in any order
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
//! missing, the first `m` sums of the difference determine, by Newton's identities, the one
//! polynomial of degree `m` whose roots are the missing identifiers. The [`Decoder`] evaluates it
//! at every identifier of the log, or finds its roots and looks them up where that is faster. Sums
//! that are left over (`t > m`) must agree with the same polynomial, which exposes a log that does
//! not belong to the quACK.
//!
//! # What to know before use
//!
//! - **Identifiers may collide.** What is counted is a multiset. If an identifier stands in the log
//!   more often than it is missing, nobody can say which of those packets are missing: they are all
//!   [`Fate::Ambiguous`].
//! - **Identifiers are reduced modulo [`MODULUS`]**, so the five values 2³²−5 to 2³²−1 are the same
//!   to this crate as 0 to 4. The decoder treats them as equal, hence as collisions.
//! - **The log must be the one the sums were taken over.** A log that lacks a missing packet, or a
//!   proxy that counted a packet the log never held, gives an error and no fates. By accident that
//!   goes unnoticed about once in 2³² times for each sum to spare, and with no sum to spare only if
//!   chance roots stand in the log. It is no protection against a proxy that lies: one that saw the
//!   packets can make sums that claim any of them.
//! - Nothing here panics, blocks, reads a clock or trusts its input. [`PowerSums::insert`] and
//!   [`PowerSums::remove`] never allocate; a [`Decoder`] allocates nothing but the caller's list of
//!   fates, once that has grown to the length of the log.
//! - The crate depends on nothing. Without its feature `std` it is `no_std` (it needs `alloc`) and
//!   uses the [instructions](InstructionSet) that the compiler was told of instead of asking the
//!   processor.
//!
//! # How wide an identifier should be
//!
//! [`PowerSums`] and [`Decoder`] take 32 bits of a packet, which is what the protocol speaks.
//! [`PowerSumsOf`] and [`DecoderOf`] take 16 or 64 just as well. For a threshold of 20 and a log of
//! 1000 packets:
//!
//! | bits | a packet's identifier is in the log twice | bytes of sums | insert one of many | decode 20 missing |
//! |---|---|---|---|---|
//! | 16 | 1 in 66 | 40 | 5.9 ns | as 32 bits |
//! | 32 | 1 in 4.3 million | 80 | 4.1 ns | 5.5 µs |
//! | 64 | 1 in 1.8 · 10¹⁶ | 160 | 59 ns | by the portable code |
//!
//! The chance is `1 - (1 - 2^-bits)^999`. A quACK adds a count and the protocol's header. The times
//! are those of AVX-512, below; products of 64 bits are made by the portable code on every machine,
//! since no vector instruction multiplies them.
//!
//! # How fast it is
//!
//! `make bench` measures it, in turns with the [`textbook`] code in the same process, and counts
//! instructions. On a Xeon of 2019 (Cascade Lake at 3.1 GHz, one core of a virtual machine), with a
//! threshold of 20 and 32-bit identifiers, in nanoseconds:
//!
//! | | textbook | portable | AVX2 | AVX-512 |
//! |---|---|---|---|---|
//! | insert, of 1024 at once | 62 | 33 | 6.6 | 4.1 |
//! | insert, one by one | 62 | 35 | 9.7 | 7.3 |
//! | decode 20 of 1000 | 90 600 | 34 000 | 8 100 | 5 500 |
//! | decode 5 of 100 | 1 990 | 1 210 | 560 | 420 |
//! | tell that too many are missing | – | 5 | 5 | 5 |
//!
//! How far that is from what the machine could do, by arithmetic. A multiplication and reduction is
//! four dependent instructions of floating point (the source of `vector/kernel.rs` says how), and
//! the sum a fifth. An identifier and a threshold of 20 take 19 · 4 + 20 = 96 of them, 8 or 4
//! identifiers to a vector, and two can begin in each cycle:
//!
//! - *AVX-512*: 96 / 8 / 2 = 6.0 cycles, 1.9 ns. Alone such code takes 3.1 ns; in turns with other
//!   code, as above, it also pays for the processor's change to the lower clock of wide vectors.
//!   What is left is loading, squaring and centring each group of 32 identifiers, and handing over
//!   the sums of each batch.
//! - *AVX2*: 96 / 4 / 2 = 12 cycles, 3.9 ns. Alone it takes 6.0 ns.
//! - *Decoding 20 of 1000*: five instructions for each of 19 steps of Horner's rule, 1000 · 95 / 8
//!   / 2 = 5 900 cycles, 1.9 µs with AVX-512, and 3.8 µs with AVX2. Alone they take 4.2 and 7.0 µs,
//!   of which Newton's identities are about 0.6: each of their 20 steps waits for the one before,
//!   some 50 cycles long.
//! - *Decoding 5 of 100* is bound by such waiting: five steps of Newton's identities, then five
//!   steps of Horner's rule for two groups of 64 candidates, 20 cycles each: 450 cycles are 0.15
//!   µs.
//!
//! One by one, packets wait for each other inside [`PowerSums`], and go into the sums as batches of
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
mod identifier;
mod sums;
pub mod textbook;
mod threshold;
mod vector;

pub use decode::{Decoder, DecoderOf};
pub use error::{DecodeError, MoreReceivedThanSent, PartsError};
pub use fate::Fate;
pub use identifier::Identifier;
pub use sums::{PowerSums, PowerSumsOf};
pub use threshold::{MAX_THRESHOLD, ThresholdError};
pub use vector::InstructionSet;

/// The prime 2³² − 5 that sums of 32-bit identifiers are taken modulo.
pub const MODULUS: u32 = <u32 as Identifier>::MODULUS;
