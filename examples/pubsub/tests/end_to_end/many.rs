//! A thousand subscribers of a topic.

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::child::{PATIENCE, memory};
use crate::peer::{CONNECT, SUBSCRIBE, Stream, connect, endpoint};
use crate::programs::Broker;

const SUBSCRIBERS: usize = 1000;
/// The most memory that a subscriber may cost the broker, in KiB: twice the measured value.
const MOST_KIB: u64 = 120;
/// HTTP/3: a control stream with empty SETTINGS, and HEADERS of a GET of `/topics/t`, by QPACK's
/// static table.
const SETTINGS: &[u8] = b"\x00\x04\x00";
const GET: &[u8] = b"\x01\x1a\x00\x00\xd1\xd7\x50\x09127.0.0.1\x51\x09/topics/t";

/// Subscribes to `t`, and reports twice: once it is subscribed, and once it has received `value`.
async fn subscribe(quic: quinn::Connection, mqtt: bool, report: mpsc::Sender<Instant>) {
    let mut control = quic.open_uni().await.unwrap();
    let (mut stream, accepted) = if mqtt {
        (Stream::begin(&quic, &[CONNECT, SUBSCRIBE].concat()).await, b"\x90")
    } else {
        control.write_all(SETTINGS).await.unwrap();
        // The answer's HEADERS.
        (Stream::begin(&quic, GET).await, b"\x01")
    };
    for bytes in [&accepted[..], b"value"] {
        stream.read_until(bytes).await;
        report.send(Instant::now()).await.unwrap();
    }
}

/// The next report of a subscriber.
async fn next(reports: &mut mpsc::Receiver<Instant>) -> Instant {
    let report = timeout(PATIENCE, reports.recv()).await;
    report.expect("a subscriber waits for too long").expect("a subscriber failed")
}

#[test]
fn a_thousand_subscribers_receive_a_message_and_cost_little() {
    for protocol in [&b"h3"[..], b"mqtt"] {
        let broker = Broker::start(&["--max-per-client", "2000"]);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let before = memory(&broker.child, "VmRSS");
        let (report, mut reports) = mpsc::channel(SUBSCRIBERS);
        runtime.block_on(async {
            let endpoint = endpoint();
            for _ in 0..SUBSCRIBERS {
                let quic = connect(&endpoint, &broker, protocol).await;
                tokio::spawn(subscribe(quic, protocol == b"mqtt", report.clone()));
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
        let protocol = String::from_utf8_lossy(protocol);
        println!(
            "{protocol}: {each} KiB for each of {SUBSCRIBERS} subscribers; the last has the \
             message {spread:?} after the first"
        );
        assert!(each <= MOST_KIB, "{protocol}: {each} KiB");
    }
}
