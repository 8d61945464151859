//! Requests that the programs refuse, and the sentence that explains it.

use std::net::UdpSocket;
use std::process::{Command, Output};

use http::StatusCode;
use serde_json::json;
use tempfile::{TempDir, tempdir};

use crate::child::ClosedPort;
use crate::peer::ask;
use crate::programs::{Server, assert_complains, client, download, file, names};

/// Both clients: the upload of a file, and the download of another one.
fn both(scratch: &TempDir, url: &str) -> [Command; 2] {
    [client(&file(scratch, "x", 100), url), download(url, scratch.path())]
}

fn server(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_h3-upload-server")).args(args).output().unwrap()
}

#[test]
fn no_name_leads_out_of_the_directory() {
    let server = Server::start(&[]);
    for path in ["/../escaped", "/%2e%2e%2fescaped", "/%2Ftmp%2Fescaped", "/nul%00byte", "/"] {
        let (status, said) = ask(server.port, &server.ca(), "PUT", path, &[], b"payload");
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {said}");
        assert!(server.stored().is_empty(), "{path}");
    }
    let beside = std::fs::read_dir(server.dir().parent().unwrap()).unwrap();
    let mut beside: Vec<_> = beside.map(|e| e.unwrap().file_name()).collect();
    beside.sort();
    assert_eq!(beside, ["ca.pem", "stored"]);
    // The same request with a valid name.
    let valid = ask(server.port, &server.ca(), "PUT", "/escaped", &[], b"payload");
    assert_eq!((valid.0, server.stored()), (StatusCode::CREATED, vec!["escaped".to_owned()]));
}

/// RFC 9110, section 14.5: a server that does not store parts must not store one as a whole.
#[test]
fn only_a_whole_file_is_stored() {
    let server = Server::start(&["--max-bytes", "10"]);
    let length = |announced| [("content-length", announced)];
    for (method, path, headers, body, expected, words) in [
        ("DELETE", "/x", &[][..], &b""[..], StatusCode::METHOD_NOT_ALLOWED, "only PUT and POST"),
        ("PATCH", "/x", &[], b"", StatusCode::METHOD_NOT_ALLOWED, "only PUT and POST"),
        ("HEAD", "/x", &[], b"", StatusCode::METHOD_NOT_ALLOWED, ""),
        ("GET", "/", &[], b"", StatusCode::OK, "PUT /NAME"),
        ("PUT", "/x", &length("4"), b"abc", StatusCode::BAD_REQUEST, "announced 4 bytes"),
        ("PUT", "/x", &length("2"), b"abc", StatusCode::BAD_REQUEST, ""),
        ("PUT", "/x", &length("-3"), b"abc", StatusCode::BAD_REQUEST, ""),
        ("PUT", "/x", &length("11"), b"abc", StatusCode::PAYLOAD_TOO_LARGE, "at most 10 bytes"),
        // Without an announced length, the server counts received bytes.
        ("PUT", "/x", &[], b"eleven bytes", StatusCode::PAYLOAD_TOO_LARGE, "at most 10 bytes"),
        (
            "PUT",
            "/x",
            &[("content-range", "bytes 3-5/6")],
            b"def",
            StatusCode::BAD_REQUEST,
            "without content-range",
        ),
    ] {
        let (status, said) = ask(server.port, &server.ca(), method, path, headers, body);
        assert_eq!(status, expected, "{method} {path} {headers:?}: {said}");
        assert!(said.contains(words), "{said}");
        assert!(server.stored().is_empty(), "{method} {path} {headers:?}");
    }
    for (method, headers) in [("POST", &[][..]), ("PUT", &length("3"))] {
        let (status, receipt) = ask(server.port, &server.ca(), method, "/x", headers, b"abc");
        assert_eq!(status, StatusCode::CREATED);
        let receipt: serde_json::Value = serde_json::from_str(&receipt).unwrap();
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(receipt, json!({ "name": "x", "bytes": 3, "sha256": sha256 }));
    }
}

#[test]
fn the_client_reports_the_refusal_in_a_sentence() {
    let server = Server::start(&["--max-bytes", "1000"]);
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 5_000_000);
    for (to, words) in [("/a%2Fb", "status 400"), ("/x", "at most 1000 bytes")] {
        let output = server.client(&path, to).arg("-q").output().unwrap();
        assert_complains(&output, words);
        assert!(server.stored().is_empty());
    }
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
    // An open socket that is never read is a black hole. The system refuses a closed port.
    let hole = UdpSocket::bind("127.0.0.1:0").unwrap();
    let hole = hole.local_addr().unwrap().to_string();
    let closed_port = ClosedPort::new();
    let closed = format!("127.0.0.1:{}", closed_port.number);
    for (at, timeout, words) in [
        (hole.as_str(), "0.3", "no answer from"),
        (&closed, "60", "no program listens"),
        ("nowhere.invalid", "60", "nowhere.invalid"),
    ] {
        for mut command in both(&scratch, &format!("https://{at}/y")) {
            let output = command.args(["--insecure", "--timeout", timeout]).output().unwrap();
            assert_complains(&output, words);
        }
    }
    assert_eq!(names(scratch.path()), ["x"]);
}

#[test]
fn command_lines_that_make_no_sense() {
    let scratch = tempdir().unwrap();
    let key = "0".repeat(64);
    let url = "https://127.0.0.1:1/y";
    // The option parser has a format and an exit code of its own.
    for (url, args, code, words) in [
        (url, &["--proxy-key", &key][..], 1, "--sidekick"),
        (url, &["--sidekick", "pacubic", "--cc", "reno"], 1, "cubic-rfc9438"),
        (url, &["--second-uplink", "lo"], 1, "choose auto or receive"),
        (url, &["--carry", "5"], 2, "--second-uplink"),
        (url, &["--sidekick", "auto", "--second-uplink", "none"], 1, "an interface of this host"),
        (url, &["--threshold", "0"], 2, "threshold"),
        (url, &["--faster"], 2, "--faster"),
        ("http://127.0.0.1:1/y", &[], 2, "needs https"),
        ("127.0.0.1", &[], 2, "https://HOST[:PORT]/NAME"),
    ] {
        for mut command in both(&scratch, url) {
            let output = command.args(args).output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{url} {args:?}");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains(words), "{url} {args:?}: {said}");
        }
    }
    assert_eq!(names(scratch.path()), ["x"]);
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
