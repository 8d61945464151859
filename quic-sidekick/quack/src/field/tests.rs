use super::*;
use proptest::prelude::*;

/// The same properties for each width, compared with arithmetic in the next wider integers.
macro_rules! properties {
    ($name:ident, $type:ty, $wide:ty) => {
        mod $name {
            use super::*;

            const P: $wide = <$type as Field>::PRIME as $wide;

            /// Elements, with the edges of the range more often than by chance.
            fn any_element() -> impl Strategy<Value = $type> {
                let prime = <$type as Field>::PRIME;
                prop_oneof![0..6 as $type, prime - 6..prime, 0..prime]
            }

            proptest! {
                #[test]
                fn arithmetic_agrees_with_wide_integers(
                    a in any_element(),
                    b in any_element(),
                    c in any_element(),
                ) {
                    let [wa, wb, wc] = [a, b, c].map(<$wide>::from);
                    prop_assert_eq!(<$wide>::from(<$type>::add(a, b)), (wa + wb) % P);
                    prop_assert_eq!(<$wide>::from(<$type>::sub(a, b)), (wa + P - wb) % P);
                    prop_assert_eq!(<$wide>::from(<$type>::mul(a, b)), wa * wb % P);
                    prop_assert_eq!(<$wide>::from(<$type>::mul_add(a, b, c)), (wa * wb + wc) % P);
                }

                #[test]
                fn identifiers_past_the_modulus_wrap(
                    identifier in prop_oneof![any::<$type>(), <$type>::MAX - 80..=<$type>::MAX],
                ) {
                    let element = <$wide>::from(identifier.element());
                    prop_assert_eq!(element, <$wide>::from(identifier) % P);
                }

                #[test]
                fn totals_reduce(
                    pairs in prop::collection::vec(
                        (any_element(), any_element()),
                        0..=MAX_THRESHOLD,
                    ),
                    c in any_element(),
                ) {
                    let total =
                        pairs.iter().fold(0, |total, &(a, b)| total + <$type>::product(a, b));
                    let reduced = <$wide>::from(<$type>::reduce(total, c));
                    let naive = |sum, &(a, b): &($type, $type)| {
                        (sum + <$wide>::from(a) * <$wide>::from(b) % P) % P
                    };
                    prop_assert_eq!(reduced, pairs.iter().fold(<$wide>::from(c), naive) % P);
                }

                #[test]
                fn lazy_sums_settle(
                    start in any_element(),
                    steps in prop::collection::vec((any::<bool>(), any_element()), 0..50),
                ) {
                    let (mut lazy, mut naive) = (start.lazy(), <$wide>::from(start));
                    for (take, element) in steps {
                        if take {
                            <$type>::subtract(&mut lazy, element);
                            naive = (naive + P - <$wide>::from(element)) % P;
                        } else {
                            <$type>::accumulate(&mut lazy, element);
                            naive = (naive + <$wide>::from(element)) % P;
                        }
                    }
                    prop_assert_eq!(<$wide>::from(<$type>::settle(lazy)), naive);
                }
            }

            #[test]
            fn every_negated_inverse_times_its_number_is_minus_one() {
                for (k, &inverse) in (1..).zip(<$type as Field>::NEGATED_INVERSES) {
                    assert_eq!(<$wide>::from(inverse) * k % P, P - 1, "-1/{k}");
                }
            }

            #[test]
            fn the_extremes_reduce() {
                let most = <$type as Field>::PRIME - 1;
                assert_eq!(<$type>::mul(most, most), 1);
                assert_eq!(<$type>::mul_add(most, most, most), 0);
                assert_eq!(<$type>::reduce(<$type>::product(most, most) * 1000, most), 999);
            }
        }
    };
}
properties!(of_16_bits, u16, u32);
properties!(of_32_bits, u32, u64);
properties!(of_64_bits, u64, u128);

/// Fermat's test in its strong form, to the first twelve primes: they decide every 64-bit number.
fn is_prime(n: u64) -> bool {
    let bases = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    if n < 2 || bases.iter().any(|&base| n != base && n.is_multiple_of(base)) {
        return false;
    }
    let times =
        |a: u64, b: u64| u64::try_from(u128::from(a) * u128::from(b) % u128::from(n)).unwrap();
    let odd = (n - 1) >> (n - 1).trailing_zeros();
    bases.iter().all(|&base| {
        let power = (0..64).rev().fold(1, |power, bit| {
            let square = times(power, power);
            if odd >> bit & 1 == 1 { times(square, base) } else { square }
        });
        let squares = std::iter::successors(Some(power), |&power| Some(times(power, power)));
        n == base
            || power == 1
            || squares.take((n - 1).trailing_zeros() as usize).any(|square| square == n - 1)
    })
}

#[test]
fn the_moduli_are_the_largest_primes_of_their_widths() {
    for (prime, most) in [
        (u16::PRIME.into(), u16::MAX.into()),
        (u32::PRIME.into(), u32::MAX.into()),
        (u64::PRIME, u64::MAX),
    ] {
        assert_eq!((0..=most).rev().find(|&n| is_prime(n)), Some(prime));
    }
}
