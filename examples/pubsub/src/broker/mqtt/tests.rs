//! The time limits of a connection, by tokio's paused clock.

use super::*;
use mqtt5_protocol::packet::MqttPacket;
use mqtt5_protocol::packet::connect::ConnectPacket;
use mqtt5_protocol::packet::pingreq::PingReqPacket;
use mqtt5_protocol::packet::puback::PubAckPacket;
use mqtt5_protocol::packet::publish::PublishPacket;
use mqtt5_protocol::packet::subscribe::SubscribePacket;
use mqtt5_protocol::{ConnectOptions, QoS};
use tokio::time::Instant;

use crate::broker::tests::{broker, client};
use crate::mqtt::write;

/// Far longer than any time limit of the broker.
const LONG: Duration = Duration::from_secs(3600);

/// What a client sends, each after a pause. It then waits forever.
struct Script(std::vec::IntoIter<(Duration, Bytes)>);

impl Arrivals for Script {
    async fn next(&mut self) -> Result<Option<Bytes>, ReadError> {
        match self.0.as_slice() {
            [] => std::future::pending().await,
            [(pause, _), ..] => {
                // A cancelled pause begins again.
                sleep(*pause).await;
                Ok(self.0.next().map(|(_, bytes)| bytes))
            }
        }
    }
}

fn bytes(packet: &impl MqttPacket) -> Bytes {
    let mut out = BytesMut::new();
    write(packet, &mut out);
    out.freeze()
}

fn connect(keep_alive: u64) -> Bytes {
    let options = ConnectOptions::new("c").with_keep_alive(Duration::from_secs(keep_alive));
    bytes(&ConnectPacket::new(options))
}

/// How the broker's end of the connection ends, and after how long. The client reads nothing, and
/// there is room for `room` bytes on their way to it. `None` if the connection does not end.
async fn ending(
    room: usize,
    script: Vec<(u64, Bytes)>,
    session: &mut Session<'_>,
) -> Option<(Result<End, Broken>, Duration)> {
    let (mut send, _unread) = tokio::io::duplex(room);
    let script: Vec<_> =
        script.into_iter().map(|(pause, bytes)| (Duration::from_secs(pause), bytes)).collect();
    let mut script = Script(script.into_iter());
    let began = Instant::now();
    let ended = timeout(LONG, converse(session, 1 << 20, &mut send, &mut script)).await.ok()?;
    Some((ended, began.elapsed()))
}

#[tokio::test(start_paused = true)]
async fn pieces_of_connect_do_not_extend_its_time_limit() {
    let broker = broker(&[]);
    let mut session = Session::new(&broker, client(1));
    let pieces = connect(0).chunks(1).map(|piece| (7, Bytes::copy_from_slice(piece))).collect();
    let (ended, after) = ending(1000, pieces, &mut session).await.unwrap();
    assert!(matches!(ended, Err(Broken::Silent)), "{ended:?}");
    assert_eq!(after, PATIENCE);
}

#[tokio::test(start_paused = true)]
async fn each_packet_begins_the_time_of_silence_again() {
    let broker = broker(&[]);
    let mut session = Session::new(&broker, client(1));
    let ping = bytes(&PingReqPacket::default());
    // The time limit is 15 s: one and a half times Keep Alive.
    let script = vec![(20, connect(10)), (14, ping.clone()), (14, ping)];
    let (ended, after) = ending(1000, script, &mut session).await.unwrap();
    assert!(matches!(ended, Err(Broken::Silent)), "{ended:?}");
    assert_eq!(after, Duration::from_secs(20 + 14 + 14 + 15));
}

#[tokio::test(start_paused = true)]
async fn a_client_without_keep_alive_may_be_silent() {
    let broker = broker(&[]);
    let mut session = Session::new(&broker, client(1));
    assert!(ending(1000, vec![(0, connect(0))], &mut session).await.is_none());
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
    assert!(matches!(ended, Ok(End::Refused(_))), "{ended:?}");
    assert_eq!(after, Duration::from_secs(5) + CLOSE_TIMEOUT);
}
