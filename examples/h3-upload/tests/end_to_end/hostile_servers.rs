//! Hostile servers: the client ends with one sentence, in bounded time and memory.

use std::process::Output;

use quinn::{Connection, RecvStream, SendStream, TransportConfig, VarInt};
use tempfile::tempdir;

use crate::hostile::{Outcome, UNFINISHED, assert_harmless, client, forever, plain, serve_request};
use crate::programs::{assert_complains, file};
use crate::raw::{DATA, GOAWAY, H3_NO_ERROR, HEADERS, frame, integer, status};

/// The client's output for a server that has `transport` and runs `act` on the request. Asserts
/// that the client complains with `words`.
fn upload_to<F>(
    words: &str,
    transport: TransportConfig,
    act: impl Fn(Connection, SendStream, SendStream, RecvStream) -> F + Clone + Send + 'static,
) -> Output
where
    F: Future<Output = Outcome> + Send + 'static,
{
    upload(2_000_000, words, transport, act)
}

/// As [`upload_to`], with a file of `len` bytes.
fn upload<F>(
    len: usize,
    words: &str,
    transport: TransportConfig,
    act: impl Fn(Connection, SendStream, SendStream, RecvStream) -> F + Clone + Send + 'static,
) -> Output
where
    F: Future<Output = Outcome> + Send + 'static,
{
    let server = serve_request(transport, act);
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", len);
    let mut command = client(env!("CARGO_BIN_EXE_h3-upload"), scratch.path(), words);
    command.arg(path).arg(format!("https://127.0.0.1:{}/", server.port));
    let output = command.output().unwrap();
    assert_complains(&output, words);
    output
}

/// Reads the whole request.
async fn read(receive: &mut RecvStream) -> Outcome {
    receive.read_to_end(usize::MAX).await?;
    Ok(())
}

const VIOLATED: &str = "violated the protocol";
const NO_ANSWER: &str = "accepted nothing and sent no answer for 1 s";

#[test]
fn servers_that_never_answer() {
    // It acknowledges the whole request.
    upload_to(NO_ANSWER, plain(), |_, control, send, mut receive| async move {
        read(&mut receive).await?;
        let _open = (control, send);
        std::future::pending().await
    });
    // It grants no flow control credit: for the connection, for the stream, for streams.
    let mut stingy = [plain(), plain(), plain()];
    stingy[0].receive_window(VarInt::from_u32(1000));
    stingy[1].stream_receive_window(VarInt::from_u32(1000));
    stingy[2].max_concurrent_bidi_streams(VarInt::from_u32(0));
    for transport in stingy {
        upload_to(NO_ANSWER, transport, |_, control, send, receive| async move {
            let _open = (control, send, receive);
            std::future::pending().await
        });
    }
    // It stops the body, and sends nothing more.
    upload_to(NO_ANSWER, plain(), |_, control, send, mut receive| async move {
        receive.stop(VarInt::from_u32(H3_NO_ERROR))?;
        let _open = (control, send, receive);
        std::future::pending().await
    });
}

#[test]
fn servers_whose_answer_has_no_beginning() {
    for (bytes, slowly, words) in [
        // Endless headers, within the limit and beyond.
        ([integer(HEADERS), integer(1 << 14)].concat(), true, NO_ANSWER),
        ([integer(HEADERS), integer((1 << 24) - 1)].concat(), false, VIOLATED),
        ([integer(HEADERS), integer(1 << 40)].concat(), false, VIOLATED),
        // Unknown frames.
        (frame(0x21, &[7; 10_000]), false, NO_ANSWER),
        (frame(0x21, b""), true, NO_ANSWER),
        ([integer(0x21), integer(1 << 40)].concat(), false, VIOLATED),
        // Invalid QPACK.
        (frame(HEADERS, &[0xff; 100]), true, VIOLATED),
        (frame(DATA, b"before the headers"), true, NO_ANSWER),
        (frame(GOAWAY, &[0]), true, VIOLATED),
    ] {
        upload_to(words, plain(), move |_, control, send, receive| {
            let bytes = bytes.clone();
            async move {
                let _open = (control, receive);
                let mut send = send;
                send.write_all(&bytes).await?;
                forever(send, &bytes, slowly).await
            }
        });
    }
}

