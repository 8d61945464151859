use super::*;
use proptest::prelude::*;

fn reasons(tune: Tune) -> Vec<String> {
    tune.choose().choices().map(|choice| choice.to_string()).collect()
}

#[test]
fn without_facts_the_choices_suit_any_path() {
    let tuned = Tune::client().choose();
    assert_eq!((tuned.payload(), tuned.discovers_mtu()), (1452, true));
    assert_eq!(tuned.ack_delay_ms(), 25);
    assert_eq!((tuned.controller(), tuned.pacing()), ("bbr2_gcongestion", true));
    assert_eq!(tuned.initial_window(), 32);
    assert_eq!(tuned.initial_rtt(), Duration::from_millis(333));
    assert_eq!((tuned.stream_window(), tuned.connection_window()), (16 << 20, 24 << 20));
    assert_eq!(tuned.mode(), Some(Mode::Auto));
    assert_eq!(Tune::server().choose().mode(), None);
}

#[test]
fn the_initial_rtt_is_no_shorter_than_the_path() {
    let initial = |tune: Tune| tune.choose().initial_rtt().as_millis();
    assert_eq!(initial(Tune { network: Network::Geo, ..Tune::client() }), 700);
    let ms = |ms| Some(Duration::from_millis(ms));
    for (rtt, expected) in [(0, 333), (1, 10), (40, 50), (600, 750), (60_000, 10_000)] {
        assert_eq!(initial(Tune { rtt: ms(rtt), ..Tune::client() }), expected);
    }
    // A measured round trip overrides the network's typical one.
    let measured = Tune { rtt: ms(40), network: Network::Geo, ..Tune::client() };
    assert_eq!(initial(measured), 50);
    assert_eq!(initial(Tune { initial_rtt: ms(90), ..measured }), 90);
}

#[test]
fn windows_hold_twice_the_path() {
    let of = |rate, ms| {
        let rtt = Some(Duration::from_millis(ms));
        Tune { rate: Some(rate), rtt, ..Tune::client() }.choose()
    };
    assert_eq!(of(100_000_000, 200).stream_window(), 5_000_000);
    assert_eq!(of(1_000, 1).stream_window(), 1 << 20);
    assert_eq!(of(u64::MAX, 60_000).stream_window(), 64 << 20);
    let messages = Tune { traffic: Traffic::Messages, ..Tune::client() }.choose();
    assert_eq!(messages.stream_window(), 1 << 20);
}

#[test]
fn the_initial_window_is_no_more_than_the_path_holds() {
    let of = |rate| {
        let rtt = Some(Duration::from_millis(100));
        Tune { rate: Some(rate), rtt, ..Tune::client() }.choose().initial_window()
    };
    // 25,000 bytes.
    assert_eq!([500_000, 2_000_000, 100_000_000].map(of), [10, 17, 32]);
    // quiche paces no other controller.
    let cubic = Tune { controller: Some("cubic"), ..Tune::client() }.choose();
    assert_eq!(cubic.initial_window(), 10);
}

#[test]
fn only_what_fits_in_the_initial_window_leaves_at_once() {
    let of = |bytes| Tune { object: Some(bytes), ..Tune::client() }.choose();
    assert_eq!((of(10_000).pacing(), of(10_000).initial_window()), (false, 10));
    assert_eq!((of(10_001).pacing(), of(10_001).initial_window()), (true, 32));
}

#[test]
fn mode_and_controller_go_together() {
    for network in Network::ALL {
        for controller in [None, Some("cubic"), Some("reno"), Some("bbr2_gcongestion")] {
            for help in Mode::ALL.iter().copied().map(Help::Mode).chain([Help::Choose, Help::Off]) {
                let tune = Tune { network, controller, help, ..Tune::client() };
                let tuned = tune.choose();
                let both_own = controller.is_some() && matches!(help, Help::Mode(_));
                let suits = tuned.mode().is_none_or(|mode| mode.suits(tuned.controller()));
                assert!(suits || both_own, "{tune:?}: {tuned:?}");
            }
        }
    }
    let mode = |network, controller| Tune { network, controller, ..Tune::client() }.choose().mode();
    assert_eq!(mode(Network::Wired, Some("cubic")), None);
    assert_eq!(mode(Network::WiFi, Some("cubic")), Some(Mode::Receive));
    assert_eq!(mode(Network::WiFi, Some("bbr2_gcongestion")), Some(Mode::Auto));
}

