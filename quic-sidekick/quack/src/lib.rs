//! The power-sum **quACK**: find out *which* packets of a log are missing, from a message that names none of
//! them.
//!
//! A proxy sees opaque packets pass. For each it takes a 32-bit identifier out of the ciphertext and adds it
//! to a few running sums. Now and then it sends those sums to the sender, who keeps the same sums over
//! everything it sent. The difference of the two describes exactly the packets that never reached the proxy,
//! and the sender's own log tells which ones they are. The message is small (4 bytes for each packet that may
//! be missing), its size does not depend on how many packets passed, and it is cumulative: a quACK that is
//! lost, late or repeated does no harm.
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
//! All arithmetic is modulo the largest 32-bit prime, [`MODULUS`]. The `k`-th sum is the sum of the `k`-th
//! powers of all identifiers, for `k` from 1 to the *threshold* `t`. If `m ≤ t` packets are missing, the
//! first `m` sums of the difference determine, by Newton's identities, the one polynomial of degree `m` whose
//! roots are the missing identifiers. The [`Decoder`] evaluates it at every identifier of the log. Sums that
//! are left over (`t > m`) must agree with the same polynomial, which exposes a log that does not belong to
//! the quACK.
//!
//! # What to know before use
//!
//! - **Identifiers may collide.** What is counted is a multiset. If an identifier stands in the log more
//!   often than it is missing, nobody can say which of those packets are missing: they are all
//!   [`Fate::Ambiguous`].
//! - **Identifiers are reduced modulo [`MODULUS`]**, so the five values 2³²−5 to 2³²−1 are the same to this
//!   crate as 0 to 4. The decoder treats them as equal, hence as collisions.
//! - **The log must be the one the sums were taken over.** A log that lacks a missing packet, or a proxy that
//!   counted a packet the log never held, gives an error and no fates. By accident that goes unnoticed about
//!   once in 2³² times for each sum to spare, and with no sum to spare only if chance roots stand in the log.
//!   It is no protection against a proxy that lies: one that saw the packets can make sums that claim any of
//!   them.
//! - Nothing here panics, blocks, reads a clock or trusts its input. [`PowerSums::insert`] and
//!   [`PowerSums::remove`] never allocate; a [`Decoder`] stops allocating once its buffers have grown to the
//!   length of the log.
//! - The crate is `no_std` (it needs `alloc`) and depends on nothing.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod decode;
mod error;
mod field;
mod sums;

pub use decode::{DecodeError, Decoder, Fate};
pub use error::{MoreReceivedThanSent, PartsError, ThresholdError};
pub use field::MODULUS;
pub use sums::{MAX_THRESHOLD, PowerSums};
