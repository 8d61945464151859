use super::*;
use proptest::prelude::*;

fn terms() -> impl Strategy<Value = Terms> {
    (1..=u8::MAX, any::<u16>(), any::<u32>(), 0..=Identification::MAX_OFFSET, any::<bool>()).prop_map(
        |(threshold, packets, every, offset, all)| Terms {
            threshold,
            every_packets: NonZeroU16::new(packets),
            every: (every != 0).then(|| Duration::from_micros(every.into())),
            identification: Identification {
                offset,
                filter: if all { Filter::All } else { Filter::QuicShortHeader },
            },
        },
    )
}

fn round_trip(session: u64, body: Body<'_>) {
    let message = Message { session: SessionId(session), body };
    let mut buffer = [0; MAX_MESSAGE_LEN];
    let len = message.emit(&mut buffer).unwrap();
    assert_eq!(Message::parse(&buffer[..len]), Ok(message));
    for cut in 0..len {
        assert!(
            Message::parse(&buffer[..cut]).is_err(),
            "a message cut to {cut} of {len} bytes was believed"
        );
        assert_eq!(message.emit(&mut buffer[..cut]), Err(BufferTooShort));
    }
    if len < MAX_MESSAGE_LEN {
        assert_eq!(Message::parse(&buffer[..=len]), Err(ParseError::TrailingBytes));
    }
}

proptest! {
    #[test]
    fn every_message_reads_back(
        session: u64, port in 1..=u16::MAX, ip: IpAddr, to in 1..=u16::MAX, terms in terms(),
        epoch in 1..=u32::MAX, token in 1..=u32::MAX, words: [u32; 5], sums in prop::collection::vec(any::<u32>(), 0..=255),
    ) {
        let destination = SocketAddr::new(ip, to);
        round_trip(session, Body::Hello(Hello { source_port: port, destination, terms }));
        round_trip(session, Body::Accept(Accept { epoch, terms, kept_sums: terms.threshold }));
        round_trip(session, Body::Poll(Poll { epoch, token, sums: 7 }));
        round_trip(session, Body::NewEpoch { epoch });
        for body in [Body::Bye, Body::UnknownSession, Body::Refuse(Refusal::Full), Body::Refuse(Refusal::Terms)] {
            round_trip(session, body);
        }
        let [sequence, age_us, first, last, count] = words;
        let sums = Sums::new(&sums);
        round_trip(session, Body::Quack(Quack { epoch, sequence, token, age_us, first, last, count, sums }));
    }

    /// Parsing is total, and what it accepts it can write again, byte for byte.
    #[test]
    fn any_bytes_are_a_message_or_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..1400), kind in 0u8..16) {
        let _ = Message::parse(&bytes);
        if let Some(first) = bytes.first_mut() {
            *first = VERSION << 4 | kind;
        }
        if let Ok(message) = Message::parse(&bytes) {
            let mut again = [0; MAX_MESSAGE_LEN];
            let len = message.emit(&mut again).unwrap();
            prop_assert_eq!(&again[..len], &bytes[..]);
        }
    }
}

#[test]
fn the_layout_is_the_specification_s() {
    let quack = Quack {
        epoch: 1,
        sequence: 2,
        token: 3,
        age_us: 4,
        first: 5,
        last: 6,
        count: 7,
        sums: Sums::new(&[8, 9]),
    };
    let mut buffer = [0; 64];
    let len = Message { session: SessionId(0x0102_0304_0506_0708), body: Body::Quack(quack) }
        .emit(&mut buffer)
        .unwrap();
    let mut expected = vec![0x13, 1, 2, 3, 4, 5, 6, 7, 8];
    for word in 1..=7u32 {
        expected.extend(word.to_be_bytes());
    }
    expected.push(2);
    expected.extend([0, 0, 0, 8, 0, 0, 0, 9]);
    assert_eq!(&buffer[..len], expected);
}

#[test]
fn forbidden_values_are_named() {
    let mut buffer = [0; MAX_MESSAGE_LEN];
    let accept = Accept { epoch: 9, terms: Terms::default(), kept_sums: 19 };
    let len = Message { session: SessionId(1), body: Body::Accept(accept) }.emit(&mut buffer).unwrap();
    assert_eq!(Message::parse(&buffer[..len]), Err(ParseError::Field("kept sums")));
    let poll = Poll { epoch: 1, token: 0, sums: 0 };
    let len = Message { session: SessionId(1), body: Body::Poll(poll) }.emit(&mut buffer).unwrap();
    assert_eq!(Message::parse(&buffer[..len]), Err(ParseError::Field("token")));
    assert_eq!(Message::parse(&[0x2f]), Err(ParseError::Version(2)));
    assert_eq!(Message::parse(&[0x1f, 0, 0, 0, 0, 0, 0, 0, 0]), Err(ParseError::Type(15)));
}
