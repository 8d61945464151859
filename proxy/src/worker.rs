//! A thread that does everything for the sources it serves: it captures their packets, counts them,
//! takes their messages, and sends what is due. Nothing that it touches for a packet belongs to
//! another thread as well, so there is no lock.
//!
//! The first worker also reads the proxy's port, and hands the others the messages of their
//! sources. All have a mailbox for that, and for what the daemon wants of them.
//!
//! A message may ask which packets were counted. Those that arrived before it are in the captures
//! when it is read, so the captures are drained first: as many frames as can wait there, and no
//! more, so that a flood does not hold up messages for ever. Of messages a few are read at a time,
//! so that a flood of them holds up neither packets, nor quACKs that are due, nor the daemon's
//! word.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use sidekick_protocol::{MAX_DATAGRAM_LEN, ObserverConfig, Peer, SessionStatus, Shard, Transmit};
use tracing::warn;

use crate::addresses::Surroundings;
use crate::capture::{Capture, CaptureError, Captured, Counters};
use crate::config::MAX_INTERFACES;
use crate::machine::Machine;
use crate::path::PathSocket;
use crate::port::{Port, Receiver as PortReceiver};
use crate::route::Route;
use crate::runtime::clock;
use crate::summary::Summary;

/// Frames that are taken before anything else is looked at.
const AT_ONCE: usize = 256;
/// Messages that are read at the port before anything else is looked at.
const MESSAGES: usize = 32;
/// Longer than any message, so that one cut to this length is still seen to be too long.
const RECEIVE_LEN: usize = 2048;
/// Messages that wait for a worker; those that find no room are dropped, as the network may drop
/// them.
const MESSAGES_WAITING: usize = 1024;
/// Letters of the daemon's that wait for a worker, and how many of them may be questions how things
/// stand.
const LETTERS_WAITING: usize = QUESTIONS_WAITING + 4 * MAX_INTERFACES;
const QUESTIONS_WAITING: usize = 16;
/// How often captures are looked after that show nothing.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(1);

/// Whether an address means nothing without its interface, which the raw socket is not told.
fn is_scoped(address: SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// What a worker is told.
#[derive(Debug)]
pub enum Letter {
    /// Capture here, too, under the daemon's number of the interface.
    Capture(u32, Capture),
    /// Do not capture on the interface of this number any more.
    Forget(u32),
    /// Say how things stand, with so many sessions at most.
    Report(usize, SyncSender<Report>),
    /// These are the machine's addresses and interfaces now.
    Surroundings(Surroundings),
    /// Take over what may change.
    Reload(ObserverConfig, SyncSender<Result<()>>),
    /// Say goodbye, and how things stand, and end.
    Close(SyncSender<Report>),
}

/// How things stand with a worker.
#[derive(Debug)]
pub struct Report {
    /// What was counted.
    pub totals: Summary,
    /// The sessions that are open, if there are sessions.
    pub open: Option<usize>,
    /// By interface.
    pub captures: Vec<CaptureReport>,
    /// As many of them as were asked for.
    pub sessions: Vec<SessionStatus>,
    /// When this was so.
    pub at: Instant,
}

/// How things stand with a worker's capture on an interface.
#[derive(Clone, Debug)]
pub struct CaptureReport {
    /// The interface.
    pub name: String,
    /// How packets are captured: `ring` or `pnet`.
    pub backend: &'static str,
    /// Whether the interface is up.
    pub up: bool,
    /// What was seen.
    pub counters: Counters,
}

/// What workers tell the daemon.
#[derive(Debug)]
pub enum News {
    /// The capture of this number has ended.
    CaptureEnded(u32, CaptureError),
    /// The port has failed, or the means to wait.
    Failed(io::Error),
}

/// A message at the proxy's port, and who sent it.
type Mail = (Peer, Box<[u8]>);

/// The way to a worker. What comes from the network has room of its own, so that no flood of it
/// keeps the daemon out.
#[derive(Clone, Debug)]
pub struct Mailbox {
    letters: SyncSender<Letter>,
    messages: SyncSender<Mail>,
    bell: Arc<EventFd>,
    /// Questions that wait. Of a thread that is stuck the same is asked again and again.
    questions: Arc<AtomicUsize>,
}

impl Mailbox {
    /// A mailbox, and what its worker reads it by.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub fn new() -> io::Result<(Self, Inbox)> {
        let (letters, letters_in) = mpsc::sync_channel(LETTERS_WAITING);
        let (messages, messages_in) = mpsc::sync_channel(MESSAGES_WAITING);
        let bell = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
        let questions = Arc::new(AtomicUsize::new(0));
        let own = (Arc::clone(&bell), Arc::clone(&questions));
        let inbox =
            Inbox { letters: letters_in, messages: messages_in, bell: own.0, questions: own.1 };
        Ok((Self { letters, messages, bell, questions }, inbox))
    }

    /// Puts a letter in; false if the worker has ended, or has no room for more. Questions leave
    /// room for what is told.
    pub fn put(&self, letter: Letter) -> bool {
        let question = matches!(letter, Letter::Report(..));
        let room = !question || self.questions.fetch_add(1, Ordering::Relaxed) < QUESTIONS_WAITING;
        let put = room && self.letters.try_send(letter).is_ok();
        if question && !put {
            self.questions.fetch_sub(1, Ordering::Relaxed);
        }
        self.ring(put)
    }

    /// Hands on a message at the proxy's port that is for this worker; false if it has no room for
    /// more.
    fn hand_on(&self, from: Peer, message: &[u8]) -> bool {
        self.ring(self.messages.try_send((from, message.into())).is_ok())
    }

    fn ring(&self, something: bool) -> bool {
        if something {
            // It can only fail when the bell has been rung so often that it rings anyway.
            let _ = self.bell.write(1);
        }
        something
    }
}

