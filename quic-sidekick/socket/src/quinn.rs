//! Sockets for quinn.
//!
//! Give [`Runtime`] to [`Endpoint::new`](quinn::Endpoint::new) in place of the runtime that
//! `Endpoint::client` and `Endpoint::server` choose:
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! use sidekick_socket::{Config, quinn::Runtime};
//! use std::{net::UdpSocket, sync::Arc};
//!
//! let help = Arc::new(Runtime::new(Config::default())?);
//! let socket = UdpSocket::bind("0.0.0.0:0")?;
//! // For a server, Some(server_config) takes the place of None.
//! let endpoint = quinn::Endpoint::new(Default::default(), None, socket, help.clone())?;
//! for flow in help.status() {
//!     println!("{}: {flow}; {} of {} sent again", flow.peer, flow.resent, flow.sent);
//! }
//! # let _ = endpoint;
//! # Ok(())
//! # }
//! ```
//!
//! A flow's line is "helped" once a proxy is found, and says after two seconds that none was. The
//! socket must not be connected, or `Endpoint::new` fails. One of IPv6 reaches peers of IPv4 if the
//! system's option `IPV6_V6ONLY` is off, which quinn's own sockets see to.
//!
//! This crate needs quinn 0.11, and enables no feature of it: choose the runtime by quinn's own
//! features, as ever.

use std::future::Future;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{self, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncTimer, AsyncUdpSocket, UdpPoller};

use crate::socket::{copy, flows_of};
use crate::{Arrival, Config, Datagram, FlowStatus, Flows, Marks};

/// A runtime of quinn whose sockets get help.
///
/// All else is that of the runtime below it.
#[derive(Debug)]
pub struct Runtime {
    inner: Arc<dyn quinn::Runtime>,
    config: Config,
    /// Those that it made, and that are still open.
    sockets: Mutex<Vec<Weak<Socket>>>,
}

impl Runtime {
    /// On top of the runtime that quinn would choose here.
    ///
    /// # Errors
    /// No runtime was found: this is called outside of tokio, or quinn has no feature for the one
    /// that runs.
    pub fn new(config: Config) -> io::Result<Self> {
        let inner = quinn::default_runtime();
        inner.map(|inner| Self::over(inner, config)).ok_or_else(|| {
            io::Error::other("no runtime of quinn: call this within one, such as tokio's")
        })
    }

    /// On top of a given runtime.
    #[must_use]
    pub fn over(inner: Arc<dyn quinn::Runtime>, config: Config) -> Self {
        Self { inner, config, sockets: Mutex::default() }
    }

    /// The flows that are helped, and how, of all endpoints that have this runtime. Connections to
    /// one address are one flow. Its counts start from zero when the endpoint takes another socket.
    #[must_use]
    pub fn status(&self) -> Vec<FlowStatus> {
        let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let open = sockets.iter().filter_map(Weak::upgrade);
        open.flat_map(|it| it.lock().flows.status(self.inner.now()).collect::<Vec<_>>()).collect()
    }
}

impl quinn::Runtime for Runtime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        self.inner.new_timer(at)
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.inner.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let flows = flows_of(&socket, self.config)?;
        let state = State { flows, timer: None, armed: None, receiver: None };
        let socket = Arc::new(Socket {
            runtime: Arc::clone(&self.inner),
            inner: self.inner.wrap_udp_socket(socket)?,
            state: Mutex::new(state),
        });
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.retain(|socket| socket.strong_count() > 0);
        sockets.push(Arc::downgrade(&socket));
        Ok(socket)
    }

    fn now(&self) -> Instant {
        self.inner.now()
    }
}

/// A socket of quinn with help.
#[derive(Debug)]
struct Socket {
    runtime: Arc<dyn quinn::Runtime>,
    inner: Arc<dyn AsyncUdpSocket>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    flows: Flows,
    timer: Option<Pin<Box<dyn AsyncTimer>>>,
    /// When the timer wakes the task that receives.
    armed: Option<Instant>,
    receiver: Option<Waker>,
}

