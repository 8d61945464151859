use super::*;
use crate::wire::Words;
use proptest::prelude::*;

#[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
fn start() -> Instant {
    Instant::now()
}

/// Loads a quACK of three sums over `counted`.
fn load(reconciler: &mut Reconciler, counted: &[u32]) {
    let mut sums = PowerSums::new(3).unwrap();
    sums.insert_many(counted);
    let sums: Vec<u32> = sums.sums().collect();
    let (first, last) = (counted[0], counted[counted.len() - 1]);
    let quack = Quack {
        epoch: 1,
        token: 0,
        age_us: 0,
        first,
        last,
        count: sums_count(counted),
        sums: Words::new(&sums),
    };
    reconciler.load(&quack, 3).unwrap();
}

fn sums_count(counted: &[u32]) -> u32 {
    u32::try_from(counted.len()).unwrap()
}

proptest! {
    /// The quick check distinguishes a quACK of all packets from one of as many others. In these,
    /// one packet is lost and another counted twice, or one packet is from another sender.
    #[test]
    fn a_quack_of_as_many_other_packets_is_misaligned(
        ids in prop::collection::hash_set(any::<u32>(), 12..100),
        settled in 10_usize..12,
        lost in any::<prop::sample::Index>(),
        other in any::<u32>(),
        doubled in any::<bool>(),
    ) {
        let ids: Vec<u32> = ids.into_iter().collect();
        let (mut history, mut reconciler) = (History::default(), Reconciler::default());
        reconciler.begin(3, 3);
        for (id, tag) in ids.iter().zip(0..) {
            history.push(*id, tag, start());
        }
        let mut ask = |counted: &[u32], history: &mut History| {
            load(&mut reconciler, counted);
            let window = Window {
                first: ids[0],
                last: counted[counted.len() - 1],
                grace: Duration::ZERO,
                overtaking: Duration::ZERO,
            };
            reconciler.reconcile(history, &window, &mut Vec::new(), start())
        };
        // The epoch's first quACK takes the slow path, and settles the epoch's beginning.
        ask(&ids[..settled], &mut history);
        prop_assert_eq!(history.pending.len(), ids.len() - settled);
        let mut counted = ids.clone();
        let unsettled = &mut counted[settled..ids.len() - 1];
        if !unsettled.is_empty() {
            let index = lost.index(unsettled.len());
            let replacement = if doubled { ids[0] } else { other };
            let replaced = std::mem::replace(&mut unsettled[index], replacement);
            if u64::from(replaced) % MODULUS != u64::from(counted[settled + index]) % MODULUS {
                prop_assert_eq!(ask(&counted, &mut history), Outcome::Misaligned);
                prop_assert_eq!(history.pending.len(), ids.len() - settled);
            }
        }
        let outcome = ask(&ids, &mut history);
        let decoded = matches!(outcome, Outcome::Decoded { last_sent: Some(_) });
        prop_assert!(decoded && history.pending.is_empty());
    }
}
