//! How other threads control a worker: commands to it, its reports and its events.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::time::Instant;

use anyhow::Result;
use nix::sys::eventfd::{EfdFlags, EventFd};
use sidekick_protocol::{ObserverConfig, Peer, SessionStatus};

use crate::addresses::HostNetwork;
use crate::capture::{Capture, CaptureError, Counters, SpareCapture};
use crate::config::MAX_INTERFACES;
use crate::gateway::Gateway;
use crate::summary::Summary;

/// Messages that can wait for a worker. It drops further ones, as the network may drop them.
const MESSAGES_WAITING: usize = 1024;
/// Requests for a report that can wait for a worker.
const REPORTS_WAITING: usize = 16;
/// Commands that can wait for a worker, among them these requests.
const COMMANDS_WAITING: usize = REPORTS_WAITING + 6 * MAX_INTERFACES;

/// A command of the daemon to a worker.
#[derive(Debug)]
pub(crate) enum Command {
    /// Capture on an interface, under the daemon's number of it.
    Capture {
        /// The number.
        interface: u32,
        /// The open capture.
        capture: Capture,
    },
    /// The answer to [`WorkerEvent::SpareWanted`].
    Spare {
        /// The daemon's number of the interface.
        interface: u32,
        /// The spare capture for copies, or the error of opening it.
        opened: Result<Box<SpareCapture>, CaptureError>,
    },
    /// Close the capture with this number.
    CloseCapture(u32),
    /// Send a report with the status of at most this many sessions.
    Report(usize, SyncSender<Report>),
    /// The machine has these addresses and interfaces now.
    SetNetwork(HostNetwork, SyncSender<()>),
    /// Apply these limits.
    Reload(ObserverConfig, SyncSender<Result<()>>),
    /// Put flows in order whose packets wait there.
    Order(Gateway),
    /// Do nothing until the other end is dropped.
    Hold(Receiver<()>),
    /// Send the senders a BYE, send a report, and end.
    Close(SyncSender<Report>),
}

/// The copies that a worker holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiesHeld {
    /// Bytes of memory that hold copies.
    pub bytes: usize,
    /// Sessions that keep copies.
    pub sessions: usize,
}

/// The counters and the status of a worker.
#[derive(Debug)]
pub struct Report {
    /// The worker's totals.
    pub totals: Summary,
    /// The number of open sessions.
    pub open: usize,
    /// The copies that the worker holds.
    pub copies: CopiesHeld,
    /// The captures, by interface.
    pub captures: Vec<CaptureReport>,
    /// The status of as many sessions as were requested.
    pub sessions: Vec<SessionStatus>,
    /// When the worker wrote the report.
    pub at: Instant,
}

/// The counters and the status of a worker's capture on an interface.
#[derive(Clone, Debug)]
pub struct CaptureReport {
    /// The interface.
    pub name: String,
    /// How the capture reads packets: `ring` or `pnet`.
    pub backend: &'static str,
    /// Whether the interface is up.
    pub up: bool,
    /// The capture's counters.
    pub counters: Counters,
}

/// A capture for copies, or a spare one. Closing it takes the kernel milliseconds.
pub(super) type Unused = Box<dyn fmt::Debug + Send>;

/// An event that a worker reports to the daemon.
#[derive(Debug)]
pub enum WorkerEvent {
    /// A capture has ended.
    CaptureEnded {
        /// The daemon's number of the interface.
        interface: u32,
        /// Why it has ended.
        cause: CaptureError,
    },
    /// A worker needs a spare capture of what travels towards clients on an interface.
    SpareWanted {
        /// The worker's index.
        worker: u16,
        /// The daemon's number of the interface.
        interface: u32,
        /// The last capture had a ring that got stuck.
        stuck: bool,
    },
    /// A worker no longer needs these sockets. The daemon closes them, so that the worker does not
    /// wait for the kernel.
    CopiesUnused(Vec<Unused>),
    /// The port, or the wait for events, has failed. The worker has ended.
    Failed(io::Error),
}

