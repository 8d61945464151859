//! A path between clients and a broker, which a test can cut, or move to other ports.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket as StdSocket};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::net::UdpSocket;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

/// A running path. It ends when dropped.
pub(crate) struct Relay {
    /// The broker's port, for clients.
    pub(crate) port: u16,
    path: Arc<Path>,
    runtime: Runtime,
}

struct Path {
    near: UdpSocket,
    broker: u16,
    flows: Mutex<Flows>,
}

#[derive(Default)]
struct Flows {
    of: HashMap<SocketAddr, Flow>,
    /// Whether the datagrams of new flows are dropped.
    closed: bool,
}

/// The flow of one client.
struct Flow {
    /// The port that the broker sees; `None` once the flow is cut.
    far: Option<Arc<UdpSocket>>,
    /// The task that passes on the broker's datagrams.
    back: AbortHandle,
}

impl Relay {
    /// Starts a path to the broker at this port.
    pub(crate) fn start(broker: u16) -> Self {
        let runtime = Runtime::new().unwrap();
        let near = runtime.block_on(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let port = near.local_addr().unwrap().port();
        let path = Arc::new(Path { near, broker, flows: Mutex::default() });
        runtime.spawn(run(Arc::clone(&path)));
        Self { port, path, runtime }
    }

    /// Cuts all present flows. New ones pass.
    pub(crate) fn cut(&self) {
        self.cut_to_clients();
        self.path.flows().of.values_mut().for_each(|flow| flow.far = None);
    }

    /// Cuts all present flows in the direction to the clients.
    pub(crate) fn cut_to_clients(&self) {
        self.path.flows().of.values().for_each(|flow| flow.back.abort());
    }

    /// Cuts all present flows, and drops the datagrams of new ones until `meanwhile` returns.
    pub(crate) fn cut_during(&self, meanwhile: impl FnOnce()) {
        self.path.flows().closed = true;
        self.cut();
        meanwhile();
        self.path.flows().closed = false;
    }

    /// Moves all flows to other ports, as a NAT does after a timeout. The old ports pass nothing
    /// more.
    pub(crate) fn rebind(&self) {
        let _inside = self.runtime.enter();
        self.cut_to_clients();
        for (client, flow) in &mut self.path.flows().of {
            *flow = Flow::begin(&self.path, *client);
        }
    }
}

impl Path {
    fn flows(&self) -> MutexGuard<'_, Flows> {
        self.flows.lock().unwrap()
    }

    /// Where the datagrams of this client go, if anywhere.
    fn far(self: &Arc<Self>, client: SocketAddr) -> Option<Arc<UdpSocket>> {
        let mut flows = self.flows();
        if flows.closed && !flows.of.contains_key(&client) {
            return None;
        }
        flows.of.entry(client).or_insert_with(|| Flow::begin(self, client)).far.clone()
    }
}

async fn run(path: Arc<Path>) {
    let mut datagram = [0; 2048];
    loop {
        let Ok((len, client)) = path.near.recv_from(&mut datagram).await else { continue };
        if let Some(far) = path.far(client) {
            let _ = far.send(&datagram[..len]).await;
        }
    }
}

impl Flow {
    /// Opens a port for it.
    fn begin(path: &Arc<Path>, client: SocketAddr) -> Self {
        let far = StdSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        far.connect((Ipv4Addr::LOCALHOST, path.broker)).unwrap();
        far.set_nonblocking(true).unwrap();
        let far = Arc::new(UdpSocket::from_std(far).unwrap());
        let (from, path) = (Arc::clone(&far), Arc::clone(path));
        let back = tokio::spawn(async move {
            let mut datagram = [0; 2048];
            loop {
                // An error is an ICMP message: the broker has ended.
                let Ok(len) = from.recv(&mut datagram).await else { continue };
                let _ = path.near.send_to(&datagram[..len], client).await;
            }
        });
        Self { far: Some(far), back: back.abort_handle() }
    }
}