/// A worker's end of its mailbox.
#[derive(Debug)]
pub struct Inbox {
    letters: Receiver<Letter>,
    messages: Receiver<Mail>,
    questions: Arc<AtomicUsize>,
    bell: Arc<EventFd>,
}

/// What all workers speak through.
#[derive(Debug)]
pub struct Sockets {
    /// The proxy's own port.
    pub port: Port,
    /// For answers to markers, along the path that these came; where the wire has them.
    pub path: Option<PathSocket>,
}

/// How datagrams leave a worker.
struct Outbox {
    sockets: Arc<Sockets>,
    /// The kernel's index of the interface by which answers leave, for each capture's number.
    egress: Vec<(u32, u32)>,
    /// Messages the network would not take.
    unsent: u64,
    buffer: [u8; MAX_DATAGRAM_LEN],
}

impl Outbox {
    /// Sends all that the machine has to say.
    fn send_waiting(&mut self, machine: &mut impl Machine) {
        while let Some(transmit) = machine.poll_transmit(&mut self.buffer) {
            let Err(error) = self.send(&transmit) else { continue };
            if self.unsent == 0 {
                let to = transmit.to;
                warn!(
                    "cannot send to {to}: {error} (said once; the metrics and the summary count these)"
                );
            }
            self.unsent += 1;
        }
    }

    fn send(&self, transmit: &Transmit) -> io::Result<()> {
        let Transmit { to, own, from, interface, in_session, len } = *transmit;
        let message = self.buffer.get(..len).unwrap_or_default();
        let egress =
            |number| self.egress.iter().find(|(of, _)| *of == number).map(|(_, index)| *index);
        // The interface is gone: the answer has no other way.
        let interface = interface.map(|number| egress(number).ok_or(Errno::ENODEV)).transpose()?;
        let Sockets { port, path } = &*self.sockets;
        // The raw socket also sends what is for strangers. The kernel keeps such a datagram until
        // ARP gives up, and charges it to its socket: the port's own room is for sessions.
        let from = from.or_else(|| port.own_address(own).filter(|_| !in_session && !is_scoped(to)));
        match (from, path) {
            (Some(from), Some(path)) => path.send(message, from, to, interface),
            _ => port.send(message, to, Route { source: own, interface }),
        }
    }
}

