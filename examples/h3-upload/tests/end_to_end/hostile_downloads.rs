//! Hostile and odd servers of downloads: the client accepts a file only if it is whole, and ends in
//! bounded time and memory.

use std::process::Output;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quinn::{Connection, RecvStream, SendStream, VarInt};
use sha2::{Digest as _, Sha256};
use tempfile::tempdir;

use crate::hostile::{Outcome, UNFINISHED, assert_harmless, client, forever, plain, serve_request};
use crate::programs::{assert_complains, names, on_a_small_disk};
use crate::raw::{self, DATA, H3_NO_ERROR, answer, frame, integer, serve};

/// The client's output for a server that runs `act` on the request, and the content of the file. A
/// client that fails will complain with `words`.
fn download<F>(
    options: &[&str],
    words: &str,
    act: impl Fn(Connection, SendStream, SendStream, RecvStream) -> F + Clone + Send + 'static,
) -> (Output, Option<Vec<u8>>)
where
    F: Future<Output = Outcome> + Send + 'static,
{
    let server = serve_request(plain(), act);
    let scratch = tempdir().unwrap();
    let mut command = client(env!("CARGO_BIN_EXE_h3-download"), scratch.path(), words);
    command.args(options).arg(format!("https://127.0.0.1:{}/x", server.port));
    let output = command.output().unwrap();
    let file = std::fs::read(scratch.path().join("x")).ok();
    assert_eq!(names(scratch.path()).len(), usize::from(file.is_some()), "a part is left");
    (output, file)
}

/// As [`download`], for a server that sends these bytes and ends the stream.
fn download_of(words: &str, bytes: Vec<u8>) -> (Output, Option<Vec<u8>>) {
    download_with(&[], words, bytes)
}

/// The same with these options of the client.
fn download_with(options: &[&str], words: &str, bytes: Vec<u8>) -> (Output, Option<Vec<u8>>) {
    download(options, words, move |_, control, mut send, _| {
        let bytes = bytes.clone();
        async move {
            let _open = control;
            send.write_all(&bytes).await?;
            send.finish()?;
            std::future::pending().await
        }
    })
}

/// The words of a client that succeeds.
const SUCCESS: &str = "";
const STALLED: &str = "sent hardly anything for 1 s";

/// An answer of status 200 with these fields, and the body `abc`.
fn abc(fields: &[(&str, &str)]) -> Vec<u8> {
    [answer(b"200", fields), frame(DATA, b"abc")].concat()
}

/// Asserts that the client refuses this answer, and keeps no file.
fn assert_refused(bytes: Vec<u8>, words: &str) {
    let (output, file) = download_of(words, bytes);
    assert_complains(&output, words);
    assert_harmless(&output);
    assert_eq!(file, None);
}

fn digest(content: &[u8]) -> String {
    BASE64_STANDARD.encode(Sha256::digest(content))
}

#[test]
fn lengths_and_digests_are_optional_and_may_be_old() {
    let hash = digest(b"abc");
    for fields in [
        &[][..],
        &[("content-length", "3")],
        &[("repr-digest", &format!("sha-256=:{hash}:"))],
        &[("content-digest", &format!("md5=:AA==:, sha-256=:{hash}:"))],
        &[("digest", &format!("SHA-256={hash}"))],
        &[("repr-digest", "sha-512=:AA==:"), ("digest", "nonsense")],
    ] {
        let (output, file) = download_of(SUCCESS, abc(fields));
        assert!(output.status.success(), "{fields:?}: {output:?}");
        assert_eq!(file.as_deref(), Some(&b"abc"[..]), "{fields:?}");
    }
    // No body at all.
    let (output, file) = download_of(SUCCESS, answer(b"200", &[("content-length", "0")]));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(file, Some(Vec::new()));
}

#[test]
fn other_content_than_announced() {
    let hash = digest(b"abd");
    for name in ["repr-digest", "content-digest"] {
        assert_refused(abc(&[(name, &format!("sha-256=:{hash}:"))]), "differs from the server's");
    }
    assert_refused(abc(&[("digest", &format!("sha-256={hash}"))]), "differs from the server's");
    assert_refused(abc(&[("repr-digest", "sha-256=:AA==:")]), "differs from the server's");
    assert_refused(abc(&[("content-length", "4")]), "only 3 of 4 bytes");
    assert_refused(abc(&[("content-length", "2")]), "more than the 2 bytes");
    assert_refused(abc(&[("content-length", "-3")]), "not a number");
    assert_refused(answer(b"200", &[("content-length", "3")]), "only 0 of 3 bytes");
}

/// A server that does not announce the length, and one that announces a short file.
#[test]
fn a_file_that_outgrows_the_limit() {
    for fields in [&[][..], &[("content-length", "2")]] {
        let (output, file) = download_with(&["--max-bytes", "2"], "--max-bytes", abc(fields));
        let words = if fields.is_empty() { "longer than --max-bytes 2" } else { "2 bytes" };
        assert_complains(&output, words);
        assert_eq!(file, None);
    }
    let (output, file) = download_with(&["--max-bytes", "3"], SUCCESS, abc(&[]));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(file.as_deref(), Some(&b"abc"[..]));
    // No disk has so much room.
    assert_refused(abc(&[("content-length", "1000000000000000000")]), "its disk has room for");
}

