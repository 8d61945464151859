//! The time limits of a connection, by tokio's paused clock.

use super::*;
use bytes::Bytes;
use mqtt5_protocol::packet::MqttPacket;
use mqtt5_protocol::packet::connect::ConnectPacket;
use mqtt5_protocol::packet::pingreq::PingReqPacket;
use mqtt5_protocol::packet::puback::PubAckPacket;
use mqtt5_protocol::packet::publish::PublishPacket;
use mqtt5_protocol::packet::subscribe::SubscribePacket;
use mqtt5_protocol::{ConnectOptions, QoS};
use tokio::io::duplex;
use tokio::time::Instant;

use crate::broker::topics::tests::{broker, client};
use crate::mqtt::write;

/// Far longer than any time limit of the broker.
const LONG: Duration = Duration::from_secs(3600);

fn bytes(packet: &impl MqttPacket) -> Bytes {
    let mut out = BytesMut::new();
    write(packet, &mut out);
    out.freeze()
}

fn connect(keep_alive: u64) -> Bytes {
    let options = ConnectOptions::new("c").with_keep_alive(Duration::from_secs(keep_alive));
    bytes(&ConnectPacket::new(options))
}

/// How the broker's end of the connection ends, in words, and after how many seconds. The client
/// sends each part of `script` after a pause in seconds, and reads nothing. There is room for
/// `room` bytes on their way to it. `None` if the connection does not end.
async fn ending(
    room: usize,
    script: Vec<(u64, Bytes)>,
    session: &mut Session<'_>,
) -> Option<(String, u64)> {
    let (mut send, _unread) = duplex(room);
    let (mut receive, mut client) = duplex(1 << 20);
    let began = Instant::now();
    let converses = timeout(LONG, converse(session, &mut send, &mut receive));
    let sends = async {
        for (pause, bytes) in script {
            sleep(Duration::from_secs(pause)).await;
            client.write_all(&bytes).await.unwrap();
        }
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = converses => ended.ok()?,
        () = sends => return None,
    };
    let words = match ended {
        Ok(End::Left) => "left".to_owned(),
        Ok(End::Refused(reason)) => reason,
        Err(error) => error.to_string(),
    };
    Some((words, began.elapsed().as_secs()))
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_connection() {
    const SILENT: &str = "the client was silent for too long";
    let broker = broker(&[]);
    let ping = bytes(&PingReqPacket::default());
    // Pieces of CONNECT do not extend its time limit.
    let pieces = connect(0).chunks(1).map(|piece| (7, Bytes::copy_from_slice(piece))).collect();
    // Each packet begins the time again. It is 15 s: one and a half times Keep Alive.
    let pings = vec![(20, connect(10)), (14, ping.clone()), (14, ping)];
    for (script, ended) in [
        (pieces, Some((SILENT.to_owned(), PATIENCE.as_secs()))),
        (pings, Some((SILENT.to_owned(), 20 + 14 + 14 + 15))),
        (vec![(0, connect(0))], None),
    ] {
        let mut session = Session::new(&broker, client(1));
        assert_eq!(ending(1000, script, &mut session).await, ended);
    }
}

#[tokio::test(start_paused = true)]
async fn a_backlog_delays_neither_the_clients_packets_nor_the_end_for_long() {
    let broker = broker(&[]);
    let mut publisher = Session::new(&broker, client(2));
    let mut out = BytesMut::new();
    publisher.receive(&connect(0), &mut out).unwrap();
    let mut session = Session::new(&broker, client(1));
    let subscribe = SubscribePacket::new(1).add_filter("t", QoS::AtLeastOnce);
    let both = [connect(0), bytes(&subscribe)].concat();
    session.receive(&both, &mut out).unwrap();
    for _ in 0..100 {
        let message = PublishPacket::new("t", vec![0; 1000], QoS::AtMostOnce);
        publisher.receive(&bytes(&message), &mut out).unwrap();
    }
    // A PUBACK of no message is an error, which the broker notices behind the backlog. The last
    // packet must wait for the client only so long.
    let script = vec![(5, bytes(&PubAckPacket::new(999)))];
    let (ended, after) = ending(10, script, &mut session).await.unwrap();
    assert!(ended.starts_with("PUBACK of another"), "{ended}");
    assert_eq!(after, 5 + CLOSE_TIMEOUT.as_secs());
}
