use super::*;
use crate::wire::Poll;
use proptest::prelude::*;
use std::collections::BTreeSet;

const POLL: Message<'_> = Message::Poll(Poll { epoch: 1, token: 2, sums: 3 });

fn secret() -> SecretKey {
    SecretKey([7; 32])
}

fn flow() -> Flow {
    Flow {
        source: "192.0.2.1:4000".parse().unwrap(),
        destination: "198.51.100.7:443".parse().unwrap(),
    }
}

fn handshake(
    pinned: Option<PublicKey>,
    flow_there: &Flow,
) -> Result<(Seal, Seal, PublicKey), HandshakeError> {
    let pattern = pattern(pinned.as_ref());
    let (session, terms) = (SessionNumber(3), Terms::default());
    let (mut initiator, hello) =
        Initiator::begin(pinned.as_ref(), session, &flow(), &terms, [1; 32])?;
    assert_eq!(hello.bytes().len(), pattern.hello_len());
    let (responder, asked) =
        Responder::read(pattern, &secret(), session, flow_there, [2; 32], hello.bytes())?;
    assert_eq!(asked, terms);
    let granted = Accept { session: SessionNumber(4), terms, kept_sums: 20, orders: false };
    let (proxy, accept) = responder.finish(&granted)?;
    assert_eq!(accept.bytes().len(), pattern.accept_len());
    // A forged message changes nothing.
    for byte in 0..accept.len {
        let mut forged = accept;
        forged.bytes[byte] ^= 1;
        assert_eq!(initiator.read(forged.bytes()), Err(HandshakeError::Failed), "byte {byte}");
    }
    assert_eq!(initiator.read(accept.bytes())?, granted);
    let (sender, key) = initiator.finish()?;
    Ok((sender, proxy, key))
}

fn sealed(seal: &mut Seal) -> (u32, Vec<u8>) {
    let mut out = [0; 100];
    let len = seal.seal(Link::First, SessionNumber(9), &POLL, &mut out).unwrap();
    match Datagram::parse(&out[..len]) {
        Ok(Datagram::Sealed { session: SessionNumber(9), sequence, ciphertext }) => {
            (sequence, ciphertext.to_vec())
        }
        other => panic!("{other:?}"),
    }
}

fn open(seal: &mut Seal, (sequence, ciphertext): &(u32, Vec<u8>)) -> Result<(), OpenError> {
    let mut plain = Plain::default();
    assert_eq!(seal.open(*sequence, ciphertext, &mut plain)?, POLL);
    Ok(())
}

#[test]
fn both_patterns_agree_on_keys() {
    for pinned in [None, Some(secret().public())] {
        let (mut sender, mut proxy, key) = handshake(pinned, &flow()).unwrap();
        assert_eq!(key, secret().public());
        for _ in 0..3 {
            assert_eq!(open(&mut proxy, &sealed(&mut sender)), Ok(()));
            assert_eq!(open(&mut sender, &sealed(&mut proxy)), Ok(()));
        }
    }
}

#[test]
fn an_unfinished_handshake_has_no_keys() {
    for pinned in [None, Some(secret().public())] {
        let begun = Initiator::begin(
            pinned.as_ref(),
            SessionNumber(3),
            &flow(),
            &Terms::default(),
            [1; 32],
        );
        assert_eq!(begun.unwrap().0.finish().err(), Some(HandshakeError::Failed));
    }
}

#[test]
fn seals_of_the_same_keys_open_each_other() {
    let mut ours = Seal::from_keys(&[1; 32], &[2; 32]);
    let mut theirs = Seal::from_keys(&[2; 32], &[1; 32]);
    assert_eq!(open(&mut theirs, &sealed(&mut ours)), Ok(()));
    assert_eq!(open(&mut ours, &sealed(&mut theirs)), Ok(()));
    let own = sealed(&mut theirs);
    assert_eq!(open(&mut theirs, &own), Err(OpenError::Forged), "its own");
}

/// A datagram without room for a tag, and one longer than any message.
#[test]
fn a_seal_of_an_impossible_length_is_forged() {
    let mut seal = Seal::from_keys(&[1; 32], &[2; 32]);
    for len in [0, TAG_LEN - 1, TAG_LEN, TAG_LEN + MAX_MESSAGE_LEN + 1, 2000] {
        let opened = open(&mut seal, &(0, vec![0; len]));
        assert_eq!(opened, Err(OpenError::Forged), "{len} bytes");
    }
}

#[test]
fn a_pinned_sender_rejects_other_proxies() {
    assert!(handshake(Some(SecretKey([8; 32]).public()), &flow()).is_err());
}

/// An attacker on the path changes the fields of the HELLO outside the handshake.
#[test]
fn an_altered_flow_fails_the_handshake() {
    let other = Flow { destination: "198.51.100.7:444".parse().unwrap(), ..flow() };
    for pinned in [None, Some(secret().public())] {
        assert_eq!(handshake(pinned, &other).err(), Some(HandshakeError::Failed));
    }
}

