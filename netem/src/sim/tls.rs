//! The settings of a QUIC connection: TLS, transport parameters, congestion control.

use std::net::SocketAddr;

use boring::pkey::PKey;
use boring::ssl::{SslContextBuilder, SslMethod};
use boring::x509::X509;
use quic_sidekick::quiche::{self, Config, Connection, ConnectionId, RecvInfo};
use quic_sidekick::tune::{Help, Tune, Tuned};

use crate::scenario::{Cipher, CongestionControl, Flow, FlowKind};

/// The receiver's identity, for simulations only. It is an RSA key, because RSA signatures always
/// have the same length.
const CERTIFICATE: &[u8] = include_bytes!("identity/cert.pem");
const KEY: &[u8] = include_bytes!("identity/key.pem");

/// The window of a connection has room for this many streams.
const STREAMS_OF_ROOM: u64 = 4;
/// The idle timeout of the real programs.
const IDLE_TIMEOUT_MS: u64 = 30_000;
const STREAMS: u64 = 100;
/// All servers have the same key, so any server of a run resumes the sessions of any other.
const TICKET_KEY: [u8; 48] = [0x5a; 48];

/// The name in the receiver's certificate.
pub(super) const SERVER_NAME: &str = "receiver.example";
/// The most rounds of an exchange. A handshake with its session tickets takes two.
const SESSION_ROUNDS: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Server,
}

/// The congestion controller's name in quiche.
pub(super) fn controller_name(cc: CongestionControl) -> &'static str {
    match cc {
        CongestionControl::Bbr2 => "bbr2_gcongestion",
        CongestionControl::Hybla => "hybla",
        other => other.name(),
    }
}

/// The tuned settings of an end of this flow, if it is tuned. The scenario sets the controller and
/// the help.
pub(super) fn tuned(flow: &Flow, role: Role, cc: CongestionControl) -> Option<Tuned> {
    let object = match (flow.kind, role) {
        (FlowKind::Upload, Role::Client) | (FlowKind::Download, Role::Server) => Some(flow.bytes),
        _ => None,
    };
    let end = match role {
        Role::Client => Tune { network: flow.network, ..Tune::client() },
        Role::Server => Tune::server(),
    };
    let controller = Some(controller_name(cc));
    flow.tune.then(|| Tune { object, controller, help: Help::Off, ..end }.choose())
}

/// The configuration of a connection of this flow.
pub(super) fn config(flow: &Flow, role: Role, cc: CongestionControl) -> Result<Config, String> {
    // The default window has room for 100 Mbit/s at 200 ms several times over, like that of the
    // real programs.
    let window = u64::from(flow.window_bytes);
    let tls = context(flow.cipher, role).map_err(|error| error.to_string())?;
    let build = || -> quiche::Result<Config> {
        let mut config = Config::with_boring_ssl_ctx_builder(quiche::PROTOCOL_VERSION, tls)?;
        config.set_application_protos(quiche::h3::APPLICATION_PROTOCOL)?;
        config.verify_peer(false);
        config.set_cc_algorithm_name(controller_name(cc))?;
        config.set_max_idle_timeout(IDLE_TIMEOUT_MS);
        config.set_max_recv_udp_payload_size(1500);
        config.set_max_send_udp_payload_size(flow.payload_bytes.into());
        config.discover_pmtu(flow.pmtud);
        config.set_initial_max_data(STREAMS_OF_ROOM * window);
        config.set_max_connection_window(STREAMS_OF_ROOM * window);
        config.set_initial_max_stream_data_bidi_local(window);
        config.set_initial_max_stream_data_bidi_remote(window);
        config.set_initial_max_stream_data_uni(window);
        config.set_max_stream_window(window);
        config.set_initial_max_streams_bidi(STREAMS);
        config.set_initial_max_streams_uni(STREAMS);
        let ack_delay_ms = u64::try_from(flow.ack_delay.as_millis()).unwrap_or(u64::MAX);
        config.set_max_ack_delay(ack_delay_ms.clamp(1, (1 << 14) - 1));
        if let Some(tuned) = tuned(flow, role, cc) {
            tuned.apply(&mut config)?;
        }
        if flow.zero_rtt {
            config.enable_early_data();
            config.set_ticket_key(&TICKET_KEY)?;
        }
        Ok(config)
    };
    build().map_err(|error| error.to_string())
}

/// A session to resume, from an earlier connection to the same server. That connection has no path
/// and takes no time.
pub(super) fn session(flow: &Flow, cc: CongestionControl) -> Result<Vec<u8>, String> {
    let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let (local, peer) = (address(1), address(2));
    let id = |byte| ConnectionId::from_vec(vec![byte; 8]);
    let converse = || -> quiche::Result<Option<Vec<u8>>> {
        let setting_up = |_| quiche::Error::TlsFail;
        let mut of_client = config(flow, Role::Client, cc).map_err(setting_up)?;
        let mut client = quiche::connect(Some(SERVER_NAME), &id(1), local, peer, &mut of_client)?;
        let mut of_server = config(flow, Role::Server, cc).map_err(setting_up)?;
        let mut server = quiche::accept(&id(2), None, peer, local, &mut of_server)?;
        let mut buffer = [0; 1500];
        for _ in 0..SESSION_ROUNDS {
            pass_on(&mut client, &mut server, &mut buffer)?;
            pass_on(&mut server, &mut client, &mut buffer)?;
            if let Some(session) = client.session() {
                return Ok(Some(session.to_vec()));
            }
        }
        Ok(None)
    };
    let session =
        converse().map_err(|error| format!("cannot make a session to resume: {error}"))?;
    session.ok_or_else(|| "the server gave no session to resume".to_owned())
}

fn pass_on(from: &mut Connection, to: &mut Connection, buffer: &mut [u8]) -> quiche::Result<()> {
    loop {
        match from.send(buffer) {
            Ok((length, info)) => {
                to.recv(
                    buffer.get_mut(..length).unwrap_or_default(),
                    RecvInfo { from: info.from, to: info.to },
                )?;
            }
            Err(quiche::Error::Done) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn context(cipher: Cipher, role: Role) -> Result<SslContextBuilder, boring::error::ErrorStack> {
    let mut context = SslContextBuilder::new(SslMethod::tls())?;
    if role == Role::Server {
        context.set_certificate(X509::from_pem(CERTIFICATE)?.as_ref())?;
        context.set_private_key(PKey::private_key_from_pem(KEY)?.as_ref())?;
    }
    choose(&mut context, cipher);
    Ok(context)
}

/// Offers and accepts only this cipher suite. The `boring` crate has no function for it.
#[allow(unsafe_code, reason = "one call of BoringSSL, with its SAFETY comment")]
fn choose(context: &mut SslContextBuilder, cipher: Cipher) {
    let suite: u16 = match cipher {
        Cipher::Aes => 0x1301,
        Cipher::Chacha20 => 0x1303,
    };
    // SAFETY: the context lives, and BoringSSL copies the number during the call. The flags may be
    // null.
    let done = unsafe {
        boring_sys::SSL_CTX_set1_tls13_ciphers(
            context.as_ptr(),
            &raw const suite,
            std::ptr::null(),
            1,
        )
    };
    debug_assert_eq!(done, 1, "RFC 8446 defines both suites");
}