/// A message that arrived at the proxy's port.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) from: Peer,
    pub(super) bytes: Box<[u8]>,
}

/// A handle by which other threads control a worker.
///
/// Messages from the network have a channel of their own, so no flood of them keeps out the
/// daemon's commands.
#[derive(Clone, Debug)]
pub(crate) struct WorkerHandle {
    commands: SyncSender<Command>,
    messages: SyncSender<Message>,
    waker: Arc<EventFd>,
    /// The number of waiting requests for a report. Requests repeat while a worker is stuck.
    reports_waiting: Arc<AtomicUsize>,
}

impl WorkerHandle {
    /// A handle, and the inbox for its worker.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub(crate) fn new() -> io::Result<(Self, Inbox)> {
        let (commands, commands_in) = mpsc::sync_channel(COMMANDS_WAITING);
        let (messages, messages_in) = mpsc::sync_channel(MESSAGES_WAITING);
        let waker = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
        let reports_waiting = Arc::new(AtomicUsize::new(0));
        let inbox = Inbox {
            commands: commands_in,
            messages: messages_in,
            waker: Arc::clone(&waker),
            reports_waiting: Arc::clone(&reports_waiting),
        };
        Ok((Self { commands, messages, waker, reports_waiting }, inbox))
    }

    /// Sends a command. Returns false if the worker has ended, or has no room for it. Requests for
    /// a report leave room for other commands.
    pub(crate) fn send(&self, command: Command) -> bool {
        let limited = matches!(command, Command::Report(..));
        let has_room =
            !limited || self.reports_waiting.fetch_add(1, Ordering::Relaxed) < REPORTS_WAITING;
        let sent = has_room && self.commands.try_send(command).is_ok();
        if limited && !sent {
            self.reports_waiting.fetch_sub(1, Ordering::Relaxed);
        }
        self.wake_after(sent)
    }

    /// Forwards a message that another worker has read at the proxy's port. Returns false if the
    /// worker has no room for it.
    pub(super) fn forward(&self, from: Peer, bytes: &[u8]) -> bool {
        self.wake_after(self.messages.try_send(Message { from, bytes: bytes.into() }).is_ok())
    }

    fn wake_after(&self, sent: bool) -> bool {
        if sent {
            // This fails only at the largest value of the counter, which wakes the worker anyway.
            let _ = self.waker.write(1);
        }
        sent
    }
}

/// A worker's end of its [`WorkerHandle`].
#[derive(Debug)]
pub(crate) struct Inbox {
    commands: Receiver<Command>,
    messages: Receiver<Message>,
    waker: Arc<EventFd>,
    reports_waiting: Arc<AtomicUsize>,
}

/// The commands and messages that waited in an [`Inbox`].
#[derive(Debug)]
pub(super) struct Received {
    pub(super) commands: Vec<Command>,
    pub(super) messages: Vec<Message>,
    /// No handle is left.
    pub(super) disconnected: bool,
}

impl Inbox {
    /// Takes out what waits now; `None` if no handle has woken the worker.
    ///
    /// What arrives meanwhile wakes the worker again, since it has not counted the packets before
    /// that yet.
    pub(super) fn receive(&self) -> Option<Received> {
        self.waker.read().ok()?;
        let (commands, disconnected) = waiting(&self.commands, COMMANDS_WAITING);
        let (messages, _) = waiting(&self.messages, MESSAGES_WAITING);
        if commands.len() == COMMANDS_WAITING || messages.len() == MESSAGES_WAITING {
            // There may be more, and this read has cleared the waker for them, too.
            let _ = self.waker.write(1);
        }
        let reports =
            commands.iter().filter(|command| matches!(command, Command::Report(..))).count();
        self.reports_waiting.fetch_sub(reports, Ordering::Relaxed);
        Some(Received { commands, messages, disconnected })
    }
}

impl AsFd for Inbox {
    /// Readable when a handle has woken the worker.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

/// The waiting items of a channel, at most `most`, and whether all of its senders are gone.
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
