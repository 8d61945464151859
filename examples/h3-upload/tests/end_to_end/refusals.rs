//! Requests that the programs refuse, and the sentence that explains it.

use std::net::UdpSocket;
use std::process::{Command, Output};

use http::StatusCode;
use tempfile::tempdir;

use crate::closed_port::ClosedPort;
use crate::peer::ask;
use crate::programs::{Server, assert_complains, client, file};

fn server(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_h3-upload-server")).args(args).output().unwrap()
}

#[test]
fn no_name_leads_out_of_the_directory() {
    let server = Server::start(&[]);
    for path in [
        "/../escaped",
        "/%2e%2e%2fescaped",
        "/..%2Fescaped",
        "/%2Ftmp%2Fescaped",
        "//escaped",
        "/a/escaped",
        "/a%5c..%5cescaped",
        "/..",
        "/%2e",
        "/.hidden",
        "/nul%00byte",
        "/csi%c2%9b2J",
        "/gpj%e2%80%ae.exe",
        "/zero%e2%80%8bwidth",
        "/-rf",
        "/",
    ] {
        let (status, said) = ask(server.port, &server.ca(), "PUT", path, &[], b"payload");
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {said}");
        assert!(server.stored().is_empty(), "{path}");
    }
    let beside = std::fs::read_dir(server.dir().parent().unwrap()).unwrap();
    let mut beside: Vec<_> = beside.map(|e| e.unwrap().file_name()).collect();
    beside.sort();
    assert_eq!(beside, ["ca.pem", "stored"]);

    let long = format!("/{}", "x".repeat(256));
    assert_eq!(ask(server.port, &server.ca(), "PUT", &long, &[], b"").0, StatusCode::BAD_REQUEST);
    // The same request with a valid name.
    assert_eq!(
        ask(server.port, &server.ca(), "PUT", &long[..256], &[], b"").0,
        StatusCode::CREATED
    );
    assert_eq!(server.stored(), [&long[1..256]]);
}

#[test]
fn the_client_reports_a_refused_name() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 2_000_000);
    let output = server.client(&path, "/a%2Fb").arg("-q").output().unwrap();
    assert_complains(&output, "status 400");
    assert!(server.stored().is_empty());
}

