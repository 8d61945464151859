//! Limits that protect clients from each other.

use std::future::{Future, poll_fn};
use std::process::Command;
use std::task::Poll;
use std::time::Duration;

use http::StatusCode;
use http::header::RETRY_AFTER;
use quinn::{ApplicationClose, ConnectionError, VarInt};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tempfile::tempdir;
use tokio::time::interval;

use crate::peer::{Client, answer};
use crate::programs::{Server, assert_complains, file};
use crate::raw::{
    self, DATA, H3_EXCESSIVE_LOAD, H3_FRAME_ERROR, H3_NO_ERROR, HEADERS, connect, frame, integer,
    put,
};

#[track_caller]
fn assert_closed(error: ConnectionError, code: u32, words: &str) {
    let ConnectionError::ApplicationClosed(ApplicationClose { error_code, reason }) = error else {
        panic!("{error}")
    };
    assert_eq!(error_code, VarInt::from_u32(code));
    assert!(String::from_utf8_lossy(&reason).contains(words), "{reason:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connections_of_a_client_are_limited() {
    for limit in ["--max-connections-per-client", "--max-connections"] {
        let mut server = Server::start(&[limit, "2"]);
        let ca = server.ca();
        let first = connect(server.port, &ca).await.unwrap();
        let second = connect(server.port, &ca).await.unwrap();
        let refused = connect(server.port, &ca).await.err().unwrap();
        assert!(matches!(refused, ConnectionError::ConnectionClosed(_)), "{refused}");
        let scratch = tempdir().unwrap();
        let path = file(&scratch, "x", 10);
        assert_complains(
            &server.client(&path, "/").arg("-q").output().unwrap(),
            "refused the connection",
        );
        first.quic.close(VarInt::from_u32(H3_NO_ERROR), b"");
        server.wait_for("connection ended");
        // The place becomes free a little after that line in the log.
        let succeeds = |_| server.client(&path, "/").arg("-q").status().unwrap().success();
        assert!((0..1000).any(succeeds), "the place does not become free");
        drop(second);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_uploads_of_a_client_are_limited() {
    let other = ("--max-uploads-per-client", "3");
    for (limit, others, status) in [
        ("--max-uploads-per-client", ("--max-uploads", "3"), StatusCode::TOO_MANY_REQUESTS),
        ("--max-uploads", other, StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let mut server = Server::start(&[limit, "2", others.0, others.1]);
        let mut one = Client::connect(server.port, &server.ca()).await;
        let mut other = Client::connect(server.port, &server.ca()).await;
        let mut first = one.begin("PUT", "/a", &[], b"a").await;
        let _second = other.begin("PUT", "/b", &[], b"b").await;
        server.wait_for("receiving");
        server.wait_for("receiving");
        let (refusal, said) = answer(&mut one.begin("PUT", "/c", &[], b"c").await).await;
        assert_eq!(refusal.status(), status, "{said}");
        assert!(refusal.headers().contains_key(RETRY_AFTER));
        assert!(said.contains("already has 2 transfers"), "{said}");
        assert_eq!(server.stored().len(), 2);
        first.finish().await.unwrap();
        assert_eq!(answer(&mut first).await.0.status(), StatusCode::CREATED);
        let mut third = one.begin("PUT", "/c", &[], b"c").await;
        third.finish().await.unwrap();
        assert_eq!(answer(&mut third).await.0.status(), StatusCode::CREATED);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_streams_of_a_connection_are_limited() {
    let server = Server::start(&["--max-uploads-per-connection", "2"]);
    let client = connect(server.port, &server.ca()).await.unwrap();
    let (mut first, mut receive) = client.send(&put("/a", None)).await;
    let _second = client.send(&put("/b", None)).await;
    let header = put("/c", None);
    let third = client.send(&header);
    tokio::pin!(third);
    let waits = poll_fn(|context| Poll::Ready(third.as_mut().poll(context).is_pending())).await;
    assert!(waits, "a third stream");
    first.finish().unwrap();
    assert!(raw::body(&mut receive).await.contains("sha256"));
    // The end of the first makes room.
    third.await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_of_unfinished_files_are_limited() {
    let mut server = Server::start(&["--max-unfinished-bytes", "100000"]);
    let mut client = Client::connect(server.port, &server.ca()).await;
    let mut first = client.begin("PUT", "/a", &[], &[7; 90_000]).await;
    server.wait_for("receiving");
    // After the first body has arrived whole, the announced length does not fit. Before that,
    // the announced bytes do not arrive.
    let (refusal, said) = loop {
        let mut second = client.begin("PUT", "/b", &[("content-length", "10001")], b"").await;
        let _ = second.finish().await;
        let (answered, said) = answer(&mut second).await;
        server.wait_for("refused");
        if answered.status() != StatusCode::BAD_REQUEST {
            break (answered, said);
        }
    };
    assert_eq!(refusal.status(), StatusCode::INSUFFICIENT_STORAGE, "{said}");
    assert!(refusal.headers().contains_key(RETRY_AFTER));
    // Without an announced length, the server counts received bytes.
    let mut third = client.begin("PUT", "/b", &[], &[7; 20_000]).await;
    assert_eq!(answer(&mut third).await.0.status(), StatusCode::INSUFFICIENT_STORAGE);
    server.wait_for("refused");
    assert_eq!(server.stored().len(), 1);
    first.stop_stream(h3::error::Code::H3_REQUEST_CANCELLED);
    server.wait_for("nothing was stored");
    let mut fourth = client.begin("PUT", "/c", &[], &[7; 100_000]).await;
    fourth.finish().await.unwrap();
    assert_eq!(answer(&mut fourth).await.0.status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stalls_or_trickles_is_refused() {
    let options = ["--stall-timeout", "1", "--min-progress", "1000", "--max-uploads", "1"];
    let mut server = Server::start(&options);
    for trickles in [false, true] {
        let client = connect(server.port, &server.ca()).await.unwrap();
        let (mut send, mut receive) = client
            .send(&[put("/x", Some(5000)), integer(DATA), integer(5000), vec![7; 500]].concat())
            .await;
        server.wait_for("receiving");
        let stopped = async {
            let mut ticks = interval(Duration::from_millis(20));
            while trickles && send.write_all(&[7]).await.is_ok() {
                ticks.tick().await;
            }
            send.stopped().await.unwrap()
        };
        assert_eq!(stopped.await, Some(VarInt::from_u32(H3_NO_ERROR)));
        let said = raw::body(&mut receive).await;
        assert!(said.contains("gained less than 1000 bytes in 1 s"), "{said}");
        assert!(server.stored().is_empty());
    }
    let mut client = Client::connect(server.port, &server.ca()).await;
    let mut stalled = client.begin("PUT", "/x", &[], b"x").await;
    assert_eq!(answer(&mut stalled).await.0.status(), StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_needs_a_request() {
    let server = Server::start(&["--request-timeout", "4", "--idle-timeout", "65535"]);
    let connect = || async { connect(server.port, &server.ca()).await.unwrap() };
    let idle = async {
        let client = connect().await;
        assert_closed(client.quic.closed().await, H3_NO_ERROR, "no request");
    };
    let endless_headers = async {
        let client = connect().await;
        let header = put("/x", None);
        let _stream = client.send(&header[..header.len() - 1]).await;
        assert_closed(client.quic.closed().await, H3_EXCESSIVE_LOAD, "did not end");
    };
    let stays_after_its_request = async {
        let client = connect().await;
        let (mut send, _receive) = client.send(&put("/x", None)).await;
        send.finish().unwrap();
        assert_closed(client.quic.closed().await, H3_NO_ERROR, "no request");
    };
    // All at once, because each takes as long as the timeout.
    tokio::join!(idle, endless_headers, stays_after_its_request);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_short_frame_is_kept() {
    let server = Server::start(&[]);
    for kind in [HEADERS, 0x21] {
        for before in [vec![], put("/x", None)] {
            let client = connect(server.port, &server.ca()).await.unwrap();
            let _stream = client.send(&[before, integer(kind), integer(1 << 30)].concat()).await;
            assert_closed(client.quic.closed().await, H3_EXCESSIVE_LOAD, "too long");
        }
    }
    let client = connect(server.port, &server.ca()).await.unwrap();
    // The server skips unknown frames, before the headers and in the body.
    let grease = frame(0x21, &[7; 10_000]);
    let body = [frame(DATA, b"ab"), frame(DATA, b""), grease.clone(), frame(DATA, b"c")].concat();
    let (mut send, mut receive) = client.send(&[grease, put("/x", None), body].concat()).await;
    send.finish().unwrap();
    let said = raw::body(&mut receive).await;
    assert!(
        said.contains("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_ends_between_frames() {
    let mut server = Server::start(&[]);
    let client = connect(server.port, &server.ca()).await.unwrap();
    let (mut send, _receive) =
        client.send(&[put("/x", None), integer(DATA), integer(5), b"abc".to_vec()].concat()).await;
    send.finish().unwrap();
    assert_closed(client.quic.closed().await, H3_FRAME_ERROR, "within a frame");
    server.wait_for("nothing was stored");
    assert!(server.stored().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_descriptors_continues() {
    let mut server = Server::start(&[]);
    let mut client = Client::connect(server.port, &server.ca()).await;
    let mut first = client.begin("PUT", "/a", &[], b"a").await;
    server.wait_for("receiving");
    let pid = Pid::from_raw(server.child.id().try_into().unwrap());
    let limit = |current| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        prlimit(pid, Resource::Nofile, Rlimit { current: Some(current), maximum })
            .unwrap()
            .current
            .unwrap()
    };
    let before = limit(1);
    let (refusal, said) = answer(&mut client.begin("PUT", "/b", &[], b"b").await).await;
    assert_eq!(refusal.status(), StatusCode::SERVICE_UNAVAILABLE, "{said}");
    first.finish().await.unwrap();
    assert_eq!(answer(&mut first).await.0.status(), StatusCode::CREATED);
    limit(before);
    let mut third = client.begin("PUT", "/c", &[], b"c").await;
    third.finish().await.unwrap();
    assert_eq!(answer(&mut third).await.0.status(), StatusCode::CREATED);
    assert_eq!(server.stored(), ["a", "c"]);
}

#[test]
fn the_limit_of_open_files_must_suffice() {
    let scratch = tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "ulimit -n 100; exec \"$@\"",
        "sh",
        env!("CARGO_BIN_EXE_h3-upload-server"),
    ]);
    command.arg("--dir").arg(scratch.path()).args([
        "--self-signed",
        "localhost",
        "--max-uploads",
        "100",
    ]);
    assert_complains(&command.output().unwrap(), "only 100 files can be open");
}
