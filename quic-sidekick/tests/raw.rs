//! The plugin in an event loop of our own: two connections in memory, a proxy between them, and a
//! near segment that swallows chosen packets. All in virtual time, so that a busy machine changes
//! nothing.
#![allow(
    clippy::disallowed_methods,
    reason = "quiche and the loop around it read the virtual clock"
)]
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use quic_sidekick::{
    Assistance, Config, MAX_DATAGRAM_LEN, Mode, Paper, Reason, ReceiveState, Sidekick, Status,
    quiche,
};
use sidekick_protocol::wire::Cookie;
use sidekick_protocol::wire::discovery::{Answer, HANDLE_LEN, MARKER_LEN};
use sidekick_protocol::{Addresses, Flow, Observed, Observer, ObserverConfig, Payload, Route};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::{Duration, Instant};
use virtual_time::World;

virtual_time::in_force!();

/// The time of one round of the loop, in nanoseconds.
const ROUND: u64 = 100_000;

/// Packets that a sender sends in one round, so that the proxy reports between two bursts, not
/// between two windows.
const BURST: u64 = 32;

const SIZE: usize = 2 << 20;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn configs(controller: &str) -> (quiche::Config, quiche::Config) {
    let key = rcgen::generate_simple_self_signed(["example.org".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (cert_file, key_file) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert_file, key.cert.pem()).unwrap();
    std::fs::write(&key_file, key.signing_key.serialize_pem()).unwrap();
    let make = || {
        let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap();
        config.set_application_protos(&[b"test"]).unwrap();
        config.set_cc_algorithm_name(controller).unwrap();
        config.set_initial_max_data(1 << 24);
        config.set_initial_max_stream_data_bidi_remote(1 << 24);
        config.set_initial_max_stream_data_bidi_local(1 << 24);
        config.set_initial_max_streams_bidi(4);
        config.set_max_idle_timeout(20_000);
        config.verify_peer(false);
        config
    };
    let mut server = make();
    server.load_cert_chain_from_pem_file(cert_file.to_str().unwrap()).unwrap();
    server.load_priv_key_from_pem_file(key_file.to_str().unwrap()).unwrap();
    (make(), server)
}

#[cfg(feature = "qlog")]
#[path = "raw/qlog.rs"]
mod qlog;

/// The proxy that the plugin asks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proxy {
    /// There is no proxy.
    Absent,
    /// The proxy at a known address.
    Known,
    /// The proxy that the plugin discovers on the path, and whose answers come along the path.
    Found,
}

struct Run {
    status: Status,
    swallowed: u64,
    lost_end_to_end: usize,
}

/// The fate of the packets that the near segment swallows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Swallowed {
    /// They are lost.
    Lost,
    /// They pass, but not by the proxy: its reports are wrong.
    Hidden,
    /// Likewise, and the sender sends whole windows at once.
    HiddenInWindows,
}

/// Uploads `SIZE` bytes; of the packets after the first 100, every `nth` is swallowed before the
/// proxy.
fn upload(mode: Mode, controller: &str, nth: u64, proxy: Proxy) -> Run {
    upload_as(mode, controller, (nth, Swallowed::Lost), proxy, |_| {})
}

