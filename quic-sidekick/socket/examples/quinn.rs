//! A transfer with quinn, whose client gets help from proxies on its path. Three lines differ from
//! plain quinn.
//!
//! `cargo run -p sidekick-socket --features quinn --example quinn` transfers 10 MB on this machine,
//! where no proxy is.

use std::net::UdpSocket;
use std::sync::Arc;

use quinn::{ClientConfig, Endpoint, ServerConfig};
use sidekick_socket::{Config, quinn::Runtime};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome {
    let (server_config, client_config) = certificate()?;
    let server = Endpoint::server(server_config, "127.0.0.1:0".parse()?)?;
    let address = server.local_addr()?;
    let serves = tokio::spawn(serve(server));

    // In place of Endpoint::client("0.0.0.0:0".parse()?).
    let help = Arc::new(Runtime::new(Config::default())?);
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let client = Endpoint::new(Default::default(), None, socket, Arc::<Runtime>::clone(&help))?;

    let connection = client.connect_with(client_config, address, "localhost")?.await?;
    let mut sending = connection.open_uni().await?;
    sending.write_all(&vec![7; 10_000_000]).await?;
    sending.finish()?;
    let mut answer = connection.accept_uni().await?;
    println!("{}", String::from_utf8_lossy(&answer.read_to_end(100).await?));
    for flow in help.status() {
        println!("{}: {flow}; {} of {} sent again", flow.peer, flow.resent, flow.sent);
    }
    connection.close(0_u8.into(), b"");
    client.wait_idle().await;
    serves.await?
}

/// Tells a client how many bytes arrived.
async fn serve(server: Endpoint) -> Outcome {
    let connection = server.accept().await.ok_or("closed")?.await?;
    let received = connection.accept_uni().await?.read_to_end(usize::MAX).await?;
    let mut answer = connection.open_uni().await?;
    answer.write_all(format!("{} bytes arrived", received.len()).as_bytes()).await?;
    answer.finish()?;
    connection.closed().await;
    Ok(())
}

/// Both ends' settings, with a certificate for localhost.
fn certificate() -> Outcome<(ServerConfig, ClientConfig)> {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(own.cert.der().clone())?;
    let server = ServerConfig::with_single_cert(vec![own.cert.into()], key.into())?;
    Ok((server, ClientConfig::with_root_certificates(Arc::new(roots))?))
}