#[test]
fn the_interface_bounds_the_payload() {
    let payload = |mtu| Tune { mtu: Some(mtu), ..Tune::client() }.choose().payload();
    assert_eq!([0, 1280, 1400, 9000, u16::MAX].map(payload), [1232, 1232, 1352, 8952, 65_487]);
    let own = Tune { payload: Some(100), mtu: Some(9000), ..Tune::client() }.choose();
    assert_eq!((own.payload(), own.discovers_mtu()), (1200, false));
}

#[test]
fn every_choice_is_a_sentence_with_its_reason() {
    let all = reasons(Tune { network: Network::Geo, payload: Some(1350), ..Tune::client() });
    assert_eq!(all.len(), 10);
    assert!(all.contains(&"UDP payload 1350 bytes: the application decided so".to_owned()));
    assert!(all.contains(&"initial RTT 700 ms: a geostationary path is that long".to_owned()));
    assert!(reasons(Tune::client())[0].starts_with("UDP payload up to 1452 bytes: "), "{all:?}");
}

#[test]
fn names_of_networks_read_back() {
    for network in Network::ALL {
        assert_eq!(network.to_string().parse(), Ok(network));
    }
    assert_eq!("lte".parse::<Network>(), Err(ParseNetworkError));
}

#[test]
fn an_unknown_controller_changes_nothing() {
    let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap();
    let tune = Tune { controller: Some("vegas"), ..Tune::client() };
    assert_eq!(tune.apply(&mut config), Err(quiche::Error::CongestionControl));
}

proptest! {
    #[test]
    fn any_knowledge_gives_settings_that_quiche_accepts(
        object: Option<u64>, rtt: Option<Duration>, rate: Option<u64>, mtu: Option<u16>,
        payload: Option<u16>, ack_delay: Option<Duration>, pacing: Option<bool>,
        initial_window: Option<u16>, initial_rtt: Option<Duration>, window: Option<u64>,
    ) {
        let tune = Tune {
            object, rtt, rate, mtu, payload, ack_delay, pacing, initial_window, initial_rtt, window,
            ..Tune::client()
        };
        let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap();
        let tuned = tune.apply(&mut config).unwrap();
        prop_assert!((1200..=65_527).contains(&tuned.payload()));
        prop_assert!(tuned.ack_delay_ms() < 1 << 14);
        prop_assert!(tuned.initial_window() >= 2);
        prop_assert!((1..=10_000).contains(&tuned.initial_rtt().as_millis()));
        prop_assert!(tuned.connection_window() < 1 << 62);
    }
}

/// Passes on all that `from` sends.
fn pass_on(from: &mut quiche::Connection, to: &mut quiche::Connection) {
    let mut buffer = [0; 1500];
    while let Ok((length, info)) = from.send(&mut buffer) {
        let info = quiche::RecvInfo { from: info.from, to: info.to };
        to.recv(&mut buffer[..length], info).unwrap();
    }
}

/// A client and a server in memory, both tuned, after their handshake.
fn pair() -> (quiche::Connection, quiche::Connection) {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["example.org".to_owned()]).unwrap();
    std::fs::write(file("cert"), cert.pem()).unwrap();
    std::fs::write(file("key"), signing_key.serialize_pem()).unwrap();
    let config = |tune: Tune| {
        let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap();
        config.set_application_protos(&[b"test"]).unwrap();
        config.verify_peer(false);
        tune.apply(&mut config).unwrap();
        config
    };
    let id = |byte| quiche::ConnectionId::from_vec(vec![byte; 16]);
    let (local, peer) = (([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into());
    let mut of_client = config(Tune::client());
    let mut client =
        quiche::connect(Some("example.org"), &id(1), local, peer, &mut of_client).unwrap();
    let mut of_server = config(Tune::server());
    of_server.load_cert_chain_from_pem_file(&file("cert")).unwrap();
    of_server.load_priv_key_from_pem_file(&file("key")).unwrap();
    let mut server = quiche::accept(&id(2), None, peer, local, &mut of_server).unwrap();
    for _ in 0..10 {
        pass_on(&mut client, &mut server);
        pass_on(&mut server, &mut client);
    }
    (client, server)
}

#[test]
fn tuned_ends_find_the_payload_and_the_preferred_cipher() {
    let (mut client, server) = pair();
    assert_eq!((client.pmtu(), server.pmtu()), (Some(1452), Some(1452)));
    let cipher = client.as_mut().current_cipher().unwrap().name().to_owned();
    let expected = match Cipher::preferred() {
        Cipher::Aes => "AES128",
        Cipher::ChaCha20 => "CHACHA20",
    };
    assert!(cipher.replace('_', "").contains(expected), "{cipher}");
}
