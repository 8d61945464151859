//! Hostile and odd servers of downloads: the client accepts a file only if it is whole, and ends in
//! bounded time and memory.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quinn::VarInt;
use sha2::{Digest as _, Sha256};
use tempfile::tempdir;

use crate::hostile::Client::Download;
use crate::hostile::{SUCCESS, Script, Server, Then, UNFINISHED, plain, serve_request};
use crate::programs::{assert_complains, on_a_small_disk};
use crate::raw::{DATA, H3_NO_ERROR, answer, frame, integer};

const STALLED: &str = "sent hardly anything for 1 s";

fn server(begin: Vec<u8>, then: Then) -> Server {
    Script { reads: false, begin, then }.serve()
}

/// What the client makes of a whole stream of these bytes.
fn download(bytes: Vec<u8>, options: &[&str], words: &str) -> Option<Vec<u8>> {
    Download.meets(&server(bytes, Then::Finish), options, words)
}

/// An answer of status 200 with these fields, and the body `abc`.
fn abc(fields: &[(&str, &str)]) -> Vec<u8> {
    [answer(b"200", fields), frame(DATA, b"abc")].concat()
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
        let content = download(abc(fields), &[], SUCCESS);
        assert_eq!(content.as_deref(), Some(&b"abc"[..]), "{fields:?}");
    }
    // No body at all.
    let nothing = answer(b"200", &[("content-length", "0")]);
    assert_eq!(download(nothing, &[], SUCCESS), Some(Vec::new()));
}

#[test]
fn other_content_than_announced() {
    let hash = digest(b"abd");
    let modern = format!("sha-256=:{hash}:");
    for (field, value, words) in [
        ("repr-digest", modern.as_str(), "differs from the server's"),
        ("content-digest", &modern, "differs from the server's"),
        ("digest", &format!("sha-256={hash}"), "differs from the server's"),
        ("repr-digest", "sha-256=:AA==:", "differs from the server's"),
        ("content-length", "4", "only 3 of 4 bytes"),
        ("content-length", "2", "more than the 2 bytes"),
        ("content-length", "-3", "not a number"),
    ] {
        download(abc(&[(field, value)]), &[], words);
    }
    download(answer(b"200", &[("content-length", "3")]), &[], "only 0 of 3 bytes");
}

/// A server that does not announce the length, and one that does.
#[test]
fn a_file_that_outgrows_the_limit() {
    let announced = abc(&[("content-length", "3")]);
    let limit = ["--max-bytes", "2"];
    download(abc(&[]), &limit, "the file is longer than --max-bytes 2");
    download(announced.clone(), &limit, "the file has 3 bytes, and --max-bytes is 2");
    let to_stdout = ["--max-bytes", "2", "-o", "-"];
    download(announced, &to_stdout, "the file has 3 bytes, and --max-bytes is 2");
    let content = download(abc(&[]), &["--max-bytes", "3"], SUCCESS);
    assert_eq!(content.as_deref(), Some(&b"abc"[..]));
    // No disk has so much room.
    let huge = abc(&[("content-length", "1000000000000000000")]);
    download(huge, &[], "its disk has room for");
}

/// A server that does not announce the length cannot fill the disk either.
#[test]
fn a_file_that_outgrows_the_disk() {
    let begin = [answer(b"200", &[]), frame(DATA, &vec![7; 2_000_000])].concat();
    let server = server(begin, Then::Nothing);
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
        download([answer(status, fields), frame(DATA, b"<html>")].concat(), &[], words);
    }
    let controls = "no\x1b]0;owned\x07\x1b[2J such\u{202e} file";
    let text = [answer(b"404", &[]), frame(DATA, controls.as_bytes())].concat();
    download(text, &[], "no]0;owned[2J such file");
    download(frame(DATA, b"before the headers"), &[], STALLED);
    download(vec![], &[], STALLED);
}

/// With an announced length, and without one.
#[test]
fn bodies_that_break_off() {
    for fields in [&[("content-length", "6")][..], &[]] {
        let begun = [answer(b"200", fields), frame(DATA, b"abc")].concat();
        for (then, words) in [
            (Then::Reset, "the server reset the download"),
            (
                Then::Close(0x102, "out of order"),
                "the server closed the connection: out of order (code 0x102)",
            ),
            (
                Then::Close(H3_NO_ERROR, "good-bye"),
                "the server closed the connection: good-bye (code 0x100)",
            ),
        ] {
            Download.meets(&server(begun.clone(), then), &[], words);
        }
    }
}

/// The stream ends within a frame, which quiche takes for the end of the body. Only a length or a
/// hash shows that.
#[test]
fn a_body_that_ends_within_a_frame() {
    let part = [integer(DATA), integer(6), b"abc".to_vec()].concat();
    let of = |fields: &[(&str, &str)]| [answer(b"200", fields), part.clone()].concat();
    download(of(&[("content-length", "6")]), &[], "only 3 of 6");
    let hash = format!("sha-256=:{}:", digest(b"abcdef"));
    download(of(&[("repr-digest", &hash)]), &[], "differs from the server's");
    assert_eq!(download(of(&[]), &[], SUCCESS).as_deref(), Some(&b"abc"[..]));
}

/// A server may close its connection as soon as the client has the file.
#[test]
fn a_server_that_leaves_after_the_file() {
    let server = serve_request(plain(), |quic, control, mut send, _| async move {
        let _open = control;
        send.write_all(&abc(&[("content-length", "3")])).await?;
        send.finish()?;
        // Once the client has acknowledged everything.
        let _ = send.stopped().await;
        quic.close(VarInt::from_u32(H3_NO_ERROR), b"good-bye");
        Ok(())
    });
    assert_eq!(Download.meets(&server, &[], SUCCESS).as_deref(), Some(&b"abc"[..]));
}

#[test]
fn bodies_that_do_not_end() {
    let begin = answer(b"200", &[]);
    let refused = answer(b"404", &[]);
    for (begin, then, words) in [
        (vec![], Then::Nothing, STALLED),
        (begin.clone(), Then::Nothing, STALLED),
        (begin.clone(), Then::Slowly(frame(DATA, b"x")), STALLED),
        (begin.clone(), Then::Slowly(frame(0x21, b"x")), STALLED),
        (begin, Then::Flood(frame(0x21, &[7; 10_000])), STALLED),
        (refused.clone(), Then::Flood(frame(DATA, &[b'x'; 1000])), "too long"),
        (refused, Then::Slowly(frame(DATA, b"x")), UNFINISHED),
    ] {
        Download.meets(&server(begin, then), &[], words);
    }
}

/// A server that sends half of a file, and then nothing.
pub(crate) fn server_that_stops() -> Server {
    let half = [answer(b"200", &[("content-length", "200000")]), frame(DATA, &[7; 100_000])];
    server(half.concat(), Then::Nothing)
}