/// The state while it is in use.
struct Locked<'a>(&'a Socket, MutexGuard<'a, State>);

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.1
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.1
    }
}

impl Socket {
    fn lock(&self) -> Locked<'_> {
        Locked(self, self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Locked<'_> {
    /// Sends what is ready.
    fn transmit(&mut self, now: Instant) {
        let Self(socket, state) = self;
        state.flows.transmit(now, |datagram| {
            let transmit = Transmit {
                destination: datagram.peer,
                ecn: EcnCodepoint::from_bits(datagram.marks.ecn),
                contents: &datagram.payload,
                segment_size: None,
                src_ip: datagram.marks.local,
            };
            socket.inner.try_send(&transmit).is_ok()
        });
    }

    /// Whether the timers are due, and wakes the task when they are.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self(socket, state) = self;
        let State { flows, timer, armed, receiver } = &mut **state;
        receiver.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
        *armed = flows.poll_timeout();
        let Some(at) = *armed else { return Poll::Pending };
        // A runtime's timer may round up to milliseconds.
        if at <= socket.runtime.now() {
            return Poll::Ready(());
        }
        let timer = timer.get_or_insert_with(|| socket.runtime.new_timer(at));
        timer.as_mut().reset(at);
        timer.as_mut().poll(cx)
    }

    /// Passes what arrived in a buffer to the flows. What remains in it is for the application.
    fn receive(&mut self, buffer: &[u8], meta: &mut RecvMeta, now: Instant) {
        let marks = Marks { ecn: meta.ecn.map_or(0, |ecn| ecn as u8), local: meta.dst_ip };
        let (mut kept, mut is_whole) = (0, true);
        let received = buffer.get(..meta.len).unwrap_or_default();
        for datagram in received.chunks(meta.stride.max(1)) {
            match self.flows.on_received(meta.addr, marks, datagram, now) {
                Arrival::Passes if is_whole => kept += datagram.len(),
                Arrival::Passes => {
                    self.flows.push_delivery(Datagram::new(meta.addr, marks, datagram));
                }
                Arrival::Taken => is_whole = false,
            }
        }
        meta.len = kept;
    }

