//! Hostile servers: the client ends with one sentence, in bounded time and memory.

use quinn::VarInt;

use crate::hostile::{Client, Script, Then, UNFINISHED, forever, plain, serve_request};
use crate::raw::{DATA, GOAWAY, H3_NO_ERROR, HEADERS, answer, frame, integer};

/// An upload that the client cannot finish before the server acts.
const UPLOAD: Client = Client::Upload(2_000_000);

/// A server that reads the whole request, and then acts.
fn server(begin: Vec<u8>, then: Then) -> Script {
    Script { reads: true, begin, then }
}

/// A server that acts at once.
fn hasty(begin: Vec<u8>, then: Then) -> Script {
    Script { reads: false, begin, then }
}

const VIOLATED: &str = "violated the protocol";
const NO_ANSWER: &str = "accepted nothing and sent no answer for 1 s";

#[test]
fn servers_that_never_answer() {
    // It acknowledges the whole request.
    UPLOAD.meets(&server(vec![], Then::Nothing).serve(), &[], NO_ANSWER);
    // It grants no flow control credit: for the connection, for the stream, for streams.
    let mut stingy = [plain(), plain(), plain()];
    stingy[0].receive_window(VarInt::from_u32(1000));
    stingy[1].stream_receive_window(VarInt::from_u32(1000));
    stingy[2].max_concurrent_bidi_streams(VarInt::from_u32(0));
    for transport in stingy {
        let server = hasty(vec![], Then::Nothing).serve_over(transport);
        UPLOAD.meets(&server, &[], NO_ANSWER);
    }
    // It stops the body, and sends nothing more.
    let stops = serve_request(plain(), |_, control, send, mut receive| async move {
        receive.stop(VarInt::from_u32(H3_NO_ERROR))?;
        let _open = (control, send, receive);
        std::future::pending().await
    });
    UPLOAD.meets(&stops, &[], NO_ANSWER);
}

#[test]
fn servers_whose_answer_has_no_beginning() {
    type How = fn(Vec<u8>) -> Then;
    let (slowly, flood): (How, How) = (Then::Slowly, Then::Flood);
    for (bytes, how, words) in [
        // Endless headers, within the limit and beyond.
        ([integer(HEADERS), integer(1 << 14)].concat(), slowly, NO_ANSWER),
        ([integer(HEADERS), integer((1 << 24) - 1)].concat(), flood, VIOLATED),
        ([integer(HEADERS), integer(1 << 40)].concat(), flood, VIOLATED),
        // Unknown frames.
        (frame(0x21, &[7; 10_000]), flood, NO_ANSWER),
        (frame(0x21, b""), slowly, NO_ANSWER),
        ([integer(0x21), integer(1 << 40)].concat(), flood, VIOLATED),
        // Invalid QPACK.
        (frame(HEADERS, &[0xff; 100]), slowly, VIOLATED),
        (frame(DATA, b"before the headers"), slowly, NO_ANSWER),
        (frame(GOAWAY, &[0]), slowly, VIOLATED),
    ] {
        UPLOAD.meets(&hasty(vec![], how(bytes)).serve(), &[], words);
    }
}

#[test]
fn servers_whose_answer_has_no_end() {
    for (begin, then, words) in [
        (b"201", Then::Slowly(frame(DATA, b"x")), UNFINISHED),
        (b"201", Then::Slowly(frame(0x21, b"x")), UNFINISHED),
        (b"201", Then::Flood(frame(DATA, &[b'x'; 1000])), "too long to be read"),
        (b"500", Then::Flood(frame(DATA, &[b'x'; 1000])), "too long to be read"),
        (b"100", Then::Slowly(answer(b"100", &[])), "interim answer (status 100)"),
        (b"103", Then::Flood(answer(b"103", &[])), "interim answer (status 103)"),
    ] {
        UPLOAD.meets(&server(answer(begin, &[]), then).serve(), &[], words);
    }
}

#[test]
fn servers_that_send_on_other_streams() {
    for (bytes, opens, words) in [
        // On its control stream: GOAWAY, a second one, and one that increases the stream ID.
        (frame(GOAWAY, &[0]), false, NO_ANSWER),
        ([frame(GOAWAY, &[0]), frame(GOAWAY, &[4])].concat(), false, VIOLATED),
        (frame(GOAWAY, &[1]), false, VIOLATED),
        (frame(0x21, &[7; 5000]), false, NO_ANSWER),
        // On a stream of an unknown type.
        ([integer(0x21), vec![7; 5000]].concat(), true, NO_ANSWER),
        // A QPACK encoder stream with an instruction beyond the table's capacity.
        ([integer(2), vec![0xff; 5000]].concat(), true, NO_ANSWER),
    ] {
        let server = serve_request(plain(), move |quic, mut control, send, receive| {
            let bytes = bytes.clone();
            async move {
                let _open = (send, receive);
                match opens {
                    true => forever(&mut quic.open_uni().await?, &bytes, false).await,
                    false => forever(&mut control, &bytes, false).await,
                }
                std::future::pending().await
            }
        });
        UPLOAD.meets(&server, &[], words);
    }
}

#[test]
fn servers_whose_text_controls_a_terminal() {
    const CONTROLS: &str = "no\x1b]0;owned\x07\x1b[2J\u{9b}2J \u{202e}such\u{2066} na\u{200b}me";
    let receipt =
        format!(r#"{{"bytes":2000000,"sha256":{}}}"#, serde_json::to_string(CONTROLS).unwrap());
    for (status, body, words) in [
        (CONTROLS, "", "status no]0;owned[2J2J such name"),
        ("500", CONTROLS, "no]0;owned[2J2J such name"),
        ("500", &"x".repeat(60_000), "xxx"),
        ("201", &receipt, "its SHA-256 is no]0;owned[2J2J such name"),
        ("201", CONTROLS, "without a receipt"),
    ] {
        let whole = [answer(status.as_bytes(), &[]), frame(DATA, body.as_bytes())].concat();
        UPLOAD.meets(&server(whole, Then::Finish).serve(), &[], words);
    }
    let closes = hasty(vec![], Then::Close(H3_NO_ERROR, CONTROLS)).serve();
    UPLOAD.meets(&closes, &[], "the server closed the connection: no]0;owned[2J2J such name");
}

#[test]
fn servers_that_stored_other_content_are_detected() {
    // The hash of "abc" is not that of the file.
    const ABC: &str = r#"{"name":"x","bytes":100,
        "sha256":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}"#;
    for (body, words) in [
        (ABC, "stored other content"),
        (r#"{"bytes":99,"sha256":""}"#, "stored 99 of 100 bytes"),
        ("thank you", "without a receipt"),
        ("", "without a receipt"),
    ] {
        let whole = [answer(b"201", &[]), frame(DATA, body.as_bytes())].concat();
        Client::Upload(100).meets(&server(whole, Then::Finish).serve(), &[], words);
    }
}

#[test]
fn servers_that_abort_an_upload() {
    const RESET: &str = "the server reset the upload";
    let receipt = [answer(b"201", &[]), frame(DATA, b"{")].concat();
    for (script, words) in [
        (hasty(vec![], Then::Reset), RESET),
        (hasty(vec![], Then::Close(0x102, "out of order")), "out of order"),
        (server(vec![], Then::Reset), RESET),
        (server(answer(b"201", &[]), Then::Reset), RESET),
        (server(receipt, Then::Reset), RESET),
    ] {
        Client::Upload(5_000_000).meets(&script.serve(), &[], words);
    }
}