/// What is to be done beside counting.
struct Ready {
    /// There are letters.
    letters: bool,
    /// There is something at the port.
    port: bool,
    /// A capture has an error to tell.
    trouble: bool,
}

/// The thread's whole world.
pub struct Worker<M> {
    machine: M,
    captures: Vec<(u32, Capture)>,
    inbox: Inbox,
    /// All workers', in the order of their shards, for the one that reads the port; empty for the
    /// others.
    mailboxes: Vec<Mailbox>,
    outbox: Outbox,
    tell: Box<dyn Fn(News) + Send>,
    /// Messages that found no room in another worker's mailbox.
    late: u64,
    /// What interfaces have shown on which nothing is captured any more.
    gone: Counters,
}

impl<M> std::fmt::Debug for Worker<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("captures", &self.captures).finish_non_exhaustive()
    }
}

impl<M: Machine> Worker<M> {
    /// A worker without captures. With mailboxes, its own among them, it reads the port.
    pub fn new(
        machine: M,
        inbox: Inbox,
        mailboxes: Vec<Mailbox>,
        sockets: Arc<Sockets>,
        tell: Box<dyn Fn(News) + Send>,
    ) -> Self {
        Self {
            machine,
            captures: Vec::new(),
            inbox,
            mailboxes,
            outbox: Outbox {
                sockets,
                egress: Vec::new(),
                unsent: 0,
                buffer: [0; MAX_DATAGRAM_LEN],
            },
            tell,
            late: 0,
            gone: Counters::default(),
        }
    }

    /// Takes note of the machine's addresses and interfaces.
    pub fn set_surroundings(&mut self, surroundings: Surroundings) {
        self.machine.set_addresses(&surroundings.addresses);
        self.outbox.egress = surroundings.egress;
    }

    /// Works until it is told to end, or cannot.
    pub fn run(mut self) {
        if let Err(error) = self.work() {
            (self.tell)(News::Failed(error));
        }
    }

    fn work(&mut self) -> io::Result<()> {
        let sockets = Arc::clone(&self.outbox.sockets);
        let mut port = (!self.mailboxes.is_empty()).then(|| PortBuffers::new(&sockets.port));
        let mut looked_after = clock();
        loop {
            let ready = self.wait(looked_after + LIVENESS_INTERVAL)?;
            let now = clock();
            if ready.trouble || now.saturating_duration_since(looked_after) >= LIVENESS_INTERVAL {
                looked_after = now;
                self.look_after();
            }
            self.count(AT_ONCE);
            if ready.letters && self.read_letters() {
                return Ok(());
            }
            let now = clock();
            if self.machine.poll_timeout().is_some_and(|deadline| deadline <= now) {
                self.machine.on_timeout(now);
            }
            self.send_waiting();
            // Last, and not all: anyone can send there, and a flood must hold up nothing else.
            if let Some(port) = port.as_mut().filter(|_| ready.port) {
                self.read_port(port)?;
            }
        }
    }

