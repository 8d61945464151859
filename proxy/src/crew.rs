//! All workers, as the daemon speaks to them.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use sidekick_protocol::ObserverConfig;
use tracing::{info, warn};

use crate::addresses::Surroundings;
use crate::capture::Capture;
use crate::machine::Machine;
use crate::runtime::{clock, spawn};
use crate::summary::Summary;
use crate::worker::{Letter, Mailbox, News, Report, Sockets, Worker};

/// How long answers of workers are waited for. It is there within a millisecond, unless the machine
/// is in distress.
const PATIENCE: Duration = Duration::from_secs(2);

/// The ways to all workers, in the order of their shards.
#[derive(Clone, Debug)]
pub struct Crew(Vec<Mailbox>);

impl Crew {
    /// Starts a worker for each machine. The first reads the port; where there are more, each is
    /// bound to a processor.
    ///
    /// # Errors
    /// When the system has no more threads or descriptors.
    pub fn start<M: Machine, E: From<News> + Send + 'static>(
        machines: Vec<M>,
        sockets: Sockets,
        surroundings: &Surroundings,
        news: &Sender<E>,
    ) -> Result<Self> {
        let sockets = Arc::new(sockets);
        let pairs = machines.iter().map(|_| Mailbox::new()).collect::<Result<Vec<_>, _>>()?;
        let (mailboxes, inboxes): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let processors = if machines.len() > 1 { processors() } else { Vec::new() };
        for (index, (machine, inbox)) in machines.into_iter().zip(inboxes).enumerate() {
            let readers = if index == 0 { mailboxes.clone() } else { Vec::new() };
            let news = news.clone();
            // The main thread may be at its end.
            let tell = Box::new(move |what| drop(news.send(E::from(what))));
            let mut worker = Worker::new(machine, inbox, readers, Arc::clone(&sockets), tell);
            worker.set_surroundings(surroundings.clone());
            let processor = processors.get(index % processors.len().max(1)).copied();
            spawn(format!("worker-{index}"), move || {
                if let Some(processor) = processor {
                    bind(index, processor);
                }
                worker.run();
            })?;
        }
        Ok(Self(mailboxes))
    }

    /// Has each worker capture its share of an interface.
    pub fn capture(&self, number: u32, captures: Vec<Capture>) {
        for (mailbox, capture) in self.0.iter().zip(captures) {
            mailbox.put(Letter::Capture(number, capture));
        }
    }

    /// Has no worker capture on an interface any more.
    pub fn forget(&self, number: u32) {
        for mailbox in &self.0 {
            mailbox.put(Letter::Forget(number));
        }
    }

    /// Informs each worker of the machine's interfaces; false if one has no room for it now.
    #[must_use]
    pub fn set_surroundings(&self, surroundings: &Surroundings) -> bool {
        self.0.iter().all(|mailbox| mailbox.put(Letter::Surroundings(surroundings.clone())))
    }

    /// How things stand with each worker that answers, with so many of its sessions at most.
    #[must_use]
    pub fn reports(&self, sessions: usize) -> Vec<Report> {
        self.answers(sessions).into_iter().flatten().collect()
    }

    /// How things stand with each worker, in their order; `None` of one that does not answer.
    #[must_use]
    pub fn answers(&self, sessions: usize) -> Vec<Option<Report>> {
        self.ask(|to| Letter::Report(sessions, to))
    }

    /// Has all take over what may change.
    ///
    /// # Errors
    /// Why not. They all are of one mind, so nothing has changed then.
    pub fn reload(&self, limits: &ObserverConfig) -> Result<()> {
        for answer in self.ask(|to| Letter::Reload(limits.clone(), to)) {
            answer.context("a thread does not answer")??;
        }
        Ok(())
    }

    /// Ends all, and sums up.
    #[must_use]
    pub fn close(&self) -> Summary {
        let reports: Vec<_> = self.ask(Letter::Close).into_iter().flatten().collect();
        if reports.len() < self.0.len() {
            warn!("a thread did not answer: the summary lacks what it counted");
        }
        sum(&reports).0
    }

    /// Puts a question to all, and waits for their answers.
    fn ask<T>(&self, letter: impl Fn(SyncSender<T>) -> Letter) -> Vec<Option<T>> {
        let answers: Vec<Receiver<T>> = self
            .0
            .iter()
            .map(|mailbox| {
                let (to, answer) = mpsc::sync_channel(1);
                mailbox.put(letter(to));
                answer
            })
            .collect();
        // One deadline for all, however many are stuck; what is there already is taken after it,
        // too.
        let deadline = clock() + PATIENCE;
        let left = || deadline.saturating_duration_since(clock());
        answers.into_iter().map(|answer| answer.recv_timeout(left()).ok()).collect()
    }
}

/// What all workers counted, and the sessions that are open, if there are sessions.
#[must_use]
pub fn sum<'a>(reports: impl IntoIterator<Item = &'a Report>) -> (Summary, Option<usize>) {
    let mut totals = Summary::default();
    let mut sessions = Some(0);
    for report in reports {
        totals.add(&report.totals);
        sessions = sessions.zip(report.open).map(|(sum, open)| sum + open);
    }
    (totals, sessions)
}

/// The processors that this program may use.
fn processors() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|processor| allowed.is_set(*processor).unwrap_or(false)).collect()
}

/// Binds this thread to a processor, so that what it counts stays in that one's cache.
fn bind(index: usize, processor: usize) {
    let mut one = CpuSet::new();
    let bound = one.set(processor).and_then(|()| sched_setaffinity(Pid::from_raw(0), &one));
    match bound {
        Ok(()) => info!("thread {index} runs on processor {processor}"),
        // A service manager may not let it, and has its own way to say where.
        Err(error) => info!("thread {index} is not bound to a processor: {error}"),
    }
}
