//! A path between clients and a broker, which a test can cut.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::UdpSocket;
use tokio::runtime::Runtime;

/// A running path. It ends when dropped.
pub(crate) struct Relay {
    /// The broker's port, for clients.
    pub(crate) port: u16,
    cuts: Arc<Cuts>,
    _runtime: Runtime,
}

/// Flows below these numbers carry nothing any more, in the two directions.
#[derive(Default)]
struct Cuts {
    flows: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
}

impl Relay {
    /// Starts a path to the broker at this port.
    pub(crate) fn start(broker: u16) -> Self {
        let runtime = Runtime::new().unwrap();
        let near = runtime.block_on(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let port = near.local_addr().unwrap().port();
        let cuts = Arc::<Cuts>::default();
        runtime.spawn(run(Arc::new(near), broker, Arc::clone(&cuts)));
        Self { port, cuts, _runtime: runtime }
    }

    /// Cuts the flows that there are. New ones pass.
    pub(crate) fn cut(&self) {
        self.cuts.up.store(self.cuts.flows.load(Ordering::SeqCst), Ordering::SeqCst);
        self.cut_to_clients();
    }

    /// Cuts the flows that there are, on the way to the clients.
    pub(crate) fn cut_to_clients(&self) {
        self.cuts.down.store(self.cuts.flows.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

async fn run(near: Arc<UdpSocket>, broker: u16, cuts: Arc<Cuts>) {
    let mut flows: HashMap<SocketAddr, (u64, Arc<UdpSocket>)> = HashMap::new();
    let mut datagram = [0; 2048];
    loop {
        let Ok((len, client)) = near.recv_from(&mut datagram).await else { continue };
        let (flow, far) = match flows.entry(client) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                far.connect((Ipv4Addr::LOCALHOST, broker)).await.unwrap();
                let (flow, far) = (cuts.flows.fetch_add(1, Ordering::SeqCst), Arc::new(far));
                let (to, from) = (Arc::clone(&near), Arc::clone(&far));
                tokio::spawn(back(from, to, client, flow, Arc::clone(&cuts)));
                place.insert((flow, far))
            }
        };
        if *flow >= cuts.up.load(Ordering::SeqCst) {
            let _ = far.send(&datagram[..len]).await;
        }
    }
}

async fn back(
    far: Arc<UdpSocket>,
    near: Arc<UdpSocket>,
    client: SocketAddr,
    flow: u64,
    cuts: Arc<Cuts>,
) {
    let mut datagram = [0; 2048];
    loop {
        // An error is an ICMP message about a broker that ended.
        let Ok(len) = far.recv(&mut datagram).await else { continue };
        if flow >= cuts.down.load(Ordering::SeqCst) {
            let _ = near.send_to(&datagram[..len], client).await;
        }
    }
}
