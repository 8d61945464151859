//! The measured work.

#![allow(clippy::expect_used, reason = "a benchmark that cannot run reports why")]

use sidekick_quack::{Decoder, Fate, Identifier, InstructionSet, PowerSums, PowerSumsOf, textbook};
use std::hint::black_box;

/// Bits that look like ciphertext (SplitMix64).
pub(crate) fn ciphertext() -> impl Iterator<Item = u64> {
    (1_u64..).map(|n| {
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    })
}

/// Insertion of packets.
#[allow(clippy::large_enum_variant, reason = "there are few")]
pub(crate) enum Inserting {
    Of16(Sums<u16>),
    Of32(Sums<u32>),
    Of64(Sums<u64>),
}

pub(crate) struct Sums<I: Identifier> {
    packets: Vec<I>,
    sums: PowerSumsOf<I>,
    textbook: Vec<I>,
}

impl<I: Identifier + Default> Sums<I> {
    fn new(threshold: usize, set: InstructionSet, of: impl Fn(u64) -> I) -> Self {
        let sums =
            PowerSumsOf::new(threshold).expect("a threshold in range").with_instruction_set(set);
        let packets = ciphertext().map(of).take(Inserting::PACKETS).collect();
        Self { packets, sums, textbook: vec![I::default(); threshold] }
    }
}

macro_rules! each {
    ($self:ident, $sums:ident => $work:expr) => {
        match $self {
            Self::Of16($sums) => $work,
            Self::Of32($sums) => $work,
            Self::Of64($sums) => $work,
        }
    };
}

impl Inserting {
    /// As many packets as a ring's block may hold.
    pub(crate) const PACKETS: usize = 1024;

    #[allow(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
    pub(crate) fn of(width: u32, threshold: usize, set: InstructionSet) -> Self {
        match width {
            16 => Self::Of16(Sums::new(threshold, set, |word| word as u16)),
            32 => Self::Of32(Sums::new(threshold, set, |word| word as u32)),
            _ => Self::Of64(Sums::new(threshold, set, |word| word)),
        }
    }

    pub(crate) fn batch(&mut self) {
        each!(self, sums => sums.sums.insert_many(black_box(&sums.packets)));
    }

    pub(crate) fn single(&mut self) {
        each!(self, sums => for &packet in black_box(&sums.packets) {
            sums.sums.insert(packet);
        });
    }

    pub(crate) fn textbook(&mut self) {
        each!(self, sums => for &packet in black_box(&sums.packets) {
            textbook::insert(&mut sums.textbook, packet);
        });
    }
}

/// Decoding of a quACK.
pub(crate) struct Decoding {
    log: Vec<u32>,
    missing: usize,
    difference: PowerSums,
    sums: Vec<u32>,
    decoder: Decoder,
    fates: Vec<Fate>,
    polynomial: Vec<u32>,
    positions: Vec<usize>,
}

impl Decoding {
    pub(crate) const THRESHOLD: usize = 20;

    #[allow(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
    pub(crate) fn of(missing: usize, log: usize, set: InstructionSet) -> Self {
        let log: Vec<u32> = ciphertext().map(|word| word as u32).take(log).collect();
        let mut difference = PowerSums::new(Self::THRESHOLD).expect("a threshold in range");
        let lost: Vec<u32> = (0..missing).map(|index| log[index * log.len() / missing]).collect();
        difference.insert_many(&lost);
        Self {
            missing,
            sums: difference.sums().collect(),
            difference,
            decoder: Decoder::new(Self::THRESHOLD).with_instruction_set(set),
            fates: Vec::with_capacity(log.len()),
            polynomial: Vec::with_capacity(Self::THRESHOLD),
            positions: Vec::with_capacity(Self::THRESHOLD),
            log,
        }
    }

    pub(crate) fn decode(&mut self) {
        let decoded = self.decoder.decode(black_box(&self.difference), &self.log, &mut self.fates);
        assert_eq!(decoded, Ok(self.missing));
    }

    pub(crate) fn refuse(&mut self) {
        let decoded = self.decoder.decode(black_box(&self.difference), &self.log, &mut self.fates);
        assert!(decoded.is_err());
    }

    pub(crate) fn textbook(&mut self) {
        let Self { sums, missing, log, polynomial, positions, .. } = self;
        textbook::decode(black_box(sums), *missing, log, polynomial, positions);
        assert_eq!(positions.len(), *missing);
    }
}