#[test]
fn only_the_peer_opens_a_seal_and_only_once() {
    let (mut sender, mut proxy, _) = handshake(None, &flow()).unwrap();
    let messages: Vec<_> = (0..70).map(|_| sealed(&mut sender)).collect();
    assert_eq!(open(&mut sender, &messages[0]), Err(OpenError::Forged), "its own");
    for byte in 0..messages[5].1.len() {
        let mut forged = messages[5].clone();
        forged.1[byte] ^= 1;
        assert_eq!(open(&mut proxy, &forged), Err(OpenError::Forged), "byte {byte}");
    }
    assert_eq!(
        open(&mut proxy, &(6, messages[5].1.clone())),
        Err(OpenError::Forged),
        "another number"
    );
    assert_eq!(open(&mut proxy, &messages[5]), Ok(()), "forged datagrams use no sequence number");
    assert_eq!(open(&mut proxy, &messages[5]), Err(OpenError::Replay));
    assert_eq!(open(&mut proxy, &messages[2]), Ok(()), "overtaken");
    assert_eq!(open(&mut proxy, &messages[69]), Ok(()));
    assert_eq!(open(&mut proxy, &messages[1]), Err(OpenError::Replay), "older than the window");
}

#[test]
fn sequence_numbers_do_not_wrap() {
    let (mut sender, mut proxy, _) = handshake(None, &flow()).unwrap();
    sender.skip_to((1 << 31) - 1);
    assert_eq!(open(&mut proxy, &sealed(&mut sender)), Ok(()));
    assert!(sender.is_exhausted());
    assert_eq!(
        sender.seal(Link::First, SessionNumber(9), &POLL, &mut [0; 100]),
        None,
        "a nonce is never used twice"
    );
}

#[test]
fn each_link_has_its_own_sequence_numbers() {
    let (mut sender, mut proxy, _) = handshake(None, &flow()).unwrap();
    let mut by = |link| {
        let mut out = [0; 100];
        let len = sender.seal(link, SessionNumber(9), &POLL, &mut out).unwrap();
        let Ok(Datagram::Sealed { sequence, ciphertext, .. }) = Datagram::parse(&out[..len]) else {
            panic!()
        };
        assert_eq!(Link::of(sequence), link);
        (sequence, ciphertext.to_vec())
    };
    let slow = by(Link::First);
    let second: Vec<_> = (0..200).map(|_| by(Link::Second)).collect();
    // The second link may be ahead by any number of messages, and replays show on each.
    assert!(second.iter().all(|message| open(&mut proxy, message) == Ok(())));
    assert_eq!(open(&mut proxy, &slow), Ok(()));
    assert_eq!(open(&mut proxy, &slow), Err(OpenError::Replay));
    assert_eq!(open(&mut proxy, &second[199]), Err(OpenError::Replay));
    assert_eq!(open(&mut proxy, &second[100]), Err(OpenError::Replay), "older than the window");
    // Nor does one link use the other's numbers.
    sender.skip_to(u32::MAX);
    assert!(sender.seal(Link::Second, SessionNumber(9), &POLL, &mut [0; 100]).is_some());
    assert_eq!(sender.seal(Link::Second, SessionNumber(9), &POLL, &mut [0; 100]), None);
    assert!(!sender.is_exhausted());
}

#[test]
fn a_key_reads_back() {
    let key = secret().public();
    assert_eq!(key.to_string().parse(), Ok(key));
    for text in [
        "",
        "00",
        &"0".repeat(63),
        &"0".repeat(65),
        &"0".repeat(66),
        &"g".repeat(64),
        &"é".repeat(32),
    ] {
        assert_eq!(text.parse::<PublicKey>(), Err(ParseKeyError), "{text}");
    }
    assert_eq!(format!("{:?}", secret()), "SecretKey(..)");
}

/// RFC 7748, section 5.2: the scalar 9 times the base point, after one iteration.
#[test]
fn the_public_key_is_that_of_x25519() {
    let mut nine = [0; 32];
    nine[0] = 9;
    let expected = "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079";
    assert_eq!(SecretKey(nine).public().to_string(), expected);
}

proptest! {
    /// Compares with a set of all numbers received.
    #[test]
    fn a_sequence_number_is_accepted_once(
        numbers in prop::collection::vec(
            prop_oneof![0u32..200, u32::MAX - 100..=u32::MAX],
            1..300,
        ),
    ) {
        let (mut window, mut all) = (Window::default(), BTreeSet::new());
        for number in numbers {
            let newest: u32 = all.last().copied().unwrap_or(0);
            let too_old = newest.saturating_sub(number) >= 64;
            let new = window.is_new(number);
            prop_assert_eq!(new, !all.contains(&number) && !too_old);
            if new {
                window.record(number);
                all.insert(number);
            }
        }
    }
}