#[test]
fn only_put_and_post_store() {
    let server = Server::start(&[]);
    for method in ["DELETE", "PATCH", "HEAD"] {
        let (status, _) = ask(server.port, &server.ca(), method, "/x", &[], b"");
        assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{method}");
    }
    assert_eq!(ask(server.port, &server.ca(), "GET", "/", &[], b"").0, StatusCode::OK);
    let (status, receipt) = ask(server.port, &server.ca(), "POST", "/x", &[], b"abc");
    assert_eq!(status, StatusCode::CREATED);
    let receipt: serde_json::Value = serde_json::from_str(&receipt).unwrap();
    assert_eq!(receipt["name"], "x");
    assert_eq!(receipt["bytes"], 3);
    assert_eq!(
        receipt["sha256"],
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn a_body_must_be_as_long_as_announced() {
    let server = Server::start(&["--max-bytes", "10"]);
    for (announced, body, expected) in [
        ("4", &b"abc"[..], StatusCode::BAD_REQUEST),
        ("2", b"abc", StatusCode::BAD_REQUEST),
        ("-3", b"abc", StatusCode::BAD_REQUEST),
        ("11", b"abc", StatusCode::PAYLOAD_TOO_LARGE),
        ("3", b"abc", StatusCode::CREATED),
    ] {
        let length = [("content-length", announced)];
        let (status, said) = ask(server.port, &server.ca(), "PUT", "/x", &length, body);
        assert_eq!(status, expected, "{announced}: {said}");
        assert_eq!(
            server.stored().len(),
            usize::from(expected == StatusCode::CREATED),
            "{announced}"
        );
    }
    // Without an announced length, the server counts received bytes.
    let (status, _) = ask(server.port, &server.ca(), "PUT", "/y", &[], b"eleven bytes");
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(server.stored(), ["x"]);
}

/// RFC 9110, section 14.5: a server that does not store parts must not store one as a whole.
#[test]
fn a_part_of_a_file_is_no_file() {
    let server = Server::start(&[]);
    let range = [("content-range", "bytes 3-5/6")];
    let (status, said) = ask(server.port, &server.ca(), "PUT", "/x", &range, b"def");
    assert_eq!(status, StatusCode::BAD_REQUEST, "{said}");
    assert!(said.contains("without content-range"), "{said}");
    assert!(server.stored().is_empty());
}

#[test]
fn a_file_that_is_too_long_is_refused_in_a_sentence() {
    let server = Server::start(&["--max-bytes", "1000"]);
    let scratch = tempdir().unwrap();
    let output = server.client(&file(&scratch, "x", 5_000_000), "/").arg("-q").output().unwrap();
    assert_complains(&output, "at most 1000 bytes");
    assert!(server.stored().is_empty());
}

#[test]
fn files_that_cannot_be_read() {
    let scratch = tempdir().unwrap();
    let url = "https://127.0.0.1:1/";
    assert_complains(&client(&scratch.path().join("none"), url).output().unwrap(), "cannot read");
    assert_complains(&client(scratch.path(), url).output().unwrap(), "is a directory");
}

#[test]
fn servers_that_do_not_answer() {
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 100);
    // An open socket that is never read is a black hole. The system refuses a closed port.
    let hole = UdpSocket::bind("127.0.0.1:0").unwrap();
    let closed = ClosedPort::new();
    let ask = |port, timeout| {
        let mut command = client(&path, &format!("https://127.0.0.1:{port}/"));
        command.args(["--insecure", "--timeout", timeout]).output().unwrap()
    };
    assert_complains(&ask(hole.local_addr().unwrap().port(), "0.3"), "no answer from");
    assert_complains(&ask(closed.number, "60"), "no program listens");
    let nowhere = client(&path, "https://nowhere.invalid/").output().unwrap();
    assert_complains(&nowhere, "nowhere.invalid");
}

#[test]
fn command_lines_that_make_no_sense() {
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 100);
    let with = |args: &[&str]| client(&path, "https://127.0.0.1:1/").args(args).output().unwrap();
    assert_complains(&with(&["--proxy-key", &"0".repeat(64)]), "--sidekick");
    assert_complains(
        &with(&["--sidekick", "pacubic", "--proxy", "gw", "--cc", "reno"]),
        "cubic-rfc9438",
    );
    // The option parser has a format and an exit code of its own.
    for (args, words) in [
        (&["--cc", "vegas"][..], "vegas"),
        (&["--sidekick", "on"], "path-aware-bbr"),
        (&["--threshold", "0"], "threshold"),
        (&["--proxy", "gw:http"], "not a port"),
        (&["--proxy-key", "0123"], "64 hexadecimal digits"),
        (&["--faster"], "--faster"),
    ] {
        let output = with(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{args:?}");
    }
    let plain = client(&path, "http://127.0.0.1:1/").output().unwrap();
    assert!(String::from_utf8_lossy(&plain.stderr).contains("https"));
}

#[test]
fn servers_that_cannot_start() {
    let scratch = tempdir().unwrap();
    let dir = scratch.path().to_str().unwrap();
    let none = scratch.path().join("none");
    let none = none.to_str().unwrap();
    assert_complains(&server(&["--dir", dir]), "--self-signed");
    assert_complains(&server(&["--dir", none, "--self-signed", "localhost"]), "is not a directory");
    assert_complains(
        &server(&["--dir", "/proc", "--self-signed", "localhost"]),
        "cannot write to /proc",
    );
    assert_complains(&server(&["--dir", dir, "--cert", none, "--key", none]), "cannot read");
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    assert_complains(
        &server(&["--dir", dir, "--self-signed", "localhost", "--listen", &taken]),
        "cannot listen on",
    );
}

/// A server that cannot start must not overwrite the file that another's clients trust.
#[test]
fn a_server_that_cannot_listen_writes_no_root_certificate() {
    let running = Server::start(&[]);
    let before = std::fs::read(running.ca()).unwrap();
    let (dir, ca) = (running.dir(), running.ca());
    let (dir, ca) = (dir.to_str().unwrap(), ca.to_str().unwrap());
    let listen = format!("127.0.0.1:{}", running.port);
    let second = server(&[
        "--dir",
        dir,
        "--listen",
        &listen,
        "--self-signed",
        "localhost",
        "--write-ca",
        ca,
    ]);
    assert_complains(&second, "choose another address");
    assert_eq!(std::fs::read(running.ca()).unwrap(), before);
}
