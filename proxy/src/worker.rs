//! A thread that does all work for the sources that it serves: it captures their packets, counts
//! them, receives their messages, and sends what is due. Its data belongs to no other thread, so
//! counting a packet takes no lock.
//!
//! [`Worker::work`] is the loop. The first worker also reads the proxy's port, and forwards to the
//! others the messages of their sources, by a [`WorkerHandle`], which also carries the commands of
//! the daemon.
//!
//! A message may ask which packets the proxy counted. The packets that arrived before it are in the
//! captures when the worker reads it, so the worker drains the captures first. It reads as many
//! frames as can wait there, and no more, so a flood does not delay messages forever. It reads a
//! few messages at a time, so a flood of them does not delay packets, due quACKs or commands.
//!
//! While a session keeps copies, the worker has a second capture on each interface, of what travels
//! towards clients ([`copies`]). Counting goes first: in a turn of the loop, the worker copies at
//! most half as many frames as it counts. Before a message it reads all that wait, because the
//! message may request them.

mod control;
mod copies;
mod outbox;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use sidekick_protocol::{Observed, Observer, Peer, Release, Shard};
use tracing::debug;

use crate::addresses::HostNetwork;
use crate::capture::{Batch, Capture, CaptureError, Captured, Counters, Frames};
use crate::config::MAX_INTERFACES;
use crate::gateway::Gateway;
use crate::packet::{self, Link};
use crate::port::{Port, PortReader};
use crate::runtime::clock;
use crate::summary::Summary;
pub(crate) use control::{CaptureReport, Command, CopiesHeld, Inbox, WorkerHandle};
pub use control::{Report, WorkerEvent};
use copies::{CopySource, CopyState};
use outbox::Outbox;
pub use outbox::Sockets;

/// Most frames that the worker reads from a capture in one turn of its loop.
const FRAMES_PER_TURN: usize = 256;
/// How often the worker checks captures that show nothing.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A capture, and the daemon's number of its interface.
#[derive(Debug)]
struct NumberedCapture {
    interface: u32,
    capture: Capture,
    /// The capture of datagrams to clients on the same interface.
    copies: CopySource,
}

/// The outcome of a wait.
struct Ready {
    /// Commands or forwarded messages.
    inbox: bool,
    /// Messages at the port.
    port: bool,
    capture_error: bool,
}

pub(crate) struct Worker {
    observer: Observer,
    captures: Vec<NumberedCapture>,
    copies: CopyState,
    inbox: Inbox,
    /// All workers, in the order of their shards, for the one that reads the port; empty for the
    /// others.
    workers: Vec<WorkerHandle>,
    outbox: Outbox,
    /// Where packets of flows wait that are put in order.
    gateway: Gateway,
    /// Scratch of [`Worker::read_queue`], kept to avoid allocation.
    waved: Vec<Release>,
    notify: Box<dyn Fn(WorkerEvent) + Send>,
    /// Messages that another worker had no room for.
    late: u64,
    /// The counters of closed captures.
    closed: Counters,
    /// When the worker last checked its captures.
    checked: Instant,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("captures", &self.captures).finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker without captures. `shard` is its index, and the number of workers. With the handles
    /// of `workers`, this one reads the port.
    pub(crate) fn new(
        observer: Observer,
        shard: (u16, u16),
        inbox: Inbox,
        workers: Vec<WorkerHandle>,
        sockets: Arc<Sockets>,
        notify: Box<dyn Fn(WorkerEvent) + Send>,
    ) -> Self {
        Self {
            observer,
            captures: Vec::new(),
            copies: CopyState::new(shard),
            inbox,
            workers,
            outbox: Outbox::new(sockets),
            gateway: Gateway::default(),
            waved: Vec::new(),
            notify,
            late: 0,
            closed: Counters::default(),
            checked: clock(),
        }
    }