#[test]
fn servers_whose_answer_has_no_end() {
    for (begin, more, slowly, words) in [
        (status(b"201"), frame(DATA, b"x"), true, UNFINISHED),
        (status(b"201"), frame(0x21, b"x"), true, UNFINISHED),
        (status(b"201"), frame(DATA, &[b'x'; 1000]), false, "too long to be read"),
        (status(b"500"), frame(DATA, &[b'x'; 1000]), false, "too long to be read"),
        (status(b"100"), status(b"100"), true, "interim answer (status 100)"),
        (status(b"103"), status(b"103"), false, "interim answer (status 103)"),
    ] {
        upload_to(words, plain(), move |_, control, send, mut receive| {
            let (begin, more) = (begin.clone(), more.clone());
            async move {
                read(&mut receive).await?;
                let _open = control;
                let mut send = send;
                send.write_all(&begin).await?;
                forever(send, &more, slowly).await
            }
        });
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
        upload_to(words, plain(), move |quic, control, send, receive| {
            let bytes = bytes.clone();
            async move {
                let _open = (send, receive);
                if opens {
                    let _control = control;
                    forever(quic.open_uni().await?, &bytes, false).await
                } else {
                    forever(control, &bytes, false).await
                }
            }
        });
    }
}

#[test]
fn servers_whose_text_controls_a_terminal() {
    const CONTROLS: &str = "no\x1b]0;owned\x07\x1b[2J\u{9b}2J \u{202e}such\u{2066} na\u{200b}me";
    let receipt =
        format!(r#"{{"bytes":2000000,"sha256":{}}}"#, serde_json::to_string(CONTROLS).unwrap());
    let answers = [
        (status(CONTROLS.as_bytes()), String::new(), "status no]0;owned[2J2J such name"),
        (status(b"500"), CONTROLS.to_owned(), "no]0;owned[2J2J such name"),
        (status(b"500"), "x".repeat(60_000), "xxx"),
        (status(b"201"), receipt, "its SHA-256 is no]0;owned[2J2J such name"),
        (status(b"201"), CONTROLS.to_owned(), "without a receipt"),
    ];
    for (header, body, words) in answers {
        let output = upload_to_answer(2_000_000, words, &header, &body);
        assert_harmless(&output);
    }
    let words = "the server closed the connection: no]0;owned[2J2J such name";
    let output = upload_to(words, plain(), |quic, control, send, receive| async move {
        // The end of a control stream is an error of its own.
        let _open = (control, send, receive);
        quic.close(VarInt::from_u32(H3_NO_ERROR), CONTROLS.as_bytes());
        Ok(())
    });
    assert_harmless(&output);
}

/// As [`upload`], for a server that reads the whole request and sends this answer.
fn upload_to_answer(len: usize, words: &str, header: &[u8], body: &str) -> Output {
    let answer = [header, &frame(DATA, body.as_bytes())].concat();
    upload(len, words, plain(), move |_, control, mut send, mut receive| {
        let answer = answer.clone();
        async move {
            read(&mut receive).await?;
            let _open = control;
            send.write_all(&answer).await?;
            send.finish()?;
            std::future::pending().await
        }
    })
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
        upload_to_answer(100, words, &status(b"201"), body);
    }
}

#[test]
fn servers_that_abort_an_upload() {
    let words = "reset the upload";
    upload(5_000_000, words, plain(), |_, control, mut send, mut receive| async move {
        let _open = control;
        receive.stop(VarInt::from_u32(0x102))?;
        send.reset(VarInt::from_u32(0x102))?;
        std::future::pending().await
    });
    upload(5_000_000, "out of order", plain(), |quic, control, send, receive| async move {
        // The end of a control stream is an error of its own.
        let _open = (control, send, receive);
        quic.close(VarInt::from_u32(0x102), b"out of order");
        Ok(())
    });
}

#[test]
fn servers_that_reset_what_they_began() {
    for begin in [vec![], status(b"201"), [status(b"201"), frame(DATA, b"{")].concat()] {
        let words = "the server reset the upload";
        upload_to(words, plain(), move |_, control, mut send, mut receive| {
            let begin = begin.clone();
            async move {
                read(&mut receive).await?;
                let _open = control;
                send.write_all(&begin).await?;
                send.reset(VarInt::from_u32(0x102))?;
                std::future::pending().await
            }
        });
    }
}
