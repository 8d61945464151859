//! The choices for tokio-quiche, which keeps its `quiche::Config` to itself.

use super::Tuned;
use ::tokio_quiche::settings::QuicSettings;
use quiche::sidekick::with_initial_rtt;
use std::future::{Future, poll_fn};
use std::pin::pin;

impl Tuned {
    /// Sets tokio-quiche's settings by the choices. It leaves out the cipher, the Sidekick mode and
    /// the initial round trip. [`connect`](Self::connect) sets the last. A server keeps 333 ms.
    pub fn apply_to_settings(&self, settings: &mut QuicSettings) {
        settings.cc_algorithm = self.controller().to_owned();
        settings.enable_pacing = self.pacing();
        settings.initial_congestion_window_packets = self.initial_window().into();
        settings.max_send_udp_payload_size = self.payload().into();
        settings.max_recv_udp_payload_size = self.payload().into();
        settings.discover_path_mtu = self.discovers_mtu();
        settings.max_ack_delay = self.ack_delay_ms();
        settings.initial_max_stream_data_bidi_local = self.stream_window();
        settings.initial_max_stream_data_bidi_remote = self.stream_window();
        settings.initial_max_stream_data_uni = self.stream_window();
        settings.max_stream_window = self.stream_window();
        settings.initial_max_data = self.connection_window();
        settings.max_connection_window = self.connection_window();
    }

    /// Awaits `connecting`, such as the future of `tokio_quiche::quic::connect_with_config`. The
    /// connection that this future creates assumes the chosen initial round trip.
    pub async fn connect<F: Future>(&self, connecting: F) -> F::Output {
        let mut connecting = pin!(connecting);
        let rtt = self.initial_rtt();
        poll_fn(|context| with_initial_rtt(rtt, || connecting.as_mut().poll(context))).await
    }
}

#[cfg(test)]
mod tests {
    use crate::tune::{Network, Tune};
    use ::tokio_quiche::buf_factory::BufFactory;
    use ::tokio_quiche::settings::QuicSettings;
    use std::net::SocketAddr;
    use std::time::Duration;

    #[test]
    fn settings_take_the_choices() {
        let mut settings = QuicSettings::default();
        Tune::client().choose().apply_to_settings(&mut settings);
        assert_eq!(settings.cc_algorithm, "bbr2_gcongestion");
        assert!(settings.enable_pacing && settings.discover_path_mtu);
        assert_eq!(settings.initial_congestion_window_packets, 32);
        assert_eq!(
            (settings.max_send_udp_payload_size, settings.max_recv_udp_payload_size),
            (1452, 1452)
        );
        assert_eq!((settings.initial_max_data, settings.max_stream_window), (24 << 20, 16 << 20));
    }

    #[tokio::test]
    async fn a_connection_made_while_connecting_assumes_the_round_trip() {
        let tuned = Tune { network: Network::Geo, ..Tune::client() }.choose();
        let connecting = async {
            tokio::task::yield_now().await;
            let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap();
            let id = quiche::ConnectionId::from_ref(&[7; 16]);
            let address = SocketAddr::from(([127, 0, 0, 1], 443));
            let conn = quiche::connect_with_buffer_factory::<BufFactory>(
                None,
                &id,
                address,
                address,
                &mut config,
            );
            conn.unwrap().path_stats().next().unwrap().rtt
        };
        assert_eq!(tuned.connect(connecting).await, Duration::from_millis(700));
    }
}
