//! The two ends of a connection.
//!
//! The parent module names the crate that makes them: `engine`.

use std::net::SocketAddr;

use super::engine::{self as quiche, Config, Connection, ConnectionId};

/// A client and a server before their first datagram.
pub fn ends(controller: &str) -> (Connection, Connection) {
    let mut config = config(controller);
    let (client_id, server_id) =
        (ConnectionId::from_ref(&[1; 16]), ConnectionId::from_ref(&[2; 16]));
    let client = quiche::connect(None, &client_id, addresses(true), addresses(false), &mut config);
    let server = quiche::accept(&server_id, None, addresses(false), addresses(true), &mut config);
    (client.unwrap(), server.unwrap())
}

fn config(controller: &str) -> Config {
    let mut config = Config::new(quiche::PROTOCOL_VERSION).unwrap();
    let example = |name: &str| format!("{}/examples/{name}", env!("QUICHE_PRISTINE"));
    config.load_cert_chain_from_pem_file(&example("cert.crt")).unwrap();
    config.load_priv_key_from_pem_file(&example("cert.key")).unwrap();
    config.verify_peer(false);
    config.set_application_protos(&[b"test"]).unwrap();
    config.set_cc_algorithm_name(controller).unwrap();
    config.set_max_idle_timeout(300_000);
    config.set_initial_max_data(10_000_000);
    config.set_initial_max_stream_data_bidi_remote(10_000_000);
    config.set_initial_max_streams_bidi(1);
    config.set_max_recv_udp_payload_size(1350);
    config.set_max_send_udp_payload_size(1350);
    config
}

/// The address of the client, or that of the server.
pub fn addresses(client: bool) -> SocketAddr {
    if client {
        ([10, 0, 0, 1], 1234).into()
    } else {
        ([10, 0, 0, 2], 4433).into()
    }
}
