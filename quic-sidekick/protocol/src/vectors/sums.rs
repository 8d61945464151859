//! Identifiers and their power sums.

use super::valid::words;
use serde_json::{Value, json};
use sidekick_quack::{MODULUS, PowerSums, textbook};

pub(super) fn all() -> Vec<Value> {
    [
        ("none", &[][..], 4),
        ("one", &[1], 4),
        ("a single identifier", &[0x8c31_02f7], 20),
        ("the same twice", &[0x1d5e_77a0, 0x1d5e_77a0], 4),
        ("the largest that is its own remainder", &[MODULUS - 1], 4),
        (
            "the modulus and what is above it",
            &[MODULUS, MODULUS + 1, MODULUS + 2, MODULUS + 3, u32::MAX],
            4,
        ),
        ("as if 0 to 4 were put in", &[0, 1, 2, 3, 4], 4),
        ("four packets", &[0x8c31_02f7, 0x1d5e_77a0, 0xe402_9b1c, 0x05f9_6623], 20),
        ("the same in another order", &[0x05f9_6623, 0xe402_9b1c, 0x8c31_02f7, 0x1d5e_77a0], 20),
        ("100 packets", &words(100), 128),
        ("as many sums as there can be", &words(255), 255),
    ]
    .into_iter()
    .map(|(name, identifiers, n)| {
        let (mut sums, mut plain) = (PowerSums::new(n).unwrap(), vec![0; n]);
        sums.insert_many(identifiers);
        identifiers.iter().for_each(|identifier| textbook::insert(&mut plain, *identifier));
        let sums: Vec<_> = sums.sums().collect();
        assert_eq!(sums, plain, "{name}");
        json!({ "name": name, "identifiers": identifiers, "sums": sums })
    })
    .collect()
}
