//! A client of tokio that sends datagrams to a server, and gets help from proxies on its path. The
//! bind differs from tokio's own socket, and nothing else.
//!
//! `cargo run -p sidekick-socket --features tokio --example tokio` asks a server on this machine,
//! where no proxy is.

use sidekick_socket::tokio::UdpSocket;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let server = tokio::net::UdpSocket::bind("127.0.0.1:0").await?;
    let address = server.local_addr()?;
    let serves = tokio::spawn(async move {
        let mut buffer = [0; 1500];
        let (len, client) = server.recv_from(&mut buffer).await?;
        server.send_to(&buffer[..len], client).await
    });

    // In place of tokio::net::UdpSocket::bind("0.0.0.0:0").
    let socket = UdpSocket::bind("0.0.0.0:0").await?;
    // Only encrypted datagrams should leave by it. These would be a QUIC stack's.
    socket.send_to(&[0x41; 1200], address).await?;
    let mut buffer = [0; 1500];
    let (len, from) = socket.recv_from(&mut buffer).await?;
    println!("{len} bytes from {from}");
    for flow in socket.status() {
        println!("{}: {flow}", flow.peer);
    }
    serves.await??;
    Ok(())
}
