//! Random sequences of operations on sums, compared with a model.

use proptest::prelude::*;
use sidekick_quack::{Identifier, InstructionSet, PowerSumsOf, textbook};
use std::hash::{BuildHasher, RandomState};

/// The textbook's sums with removal: the negative of a power is the modulus less it.
#[derive(Clone, Debug, Default)]
struct Model<I> {
    count: u32,
    threshold: usize,
    added: Vec<I>,
    removed: Vec<I>,
}

impl<I: Identifier + Default> Model<I> {
    fn sums(&self) -> Vec<I> {
        let of = |identifiers: &[I]| {
            let mut sums = vec![I::default(); self.threshold];
            identifiers.iter().for_each(|&identifier| textbook::insert(&mut sums, identifier));
            sums
        };
        let mut sums = of(&self.added);
        textbook::subtract(&mut sums, &of(&self.removed));
        sums
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// One by one, often more than the buffer holds.
    Insert(usize, usize),
    InsertMany(usize, usize),
    RemoveMany(usize, usize),
    Truncate(usize, usize),
    Clear(usize),
    Subtract(usize, usize),
    CloneFrom(usize, usize),
    /// Through a message.
    Reassign(usize, usize),
    WriteSums(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let (which, length) = (0..3_usize, prop_oneof![0..4_usize, 0..90_usize]);
    prop_oneof![
        (which.clone(), length.clone()).prop_map(|(a, n)| Step::Insert(a, n)),
        (which.clone(), length.clone()).prop_map(|(a, n)| Step::Insert(a, n)),
        (which.clone(), length.clone()).prop_map(|(a, n)| Step::InsertMany(a, n)),
        (which.clone(), length).prop_map(|(a, n)| Step::RemoveMany(a, n)),
        (which.clone(), 1..60_usize).prop_map(|(a, n)| Step::Truncate(a, n)),
        which.clone().prop_map(Step::Clear),
        (which.clone(), which.clone()).prop_map(|(a, b)| Step::Subtract(a, b)),
        (which.clone(), which.clone()).prop_map(|(a, b)| Step::CloneFrom(a, b)),
        (which.clone(), which.clone()).prop_map(|(a, b)| Step::Reassign(a, b)),
        which.prop_map(Step::WriteSums),
    ]
}

fn follow<I>(
    thresholds: [usize; 3],
    sets: [prop::sample::Index; 3],
    seed: u64,
    steps: &[Step],
) -> Result<(), TestCaseError>
where
    I: Identifier + Default + TryFrom<u64, Error: std::fmt::Debug>,
{
    let available: Vec<InstructionSet> = InstructionSet::available().collect();
    let mut sums = [0, 1, 2].map(|i| {
        PowerSumsOf::<I>::new(thresholds[i])
            .unwrap()
            .with_instruction_set(available[sets[i].index(available.len())])
    });
    let mut models = thresholds.map(|threshold| Model { threshold, ..Model::<I>::default() });
    let mut state = seed;
    let mut draw = |n: usize| -> Vec<I> {
        let next = |_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let most = u64::MAX >> (64 - I::BITS);
            let word = state >> (64 - I::BITS);
            I::try_from(if state >> 8 & 7 == 0 { most - word % 64 } else { word }).unwrap()
        };
        (0..n).map(next).collect()
    };
    let hasher = RandomState::new();
    for step in steps {
        match *step {
            Step::Insert(a, n) => {
                for identifier in draw(n) {
                    sums[a].insert(identifier);
                    models[a].added.push(identifier);
                    models[a].count = models[a].count.wrapping_add(1);
                }
            }
            Step::InsertMany(a, n) => {
                let identifiers = draw(n);
                sums[a].insert_many(&identifiers);
                models[a].count = models[a].count.wrapping_add(n.try_into().unwrap());
                models[a].added.extend(identifiers);
            }
            Step::RemoveMany(a, n) => {
                let identifiers = draw(n);
                match identifiers.as_slice() {
                    [one] => sums[a].remove(*one),
                    many => sums[a].remove_many(many),
                }
                models[a].count = models[a].count.wrapping_sub(n.try_into().unwrap());
                models[a].removed.extend(identifiers);
            }
            Step::Truncate(a, n) => {
                sums[a].truncate(n).unwrap();
                models[a].threshold = n.min(models[a].threshold);
            }
            Step::Clear(a) => {
                sums[a].clear();
                models[a] = Model { threshold: models[a].threshold, ..Model::default() };
            }
            Step::Subtract(a, b) => {
                let other = sums[b].clone();
                sums[a].subtract(&other);
                let other = models[b].clone();
                models[a].count = models[a].count.wrapping_sub(other.count);
                models[a].threshold = models[a].threshold.min(other.threshold);
                models[a].added.extend(other.removed);
                models[a].removed.extend(other.added);
            }
            Step::CloneFrom(a, b) => {
                let other = sums[b].clone();
                sums[a].clone_from(&other);
                models[a] = models[b].clone();
            }
            Step::Reassign(a, b) => {
                let (count, words) = (sums[b].count(), sums[b].sums().collect::<Vec<_>>());
                sums[a].assign_parts(count, &words).unwrap();
                models[a] = models[b].clone();
            }
            Step::WriteSums(a) => {
                let mut words = vec![I::default(); 9];
                let written = sums[a].write_sums(&mut words);
                prop_assert_eq!(written, models[a].threshold.min(9));
                prop_assert_eq!(&words[..written], &models[a].sums()[..written]);
            }
        }
        for (sums, model) in sums.iter().zip(&models) {
            prop_assert_eq!(sums.count(), model.count);
            let expected = model.sums();
            prop_assert_eq!(sums.sums().collect::<Vec<_>>(), expected.clone(), "{:?}", step);
            let same = PowerSumsOf::from_parts(model.count, &expected).unwrap();
            prop_assert_eq!(sums, &same);
            prop_assert_eq!(hasher.hash_one(sums), hasher.hash_one(&same));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn steps_of_every_width(
        t in [1..60_usize, 1..60, 1..60],
        s: [prop::sample::Index; 3],
        seed: u64,
        steps in prop::collection::vec(any_step(), 1..20),
    ) {
        follow::<u16>(t, s, seed, &steps)?;
        follow::<u32>(t, s, seed, &steps)?;
        follow::<u64>(t, s, seed, &steps)?;
    }
}
