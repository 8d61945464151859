//! All workers of a proxy, as the daemon controls them.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use sidekick_protocol::{Observer, ObserverConfig};
use tracing::{info, warn};

use crate::addresses::HostNetwork;
use crate::capture::{Capture, CaptureError, SpareCapture};
use crate::gateway::Gateway;
use crate::runtime::{clock, spawn};
use crate::summary::Summary;
use crate::worker::{Command, Report, Sockets, Worker, WorkerEvent, WorkerHandle};

/// How long to wait for replies of workers. A worker replies within a millisecond, unless the
/// machine is overloaded.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait for the totals of workers at the end, because nobody can ask for them again. A
/// service manager kills the program later: procd after 5 s, podman after 10 s.
const CLOSE_PATIENCE: Duration = Duration::from_secs(4);

/// Handles of all workers, in the order of their shards.
#[derive(Clone, Debug)]
pub struct WorkerPool(Vec<WorkerHandle>);

impl WorkerPool {
    /// Starts a worker for each observer, of which the first reads the port. If there are several,
    /// each is bound to a processor.
    ///
    /// # Errors
    /// When the system has no more threads or descriptors.
    pub fn start<Event: From<WorkerEvent> + Send + 'static>(
        observers: Vec<Observer>,
        sockets: Sockets,
        network: &HostNetwork,
        events: &Sender<Event>,
    ) -> Result<Self> {
        let sockets = Arc::new(sockets);
        let pairs = observers.iter().map(|_| WorkerHandle::new()).collect::<Result<Vec<_>, _>>()?;
        let (handles, inboxes): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let of = u16::try_from(observers.len()).context("too many threads")?;
        let processors = if observers.len() > 1 { processors() } else { Vec::new() };
        for ((index, shard), (observer, inbox)) in
            (0_usize..).zip(0_u16..).zip(observers.into_iter().zip(inboxes))
        {
            let others = if index == 0 { handles.clone() } else { Vec::new() };
            let events = events.clone();
            // The main thread may have ended.
            let notify = Box::new(move |event| drop(events.send(Event::from(event))));
            let sockets = Arc::clone(&sockets);
            let mut worker =
                Worker::new(observer, (shard, of), inbox, others, Arc::clone(&sockets), notify);
            worker.set_network(network.clone());
            let processor = processors.get(index % processors.len().max(1)).copied();
            spawn(format!("worker-{index}"), move || {
                if let Some(processor) = processor {
                    bind(index, processor);
                }
                worker.run(&sockets);
            })?;
        }
        Ok(Self(handles))
    }

    /// Keeps a worker from all work until the returned end is dropped, for tests of a stuck one.
    #[must_use]
    pub fn hold(&self, worker: usize) -> Sender<()> {
        let (held, until) = mpsc::channel();
        if let Some(worker) = self.0.get(worker) {
            worker.send(Command::Hold(until));
        }
        held
    }

    /// Gives the first worker the queue in which packets wait. It must be the only one.
    pub(crate) fn order(&self, gateway: Gateway) {
        if let Some(worker) = self.0.first() {
            worker.send(Command::Order(gateway));
        }
    }

    /// Gives each worker its capture on an interface.
    pub(crate) fn capture(&self, interface: u32, captures: Vec<Capture>) {
        for (worker, capture) in self.0.iter().zip(captures) {
            worker.send(Command::Capture { interface, capture });
        }
    }

    /// Gives a worker the spare capture that it requested on an interface, or the error of opening
    /// it.
    pub(crate) fn provide_spare(
        &self,
        worker: u16,
        interface: u32,
        opened: Result<Box<SpareCapture>, CaptureError>,
    ) {
        if let Some(worker) = self.0.get(usize::from(worker)) {
            worker.send(Command::Spare { interface, opened });
        }
    }

    /// Closes the captures of all workers on an interface.
    pub(crate) fn close_capture(&self, interface: u32) {
        for worker in &self.0 {
            worker.send(Command::CloseCapture(interface));
        }
    }

    /// Sends each worker the machine's addresses and interfaces. Returns whether all workers use
    /// them now.
    #[must_use]
    pub(crate) fn set_network(&self, network: &HostNetwork) -> bool {
        let replies = self.ask(PATIENCE, |reply| Command::SetNetwork(network.clone(), reply));
        replies.iter().all(Option::is_some)
    }

    /// The reports of the workers that reply, each with the status of at most `sessions` sessions.
    #[must_use]
    pub(crate) fn reports(&self, sessions: usize) -> Vec<Report> {
        self.all_reports(sessions).into_iter().flatten().collect()
    }

    /// The report of each worker, in the order of their shards; `None` for one that does not reply.
    #[must_use]
    pub fn all_reports(&self, sessions: usize) -> Vec<Option<Report>> {
        self.ask(PATIENCE, |reply| Command::Report(sessions, reply))
    }

    /// Applies limits. A thread that does not answer applies them once it continues.
    ///
    /// # Errors
    /// Why the limits are impossible. All workers decide alike, so nothing has changed then.
    pub(crate) fn reload(&self, limits: &ObserverConfig) -> Result<()> {
        for reply in self.ask(PATIENCE, |reply| Command::Reload(limits.clone(), reply)) {
            match reply {
                Some(outcome) => outcome?,
                None => warn!("a thread does not answer: it applies the settings once it does"),
            }
        }
        Ok(())
    }

    /// Ends all workers, and returns the sum of their totals.
    #[must_use]
    pub fn close(&self) -> Summary {
        let replies = self.ask(CLOSE_PATIENCE, Command::Close);
        let reports: Vec<_> = replies.into_iter().flatten().collect();
        if reports.len() < self.0.len() {
            warn!("a thread did not answer: the summary lacks its counts");
        }
        sum(&reports).0
    }

    /// Sends a command to all workers, and waits for their replies for at most `patience`.
    fn ask<T>(
        &self,
        patience: Duration,
        command: impl Fn(SyncSender<T>) -> Command,
    ) -> Vec<Option<T>> {
        let replies: Vec<Receiver<T>> = self
            .0
            .iter()
            .map(|worker| {
                let (sender, reply) = mpsc::sync_channel(1);
                worker.send(command(sender));
                reply
            })
            .collect();
        // One deadline for all, however many are stuck. After it, replies that wait already count.
        let deadline = clock() + patience;
        let left = || deadline.saturating_duration_since(clock());
        replies.into_iter().map(|reply| reply.recv_timeout(left()).ok()).collect()
    }
}

/// The totals of all workers, and the number of open sessions.
#[must_use]
pub(crate) fn sum<'a>(reports: impl IntoIterator<Item = &'a Report>) -> (Summary, usize) {
    let mut totals = Summary::default();
    let mut sessions = 0;
    for report in reports {
        totals += &report.totals;
        sessions += report.open;
    }
    (totals, sessions)
}

/// The processors that this program may use.
fn processors() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|processor| allowed.is_set(*processor).unwrap_or(false)).collect()
}

/// Binds this thread to a processor, so that its data stays in the cache of that processor.
fn bind(index: usize, processor: usize) {
    let mut one = CpuSet::new();
    let bound = one.set(processor).and_then(|()| sched_setaffinity(Pid::from_raw(0), &one));
    match bound {
        Ok(()) => info!("thread {index} runs on processor {processor}"),
        // A service manager may forbid it, and has settings of its own for this.
        Err(error) => info!("thread {index} is not bound to a processor: {error}"),
    }
}
