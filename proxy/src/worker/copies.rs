//! The captures that a worker has only while a session keeps copies.
//!
//! The daemon opens and closes them, since either can take milliseconds. Until one is open, the
//! proxy keeps nothing of that interface, and senders continue without copies.

use std::mem;
use std::time::{Duration, Instant};

use tracing::warn;

use super::{NumberedCapture, Worker, WorkerEvent};
use crate::capture::{Batch, CaptureError, Captured, Clients, CopyCapture, Frames};
use crate::engine::ProtocolEngine;
use crate::runtime::clock;

/// Most frames that the worker copies from a capture in one turn of its loop.
const FRAMES_PER_TURN: usize = 128;
/// How long the captures stay open after the last session that kept copies.
const LINGER: Duration = Duration::from_secs(30);

/// The capture for copies on an interface.
#[derive(Debug, Default)]
pub(super) enum CopySource {
    /// None was needed.
    #[default]
    Closed,
    /// The daemon is opening one.
    Requested,
    /// There is one.
    Open(Box<CopyCapture>),
    /// There cannot be one at present. The worker retries when it checks its captures.
    Failed,
}

/// What a worker knows of its captures for copies.
#[derive(Debug)]
pub(super) struct CopyState {
    /// This worker's index, out of so many.
    shard: (u16, u16),
    /// The engine's version of the clients whose datagrams the captures show.
    shown: Option<u64>,
    /// Since when no session keeps copies, while captures are open.
    unused_since: Option<Instant>,
    /// Packets for which closed captures had no room.
    missed: u64,
    /// The log has the first error.
    warned: bool,
}

impl CopyState {
    pub(super) fn new(shard: (u16, u16)) -> Self {
        Self { shard, shown: None, unused_since: None, missed: 0, warned: false }
    }

    /// Logs why a capture ended or cannot be opened, the first time.
    fn warn(&mut self, error: &CaptureError) {
        if !mem::replace(&mut self.warned, true) {
            warn!("the proxy keeps no copies at present: {error} (logged once)");
        }
    }

    /// Adds packets for which a closed capture had no room.
    pub(super) fn add_missed(&mut self, missed: u64) {
        self.missed += missed;
    }
}

impl<E: ProtocolEngine> Worker<E> {
    /// Requests, adapts and returns captures for copies, as the sessions need them.
    pub(super) fn adapt_copies(&mut self) {
        let version = self.engine.copy_clients_version();
        if self.engine.keeps_copies() {
            self.copies.unused_since = None;
            let (worker, _) = self.copies.shard;
            for NumberedCapture { interface, copies, .. } in &mut self.captures {
                if matches!(copies, CopySource::Closed) {
                    *copies = CopySource::Requested;
                    (self.notify)(WorkerEvent::CopiesWanted { worker, interface: *interface });
                }
            }
        } else if self.is_open() {
            let since = *self.copies.unused_since.get_or_insert_with(clock);
            if clock().saturating_duration_since(since) >= LINGER {
                self.close_copies();
            }
        }
        if self.copies.shown != Some(version) {
            self.copies.shown = Some(version);
            let clients = Clients::new(self.engine.copy_clients(), self.copies.shard);
            for NumberedCapture { copies, .. } in &mut self.captures {
                if let CopySource::Open(capture) = copies {
                    show(capture, &clients);
                }
            }
        }
    }

    fn is_open(&self) -> bool {
        self.captures.iter().any(|it| matches!(it.copies, CopySource::Open(_)))
    }

    /// Returns all captures for copies to the daemon, which closes them.
    fn close_copies(&mut self) {
        self.copies.unused_since = None;
        let mut unused = Vec::new();
        for NumberedCapture { copies, .. } in &mut self.captures {
            if let CopySource::Open(mut capture) = mem::take(copies) {
                self.copies.missed += missed(&mut capture);
                unused.push(capture);
            }
        }
        (self.notify)(WorkerEvent::CopiesUnused(unused));
    }

