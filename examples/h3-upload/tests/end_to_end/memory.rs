//! The server's memory with a hostile client.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::UdpSocket;

use crate::programs::Server;
use crate::raw::{DATA, connect_by, frame, integer, put};

/// The smallest window that the server accepts, in bytes.
const WINDOW: u64 = 65_536;

/// The server reads a body in DATA frames of one byte as it uses it, so flow control limits the
/// client.
#[tokio::test(flavor = "multi_thread")]
async fn short_frames_do_not_accumulate() {
    let server = Server::start(&["--window", &WINDOW.to_string()]);
    let client = crate::raw::connect(server.port, &server.ca()).await.unwrap();
    let (mut send, mut receive) = client.send(&put("/x", None)).await;
    let frames = frame(DATA, b"x").repeat(1000);
    let before = server.memory("VmHWM");
    for _ in 0..2000 {
        send.write_all(&frames).await.unwrap();
    }
    send.finish().unwrap();
    assert!(crate::raw::body(&mut receive).await.contains("\"bytes\":2000000"));
    let grown = server.memory("VmHWM") - before;
    println!("6 MB in short frames: {grown} KiB more");
    assert!(grown < 3 * 1024, "{grown} KiB");
}

/// Pieces of 60 bytes wait in the window for lost ones before them. Each could keep its whole
/// packet in memory.
#[tokio::test(flavor = "multi_thread")]
async fn gaps_cost_no_more_than_the_help_states() {
    const STREAMS: u64 = 32;
    const BIG: u64 = 8 << 20;
    let server = Server::start(&["--window", &BIG.to_string()]);
    let (relay, forwarded) = lossy(server.port).await;
    let client = connect_by(relay, &server.ca(), true).await.unwrap();
    let before = server.memory("VmHWM");
    let mut streams = Vec::new();
    for n in 0..STREAMS {
        let header = [put(&format!("/{n}"), None), integer(DATA), integer(1 << 40)].concat();
        streams.push(client.send(&header).await.0);
    }
    let piece = [7; 60];
    let enough = || forwarded.load(Ordering::Relaxed) > 2 * BIG;
    while !enough() && client.quic.close_reason().is_none() {
        for stream in &mut streams {
            // Flow control holds most of them back.
            tokio::select! {
                biased;
                _ = stream.write(&piece) => {}
                () = std::future::ready(()) => {}
            }
        }
        tokio::task::yield_now().await;
    }
    println!("{:?}", client.quic.close_reason());
    let grown = server.memory("VmHWM") - before;
    println!("a window of {} KiB: {grown} KiB", BIG / 1024);
    assert!(grown <= (BIG * 5 / 2 / 1024) + STREAMS * 250, "{grown} KiB");
}

/// A relay to `port` that loses two packets of three from the client. Returns its port, and how
/// many bytes it has forwarded.
async fn lossy(port: u16) -> (u16, Arc<AtomicU64>) {
    let near = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    far.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.unwrap();
    let own = near.local_addr().unwrap().port();
    let forwarded = Arc::<AtomicU64>::default();
    let count = Arc::clone(&forwarded);
    tokio::spawn(async move {
        let (mut up, mut down) = ([0; 2000], [0; 2000]);
        let (mut client, mut packets) = (None, 0_u64);
        loop {
            tokio::select! {
                Ok((len, from)) = near.recv_from(&mut up) => {
                    client = Some(from);
                    packets += 1;
                    // The handshake loses nothing.
                    if packets < 20 || packets.is_multiple_of(3) {
                        let _ = far.send(&up[..len]).await;
                        count.fetch_add(len as u64, Ordering::Relaxed);
                    }
                }
                Ok(len) = far.recv(&mut down) => {
                    if let Some(client) = client {
                        let _ = near.send_to(&down[..len], client).await;
                    }
                }
                else => break,
            }
        }
    });
    (own, forwarded)
}
