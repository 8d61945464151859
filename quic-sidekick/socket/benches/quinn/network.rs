//! What lies below the socket: the system's, whose calls are counted, and on request a proxy that
//! sees all that it sends and receives.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::hint::black_box;
use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, UdpPoller};
use sidekick_protocol::{Flow, MAX_DATAGRAM_LEN, Observer, ObserverConfig, Payload};

/// Whether the client's work is counted now.
pub(crate) static IS_COUNTED: AtomicBool = AtomicBool::new(false);

/// Nothing is sent to it.
pub(crate) const PROXY: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 5), 5252));

/// Calls of the system, and datagrams in them.
#[derive(Debug, Default)]
pub(crate) struct Counts([[AtomicU64; 2]; 2]);

impl Counts {
    fn add(&self, way: usize, datagrams: usize) {
        self.0[way][0].fetch_add(1, Relaxed);
        self.0[way][1].fetch_add(datagrams as u64, Relaxed);
    }

    pub(crate) fn reset(&self) {
        self.0.iter().flatten().for_each(|count| count.store(0, Relaxed));
    }

    /// Datagrams in a call that sends, and in a buffer that the system fills.
    pub(crate) fn at_once(&self) -> [f64; 2] {
        self.0.each_ref().map(|[calls, datagrams]| {
            datagrams.load(Relaxed) as f64 / calls.load(Relaxed).max(1) as f64
        })
    }
}

/// A runtime whose sockets are counted.
#[derive(Debug)]
pub(crate) struct Network {
    inner: Arc<dyn Runtime>,
    counts: Arc<Counts>,
    is_proxied: bool,
}

impl Network {
    pub(crate) fn over(
        inner: Arc<dyn Runtime>,
        is_proxied: bool,
    ) -> (Arc<dyn Runtime>, Arc<Counts>) {
        let counts = Arc::<Counts>::default();
        (Arc::new(Self { inner, counts: Arc::clone(&counts), is_proxied }), counts)
    }
}

impl Runtime for Network {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        self.inner.new_timer(at)
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.inner.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let terms = ObserverConfig { keep_bytes: 64 << 20, ..ObserverConfig::default() };
        let local = socket.local_addr()?;
        let proxy = self.is_proxied.then(|| {
            let observer = Observer::new(terms, [3; 32]).unwrap();
            Mutex::new(Proxy { observer, says: VecDeque::new(), timer: None, wakes: None })
        });
        let inner = self.inner.wrap_udp_socket(socket)?;
        let (runtime, counts) = (Arc::clone(&self.inner), Arc::clone(&self.counts));
        Ok(Arc::new(Socket { runtime, inner, counts, local, proxy }))
    }

    fn now(&self) -> Instant {
        self.inner.now()
    }
}

struct Proxy {
    observer: Observer,
    says: VecDeque<Vec<u8>>,
    timer: Option<Pin<Box<dyn AsyncTimer>>>,
    /// The task that receives.
    wakes: Option<Waker>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proxy")
    }
}

impl Proxy {
    /// Collects what the proxy says.
    fn settle(&mut self) {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        while let Some(transmit) = self.observer.poll_transmit(&mut buffer) {
            self.says.push_back(buffer[..transmit.size].to_vec());
        }
        if !self.says.is_empty() {
            self.wakes.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// The work of the proxy, which is not counted within what is.
fn proxy_work<T>(work: impl FnOnce() -> T) -> T {
    if IS_COUNTED.load(Relaxed) { black_box(uncounted_work(work)) } else { work() }
}

#[inline(never)]
fn uncounted_work<T>(work: impl FnOnce() -> T) -> T {
    black_box(black_box(work)())
}

#[derive(Debug)]
struct Socket {
    runtime: Arc<dyn Runtime>,
    inner: Arc<dyn AsyncUdpSocket>,
    counts: Arc<Counts>,
    local: SocketAddr,
    proxy: Option<Mutex<Proxy>>,
}

fn datagrams(contents: &[u8], size: usize) -> impl Iterator<Item = &[u8]> {
    contents.chunks(size.max(1))
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let now = self.runtime.now();
        let size = transmit.segment_size.unwrap_or(transmit.contents.len());
        if transmit.destination == PROXY {
            let Some(proxy) = &self.proxy else { return Ok(()) };
            proxy_work(|| {
                let mut proxy = proxy.lock().unwrap();
                let _ = proxy.observer.handle_input(self.local, transmit.contents, now);
                proxy.settle();
            });
            return Ok(());
        }
        self.inner.try_send(transmit)?;
        self.counts.add(0, datagrams(transmit.contents, size).count());
        if let Some(proxy) = &self.proxy {
            proxy_work(|| {
                let mut proxy = proxy.lock().unwrap();
                let flow = Flow { source: self.local, destination: transmit.destination };
                for datagram in datagrams(transmit.contents, size) {
                    proxy.observer.observe(&flow, 0, Payload::whole(datagram), now);
                }
                proxy.settle();
            });
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = self.inner.poll_recv(cx, buffers, metas);
        let got = if let Poll::Ready(Ok(got)) = received { got } else { 0 };
        for meta in metas.iter().take(got) {
            self.counts.add(1, meta.len.div_ceil(meta.stride.max(1)));
        }
        let Some(proxy) = &self.proxy else { return received };
        proxy_work(|| {
            let now = self.runtime.now();
            let mut proxy = proxy.lock().unwrap();
            for (buffer, meta) in buffers.iter().zip(metas.iter()).take(got) {
                let flow = Flow { source: meta.addr, destination: self.local };
                for datagram in datagrams(&buffer[..meta.len], meta.stride) {
                    proxy.observer.keep(&flow, 0, datagram, now);
                }
            }
            proxy.settle();
            if !received.is_pending() {
                return received;
            }
            proxy.observer.on_timeout(now);
            proxy.settle();
            if let Some(message) = proxy.says.pop_front() {
                buffers[0][..message.len()].copy_from_slice(&message);
                let (addr, len) = (PROXY, message.len());
                metas[0] = RecvMeta { addr, len, stride: len, ecn: None, dst_ip: None };
                return Poll::Ready(Ok(1));
            }
            proxy.wakes = Some(cx.waker().clone());
            let Some(at) = proxy.observer.poll_timeout() else { return Poll::Pending };
            let timer = proxy.timer.get_or_insert_with(|| self.runtime.new_timer(at));
            timer.as_mut().reset(at);
            if timer.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}
