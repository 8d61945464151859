//! The captures for copies, which a worker has open only while a session keeps some.
//!
//! Opening or closing one takes the kernel milliseconds, so the daemon does both. It opens a spare
//! one before a session asks for copies, which then begin at once. Without it the observer grants
//! none, and senders continue without.

mod source;

use std::mem;

use sidekick_protocol::Observer;
use tracing::warn;

use super::control::Unused;
use super::{NumberedCapture, Worker, WorkerEvent};
use crate::capture::{Batch, CaptureError, Captured, Clients, CopyCapture, Frames, SpareCapture};
use crate::runtime::clock;
use source::Idleness;

/// The capture for copies on an interface.
pub(super) type CopySource = source::CopySource<Box<SpareCapture>, Box<CopyCapture>>;

/// Most frames that the worker copies from a capture in one turn of its loop.
const FRAMES_PER_TURN: usize = 128;

/// A worker's captures for copies.
#[derive(Debug)]
pub(super) struct CopyState {
    /// This worker's index, and the number of workers.
    shard: (u16, u16),
    /// The observer's version of the clients whose datagrams the captures show.
    shown: Option<u64>,
    idleness: Idleness,
    /// The observer grants copies.
    granting: bool,
    /// Packets for which earlier captures had no room.
    missed: u64,
    /// Sockets for the daemon to close. The worker gives them to it at the end of a turn.
    unused: Vec<Unused>,
    /// The log has the first error.
    warned: bool,
}

impl CopyState {
    pub(super) fn new(shard: (u16, u16)) -> Self {
        Self {
            shard,
            shown: None,
            idleness: Idleness::default(),
            granting: true,
            missed: 0,
            unused: Vec::new(),
            warned: false,
        }
    }

    /// Logs why a capture ended or cannot be opened, the first time.
    fn warn(&mut self, error: &CaptureError) {
        if !mem::replace(&mut self.warned, true) {
            warn!("the proxy keeps no copies at present: {error} (logged once)");
        }
    }

    /// Puts aside a capture that the worker no longer needs. The totals keep the packets that it
    /// missed.
    pub(super) fn put_aside(&mut self, capture: Option<Box<CopyCapture>>) {
        if let Some(mut capture) = capture {
            capture.capture.update_drops();
            self.missed += capture.capture.counters().dropped;
            self.unused.push(capture);
        }
    }

    /// Puts aside a spare capture that the worker does not need.
    pub(super) fn put_spare_aside(&mut self, spare: Option<Box<SpareCapture>>) {
        self.unused.extend(spare.map(|spare| spare as Unused));
    }

    fn begin(&mut self, source: &mut CopySource, spare: SpareCapture, clients: &Clients) {
        let begun = CopyCapture::begin(spare).and_then(|capture| {
            capture.select(clients)?;
            Ok(Box::new(capture))
        });
        match begun {
            Ok(capture) => source.open(capture, clock()),
            Err(error) => self.fail(source, &error),
        }
    }

    /// Ends the use of a capture that failed.
    fn fail(&mut self, source: &mut CopySource, error: &CaptureError) {
        self.warn(error);
        source.is_stuck |= matches!(error, CaptureError::Stuck { .. });
        self.put_aside(source.fail(clock()));
    }
}

impl Worker {
    /// Requests, begins, adapts and returns captures for copies, as the sessions need them.
    pub(super) fn adapt_copies(&mut self) {
        if self.observer.may_keep_copies() {
            self.request_spares();
        } else {
            for NumberedCapture { copies, .. } in &mut self.captures {
                self.copies.put_spare_aside(copies.take_spare());
            }
        }
        if self.observer.keeps_copies() {
            self.copies.idleness.end();
            self.begin_copies();
        } else if self.captures.iter().any(|it| it.copies.capture().is_some())
            && self.copies.idleness.is_long(clock())
        {
            for NumberedCapture { copies, .. } in &mut self.captures {
                self.copies.put_aside(copies.close());
            }
            self.copies.idleness.end();
        }
        self.show_clients();
        self.grant_copies();
        if !self.copies.unused.is_empty() {
            (self.notify)(WorkerEvent::CopiesUnused(mem::take(&mut self.copies.unused)));
        }
    }