    /// Replaces the machine's addresses and interfaces.
    pub(crate) fn set_network(&mut self, network: HostNetwork) {
        self.observer.set_addresses(network.addresses);
        self.outbox.egress = network.egress;
    }

    /// Works until a command ends it, or the port fails.
    pub(crate) fn run(mut self, sockets: &Sockets) {
        let mut reader = self.reads_port().then(PortReader::default);
        let port = reader.as_mut().map(|reader| (&sockets.port, reader));
        if let Err(error) = self.work(port) {
            (self.notify)(WorkerEvent::Failed(error));
        }
    }

    fn work(&mut self, mut port: Option<(&Port, &mut PortReader)>) -> io::Result<()> {
        self.grant_copies();
        loop {
            let ready = self.wait()?;
            if ready.capture_error || self.next_check() <= clock() {
                self.check_captures();
            }
            self.read_captures(FRAMES_PER_TURN);
            self.read_queue();
            self.read_some_copies();
            if ready.inbox && self.read_inbox() {
                return Ok(());
            }
            let now = clock();
            if self.observer.poll_timeout().is_some_and(|deadline| deadline <= now) {
                // A quACK of a silence must not overtake the packets that broke it.
                self.drain_captures();
                self.observer.on_timeout(now);
            }
            self.outbox.send_all(&mut self.observer);
            // Last, and not all: anyone can send messages, and a flood must delay nothing else.
            if let Some((port, reader)) = port.as_mut().filter(|_| ready.port) {
                self.read_port(port, reader)?;
            }
            self.release();
            self.adapt_copies();
        }
    }

    /// Reads packets that wait, and lets those pass that need not wait any longer.
    fn read_queue(&mut self) {
        if !self.gateway.is_open() {
            return;
        }
        let Self { gateway, observer, waved, .. } = self;
        let now = clock();
        gateway.read(|id, frame| {
            let held = packet::parse(Link::Ip, frame, frame.len()).is_ok_and(|datagram| {
                observer.hold(id.into(), &datagram.flow, datagram.payload, now)
            });
            if !held {
                waved.push(Release::Held(id.into()));
            }
            waved.extend(std::iter::from_fn(|| observer.poll_release()));
        });
        self.release();
    }

    /// Lets packets pass that need not wait any longer.
    fn release(&mut self) {
        let Self { gateway, observer, waved, outbox, .. } = self;
        for release in waved.drain(..).chain(std::iter::from_fn(|| observer.poll_release())) {
            match release {
                Release::Held(name) => {
                    u32::try_from(name).into_iter().for_each(|id| gateway.accept(id));
                }
                Release::Made { flow, class, payload } => {
                    // It follows those before it.
                    gateway.flush();
                    outbox.send_along(&flow, class, &payload);
                }
            }
        }
        gateway.flush();
    }

    /// Reads frames that wait, at most `most` of each capture, and counts their datagrams.
    fn read_captures(&mut self, most: usize) {
        // Allocates only when a capture ends.
        let mut ended = Vec::new();
        for NumberedCapture { interface, capture, .. } in &mut self.captures {
            let mut read = 0;
            while read < most {
                match read_batch(&mut self.observer, &mut self.outbox, *interface, capture) {
                    Ok(0) => break,
                    Ok(frames) => read += frames,
                    Err(error) => {
                        ended.push((*interface, error));
                        break;
                    }
                }
            }
        }
        self.end_captures(ended);
    }

    /// Counts and copies all frames that wait now, and perhaps some that arrive meanwhile. Reports
    /// to the observer where the kernel dropped packets.
    fn drain_captures(&mut self) {
        let most = self.captures.iter().map(|it| it.capture.most_waiting()).max();
        self.read_captures(most.unwrap_or(0));
        for NumberedCapture { interface, capture, .. } in &mut self.captures {
            capture.update_drops();
            if capture.take_missed() {
                self.observer.missed(*interface);
            }
        }
        self.drain_copies();
    }

    fn next_check(&self) -> Instant {
        self.checked + CHECK_INTERVAL
    }

