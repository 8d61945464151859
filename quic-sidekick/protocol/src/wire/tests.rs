use super::discovery::{Answer, HANDLE_LEN, MARKER_LEN, Marker, NONCE_LEN, Reply};
use super::parity::MIN_SYMBOL_LEN;
use super::*;
use crate::{Filter, Flow, Identification, Position, Terms};
use proptest::prelude::*;
use sidekick_parity::MAX_WINDOW;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;

fn terms() -> impl Strategy<Value = Terms> {
    let position =
        prop_oneof![(0..=Position::MAX_OFFSET).prop_map(Position::Offset), Just(Position::End)];
    (1..=u8::MAX, any::<u16>(), any::<u32>(), position, any::<bool>()).prop_map(
        |(threshold, packets, every, position, all)| Terms {
            threshold,
            every_packets: NonZeroU16::new(packets),
            every: (every != 0).then(|| Duration::from_micros(every.into())),
            identification: Identification {
                position,
                filter: if all { Filter::All } else { Filter::QuicShortHeader },
            },
        },
    )
}

fn flow() -> impl Strategy<Value = Flow> {
    let ends = |a: IpAddr, b: IpAddr| {
        (Just((a, b)), 1..=u16::MAX, 1..=u16::MAX).prop_map(|((a, b), from, to)| Flow {
            source: SocketAddr::new(a, from),
            destination: SocketAddr::new(b, to),
        })
    };
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_flat_map(move |(a, b)| ends(a.into(), b.into())),
        any::<([u8; 16], [u8; 16])>().prop_flat_map(move |(a, b)| ends(a.into(), b.into())),
    ]
}

/// Emitting and parsing are inverse. A truncated input does not parse, and a short buffer returns
/// an error.
fn round_trip<T: PartialEq + fmt::Debug>(
    value: &T,
    emit: impl Fn(&T, &mut [u8]) -> Result<usize, BufferTooShort>,
    parse: impl Fn(&[u8]) -> Option<T>,
) {
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    let len = emit(value, &mut buffer).unwrap();
    assert_eq!(parse(&buffer[..len]).as_ref(), Some(value));
    for cut in 0..len {
        assert_eq!(parse(&buffer[..cut]), None, "cut to {cut} of {len} bytes");
        assert_eq!(emit(value, &mut buffer[..cut]), Err(BufferTooShort));
    }
}

fn datagram(value: Datagram<'_>) {
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    let len = value.emit(&mut buffer).unwrap();
    assert_eq!(Datagram::parse(&buffer[..len]), Ok(value));
    // A sealed message has no length field: the seal detects truncation.
    let shortest = match value {
        Datagram::Sealed { .. } => SEAL_LEN + 1,
        // The copy authenticates itself.
        Datagram::Repeat(_) => REPEAT_HEADER_LEN + 4,
        Datagram::Parity(parity) => {
            PARITY_HEADER_LEN + 4 * parity.identifiers.len() + MIN_SYMBOL_LEN
        }
        _ => len,
    };
    // A list may have a PARITY of its own.
    let list = |cut| match value {
        Datagram::Parity(parity) => {
            let identifiers = parity.identifiers.len();
            identifiers > 0 && cut == PARITY_HEADER_LEN + 4 * identifiers
        }
        _ => false,
    };
    // An ACCEPT has either of two lengths; the handshake checks which.
    let accepts = [Pattern::Unpinned, Pattern::Pinned].map(|pattern| 5 + pattern.accept_len());
    for cut in 0..len {
        let whole = cut >= shortest
            || list(cut)
            || matches!(value, Datagram::Accept { .. }) && accepts.contains(&cut);
        assert_eq!(Datagram::parse(&buffer[..cut]).is_ok(), whole, "cut to {cut} of {len} bytes");
        assert_eq!(value.emit(&mut [0; MAX_DATAGRAM_LEN][..cut]), Err(BufferTooShort));
    }
    if !matches!(value, Datagram::Sealed { .. } | Datagram::Repeat(_) | Datagram::Parity(_)) {
        assert!(Datagram::parse(&buffer[..=len]).is_err(), "a trailing byte");
    }
}

