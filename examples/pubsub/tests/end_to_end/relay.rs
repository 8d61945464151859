//! A path between clients and a broker, which a test can cut, or move to other ports.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::net::UdpSocket;
use tokio::runtime::Runtime;

/// A running path. It ends when dropped.
pub(crate) struct Relay {
    /// The broker's port, for clients.
    pub(crate) port: u16,
    cuts: Arc<Cuts>,
    _runtime: Runtime,
}

/// Flows below these numbers are cut, for each of the two directions.
#[derive(Default)]
struct Cuts {
    flows: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
    /// Whether the datagrams of new flows are dropped.
    closed: AtomicBool,
    /// The number of requested moves to other ports, and the moves of flows so far.
    moves: AtomicU64,
    moved: AtomicU64,
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

    /// Cuts all present flows. New ones pass.
    pub(crate) fn cut(&self) {
        self.cuts.up.store(self.cuts.flows.load(Ordering::SeqCst), Ordering::SeqCst);
        self.cut_to_clients();
    }

    /// Cuts all present flows, and drops the datagrams of new ones until `meanwhile` returns.
    pub(crate) fn cut_during(&self, meanwhile: impl FnOnce()) {
        self.cuts.closed.store(true, Ordering::SeqCst);
        self.cut();
        meanwhile();
        self.cuts.closed.store(false, Ordering::SeqCst);
    }

    /// Moves each flow to another port with its client's next datagram, as a NAT does after a
    /// timeout. The old port passes nothing more.
    pub(crate) fn rebind(&self) {
        self.cuts.moves.fetch_add(1, Ordering::SeqCst);
    }

    /// The moves of flows so far.
    pub(crate) fn moved(&self) -> u64 {
        self.cuts.moved.load(Ordering::SeqCst)
    }

    /// Cuts all present flows in the direction to the clients.
    pub(crate) fn cut_to_clients(&self) {
        self.cuts.down.store(self.cuts.flows.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

async fn run(near: Arc<UdpSocket>, broker: u16, cuts: Arc<Cuts>) {
    let mut flows: HashMap<SocketAddr, Flow> = HashMap::new();
    let mut datagram = [0; 2048];
    loop {
        let Ok((len, client)) = near.recv_from(&mut datagram).await else { continue };
        let moves = cuts.moves.load(Ordering::SeqCst);
        let flow = match flows.entry(client) {
            Entry::Occupied(known) => {
                let flow = known.into_mut();
                if flow.moves < moves {
                    *flow = Flow::begin(&near, broker, client, flow.number, moves, &cuts).await;
                    cuts.moved.fetch_add(1, Ordering::SeqCst);
                }
                flow
            }
            Entry::Vacant(_) if cuts.closed.load(Ordering::SeqCst) => continue,
            Entry::Vacant(place) => {
                let number = cuts.flows.fetch_add(1, Ordering::SeqCst);
                place.insert(Flow::begin(&near, broker, client, number, moves, &cuts).await)
            }
        };
        if flow.number >= cuts.up.load(Ordering::SeqCst) {
            let _ = flow.far.send(&datagram[..len]).await;
        }
    }
}

/// The flow of one client.
struct Flow {
    number: u64,
    /// The moves before its present port.
    moves: u64,
    far: Arc<UdpSocket>,
}

impl Flow {
    /// Opens a port for it.
    async fn begin(
        near: &Arc<UdpSocket>,
        broker: u16,
        client: SocketAddr,
        number: u64,
        moves: u64,
        cuts: &Arc<Cuts>,
    ) -> Self {
        let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        far.connect((Ipv4Addr::LOCALHOST, broker)).await.unwrap();
        let flow = Self { number, moves, far: Arc::new(far) };
        let (to, from) = (Arc::clone(near), Arc::clone(&flow.far));
        tokio::spawn(back(from, to, client, (number, moves), Arc::clone(cuts)));
        flow
    }
}

async fn back(
    far: Arc<UdpSocket>,
    near: Arc<UdpSocket>,
    client: SocketAddr,
    (flow, moves): (u64, u64),
    cuts: Arc<Cuts>,
) {
    let mut datagram = [0; 2048];
    loop {
        // An error is an ICMP message: the broker has ended.
        let Ok(len) = far.recv(&mut datagram).await else { continue };
        if cuts.moves.load(Ordering::SeqCst) > moves {
            return;
        }
        if flow >= cuts.down.load(Ordering::SeqCst) {
            let _ = near.send_to(&datagram[..len], client).await;
        }
    }
}