    /// Checks each capture for errors.
    fn check_captures(&mut self) {
        self.checked = clock();
        let checks = self.captures.iter_mut().map(|it| (it.interface, it.capture.check()));
        let ended =
            checks.filter_map(|(interface, check)| Some((interface, check.err()?))).collect();
        self.end_captures(ended);
        self.check_copies();
    }

    /// Closes captures that have ended, and reports why.
    fn end_captures(&mut self, ended: Vec<(u32, CaptureError)>) {
        for (interface, cause) in ended {
            self.close_capture(interface);
            (self.notify)(WorkerEvent::CaptureEnded { interface, cause });
        }
    }

    /// Closes the capture with this number. The totals keep its counts.
    fn close_capture(&mut self, interface: u32) {
        // From here on, no capture sees the packets.
        self.observer.missed(interface);
        let Self { captures, closed, copies, .. } = self;
        for mut it in captures.extract_if(.., |it| it.interface == interface) {
            copies.put_aside(it.copies.close());
            copies.put_spare_aside(it.copies.take_spare());
            let mut capture = it.capture;
            capture.update_drops();
            closed.add(&capture.counters());
        }
    }

    /// Reads some messages at the port. Handles them, or forwards them to the workers that serve
    /// their sources.
    fn read_port(&mut self, port: &Port, reader: &mut PortReader) -> io::Result<()> {
        let count = reader.read(port)?;
        if count > 0 {
            // After the receipt: these packets arrived before the messages, which may list them.
            self.drain_captures();
            self.read_queue();
        }
        let shards = u16::try_from(self.workers.len()).unwrap_or(1);
        for (from, message) in reader.messages(count) {
            let shard = Shard::of_message(from.address, message, shards);
            match self.workers.get(usize::from(shard)).filter(|_| shard > 0) {
                Some(other) => self.late += u64::from(!other.forward(from, message)),
                None => self.handle_message(from, message),
            }
        }
        Ok(())
    }

    fn handle_message(&mut self, from: Peer, message: &[u8]) {
        if let Err(error) = self.observer.handle_input(from, message, clock()) {
            debug!("{} bytes from {}: {error}", message.len(), from.address);
        }
        self.outbox.send_all(&mut self.observer);
    }

    /// Handles the commands and forwarded messages that wait. Returns whether the worker ends.
    fn read_inbox(&mut self) -> bool {
        let Some(received) = self.inbox.receive() else { return false };
        // After the receipt: these are the packets that arrived before the messages.
        self.drain_captures();
        for message in received.messages {
            self.handle_message(message.from, &message.bytes);
        }
        received.commands.into_iter().any(|command| self.execute(command)) || received.disconnected
    }

    /// Executes a command. Returns whether the worker ends.
    fn execute(&mut self, command: Command) -> bool {
        // A recipient of a reply may have stopped waiting, so an error of a reply means nothing.
        match command {
            Command::Capture { interface, capture } => {
                // Nor did one until now. A POLL since the last one closed may have begun an epoch.
                self.observer.missed(interface);
                let copies = CopySource::default();
                self.captures.push(NumberedCapture { interface, capture, copies });
            }
            Command::Spare { interface, opened } => self.take_spare(interface, opened),
            Command::CloseCapture(interface) => self.close_capture(interface),
            Command::Report(sessions, reply) => drop(reply.try_send(self.report(sessions))),
            Command::SetNetwork(network, reply) => {
                self.set_network(network);
                let _ = reply.try_send(());
            }
            Command::Reload(limits, reply) => {
                let outcome = self.observer.reconfigure(limits);
                drop(reply.try_send(outcome.map_err(Into::into)));
            }
            Command::Order(gateway) => self.gateway = gateway,
            Command::Hold(until) => drop(until.recv()),
            Command::Close(reply) => {
                self.gateway.close();
                self.observer.close();
                self.outbox.send_all(&mut self.observer);
                drop(reply.try_send(self.report(0)));
                return true;
            }
        }
        false
    }

