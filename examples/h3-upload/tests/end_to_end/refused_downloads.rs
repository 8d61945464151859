//! Downloads that cannot succeed: one sentence explains the reason, and no file appears.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use http::StatusCode;
use nix::sys::signal::Signal;
use tempfile::tempdir;

use crate::child::send;
use crate::peer::Client;
use crate::programs::{Server, assert_complains, bytes, download, names, on_a_small_disk};

#[test]
fn names_that_the_server_does_not_return() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    std::fs::write(server.dir().join(".hidden"), "secret").unwrap();
    std::fs::write(server.dir().parent().unwrap().join("outside"), "secret").unwrap();
    for (path, words) in [
        ("/none", "no such file"),
        ("/.hidden", "status 400"),
        ("/..%2foutside", "status 400"),
        ("/a%2Fb", "status 400"),
    ] {
        let output = server.download(path, scratch.path()).args(["-o", "x"]).output().unwrap();
        assert_complains(&output, words);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("secret"));
    }
    assert!(names(scratch.path()).is_empty());
}

/// Hashing the second file takes hours, and its first byte leaves at once.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_announces_length_and_digest() {
    let server = Server::start(&[]);
    std::fs::write(server.dir().join("x"), "abc").unwrap();
    std::fs::File::create(server.dir().join("huge")).unwrap().set_len(1 << 42).unwrap();
    let digest = "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:";
    let mut client = Client::connect(server.port, &server.ca()).await;
    for (path, len, digest) in [("/x", 3, Some(digest)), ("/huge", 1_u64 << 42, None)] {
        let mut request = client.begin("GET", path, &[], b"").await;
        let _ = request.finish().await;
        let head = request.recv_response().await.unwrap();
        assert_eq!(head.status(), StatusCode::OK);
        assert_eq!(head.headers()["content-length"], len.to_string());
        let announced = head.headers().get("repr-digest").map(|value| value.to_str().unwrap());
        assert_eq!(announced, digest);
        assert!(request.recv_data().await.unwrap().is_some());
    }
}

/// Downloads occupy places as uploads do, and a client that does not read loses its own.
#[test]
fn a_client_must_take_the_file() {
    let usual = ["--max-uploads-per-client", "1", "--window", "65536"];
    let impatient = [&usual[..], &["--stall-timeout", "3"]].concat();
    for options in [&usual[..], &impatient] {
        let mut server = Server::start(options);
        std::fs::write(server.dir().join("x"), bytes(3_000_000)).unwrap();
        std::fs::write(server.dir().join("short"), "abc").unwrap();
        let scratch = tempdir().unwrap();
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let mut client = Client::connect(server.port, &server.ca()).await;
            // Nothing reads the body.
            let mut request = client.begin("GET", "/x", &[], b"").await;
            let _ = request.finish().await;
            assert_eq!(request.recv_response().await.unwrap().status(), StatusCode::OK);
            if options == usual {
                let refused = server.download("/x", scratch.path()).output().unwrap();
                assert_complains(&refused, "already has 1 transfers");
            } else {
                server.wait_for("takes the file too slowly");
                // The server need not wait for this client, which may pause, too.
                let mut again = server.download("/short", scratch.path());
                assert!(again.arg("--quiet").status().unwrap().success());
            }
        });
    }
}

#[test]
fn an_existing_file_stays() {
    let scratch = tempdir().unwrap();
    std::fs::write(scratch.path().join("x"), "precious").unwrap();
    // The program does not even connect.
    let output = download("https://127.0.0.1:1/x", scratch.path()).output().unwrap();
    assert_complains(&output, "--force");
    assert_eq!(std::fs::read(scratch.path().join("x")).unwrap(), b"precious");
    // A download that fails leaves the file that it would replace.
    let server = Server::start(&[]);
    let output = server.download("/x", scratch.path()).arg("--force").output().unwrap();
    assert_complains(&output, "status 404");
    assert_eq!(std::fs::read(scratch.path().join("x")).unwrap(), b"precious");
    assert_eq!(names(scratch.path()), ["x"]);
}

#[test]
fn full_disks() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    std::fs::write(server.dir().join("x"), bytes(3_000_000)).unwrap();
    let output = server.download("/x", scratch.path()).args(["-o", "/dev/full"]).output().unwrap();
    assert_complains(&output, "No space left on device");
    let mut command = on_a_small_disk(&server.url("/x"), scratch.path());
    let output = command.arg("--cafile").arg(server.ca()).output().unwrap();
    assert_complains(&output, "the file has 3000000 bytes, and its disk has room");
}

#[test]
fn a_reader_that_leaves() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    std::fs::write(server.dir().join("x"), bytes(3_000_000)).unwrap();
    let mut command = server.download("/x", scratch.path());
    command.args(["-q", "-o", "-"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    assert_complains(&child.wait_with_output().unwrap(), "cannot write standard output");
}

/// The download waits for its reader, so it does not end by itself.
#[test]
fn an_interrupted_download_leaves_nothing() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let scratch = tempdir().unwrap();
        let (mut child, _server, _lines) = stalled_download(scratch.path());
        let part = names(scratch.path());
        assert!(matches!(part.as_slice(), [name] if name.starts_with(".h3-download-")), "{part:?}");
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert!(names(scratch.path()).is_empty());
    }
}

/// Starts a download of which the server sends a part, and then nothing. Returns once the part
/// has arrived.
fn stalled_download(directory: &Path) -> (Child, crate::hostile::Server, impl Sized) {
    let server = crate::hostile_downloads::server_that_stops();
    let mut command = download(&format!("https://127.0.0.1:{}/x", server.port), directory);
    let mut child = command.arg("--insecure").stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("50 %")), "the half did not arrive");
    (child, server, lines)
}
