//! Incomplete uploads leave no file, and the programs report why they ended.

use std::io::Write as _;
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;
use tempfile::tempdir;

use crate::child::send;
use crate::programs::{Server, assert_complains, bytes, file};

/// Starts an upload that does not end: it reads from a pipe that stays open in the returned child.
fn unfinished(server: &mut Server) -> Child {
    let mut command = server.client("/dev/stdin".as_ref(), "/x");
    let mut child = command
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(&bytes(200_000)).unwrap();
    server.wait_for("receiving");
    let stored = server.stored();
    assert!(matches!(stored.as_slice(), [temporary] if temporary.starts_with('.')), "{stored:?}");
    child
}

#[test]
fn a_killed_client_leaves_no_file() {
    let mut server = Server::start(&["--idle-timeout", "1"]);
    let mut child = unfinished(&mut server);
    child.kill().unwrap();
    child.wait().unwrap();
    server.wait_for("nothing was stored");
    assert!(server.stored().is_empty());
}

#[test]
fn an_interrupted_client_closes_its_connection() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        // With the longest idle timeout, only a proper close can end the upload.
        let mut server = Server::start(&["--idle-timeout", "65535"]);
        let mut child = unfinished(&mut server);
        // Stays open, so that the client's input does not end.
        let stdin = child.stdin.take();
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        server.wait_for("nothing was stored");
        assert!(server.stored().is_empty());
        drop(stdin);
    }
}

#[test]
fn a_server_that_shuts_down_cleans_up_and_informs_its_clients() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut server = Server::start(&[]);
        let mut child = unfinished(&mut server);
        let stdin = child.stdin.take();
        send(&server.child, signal);
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
        assert!(server.stored().is_empty());
        assert_complains(&child.wait_with_output().unwrap(), "the server is shutting down");
        drop(stdin);
    }
}

#[test]
fn the_server_stores_the_file_of_a_client_that_leaves_at_once() {
    // The client closes as soon as it has its answer. The server must continue to serve others.
    let mut server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    for name in ["a", "b", "c"] {
        let path = file(&scratch, name, 10_000);
        assert!(server.client(&path, "/").arg("-q").output().unwrap().status.success());
    }
    assert_eq!(server.stored(), ["a", "b", "c"]);
    send(&server.child, Signal::SIGTERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}