fn message(value: Message<'_>) {
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    let len = value.emit(&mut buffer).unwrap();
    assert_eq!(Message::parse(&buffer[..len]), Ok(value));
    for cut in 0..len {
        // A short quACK and a request have no length field: the seal detects missing parts.
        let short = matches!(value, Message::ShortQuack(_)) && cut > 5 && cut % 4 == 1;
        let request = matches!(value, Message::Request(_)) && cut > 3 && cut % 9 == 3;
        if !short && !request {
            assert_eq!(Message::parse(&buffer[..cut]), Err(ParseError::Truncated));
        }
        assert_eq!(value.emit(&mut [0; MAX_DATAGRAM_LEN][..cut]), Err(BufferTooShort));
    }
    assert!(Message::parse(&buffer[..=len]).is_err(), "a trailing byte");
}

proptest! {
    #[test]
    fn every_datagram_reads_back(
        number: u32,
        flow in flow(),
        cookie in 1..=u8::MAX,
        byte: u8,
        sequence: u32,
        len in 17usize..1100,
    ) {
        let (session, cookie) = (SessionNumber(number), Cookie([cookie; Cookie::LEN]));
        let bytes = vec![byte; 1100];
        for pattern in [Pattern::Unpinned, Pattern::Pinned] {
            let handshake = &bytes[..pattern.hello_len()];
            for cookie in [cookie, Cookie::NONE] {
                datagram(Datagram::Hello(Hello { session, flow, cookie, pattern, handshake }));
            }
            datagram(Datagram::Accept { session, handshake: &bytes[..pattern.accept_len()] });
        }
        let echo = [byte; ECHO_LEN];
        datagram(Datagram::Retry { session, echo, cookie });
        for why in [Refusal::Full, Refusal::Terms, Refusal::Taken] {
            datagram(Datagram::Refuse { session, echo, why });
        }
        datagram(Datagram::UnknownSession { session });
        if len <= SEAL_LEN + MAX_MESSAGE_LEN - 9 {
            datagram(Datagram::Sealed { session, sequence, ciphertext: &bytes[..len] });
        }
        let (number, range, index) = (u16::from(byte) + 1, byte % 16, byte % 7);
        let copy = &bytes[..len.min(MAX_KEPT_LEN)];
        for part in [Part::Whole, Part::First, Part::Second] {
            let total = index + 1;
            let repeat = Repeat { session, number, range, index, total, part, datagram: copy };
            datagram(Datagram::Repeat(repeat));
        }
        let words = [sequence; MAX_WINDOW];
        for listed in [0, usize::from(index), MAX_WINDOW] {
            let identifiers = Words::new(&words[..listed]);
            let symbol = &bytes[..len];
            let parity =
                Parity { session, number, first: sequence, count: 64, identifiers, symbol };
            datagram(Datagram::Parity(parity));
        }
    }

    #[test]
    fn every_message_reads_back(
        epoch in 1..=u16::MAX,
        token in 1..=u16::MAX,
        words: [u32; 4],
        sums in prop::collection::vec(any::<u32>(), 1..255),
    ) {
        message(Message::Poll(Poll { epoch, token, sums: 7 }));
        let [every, interval] = [words[2], words[3]].map(|us| Duration::from_micros(us.into()));
        let timing = Timing { every_packets: token, every, interval };
        message(Message::Schedule(Schedule { epoch, token, timing }));
        message(Message::NewEpoch { epoch });
        message(Message::Epoch { epoch });
        message(Message::Bye);
        message(Message::Keep(Keep {
            age_ms: epoch,
            handle: [7; 20],
            nonce: [8; 16],
            cookie: Cookie([9; Cookie::LEN]),
        }));
        message(Message::Kept { age_ms: epoch });
        message(Message::Nothing { number: epoch, ranges: token });
        message(Message::Tail { last: words[0], passed: words[1] });
        let (share, window) = (epoch % 1025, u8::try_from(token % 64).unwrap() + 1);
        message(Message::Protect(Protect { share, window, flush_us: token, list: window }));
        let end = |word: u32| (word & 1 == 0).then_some(word);
        let ranges: Vec<_> =
            sums.iter().map(|sum| Range {
                    in_parts: sum % 3 == 0,
                    inclusive: sum % 5 == 0 && end(sum / 2).is_some(),
                    ..Range::new(end(*sum), end(sum / 2))
                }).collect();
        for ranges in ranges.chunks(MAX_RANGES) {
            let ranges = Ranges::new(ranges);
            message(Message::Request(Request { number: epoch, ranges }));
        }
        let [age_us, first, last, count] = words;
        let sums = Words::new(&sums);
        message(Message::Quack(Quack { epoch, token, age_us, first, last, count, sums }));
        message(Message::ShortQuack(ShortQuack { count: epoch, last: token, sums }));
    }

    #[test]
    fn payloads_of_handshakes_read_back(terms in terms(), number: u32) {
        prop_assert_eq!(parse_hello_payload(&hello_payload(&terms).unwrap()), Ok(terms));
        let (session, orders) = (SessionNumber(number), number % 2 == 0);
        let accept = Accept { session, terms, kept_sums: terms.threshold, orders };
        prop_assert_eq!(Accept::parse(&accept.emit().unwrap()), Ok(accept));
        if terms.threshold > 1 {
            let less = Accept { kept_sums: terms.threshold - 1, ..accept };
            let parsed = Accept::parse(&less.emit().unwrap());
            prop_assert_eq!(parsed, Err(ParseError::Field("kept sums")));
        }
    }

    #[test]
    fn every_discovery_datagram_reads_back(
        handle: [u8; HANDLE_LEN],
        nonce: [u8; NONCE_LEN],
        flow in flow(),
        port in 1..=u16::MAX,
    ) {
        for reply in [Reply::Path, Reply::Adjacent(port)] {
            let marker = Marker { handle, nonce, reply };
            round_trip(&marker, Marker::emit, |bytes| Marker::parse(bytes).ok());
        }
        let cookie = Cookie([7; Cookie::LEN]);
        let answer = Answer { handle, nonce, proxy: flow.source, flow, cookie };
        round_trip(&answer, Answer::emit, |bytes| Answer::parse(bytes).ok());
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let len = answer.emit(&mut buffer).unwrap();
        prop_assert!(len <= MARKER_LEN, "no answer is longer than its marker");
        prop_assert!(Answer::is_one(&buffer[..len]) && Marker::parse(&buffer[..len]).is_err());
        let len = Marker { handle, nonce, reply: Reply::Path }.emit(&mut buffer).unwrap();
        let marker = &buffer[..len];
        prop_assert_eq!(len, MARKER_LEN);
        prop_assert!(!Answer::is_one(marker) && Datagram::parse(marker).is_err());
    }

    /// Parsing is total. Emitting what it accepted gives the same bytes.
    #[test]
    fn any_bytes_parse_or_return_an_error(
        mut bytes in prop::collection::vec(any::<u8>(), 0..1100),
        kind in 0u8..16,
    ) {
        let _ = (Datagram::parse(&bytes), Accept::parse(&bytes), parse_hello_payload(&bytes));
        let mut again = [0; 1200];
        if let Ok(message) = Message::parse(&bytes) {
            let len = message.emit(&mut again).unwrap();
            prop_assert_eq!(&again[..len], &bytes[..]);
        }
        if let Some(first) = bytes.first_mut() {
            *first = VERSION << 4 | kind;
        }
        if let Ok(datagram) = Datagram::parse(&bytes) {
            let len = datagram.emit(&mut again).unwrap();
            prop_assert_eq!(&again[..len], &bytes[..]);
        }
        let mut head = [&[5][..], &[0; HANDLE_LEN], b"Sidekick\x01"].concat();
        head.extend_from_slice(&bytes);
        prop_assert_eq!(Marker::parse(&head).is_ok(), head.len() >= MARKER_LEN);
        head[0] = 6;
        if let Ok(answer) = Answer::parse(&head) {
            let len = answer.emit(&mut again).unwrap();
            prop_assert_eq!(&again[..len], &head[..]);
        }
    }
}