    /// Sleeps until something is to be done.
    fn wait(&self, at_last: Instant) -> io::Result<Ready> {
        let until = self.machine.poll_timeout().map_or(at_last, |deadline| deadline.min(at_last));
        // In place, since this is done for every packet when there are few. What has no descriptor
        // of its own has the bell's.
        let bell = || PollFd::new(self.inbox.bell.as_fd(), PollFlags::POLLIN);
        let mut fds = [(); 2 + MAX_INTERFACES].map(|()| bell());
        let has_port = !self.mailboxes.is_empty();
        let port = has_port.then(|| self.outbox.sockets.port.as_fd());
        let captures = self.captures.iter().map(|(_, capture)| capture.as_fd());
        let mut used = 1;
        for (fd, place) in port.into_iter().chain(captures).zip(fds.iter_mut().skip(1)) {
            *place = PollFd::new(fd, PollFlags::POLLIN);
            used += 1;
        }
        let fds = fds.get_mut(..used).unwrap_or_default();
        let timeout = TimeSpec::from_duration(until.saturating_duration_since(clock()));
        match ppoll(fds, Some(timeout), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let trouble = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
        let said = |fd: &PollFd<'_>| fd.revents().unwrap_or(PollFlags::empty());
        let mut answers = fds.iter();
        let letters = answers.next().is_some_and(|bell| !said(bell).is_empty());
        let port = has_port && answers.next().is_some_and(|port| !said(port).is_empty());
        Ok(Ready {
            letters,
            port,
            trouble: answers.any(|capture| said(capture).intersects(trouble)),
        })
    }

    /// Counts frames that wait, of each capture so many at most.
    fn count(&mut self, most: usize) {
        let Self { machine, captures, outbox, .. } = self;
        // Takes no memory as long as nothing ends.
        let mut ended = Vec::new();
        for (number, capture) in captures.iter_mut() {
            let mut taken = 0;
            while taken < most {
                let now = clock();
                let outcome = capture.drain(&mut |captured| match captured {
                    Captured::Seen(seen) => {
                        machine.observe(seen, *number, now, |machine| outbox.send_waiting(machine));
                    }
                    Captured::Missed => machine.missed(*number),
                });
                match outcome {
                    Ok(0) => break,
                    Ok(frames) => taken += frames,
                    Err(error) => {
                        ended.push((*number, error));
                        break;
                    }
                }
            }
        }
        self.end(ended);
    }

    /// Counts all frames that are there now, and perhaps some that come meanwhile; and notes if
    /// there should have been more.
    fn count_all(&mut self) {
        let most = self.captures.iter().map(|(_, capture)| capture.most_waiting()).max();
        self.count(most.unwrap_or(0));
        self.note_drops();
    }

    /// Has the machine know of packets that the kernel had no room for.
    fn note_drops(&mut self) {
        for (number, capture) in &mut self.captures {
            capture.ask();
            if capture.has_missed() {
                self.machine.missed(*number);
            }
        }
    }

    /// Has each capture look after itself.
    fn look_after(&mut self) {
        let looks =
            self.captures.iter_mut().map(|(number, capture)| (*number, capture.look_after()));
        let ended = looks.filter_map(|(number, look)| Some((number, look.err()?))).collect();
        self.end(ended);
    }

    /// Lets go of captures that have ended, and tells why.
    fn end(&mut self, ended: Vec<(u32, CaptureError)>) {
        for (number, error) in ended {
            self.forget(number);
            (self.tell)(News::CaptureEnded(number, error));
        }
    }

    /// Lets go of the capture of this number; what it has seen stays in the totals.
    fn forget(&mut self, number: u32) {
        let Self { captures, gone, .. } = self;
        captures.retain_mut(|(of, capture)| {
            let keep = *of != number;
            if !keep {
                gone.add(&capture.counters());
            }
            keep
        });
    }

    /// Reads messages at the port, [`MESSAGES`] at most, and handles them or hands them on.
    fn read_port(&mut self, port: &mut PortBuffers<'_>) -> io::Result<()> {
        let read = port.read()?;
        if read > 0 {
            self.count_all();
        }
        for index in 0..read {
            let Some((peer, message)) = port.message(index) else { continue };
            let shards = u16::try_from(self.mailboxes.len()).unwrap_or(1);
            let shard = Shard::of_message(peer.address, message, shards);
            match self.mailboxes.get(usize::from(shard)).filter(|_| shard > 0) {
                Some(other) => self.late += u64::from(!other.hand_on(peer, message)),
                None => self.handle_input(peer, message),
            }
        }
        Ok(())
    }

    fn handle_input(&mut self, from: Peer, message: &[u8]) {
        self.machine.handle_input(from, message, clock());
        self.send_waiting();
    }

    /// Reads the letters that are there; true if the worker ends.
    fn read_letters(&mut self) -> bool {
        if self.inbox.bell.read().is_err() {
            return false;
        }
        // First all of them, then the packets that came before them. What comes meanwhile rings
        // again: its packets are not in the sums yet.
        let (letters, ended) = waiting(&self.inbox.letters, LETTERS_WAITING);
        let (messages, _) = waiting(&self.inbox.messages, MESSAGES_WAITING);
        if letters.len() == LETTERS_WAITING || messages.len() == MESSAGES_WAITING {
            // There may be more, whose ringing was heard with that of these.
            let _ = self.inbox.bell.write(1);
        }
        self.count_all();
        for (from, message) in messages {
            self.handle_input(from, &message);
        }
        letters.into_iter().any(|letter| self.read(letter)) || ended
    }

    /// Does what a letter says; true if that is to end.
    fn read(&mut self, letter: Letter) -> bool {
        match letter {
            Letter::Capture(number, capture) => {
                // Of what passed since it was captured on before, nobody knows.
                self.machine.missed(number);
                self.captures.push((number, capture));
            }
            Letter::Forget(number) => self.forget(number),
            Letter::Report(sessions, to) => {
                self.inbox.questions.fetch_sub(1, Ordering::Relaxed);
                // Whoever asked may have lost patience.
                let _ = to.try_send(self.report(sessions));
            }
            Letter::Surroundings(surroundings) => self.set_surroundings(surroundings),
            Letter::Reload(limits, to) => {
                let _ = to.try_send(self.machine.reload(limits));
            }
            Letter::Close(to) => {
                self.machine.goodbye();
                self.send_waiting();
                let _ = to.try_send(self.report(0));
                return true;
            }
        }
        false
    }

    fn report(&mut self, sessions: usize) -> Report {
        let mut totals = self.machine.totals();
        (totals.unsent, totals.late) = (self.outbox.unsent, self.late);
        totals.count(&self.gone);
        let captures: Vec<_> = self
            .captures
            .iter_mut()
            .map(|(_, capture)| CaptureReport {
                name: capture.name().to_owned(),
                backend: capture.backend(),
                up: capture.is_up(),
                counters: capture.counters(),
            })
            .collect();
        for capture in &captures {
            totals.count(&capture.counters);
        }
        let sessions = self.machine.sessions(sessions);
        Report { totals, open: self.machine.open_sessions(), captures, sessions, at: clock() }
    }

    fn send_waiting(&mut self) {
        self.outbox.send_waiting(&mut self.machine);
    }
}

/// What waits in a channel, so much at most; and whether nobody is there any more to put something
/// in.
fn waiting<T>(channel: &Receiver<T>, most: usize) -> (Vec<T>, bool) {
    let mut all = Vec::new();
    while all.len() < most {
        match channel.try_recv() {
            Ok(one) => all.push(one),
            Err(error) => return (all, error == TryRecvError::Disconnected),
        }
    }
    (all, false)
}

/// What the port's reader keeps: messages that were read at once.
struct PortBuffers<'a> {
    receiver: PortReceiver<'a>,
    messages: Vec<(Peer, usize, [u8; RECEIVE_LEN])>,
}

impl<'a> PortBuffers<'a> {
    fn new(port: &'a Port) -> Self {
        let nobody = Peer::from(SocketAddr::from(([0; 4], 0)));
        Self { receiver: port.receiver(), messages: vec![(nobody, 0, [0; RECEIVE_LEN]); MESSAGES] }
    }

    /// Reads messages that are there, [`MESSAGES`] at most, and says how many there were.
    fn read(&mut self) -> io::Result<usize> {
        for (index, (peer, len, buffer)) in self.messages.iter_mut().enumerate() {
            let Some(arrival) = self.receiver.receive(buffer)? else { return Ok(index) };
            (*peer, *len) = (Peer { address: arrival.from, own: arrival.to }, arrival.len);
        }
        Ok(MESSAGES)
    }

    fn message(&self, index: usize) -> Option<(Peer, &[u8])> {
        let (peer, len, buffer) = self.messages.get(index)?;
        Some((*peer, buffer.get(..*len)?))
    }
}