    /// Requests the spare captures that are missing.
    fn request_spares(&mut self) {
        let (worker, _) = self.copies.shard;
        for NumberedCapture { interface, copies, .. } in &mut self.captures {
            if copies.request(clock()) {
                let (interface, stuck) = (*interface, copies.is_stuck);
                (self.notify)(WorkerEvent::SpareWanted { worker, interface, stuck });
            }
        }
    }

    /// Begins to capture where there is a spare capture.
    fn begin_copies(&mut self) {
        for NumberedCapture { copies, .. } in &mut self.captures {
            if let Some(spare) = copies.take_spare() {
                let clients = Clients::new(self.observer.copy_clients(), self.copies.shard);
                self.copies.begin(copies, *spare, &clients);
            }
        }
    }

    /// Lets the observer grant copies while a capture is open, and none is being opened.
    pub(super) fn grant_copies(&mut self) {
        let mut sources = self.captures.iter().map(|it| &it.copies);
        let any = sources.clone().any(|source| source.capture().is_some());
        let granting = any && !sources.any(CopySource::is_requested);
        if mem::replace(&mut self.copies.granting, granting) != granting {
            self.observer.set_copying(granting);
            self.outbox.send_all(&mut self.observer);
        }
    }

    /// Makes the captures show the datagrams of the present clients.
    fn show_clients(&mut self) {
        let version = self.observer.copy_clients_version();
        if self.copies.shown.replace(version) == Some(version) {
            return;
        }
        let clients = Clients::new(self.observer.copy_clients(), self.copies.shard);
        for NumberedCapture { copies, .. } in &mut self.captures {
            if let Some(Err(error)) = copies.capture().map(|capture| capture.select(&clients)) {
                self.copies.fail(copies, &error);
            }
        }
    }

    /// Handles the daemon's answer: the spare capture on an interface, or an error.
    pub(super) fn take_spare(
        &mut self,
        interface: u32,
        opened: Result<Box<SpareCapture>, CaptureError>,
    ) {
        let Some(it) = self.captures.iter_mut().find(|it| it.interface == interface) else {
            // The interface is gone.
            self.copies.put_spare_aside(opened.ok());
            return;
        };
        match opened {
            Ok(spare) => self.copies.put_spare_aside(it.copies.provide(spare)),
            Err(error) => {
                self.copies.warn(&error);
                it.copies.refuse(clock());
            }
        }
    }

    /// Checks each capture for errors.
    pub(super) fn check_copies(&mut self) {
        for NumberedCapture { copies, .. } in &mut self.captures {
            let checked = copies.capture_mut().map(|capture| capture.capture.check());
            if let Some(Err(error)) = checked {
                self.copies.fail(copies, &error);
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
            let Some(capture) = copies.capture_mut() else { continue };
            let most = most.min(capture.capture.most_waiting());
            let mut read = 0;
            while read < most {
                match copy_batch(&mut self.observer, *interface, capture) {
                    Ok(0) => break,
                    Ok(frames) => read += frames,
                    Err(error) => {
                        self.copies.fail(copies, &error);
                        break;
                    }
                }
            }
        }
    }

    /// Packets that were not copied, because the captures had no room for them.
    pub(super) fn uncopied(&self) -> u64 {
        let open = self.captures.iter().filter_map(|it| it.copies.capture());
        let dropped = open.map(|capture| capture.capture.counters().dropped);
        self.copies.missed + dropped.sum::<u64>()
    }
}

/// Reads a batch of frames from a capture, and keeps copies of their datagrams. Returns how many
/// frames the batch had.
fn copy_batch(
    observer: &mut Observer,
    interface: u32,
    capture: &mut CopyCapture,
) -> Result<usize, CaptureError> {
    let now = clock();
    let (mut frames, mut batch) = (Frames::default(), Batch::default());
    let mut datagrams = capture.capture.read(&mut frames)?;
    while let Some(captured) = datagrams.next(&mut batch) {
        // A gap is harmless: the proxy does not repeat a datagram that it lacks.
        if let Captured::Datagrams(seen) = captured {
            observer.keep_all(seen, interface, now);
        }
    }
    let read = datagrams.frames_read();
    capture.capture.release();
    Ok(read)
}