/// A server that does not announce the length cannot fill the disk either.
#[test]
fn a_file_that_outgrows_the_disk() {
    let server = serve_request(plain(), |_, control, mut send, _| async move {
        let _open = control;
        send.write_all(&[answer(b"200", &[]), frame(DATA, &vec![7; 2_000_000])].concat()).await?;
        std::future::pending().await
    });
    let scratch = tempdir().unwrap();
    let url = format!("https://127.0.0.1:{}/x", server.port);
    let output = on_a_small_disk(&url, scratch.path()).arg("--insecure").output().unwrap();
    assert_complains(&output, "bytes for which its disk had room");
}

#[test]
fn answers_without_the_file() {
    for (status, fields, words) in [
        (&b"404"[..], &[][..], "status 404"),
        (b"500", &[], "status 500"),
        (b"302", &[("location", "https://elsewhere.example/x")], "https://elsewhere.example/x"),
        (b"302", &[], "status 302"),
        (b"302", &[("location", "no\x1b[2J")], "no[2J"),
        (b"206", &[], "without the whole file (status 206)"),
        (b"204", &[], "without the whole file (status 204)"),
        (b"103", &[], "interim answer"),
        (b"no", &[], "status no"),
        (b"200", &[("content-encoding", "gzip")], "encoded as gzip"),
    ] {
        assert_refused([answer(status, fields), frame(DATA, b"<html>")].concat(), words);
    }
    let controls = "no\x1b]0;owned\x07\x1b[2J such\u{202e} file";
    let text = [answer(b"404", &[]), frame(DATA, controls.as_bytes())].concat();
    assert_refused(text, "no]0;owned[2J such file");
    assert_refused(frame(DATA, b"before the headers"), STALLED);
    assert_refused(vec![], STALLED);
}

/// With an announced length, and without one.
#[test]
fn bodies_that_break_off() {
    type Ending = fn(&Connection, &mut SendStream);
    let endings: [(Ending, &str); 3] = [
        (|_, send| send.reset(VarInt::from_u32(0x102)).unwrap(), "the server reset the download"),
        (
            |quic, _| quic.close(VarInt::from_u32(0x102), b"out of order"),
            "the server closed the connection: out of order (code 0x102)",
        ),
        (
            |quic, _| quic.close(VarInt::from_u32(H3_NO_ERROR), b"good-bye"),
            "the server closed the connection: good-bye (code 0x100)",
        ),
    ];
    for fields in [&[("content-length", "6")][..], &[]] {
        let begun = [answer(b"200", fields), frame(DATA, b"abc")].concat();
        for (end, words) in endings {
            let begun = begun.clone();
            let (output, file) = download(&[], words, move |quic, control, mut send, _| {
                let begun = begun.clone();
                async move {
                    let _open = control;
                    send.write_all(&begun).await?;
                    end(&quic, &mut send);
                    quic.closed().await;
                    Ok(())
                }
            });
            assert_complains(&output, words);
            assert_eq!(file, None);
        }
    }
}

/// The stream ends within a frame, which quiche takes for the end of the body. Only a length or a
/// hash shows that.
#[test]
fn a_body_that_ends_within_a_frame() {
    let part = [integer(DATA), integer(6), b"abc".to_vec()].concat();
    let of = |fields: &[(&str, &str)]| [answer(b"200", fields), part.clone()].concat();
    assert_refused(of(&[("content-length", "6")]), "only 3 of 6");
    let hash = format!("sha-256=:{}:", digest(b"abcdef"));
    assert_refused(of(&[("repr-digest", &hash)]), "differs from the server's");
    let (output, file) = download_of(SUCCESS, of(&[]));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(file.as_deref(), Some(&b"abc"[..]));
}

/// A server may close its connection as soon as the client has the file.
#[test]
fn a_server_that_leaves_after_the_file() {
    let (output, file) = download(&[], SUCCESS, |quic, control, mut send, _| async move {
        let _open = control;
        send.write_all(&abc(&[("content-length", "3")])).await?;
        send.finish()?;
        // Once the client has acknowledged everything.
        let _ = send.stopped().await;
        quic.close(VarInt::from_u32(H3_NO_ERROR), b"good-bye");
        Ok(())
    });
    assert!(output.status.success(), "{output:?}");
    assert_eq!(file.as_deref(), Some(&b"abc"[..]));
}

#[test]
fn bodies_that_do_not_end() {
    let begin = answer(b"200", &[]);
    for (begin, more, slowly, words) in [
        (vec![], vec![], true, STALLED),
        (begin.clone(), vec![], true, STALLED),
        (begin.clone(), frame(DATA, b"x"), true, STALLED),
        (begin.clone(), frame(0x21, b"x"), true, STALLED),
        (begin.clone(), frame(0x21, &[7; 10_000]), false, STALLED),
        (answer(b"404", &[]), frame(DATA, &[b'x'; 1000]), false, "too long"),
        (answer(b"404", &[]), frame(DATA, b"x"), true, UNFINISHED),
    ] {
        let (output, file) = download(&[], words, move |_, control, mut send, receive| {
            let (begin, more) = (begin.clone(), more.clone());
            async move {
                let _open = (control, receive);
                send.write_all(&begin).await?;
                if more.is_empty() {
                    return std::future::pending().await;
                }
                forever(send, &more, slowly).await
            }
        });
        assert_complains(&output, words);
        assert_eq!(file, None);
    }
}

/// A server that sends half of a file, and then nothing.
pub(crate) fn server_that_stops() -> raw::Server {
    serve(plain(), |quic, control| async move {
        let (mut send, receive) = quic.accept_bi().await?;
        let half = [answer(b"200", &[("content-length", "200000")]), frame(DATA, &[7; 100_000])];
        send.write_all(&half.concat()).await?;
        let _open = (control, receive, send);
        quic.closed().await;
        Ok(())
    })
}