/// The same, with a fate of the swallowed packets, and an action on the client at first.
fn upload_as(
    mode: Mode,
    controller: &str,
    (nth, fate): (u64, Swallowed),
    proxy: Proxy,
    prepare: impl FnOnce(&mut quiche::Connection),
) -> Run {
    let world = World::enter(nth).unwrap();
    let mut time = 0;
    let (client_addr, server_addr) = (address("192.0.2.1:4000"), address("198.51.100.7:443"));
    let (proxy_addr, adjacent) = (address("192.0.2.254:5252"), address("192.0.2.1:5000"));
    let (mut client, mut server) = client_and_server(controller);
    prepare(&mut client);

    let config = match proxy {
        Proxy::Found => Config::discover(mode),
        Proxy::Known | Proxy::Absent => Config::new(proxy_addr, mode),
    };
    let with_proxy = proxy != Proxy::Absent;
    let mut sidekick = Sidekick::new(Config { every_packets: NonZeroU16::new(4), ..config });
    sidekick.attach(&mut client);
    let mut observer = Observer::new(ObserverConfig::default(), [3; 32]).unwrap();
    observer.set_addresses(Addresses::announcing(0, proxy_addr));
    let flow = Flow { source: client_addr, destination: server_addr };

    let content: Vec<u8> = (0..SIZE).map(|i| u8::try_from(i * 31 % 251).unwrap()).collect();
    let (mut written, mut received) = (0, Vec::new());
    let (mut packets, mut swallowed) = (0, 0);
    let mut buf = vec![0; 65_536];
    while received.len() < SIZE {
        assert!(
            !client.is_closed() && !server.is_closed(),
            "{:?} {:?}",
            client.local_error(),
            client.peer_error()
        );
        let mut moved = false;
        if client.is_established() && written < SIZE {
            match client.stream_send(0, &content[written..], true) {
                Ok(n) => written += n,
                Err(quiche::Error::Done) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let mut to_server = Vec::new();
        let round = packets;
        while (fate == Swallowed::HiddenInWindows || packets < round + BURST)
            && let Ok((len, _)) = client.send(&mut buf)
        {
            let datagram = &buf[..len];
            packets += 1;
            if datagram[0] & 0x80 == 0 && packets > 100 && packets % nth == 0 {
                swallowed += 1;
                if fate != Swallowed::Lost {
                    to_server.push(datagram.to_vec());
                }
                continue;
            }
            let seen = observer.observe(&flow, 0, Payload::whole(datagram), Instant::now());
            assert!(seen != Observed::Marker || proxy == Proxy::Found);
            to_server.push(datagram.to_vec());
        }
        moved |= packets > round;
        let mut drained = fate != Swallowed::HiddenInWindows && packets < round + BURST;
        drained &= !sidekick.on_sent(&mut client, Instant::now());

        // The near segment is quicker than the far one: the proxy answers first.
        let mut message = [0; MAX_DATAGRAM_LEN];
        while let Some(transmit) = sidekick.poll_transmit(&mut message).filter(|_| with_proxy) {
            let _ = observer.handle_input(adjacent, &message[..transmit.size], Instant::now());
        }
        observer.on_timeout(Instant::now());
        while let Some(transmit) = observer.poll_transmit(&mut message) {
            let datagram = &mut message[..transmit.size];
            match transmit.route {
                Route::Session | Route::SecondLink | Route::Stranger { .. } => {
                    let again =
                        sidekick.handle_input(datagram, proxy_addr, &mut client, Instant::now());
                    // Its result about the connection is right, if nothing was left to be sent
                    // before.
                    if !again && drained {
                        assert_eq!(client.send(&mut buf), Err(quiche::Error::Done));
                    }
                    drained &= !again;
                }
                Route::Path { source: from, .. } => {
                    let info = quiche::RecvInfo { from, to: transmit.destination };
                    assert_eq!(client.recv(datagram, info).unwrap(), transmit.size);
                }
            }
            moved = true;
        }
        sidekick.on_timeout(&mut client, Instant::now());

        let forward = quiche::RecvInfo { from: client_addr, to: server_addr };
        for mut datagram in to_server {
            server.recv(&mut datagram, forward).unwrap();
        }
        while let Ok((n, _)) = server.stream_recv(0, &mut buf) {
            received.extend_from_slice(&buf[..n]);
        }
        let back = quiche::RecvInfo { from: server_addr, to: client_addr };
        while let Ok((len, _)) = server.send(&mut buf) {
            client.recv(&mut buf[..len], back).unwrap();
            moved = true;
        }

        time += ROUND;
        if !moved {
            let next = [
                client.timeout_instant(),
                server.timeout_instant(),
                sidekick.poll_timeout(),
                observer.poll_timeout(),
            ];
            let next = next.into_iter().flatten().min().unwrap();
            let wait = next.saturating_duration_since(Instant::now());
            time += u64::try_from(wait.as_nanos()).unwrap();
        }
        world.set(Duration::from_nanos(time));
        for conn in [&mut client, &mut server] {
            if conn.timeout_instant().is_some_and(|at| at <= Instant::now()) {
                conn.on_timeout();
            }
        }
    }
    assert_eq!(received, content, "the bytes that arrived are those that were sent");
    Run { status: sidekick.status(), swallowed, lost_end_to_end: client.stats().lost }
}

#[test]
fn losses_before_the_proxy_are_found_before_the_receiver_reports_them() {
    let runs = [
        (Mode::Paper(Paper::EarlyLoss), "cubic"),
        (Mode::Paper(Paper::EarlyLoss), "bbr2_gcongestion"),
        (Mode::Paper(Paper::Pacubic), "cubic-rfc9438"),
        (Mode::Paper(Paper::PathAwareBbr), "bbr2_gcongestion"),
        (Mode::Reinject, "cubic"),
        (Mode::Reinject, "bbr2_gcongestion"),
        (Mode::Auto, "bbr2_gcongestion"),
    ];
    for (mode, controller) in runs {
        let run = upload(mode, controller, 20, Proxy::Known);
        let what = format!(
            "{mode}, {controller}: {:?}, {} swallowed, {} found end to end",
            run.status, run.swallowed, run.lost_end_to_end
        );
        println!("{what}");
        assert_eq!(run.status.assistance, Assistance::Assisted, "{what}");
        let early = run.status.stats.early_lost;
        assert!(
            early * 10 >= run.swallowed * 8 && early <= run.swallowed + run.swallowed / 10,
            "{what}"
        );
        assert!(run.status.stats.spurious * 10 <= early, "{what}");
        assert_eq!(run.status.chosen.is_some(), mode == Mode::Auto, "{what}");
    }
}

/// A client's and a server's connection before the handshake.
fn client_and_server(controller: &str) -> (quiche::Connection, quiche::Connection) {
    let (client_addr, server_addr) = (address("192.0.2.1:4000"), address("198.51.100.7:443"));
    let id = |byte: u8| quiche::ConnectionId::from_vec(vec![byte; 16]);
    let (mut client_config, mut server_config) = configs(controller);
    let name = Some("example.org");
    let client =
        quiche::connect(name, &id(1), client_addr, server_addr, &mut client_config).unwrap();
    let server =
        quiche::accept(&id(2), None, server_addr, client_addr, &mut server_config).unwrap();
    (client, server)
}

/// The hook shows no gaps to a server.
#[test]
fn only_a_client_receives_help() {
    let _world = World::enter(1).unwrap();
    let (mut client, mut server) = client_and_server("cubic");
    for (conn, state) in [(&mut client, ReceiveState::NotKept), (&mut server, ReceiveState::Off)] {
        let mut sidekick = Sidekick::new(Config::discover(Mode::Auto));
        sidekick.attach(conn);
        assert_eq!(sidekick.status().received.state, state);
    }
}

fn pass(from: &mut quiche::Connection, to: &mut quiche::Connection) {
    let mut datagram = [0; 1350];
    while let Ok((len, quiche::SendInfo { from, to: there, .. })) = from.send(&mut datagram) {
        to.recv(&mut datagram[..len], quiche::RecvInfo { from, to: there }).unwrap();
    }
}

fn shake_hands(client: &mut quiche::Connection, server: &mut quiche::Connection) {
    while !(client.is_established() && server.is_established()) {
        pass(client, server);
        pass(server, client);
    }
}

/// The rest of the window has room for the frame that closes the connection, and not for a packet
/// of data. The peer must not wait for its idle timeout.
#[test]
fn a_full_window_of_whole_packets_keeps_no_close_back() {
    let closes = |before: usize| {
        let _world = World::enter(1).unwrap();
        let (mut client, mut server) = client_and_server("cubic");
        client.sidekick_whole_packets(true);
        shake_hands(&mut client, &mut server);
        let mut datagram = [0; 1350];
        for len in [before, 100_000] {
            client.stream_send(0, &vec![7; len], false).unwrap();
            while client.send(&mut datagram).is_ok() {}
        }
        client.close(true, 0x100, b"").unwrap();
        let Ok((len, quiche::SendInfo { from, to, .. })) = client.send(&mut datagram) else {
            return false;
        };
        server.recv(&mut datagram[..len], quiche::RecvInfo { from, to }).unwrap();
        server.peer_error().is_some_and(|error| error.error_code == 0x100)
    };
    // The first packet determines the rest. It is sometimes too small for the frame, too.
    let closed = (1..=12).filter(|tenths| closes(tenths * 90)).count();
    assert!(closed >= 9, "{closed} of 12");
}

/// The log takes memory, and only the help uses it.
#[test]
fn a_connection_logs_no_packets_once_help_has_ended() {
    let ends: [Option<fn(&mut Sidekick)>; 3] =
        [None, Some(Sidekick::stop), Some(Sidekick::abandon)];
    for end in ends {
        let _world = World::enter(1).unwrap();
        let (mut client, mut server) = client_and_server("cubic");
        let mut sidekick = Sidekick::new(Config::discover(Mode::Auto));
        sidekick.attach(&mut client);
        shake_hands(&mut client, &mut server);
        if let Some(end) = end {
            end(&mut sidekick);
        }
        let _ = sidekick.on_sent(&mut client, Instant::now());
        client.stream_send(0, b"more", true).unwrap();
        pass(&mut client, &mut server);
        assert_eq!(client.sidekick_logged().is_empty(), end.is_some());
        // The server's next packet is lost, and the one after that shows the gap.
        server.stream_send(1, b"lost", false).unwrap();
        server.send(&mut [0; 1350]).unwrap();
        server.stream_send(1, b"next", false).unwrap();
        pass(&mut server, &mut client);
        assert_eq!(client.sidekick_has_gaps(), end.is_none());
    }
}

/// The connection works with any controller. Its status names one that does not suit the mode.
#[test]
fn a_controller_that_does_not_suit_the_mode_is_named() {
    for (mode, controller, expected) in [
        (Mode::Auto, "cubic", Some("cubic")),
        (Mode::Paper(Paper::Pacubic), "cubic", Some("cubic")),
        (Mode::Paper(Paper::PathAwareBbr), "reno", Some("reno")),
        (Mode::Paper(Paper::AckReduction), "bbr2_gcongestion", Some("bbr2_gcongestion")),
        (Mode::Paper(Paper::AckReduction), "reno", None),
        (Mode::Auto, "bbr2_gcongestion", None),
        (Mode::Reinject, "cubic", None),
    ] {
        let (mut conn, _) = client_and_server(controller);
        let mut sidekick = Sidekick::new(Config::discover(mode));
        sidekick.attach(&mut conn);
        assert_eq!(sidekick.status().other_controller, expected, "{mode} over {controller}");
    }
}

/// The mode is for a proxy near the receiver, and this one is not.
#[test]
fn ack_reduction_leaves_losses_to_the_receiver_at_an_unsuitable_proxy() {
    let run = upload(Mode::Paper(Paper::AckReduction), "cubic", 20, Proxy::Known);
    assert_eq!(run.status.assistance, Assistance::Assisted);
    assert!(run.status.stats.quacks_received > 100, "{:?}", run.status);
    assert_eq!(run.status.stats.early_lost, 0, "{:?}", run.status);
}

#[test]
fn wrong_reports_are_not_believed_for_long() {
    // With whole windows, more packets are missing between two reports than a quACK has sums for.
    for fate in [Swallowed::Hidden, Swallowed::HiddenInWindows] {
        let run =
            upload_as(Mode::Paper(Paper::EarlyLoss), "cubic", (3, fate), Proxy::Known, |_| {});
        let stats = run.status.stats;
        let stood_down = run.status.assistance == Assistance::Unassisted(Reason::StoodDown);
        let of_no_use = fate == Swallowed::HiddenInWindows && stats.undecodable > 0;
        assert!(stood_down || of_no_use, "{:?}", run.status);
        assert!(stats.early_lost <= stats.spurious + 20, "{stats:?}");
    }
}

#[test]
fn without_a_proxy_it_is_plain_quic() {
    let run = upload(Mode::Paper(Paper::Pacubic), "cubic-rfc9438", 50, Proxy::Absent);
    assert_ne!(run.status.assistance, Assistance::Assisted);
    assert_eq!((run.status.stats.early_lost, run.status.stats.quacks_received), (0, 0));
    assert!(run.lost_end_to_end > 0);
}

/// The marker leaves among the connection's packets, and the server drops it. The plugin takes the
/// answer from the arriving datagrams.
#[test]
fn a_proxy_on_the_path_is_found() {
    for (mode, controller) in [
        (Mode::Paper(Paper::Pacubic), "cubic-rfc9438"),
        (Mode::Paper(Paper::PathAwareBbr), "bbr2_gcongestion"),
    ] {
        let run = upload(mode, controller, 20, Proxy::Found);
        assert_eq!(run.status.assistance, Assistance::Assisted);
        assert_eq!(run.status.proxy.map(|(proxy, _)| proxy), Some(address("192.0.2.254:5252")));
        assert!((1..=3).contains(&run.status.stats.markers), "{:?}", run.status);
        assert!(run.status.stats.early_lost * 10 >= run.swallowed * 7, "{:?}", run.status);
    }
}

/// A socket that several connections share passes an answer to the connection that sent the marker,
/// although the connection ID is masked.
#[test]
fn an_answer_is_routed_by_the_connection_id_under_its_mask() {
    let mut handle = [0; HANDLE_LEN];
    handle[..16].copy_from_slice(&[0xc1; 16]);
    let ends = |source: &str, destination: &str| Flow {
        source: address(source),
        destination: address(destination),
    };
    for flow in [
        ends("192.0.2.1:4000", "198.51.100.7:443"),
        ends("[2001:db8::1]:4000", "[2001:db8:1::7]:443"),
    ] {
        let (proxy, cookie) = (address("192.0.2.254:5252"), Cookie([0x5a; Cookie::LEN]));
        let answer = Answer { handle, nonce: [7; 16], proxy, flow, cookie };
        let mut datagram = [0; MARKER_LEN];
        let len = answer.emit(&mut datagram).unwrap();
        assert_ne!(datagram[1..21], handle);
        for id_len in [0, 8, 16, 20] {
            let header = quiche::Header::from_slice(&mut datagram[..len], id_len).unwrap();
            assert_eq!(header.dcid.as_ref(), &handle[..id_len]);
        }
        // Any other datagram has an ordinary short header.
        datagram[0] = 0x46;
        let header = quiche::Header::from_slice(&mut datagram[..len], 20).unwrap();
        assert_eq!(header.dcid.as_ref(), &datagram[1..21]);
    }
}