    /// Fills a buffer with what the application gets next: datagrams alike, as if the system had
    /// merged them. Returns false if there is nothing, or it does not fit.
    fn fill(&mut self, buffer: &mut [u8], meta: &mut RecvMeta) -> bool {
        let Some(Datagram { peer, marks, payload }) = self.flows.poll_delivery() else {
            return false;
        };
        let stride = copy(&payload, buffer);
        let ecn = EcnCodepoint::from_bits(marks.ecn);
        *meta = RecvMeta { addr: peer, len: stride, stride, ecn, dst_ip: marks.local };
        while let Some(next) = self.flows.peek_delivery()
            && (next.peer, next.marks) == (peer, marks)
            && next.payload.len() == stride
            && let Some(room) = buffer.get_mut(meta.len..)
            && room.len() >= stride
            && stride > 0
        {
            meta.len += copy(&next.payload, room);
            self.flows.poll_delivery();
        }
        true
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let mut state = self.lock();
        self.inner.try_send(transmit)?;
        let now = self.runtime.now();
        let marks = Marks { ecn: transmit.ecn.map_or(0, |ecn| ecn as u8), local: transmit.src_ip };
        let size = transmit.segment_size.unwrap_or(transmit.contents.len()).max(1);
        let datagrams = transmit.contents.chunks(size);
        state.flows.on_sent(transmit.destination, marks, datagrams, now);
        state.transmit(now);
        let due = state.flows.poll_timeout();
        if due.is_some_and(|due| state.armed.is_none_or(|armed| due < armed)) {
            // The task sets its timer anew.
            state.armed = due;
            let receiver = state.receiver.take();
            drop(state);
            receiver.into_iter().for_each(Waker::wake);
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        loop {
            let mut filled = 0;
            if state.flows.peek_delivery().is_none() {
                match self.inner.poll_recv(cx, buffers, metas) {
                    Poll::Ready(Ok(received)) => {
                        let now = self.runtime.now();
                        for (buffer, meta) in buffers.iter().zip(&mut *metas).take(received) {
                            state.receive(buffer, meta, now);
                        }
                        // What passes at once comes before all that waited.
                        metas.iter_mut().skip(received).for_each(|meta| meta.len = 0);
                        filled = compact(buffers, metas);
                        state.transmit(now);
                    }
                    Poll::Ready(Err(error)) if error.kind() == ErrorKind::WouldBlock => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        if state.poll_timer(cx).is_pending() {
                            return Poll::Pending;
                        }
                        let now = self.runtime.now();
                        state.flows.on_timeout(now);
                        state.transmit(now);
                    }
                }
            }
            for (buffer, meta) in buffers.iter_mut().zip(&mut *metas).skip(filled) {
                if !state.fill(buffer, meta) {
                    break;
                }
                filled += 1;
            }
            if filled > 0 {
                return Poll::Ready(Ok(filled));
            }
        }
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

/// Moves the buffers that have something before the others. Returns how many there are.
fn compact(buffers: &mut [IoSliceMut<'_>], metas: &mut [RecvMeta]) -> usize {
    let mut to = 0;
    for from in 0..metas.len() {
        let Some(meta) = metas.get(from).copied().filter(|meta| meta.len > 0) else { continue };
        if from != to
            && let Ok([from, to]) = buffers.get_disjoint_mut([from, to])
        {
            copy(from.get(..meta.len).unwrap_or_default(), to);
        }
        if let Some(place) = metas.get_mut(to) {
            *place = meta;
        }
        to += 1;
    }
    to
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut state = self.lock();
        let now = self.runtime.now();
        state.flows.close(now);
        state.transmit(now);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use sidekick_protocol::{Flow, MAX_DATAGRAM_LEN, Observer, ObserverConfig, Payload, Route};

    use super::*;
    use crate::Traits;

    const LOCAL: ([u8; 4], u16) = ([127, 0, 0, 1], 4000);
    const PEER: ([u8; 4], u16) = ([127, 0, 0, 9], 443);
    const PROXY: ([u8; 4], u16) = ([127, 0, 0, 5], 5252);

    /// What a system call carries: one buffer of one or more datagrams.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Call {
        peer: SocketAddr,
        contents: Vec<u8>,
        segment: Option<usize>,
        ecn: Option<EcnCodepoint>,
        own: Option<net::IpAddr>,
    }

    /// A runtime and a socket without a system.
    #[derive(Debug, Default)]
    struct Fake {
        sent: Mutex<Vec<Call>>,
        arrives: Mutex<VecDeque<Call>>,
        now: Mutex<Option<Instant>>,
    }

    #[derive(Debug)]
    struct Never;

    impl AsyncTimer for Never {
        fn reset(self: Pin<&mut Self>, _: Instant) {}

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }

    impl quinn::Runtime for Fake {
        fn new_timer(&self, _: Instant) -> Pin<Box<dyn AsyncTimer>> {
            Box::pin(Never)
        }

        fn spawn(&self, _: Pin<Box<dyn Future<Output = ()> + Send>>) {}

        fn wrap_udp_socket(&self, _: net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
            Err(ErrorKind::Unsupported.into())
        }

        fn now(&self) -> Instant {
            *self.now.lock().unwrap().get_or_insert_with(crate::clock)
        }
    }

    impl AsyncUdpSocket for Fake {
        fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
            unimplemented!("this socket is always writable")
        }

        fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
            let Transmit { destination: peer, ecn, contents, segment_size, src_ip: own } =
                *transmit;
            let call = Call { peer, contents: contents.to_vec(), segment: segment_size, ecn, own };
            self.sent.lock().unwrap().push(call);
            Ok(())
        }

        fn poll_recv(
            &self,
            _: &mut Context<'_>,
            buffers: &mut [IoSliceMut<'_>],
            metas: &mut [RecvMeta],
        ) -> Poll<io::Result<usize>> {
            let mut arrives = self.arrives.lock().unwrap();
            let mut received = 0;
            for (buffer, meta) in buffers.iter_mut().zip(metas) {
                let Some(call) = arrives.pop_front() else { break };
                let (len, ecn, dst_ip) = (copy(&call.contents, buffer), call.ecn, call.own);
                let stride = call.segment.unwrap_or(len);
                *meta = RecvMeta { addr: call.peer, len, stride, ecn, dst_ip };
                received += 1;
            }
            if received == 0 { Poll::Pending } else { Poll::Ready(Ok(received)) }
        }

        fn local_addr(&self) -> io::Result<SocketAddr> {
            Ok(LOCAL.into())
        }
    }

    /// A socket on a fake, and a proxy that sees all.
    struct Net {
        fake: Arc<Fake>,
        socket: Socket,
        proxy: Observer,
        /// How many messages the proxy got.
        messages: usize,
        /// Its latest message.
        message: Vec<u8>,
        sent: u8,
    }

    impl Net {
        fn new(traits: Traits) -> Self {
            let fake = Arc::new(Fake::default());
            let config = Config { proxy: Some(PROXY.into()), traits, ..Config::default() };
            let flows = Flows::new(config, LOCAL.into(), || Some([5; 32]));
            let state = State { flows, timer: None, armed: None, receiver: None };
            let inner = Arc::<Fake>::clone(&fake);
            let socket = Socket { runtime: inner.clone(), inner, state: Mutex::new(state) };
            let (keep_bytes, orders) = (64 << 20, true);
            let terms = ObserverConfig { keep_bytes, orders, ..ObserverConfig::default() };
            let proxy = Observer::new(terms, [2; 32]).unwrap();
            Self { fake, socket, proxy, messages: 0, message: Vec::new(), sent: 0 }
        }

        fn later(&self, time: Duration) {
            let now = quinn::Runtime::now(&*self.fake);
            *self.fake.now.lock().unwrap() = Some(now + time);
        }

        /// Sends `count` datagrams at once, of which the proxy does not see the one at `lost`.
        /// Returns what the system got for the peer.
        fn send(&mut self, count: u8, lost: Option<u8>) -> Vec<Call> {
            let before = self.sent;
            self.sent += count;
            let each = |number| [&[0x41; 99][..], &[before + number]].concat();
            let transmit = Transmit {
                destination: PEER.into(),
                ecn: Some(EcnCodepoint::Ect0),
                contents: &(0..count).flat_map(each).collect::<Vec<u8>>(),
                segment_size: Some(100),
                src_ip: Some([127, 0, 0, 1].into()),
            };
            self.socket.try_send(&transmit).unwrap();
            self.settle(lost.map(|lost| before + lost))
        }

        /// Carries what the socket sent to the proxy and past it, and messages back.
        fn settle(&mut self, lost: Option<u8>) -> Vec<Call> {
            let flow = Flow { source: LOCAL.into(), destination: PEER.into() };
            let now = quinn::Runtime::now(&*self.fake);
            let mut to_peer = Vec::new();
            loop {
                let calls = std::mem::take(&mut *self.fake.sent.lock().unwrap());
                for call in calls {
                    if call.peer == PROXY.into() {
                        self.messages += 1;
                        let from = SocketAddr::from(LOCAL);
                        // It answers a HELLO without a cookie, and returns an error.
                        let _ = self.proxy.handle_input(from, &call.contents, now);
                        continue;
                    }
                    let each = call.segment.unwrap_or(call.contents.len());
                    for payload in call.contents.chunks(each) {
                        let is_lost = call.segment.is_some() && payload.last() == lost.as_ref();
                        if !is_lost {
                            self.proxy.observe(&flow, 0, Payload::whole(payload), now);
                        }
                    }
                    to_peer.push(call);
                }
                self.proxy.on_timeout(now);
                let mut buffer = [0; MAX_DATAGRAM_LEN];
                while let Some(transmit) = self.proxy.poll_transmit(&mut buffer) {
                    let peer = match transmit.route {
                        Route::Path { source, .. } => source,
                        Route::Session | Route::SecondLink | Route::Stranger { .. } => PROXY.into(),
                    };
                    let contents = buffer[..transmit.size].to_vec();
                    self.message.clone_from(&contents);
                    let call = Call { peer, contents, segment: None, ecn: None, own: None };
                    self.fake.arrives.lock().unwrap().push_back(call);
                }
                assert!(self.receive().is_empty(), "only messages arrive");
                if self.fake.sent.lock().unwrap().is_empty() {
                    return to_peer;
                }
            }
        }

        /// What the application receives.
        fn receive(&self) -> Vec<(Vec<u8>, RecvMeta)> {
            let mut storage = [[0; 2000]; 4];
            let mut buffers = storage.each_mut().map(|buffer| IoSliceMut::new(buffer));
            let mut metas = [RecvMeta::default(); 4];
            let mut cx = Context::from_waker(Waker::noop());
            let received = self.socket.poll_recv(&mut cx, &mut buffers, &mut metas);
            let Poll::Ready(received) = received else { return Vec::new() };
            let got = buffers.iter().zip(metas).take(received.unwrap());
            got.map(|(buffer, meta)| (buffer[..meta.len].to_vec(), meta)).collect()
        }
    }

    #[test]
    fn merged_datagrams_leave_whole_and_one_that_is_lost_leaves_again() {
        let mut net = Net::new(Traits::QUIC);
        let first = net.send(4, None);
        assert_eq!(first.len(), 1, "{first:?}");
        for _ in 0..10 {
            net.later(Duration::from_millis(3));
            assert_eq!(net.send(3, None).len(), 1);
        }
        let mut calls = net.send(5, Some(2));
        net.later(Duration::from_millis(2));
        calls.extend(net.settle(None));
        let Some((whole, again)) = calls.split_first() else { panic!("nothing left") };
        assert_eq!((whole.contents.len(), whole.segment), (500, Some(100)));
        assert!(!again.is_empty());
        for call in again {
            assert_eq!((&call.contents[..], call.segment), (&whole.contents[200..300], None));
            assert_eq!((call.ecn, call.own), (whole.ecn, whole.own));
        }
    }

    /// A proxy that puts them in order gets a list for every four, in case one is lost.
    #[test]
    fn merged_datagrams_are_in_several_lists() {
        let mut net = Net::new(Traits::QUIC);
        net.send(4, None);
        net.later(Duration::from_millis(3));
        net.send(4, None);
        let before = net.messages;
        assert_eq!(net.send(12, None).len(), 1);
        assert!(net.messages >= before + 3, "{} messages", net.messages - before);
    }

    #[test]
    fn merged_datagrams_arrive_whole_and_without_messages() {
        // Those of a call never wait.
        let mut net = Net::new(Traits::CALL);
        net.send(4, None);
        let (ecn, own) = (Some(EcnCodepoint::Ce), Some([127, 0, 0, 1].into()));
        let contents = (0..250).collect();
        let call = Call { peer: PEER.into(), contents, segment: Some(100), ecn, own };
        let contents = net.message.clone();
        let message = Call { peer: PROXY.into(), contents, segment: None, ..call.clone() };
        net.fake.arrives.lock().unwrap().extend([message, call.clone()]);
        let got = net.receive();
        let [(contents, meta)] = &got[..] else { panic!("{got:?}") };
        assert_eq!((contents, meta.stride, meta.addr), (&call.contents, 100, call.peer));
        assert_eq!((meta.ecn, meta.dst_ip), (ecn, own));
    }
}