    /// Takes the capture that the daemon has opened on an interface, or not.
    pub(super) fn take_copies(
        &mut self,
        interface: u32,
        opened: Result<Box<CopyCapture>, CaptureError>,
    ) {
        let clients = Clients::new(self.engine.copy_clients(), self.copies.shard);
        // The interface may be gone.
        let Some(it) = self.captures.iter_mut().find(|it| it.interface == interface) else {
            return;
        };
        it.copies = match opened {
            Ok(capture) => {
                show(&capture, &clients);
                CopySource::Open(capture)
            }
            Err(error) => {
                self.copies.warn(&error);
                CopySource::Failed
            }
        };
    }

    /// Requests captures again that could not be opened.
    pub(super) fn retry_copies(&mut self) {
        for NumberedCapture { copies, .. } in &mut self.captures {
            if let CopySource::Open(capture) = copies
                && let Err(error) = capture.capture.check()
            {
                self.copies.warn(&error);
                self.copies.missed += missed(capture);
                *copies = CopySource::Failed;
            } else if matches!(copies, CopySource::Failed) {
                *copies = CopySource::Closed;
            }
        }
    }

    /// Keeps copies of some datagrams that wait.
    pub(super) fn read_some_copies(&mut self) {
        self.read_copies(FRAMES_PER_TURN);
    }

    /// Keeps copies of all datagrams that waited when it was called.
    pub(super) fn drain_copies(&mut self) {
        self.read_copies(usize::MAX);
    }

    /// Reads frames that wait, at most `most` of each capture and no more than can wait there.
    fn read_copies(&mut self, most: usize) {
        for NumberedCapture { interface, copies, .. } in &mut self.captures {
            let CopySource::Open(capture) = copies else { continue };
            let most = most.min(capture.capture.most_waiting());
            let mut read = 0;
            while read < most {
                match copy_batch(&mut self.engine, *interface, capture) {
                    Ok(0) => break,
                    Ok(frames) => read += frames,
                    Err(error) => {
                        self.copies.warn(&error);
                        self.copies.missed += missed(capture);
                        *copies = CopySource::Failed;
                        break;
                    }
                }
            }
        }
    }

    /// Packets that were not copied, because the captures had no room for them.
    pub(super) fn uncopied(&self) -> u64 {
        let open = self.captures.iter().filter_map(|it| match &it.copies {
            CopySource::Open(capture) => Some(capture.capture.counters().dropped),
            _ => None,
        });
        self.copies.missed + open.sum::<u64>()
    }
}

impl NumberedCapture {
    /// Packets for which its capture for copies had no room.
    pub(super) fn missed_copies(&mut self) -> u64 {
        match &mut self.copies {
            CopySource::Open(capture) => missed(capture),
            _ => 0,
        }
    }

    /// The capture for copies, if it is open.
    pub(super) fn open_copies(&self) -> Option<&CopyCapture> {
        match &self.copies {
            CopySource::Open(capture) => Some(capture),
            _ => None,
        }
    }
}

fn missed(capture: &mut CopyCapture) -> u64 {
    capture.capture.update_drops();
    capture.capture.counters().dropped
}

fn show(capture: &CopyCapture, clients: &Clients) {
    if let Err(error) = capture.select(clients) {
        warn!("cannot filter what the proxy copies on {}: {error}", capture.capture.name());
    }
}

/// Reads a batch of frames from a capture, and keeps copies of their datagrams. Returns how many
/// frames the batch had.
fn copy_batch<E: ProtocolEngine>(
    engine: &mut E,
    interface: u32,
    capture: &mut CopyCapture,
) -> Result<usize, CaptureError> {
    let now = clock();
    let (mut frames, mut batch) = (Frames::default(), Batch::default());
    let mut datagrams = capture.capture.read(&mut frames)?;
    while let Some(captured) = datagrams.next(&mut batch) {
        // A gap harms nothing: what is not there is not repeated.
        if let Captured::Datagrams(seen) = captured {
            engine.keep(seen, interface, now);
        }
    }
    let read = datagrams.frames_read();
    capture.capture.release();
    Ok(read)
}