    /// A report with the status of at most `sessions` sessions.
    fn report(&self, sessions: usize) -> Report {
        let mut totals = Summary::of(self.observer.stats());
        (totals.unsent, totals.late) = (self.outbox.unsent(), self.late);
        totals.uncopied = self.uncopied();
        totals.count(&self.closed);
        let captures: Vec<_> = self
            .captures
            .iter()
            .map(|NumberedCapture { capture, .. }| CaptureReport {
                name: capture.name().to_owned(),
                backend: capture.backend(),
                up: capture.is_up(),
                counters: capture.counters(),
            })
            .collect();
        for capture in &captures {
            totals.count(&capture.counters);
        }
        let sessions = self.observer.statuses().take(sessions).collect();
        let open = self.observer.sessions();
        let copies = CopiesHeld {
            bytes: self.observer.copies_bytes(),
            sessions: self.observer.keeping_sessions(),
        };
        Report { totals, open, copies, captures, sessions, at: clock() }
    }

    /// Whether this worker reads the proxy's port.
    fn reads_port(&self) -> bool {
        !self.workers.is_empty()
    }

    /// Sleeps until there is something to do.
    fn wait(&self) -> io::Result<Ready> {
        let check = self.next_check();
        let until = self.observer.poll_timeout().map_or(check, |deadline| deadline.min(check));
        let timeout = TimeSpec::from_duration(until.saturating_duration_since(clock()));
        // An array, since this runs for every packet when there are few. Unused places hold the
        // descriptor of the inbox.
        let inbox = || PollFd::new(self.inbox.as_fd(), PollFlags::POLLIN);
        let mut fds = [(); 3 + 2 * MAX_INTERFACES].map(|()| inbox());
        let port = self.reads_port().then(|| self.outbox.port().as_fd());
        let copies = self.captures.iter().filter_map(|it| it.copies.capture());
        let copies = copies.map(|it| it.capture.as_fd());
        let captures = self.captures.iter().map(|it| it.capture.as_fd()).chain(copies);
        let captures = captures.chain(self.gateway.fd());
        let mut used = 1;
        for (fd, place) in port.into_iter().chain(captures).zip(fds.iter_mut().skip(1)) {
            *place = PollFd::new(fd, PollFlags::POLLIN);
            used += 1;
        }
        let fds = fds.get_mut(..used).unwrap_or_default();
        match ppoll(fds, Some(timeout), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let error = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
        let events = |fd: &PollFd<'_>| fd.revents().unwrap_or(PollFlags::empty());
        let mut fds = fds.iter();
        let inbox = fds.next().is_some_and(|inbox| !events(inbox).is_empty());
        let port = self.reads_port() && fds.next().is_some_and(|port| !events(port).is_empty());
        let capture_error = fds.any(|capture| events(capture).intersects(error));
        Ok(Ready { inbox, port, capture_error })
    }
}

/// Reads a batch of frames from a capture, and counts their datagrams. A quACK that a datagram
/// makes due leaves before the next datagram is counted. Returns how many frames the batch had.
fn read_batch(
    observer: &mut Observer,
    outbox: &mut Outbox,
    interface: u32,
    capture: &mut Capture,
) -> Result<usize, CaptureError> {
    let now = clock();
    let (mut frames, mut batch) = (Frames::default(), Batch::default());
    let mut datagrams = capture.read(&mut frames)?;
    while let Some(captured) = datagrams.next(&mut batch) {
        match captured {
            Captured::Datagrams(seen) => {
                observer.observe_all(seen, interface, now, |observer, observed| {
                    if matches!(observed, Observed::Counted | Observed::Marker) {
                        outbox.send_all(observer);
                    }
                });
            }
            Captured::Missed => observer.missed(interface),
        }
    }
    let read = datagrams.frames_read();
    capture.release();
    Ok(read)
}
