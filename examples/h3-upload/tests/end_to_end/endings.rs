//! Incomplete uploads leave no file, and the programs report why they ended.

use std::io::Write as _;
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;
use tempfile::tempdir;

use crate::child::send;
use crate::programs::{Server, assert_complains, bytes, file};
use crate::raw::{DATA, connect, frame, put};

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

fn parts(server: &Server) -> Vec<String> {
    server.stored().into_iter().filter(|name| name.ends_with(".part")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_servers_unfinished_files_are_removed_and_a_running_ones_are_not() {
    let mut killed = Server::start(&[]);
    std::fs::write(killed.dir().join(".h3-upload-notes"), "somebody's own").unwrap();
    let client = connect(killed.port, &killed.ca()).await.unwrap();
    let begun = client.send(&[put("/x", None), frame(DATA, b"abc")].concat()).await;
    killed.wait_for("receiving");
    assert_eq!(parts(&killed).len(), 1);
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    assert_eq!(parts(&killed).len(), 1);
    drop(begun);

    let mut running = Server::beside(&killed);
    assert_eq!(running.stored(), [".h3-upload-notes"]);
    let client = connect(running.port, &running.ca()).await.unwrap();
    let (mut send, mut receive) =
        client.send(&[put("/y", None), frame(DATA, b"abc")].concat()).await;
    running.wait_for("receiving");
    let second = Server::beside(&running);
    assert_eq!(parts(&second).len(), 1);
    send.finish().unwrap();
    assert!(crate::raw::body(&mut receive).await.contains("sha256"));
    assert_eq!(second.stored(), [".h3-upload-notes", "y"]);
}
