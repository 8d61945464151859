//! The observer in virtual time, compared with vectors written by hand and a naive oracle.

use super::*;
use crate::clock;
use crate::wire::MAX_QUACK_LEN;

const MODULUS: u128 = 4_294_967_291;

fn packets(number: u32) -> Interval {
    Interval::Packets(NonZeroU32::new(number).unwrap())
}

fn millis(number: u32) -> Interval {
    Interval::Millis(NonZeroU32::new(number).unwrap())
}

fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn observer(threshold: u8, interval: Interval) -> Observer {
    Observer::new(threshold, interval, "192.0.2.1:5252".parse().unwrap()).unwrap()
}

fn flow(source: &str, destination: &str) -> Flow {
    Flow { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

fn a_flow() -> Flow {
    flow("198.51.100.1:4000", "203.0.113.9:443")
}

/// The shortest payload that counts. The bytes before the identifier do not matter.
fn payload(identifier: u32) -> Vec<u8> {
    [&[0xc3; 21][..], &identifier.to_be_bytes()].concat()
}

fn feed(observer: &mut Observer, identifiers: &[u32], now: Instant) {
    for &identifier in identifiers {
        assert!(observer.observe(&a_flow(), Payload::whole(&payload(identifier)), now));
    }
}

/// The bytes of the quACK that is due.
fn quack(observer: &mut Observer) -> Option<Vec<u8>> {
    let mut out = [0xee; MAX_QUACK_LEN];
    let len = observer.poll_transmit(&mut out)?;
    Some(out[..len].to_vec())
}

/// The quACK of these identifiers by its definition, in wide integers.
fn oracle(identifiers: &[u32], threshold: u8) -> Vec<u8> {
    let mut sums = vec![0_u128; threshold.into()];
    for &identifier in identifiers {
        let mut power = 1;
        for sum in &mut sums {
            power = power * u128::from(identifier) % MODULUS;
            *sum = (*sum + power) % MODULUS;
        }
    }
    let mut bytes = u64::from(threshold).to_le_bytes().to_vec();
    bytes.extend(sums.into_iter().flat_map(|sum| u32::try_from(sum).unwrap().to_le_bytes()));
    match identifiers.last() {
        None => bytes.push(0),
        Some(last) => bytes.extend([&[1][..], &last.to_le_bytes()].concat()),
    }
    bytes.extend(u32::try_from(identifiers.len()).unwrap().to_le_bytes());
    bytes
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

#[test]
fn messages_are_those_written_by_hand() {
    let vectors: [(&[u32], u8, &str); 4] = [
        (&[], 2, "02 00 00 00 00 00 00 00  00 00 00 00  00 00 00 00  00  00 00 00 00"),
        (
            &[0x0102_0304],
            3,
            "03 00 00 00 00 00 00 00  04 03 02 01  42 2c 1e 14  41 d8 e6 45  01  04 03 02 01  01 00 00 00",
        ),
        // 0xfffffff0 is 4294967280, eleven below the modulus, and so equals -11.
        (
            &[0x0102_0304, 0xffff_fff0, 2],
            3,
            "03 00 00 00 00 00 00 00  fb 02 02 01  bf 2c 1e 14  16 d3 e6 45  01  02 00 00 00  03 00 00 00",
        ),
        // 4294967291 is the modulus, so it adds 0 to each sum; 4294967295 adds 4, 16 and 64. With
        // those of 7: 11, 65 and 407. The last identifier is not reduced.
        (
            &[7, 4_294_967_291, 4_294_967_295],
            3,
            "03 00 00 00 00 00 00 00  0b 00 00 00  41 00 00 00  97 01 00 00  01  ff ff ff ff  03 00 00 00",
        ),
    ];
    for (identifiers, threshold, hex) in vectors {
        let mut observer = observer(threshold, packets(1_000_000));
        feed(&mut observer, identifiers, clock());
        observer.due = true;
        assert_eq!(quack(&mut observer).unwrap(), bytes(hex), "{identifiers:x?}");
    }
}

#[test]
fn long_datagrams_count_except_the_proxy_s_own() {
    let (now, ours) = (clock(), "192.0.2.1:5252");
    let mut observer = observer(2, packets(1));
    let long = [0xff; 2000];
    for len in 0..25 {
        assert!(!observer.observe(&a_flow(), Payload::whole(&long[..len]), now), "{len}");
    }
    for not_counted in [flow(ours, "198.51.100.1:4000"), flow("198.51.100.1:4000", ours)] {
        assert!(!observer.observe(&not_counted, Payload::whole(&long), now), "{not_counted:?}");
    }
    assert_eq!(quack(&mut observer), None);
    // Any first byte, any longer payload, and only the port or only the address of the proxy.
    for counted in
        [a_flow(), flow("192.0.2.1:5253", "192.0.2.2:5252"), flow("[::1]:5252", "[::2]:5252")]
    {
        for len in [25, 26, 2000] {
            assert!(
                observer.observe(&counted, Payload::whole(&long[..len]), now),
                "{counted:?} {len}"
            );
        }
    }
    assert_eq!(observer.sums.count(), 9);

    for (local, end) in [
        ("0.0.0.0:7", "127.0.0.9:7"),
        ("[::]:7", "10.0.0.1:7"),
        ("[::ffff:10.0.0.1]:7", "10.0.0.1:7"),
    ] {
        let mut observer = Observer::new(2, packets(1), local.parse().unwrap()).unwrap();
        assert!(!observer.observe(&flow(end, "10.9.9.9:1"), Payload::whole(&long), now), "{local}");
        assert!(!observer.observe(&flow("10.9.9.9:1", end), Payload::whole(&long), now), "{local}");
        assert!(
            observer.observe(&flow("10.9.9.9:1", "10.9.9.9:8"), Payload::whole(&long), now),
            "{local}"
        );
    }
}

#[test]
fn every_nth_datagram_brings_a_quack() {
    let (now, identifiers) = (clock(), [5, 5, 1_000_000_007, u32::MAX, 0, 77, 8, 9, 10, 11]);
    let mut observer = observer(4, packets(3));
    for (number, identifier) in (1..).zip(identifiers) {
        feed(&mut observer, &[identifier], now);
        let expected = (number % 3 == 0).then(|| oracle(&identifiers[..number], 4));
        assert_eq!(quack(&mut observer), expected, "after {number}");
        assert_eq!(observer.poll_timeout(), None);
        observer.on_timeout(now);
        assert_eq!(quack(&mut observer), None, "once only");
    }
}

#[test]
fn ticks_are_steady_from_the_first_datagram_on() {
    let start = clock();
    let mut observer = observer(3, millis(30));
    assert_eq!(observer.poll_timeout(), None);
    observer.on_timeout(start + ms(500));
    assert_eq!(quack(&mut observer), None, "no datagram has been counted yet");

    feed(&mut observer, &[1], start);
    feed(&mut observer, &[2], start + ms(20));
    assert_eq!(observer.poll_timeout(), Some(start + ms(30)), "later datagrams do not move it");
    observer.on_timeout(start + ms(30) - Duration::from_nanos(1));
    assert_eq!(quack(&mut observer), None, "not yet");
    observer.on_timeout(start + ms(30));
    assert_eq!(quack(&mut observer), Some(oracle(&[1, 2], 3)));
    // Late by less than an interval: the next tick keeps its time.
    observer.on_timeout(start + ms(71));
    assert_eq!(quack(&mut observer), Some(oracle(&[1, 2], 3)), "repeated, though nothing is new");
    assert_eq!(observer.poll_timeout(), Some(start + ms(90)));
    // Late by years: one quACK, and the same grid.
    let years = ms(30 * 2_000_000_000);
    observer.on_timeout(start + years + ms(1));
    assert!(quack(&mut observer).is_some());
    assert_eq!(
        (quack(&mut observer), observer.poll_timeout()),
        (None, Some(start + years + ms(30)))
    );
}

#[test]
fn a_reset_clears_everything() {
    let start = clock();
    let mut timed = observer(3, millis(30));
    feed(&mut timed, &[1, 2], start);
    timed.on_timeout(start + ms(30));
    timed.reset();
    assert_eq!(
        (quack(&mut timed), timed.poll_timeout()),
        (None, None),
        "not even the quACK that was due"
    );
    timed.on_timeout(start + ms(60));
    assert_eq!(quack(&mut timed), None);
    feed(&mut timed, &[9], start + ms(65));
    assert_eq!(timed.poll_timeout(), Some(start + ms(95)));
    timed.on_timeout(start + ms(95));
    assert_eq!(quack(&mut timed), Some(oracle(&[9], 3)));

    let mut numbered = observer(3, packets(3));
    feed(&mut numbered, &[1, 2], start);
    numbered.reset();
    feed(&mut numbered, &[3, 4], start);
    assert_eq!(quack(&mut numbered), None, "those before the reset do not count towards the third");
    feed(&mut numbered, &[5], start);
    assert_eq!(quack(&mut numbered), Some(oracle(&[3, 4, 5], 3)));

    let mut empty = observer(3, packets(3));
    feed(&mut empty, &[1], start);
    empty.reset();
    empty.due = true;
    assert_eq!(quack(&mut empty), Some(oracle(&[], 3)), "sums 0, none last, count 0");
}

#[test]
fn a_quack_without_room_stays_due() {
    let mut observer = observer(2, packets(1));
    feed(&mut observer, &[3], clock());
    assert_eq!(observer.poll_transmit(&mut [0; 24]), None);
    assert_eq!(observer.poll_transmit(&mut [0; 25]), Some(25));
}
