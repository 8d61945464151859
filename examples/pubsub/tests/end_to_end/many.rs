//! A thousand subscribers of a topic.

use bytes::Buf as _;
use http::Request;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::child::{PATIENCE, memory};
use crate::peer::{CONNECT, connect, endpoint};
use crate::programs::{Broker, PROTOCOLS};

const SUBSCRIBERS: usize = 1000;
/// The most memory that a subscriber may cost the broker, in KiB: twice the measured value.
const MOST_KIB: u64 = 120;

/// Subscribes to `t`, and reports twice: once it is subscribed, and once it has received `value`.
async fn subscribe(quic: quinn::Connection, protocol: &str, report: mpsc::Sender<Instant>) {
    match protocol {
        "mqtt" => {
            let (mut send, mut receive) = quic.open_bi().await.unwrap();
            send.write_all(CONNECT).await.unwrap();
            send.write_all(b"\x82\x07\x00\x01\x00\x00\x01t\x00").await.unwrap();
            let mut received = Vec::new();
            for packet in [&[0x90][..], b"value"] {
                while !received.windows(packet.len()).any(|window| window == packet) {
                    let chunk = receive.read_chunk(1000, true).await.unwrap().unwrap();
                    received.extend_from_slice(&chunk.bytes);
                }
                report.send(Instant::now()).await.unwrap();
            }
        }
        _ => {
            let quic = h3_quinn::Connection::new(quic);
            let (mut driver, mut sender) = h3::client::new(quic).await.unwrap();
            let driving = tokio::spawn(async move { driver.wait_idle().await });
            let request = Request::get("https://127.0.0.1/topics/t").body(()).unwrap();
            let mut stream = sender.send_request(request).await.unwrap();
            stream.finish().await.unwrap();
            stream.recv_response().await.unwrap();
            report.send(Instant::now()).await.unwrap();
            let mut received = Vec::new();
            while !received.ends_with(b"value") {
                let mut data = stream.recv_data().await.unwrap().unwrap();
                received.extend_from_slice(&data.copy_to_bytes(data.remaining()));
            }
            report.send(Instant::now()).await.unwrap();
            driving.abort();
        }
    }
}

/// The next report of a subscriber.
async fn next(reports: &mut mpsc::Receiver<Instant>) -> Instant {
    let report = timeout(PATIENCE, reports.recv()).await;
    report.expect("a subscriber waits for too long").expect("a subscriber failed")
}

#[test]
fn a_thousand_subscribers_receive_a_message_and_cost_little() {
    for protocol in PROTOCOLS {
        let broker = Broker::start(&["--max-per-client", "2000"]);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let before = memory(&broker.child, "VmRSS");
        let (report, mut reports) = mpsc::channel(SUBSCRIBERS);
        let alpn: &[u8] = if protocol == "mqtt" { b"mqtt" } else { b"h3" };
        runtime.block_on(async {
            let endpoint = endpoint();
            for _ in 0..SUBSCRIBERS {
                let quic = connect(&endpoint, &broker, alpn).await;
                tokio::spawn(subscribe(quic, protocol, report.clone()));
                next(&mut reports).await;
            }
        });
        // A subscriber that fails ends the reports.
        drop(report);
        let each = memory(&broker.child, "VmRSS").saturating_sub(before) / SUBSCRIBERS as u64;
        broker.publish("http3", "t", &["value"]);
        let mut arrivals: Vec<_> = runtime.block_on(async {
            let mut arrivals = Vec::new();
            while arrivals.len() < SUBSCRIBERS {
                arrivals.push(next(&mut reports).await);
            }
            arrivals
        });
        arrivals.sort();
        let spread = arrivals[SUBSCRIBERS - 1] - arrivals[0];
        println!(
            "{protocol}: {each} KiB for each of {SUBSCRIBERS} subscribers; the last has the \
             message {spread:?} after the first"
        );
        assert!(each <= MOST_KIB, "{protocol}: {each} KiB");
    }
}