/// SPEC.md, section 6.2: no answer to a HELLO is longer than the HELLO.
#[test]
fn a_hello_is_longer_than_any_answer() {
    let flow =
        Flow { source: "0.0.0.0:1".parse().unwrap(), destination: "192.0.2.1:1".parse().unwrap() };
    for pattern in [Pattern::Unpinned, Pattern::Pinned] {
        let bytes = [1; 200];
        let (session, cookie, echo) = (SessionNumber(1), Cookie([1; Cookie::LEN]), [1; ECHO_LEN]);
        let handshake = &bytes[..pattern.hello_len()];
        let len = |datagram: Datagram<'_>| datagram.emit(&mut [0; MAX_DATAGRAM_LEN]).unwrap();
        let hello = len(Datagram::Hello(Hello { session, flow, cookie, pattern, handshake }));
        for answer in [
            Datagram::Accept { session, handshake: &bytes[..pattern.accept_len()] },
            Datagram::Retry { session, echo, cookie },
            Datagram::Refuse { session, echo, why: Refusal::Full },
        ] {
            assert!(len(answer) <= hello, "{pattern:?}: {answer:?}");
        }
    }
}

#[test]
fn the_layout_is_as_specified() {
    let quack = Quack {
        epoch: 1,
        token: 3,
        age_us: 4,
        first: 5,
        last: 6,
        count: 7,
        sums: Words::new(&[8, 9]),
    };
    let mut buffer = [0; 64];
    let len = Message::Quack(quack).emit(&mut buffer).unwrap();
    let mut expected = vec![1, 0, 1, 0, 3];
    expected.extend([4u32, 5, 6, 7].iter().flat_map(|word| word.to_be_bytes()));
    expected.push(2);
    expected.extend([0, 0, 0, 8, 0, 0, 0, 9]);
    assert_eq!(&buffer[..len], expected);
    let sealed =
        Datagram::Sealed { session: SessionNumber(0x0102_0304), sequence: 5, ciphertext: &[9; 17] };
    let len = sealed.emit(&mut buffer).unwrap();
    assert_eq!(buffer[..len], [&[0x16, 1, 2, 3, 4, 0, 0, 0, 5][..], &[9; 17]].concat());
    assert_eq!(Quack::sealed_len(2), 9 + expected.len() + 16);
    let len = Message::Poll(Poll { epoch: 1, token: 2, sums: 3 }).emit(&mut buffer).unwrap();
    assert_eq!(buffer[..len], [2, 0, 1, 0, 2, 3]);
    assert_eq!(Poll::SEALED_LEN, 9 + len + 16);
    let short = ShortQuack { count: 7, last: 6, sums: Words::new(&[8, 9]) };
    let len = Message::ShortQuack(short).emit(&mut buffer).unwrap();
    assert_eq!(buffer[..len], [6, 0, 7, 0, 6, 0, 0, 0, 8, 0, 0, 0, 9]);
    assert_eq!(ShortQuack::sealed_len(2), 9 + len + 16);
}

#[test]
fn errors_name_the_invalid_field() {
    assert_eq!(Message::parse(&[2, 0, 1, 0, 0, 0]), Err(ParseError::Field("token")));
    assert_eq!(Message::parse(&[3, 0, 0]), Err(ParseError::Field("epoch")));
    assert_eq!(Message::parse(&[19]), Err(ParseError::Type(19)));
    assert_eq!(Datagram::parse(&[0x2f]), Err(ParseError::Version(2)));
    assert_eq!(Datagram::parse(&[0x1f, 0, 0, 0, 0]), Err(ParseError::Type(15)));
    let retry = [&[0x12][..], &[0; 4 + ECHO_LEN + Cookie::LEN]].concat();
    assert_eq!(Datagram::parse(&retry), Err(ParseError::Field("cookie")));
    let mut quack = [&[1, 0, 1, 0, 0][..], &[0; 16], &[0]].concat();
    assert_eq!(Message::parse(&quack), Err(ParseError::Field("number of sums")));
    quack[21] = 1;
    assert_eq!(Message::parse(&quack), Err(ParseError::Truncated));
}
