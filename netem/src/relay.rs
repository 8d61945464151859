//! The user-space link between the two lab ends of a segment: a thread that takes every frame off one end, passes it
//! through the [`Link`] model and puts it out at the other.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use serde::Serialize;

use crate::link::{Link, LinkCounters};
use crate::scenario::{Direction, Segment};

mod socket;

use socket::FrameSocket;

/// Frames taken from one end before the other end, and the frames that are due, get their turn.
const BATCH: usize = 32;

/// Timer slack of the relay's thread, in nanoseconds: the kernel's usual 50 µs is half of a packet at 100 Mbit/s.
const TIMER_SLACK_NS: u64 = 1_000;

/// Why a relay could not start, or stopped.
#[derive(Debug, thiserror::Error)]
#[error("the {segment} relay cannot {what}")]
pub struct RelayError {
    segment: &'static str,
    what: &'static str,
    source: io::Error,
}

/// Counts of one direction of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DirectionCounters {
    /// What the link model did.
    #[serde(flatten)]
    pub link: LinkCounters,
    /// Frames that were lost before or after the model because this machine was too slow. Not 0: the figures are not to
    /// be trusted.
    pub overruns: u64,
}

/// Counts of both directions of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SegmentCounters {
    /// Sender to receiver.
    pub to_receiver: DirectionCounters,
    /// Receiver to sender.
    pub to_sender: DirectionCounters,
}

/// A running relay; it stops when this is dropped.
#[derive(Debug)]
pub struct Relay {
    segment: &'static str,
    counters: Arc<Mutex<SegmentCounters>>,
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<Result<(), RelayError>>>,
}

impl Relay {
    /// Starts to carry frames between the interfaces `ends` (the sender's side first) of the calling thread's network
    /// namespace. Random losses follow from `seed` and the two `streams` (to the receiver, to the sender).
    ///
    /// # Errors
    ///
    /// [`RelayError`] when the interfaces cannot be opened.
    pub fn start(
        name: &'static str,
        ends: (&str, &str),
        segment: &Segment,
        seed: u64,
        streams: (u64, u64),
    ) -> Result<Self, RelayError> {
        let failed = |what| move |source: io::Error| RelayError { segment: name, what, source };
        let counters = Arc::new(Mutex::new(SegmentCounters::default()));
        let (stopped, stop) = io::pipe().map_err(failed("make a pipe"))?;
        let mut carrier = Carrier {
            segment: name,
            to_receiver: Lane::new(Link::new(segment.link(Direction::ToReceiver), seed, streams.0)),
            to_sender: Lane::new(Link::new(segment.link(Direction::ToSender), seed, streams.1)),
            sender_end: FrameSocket::open(ends.0).map_err(failed("open its end towards the sender"))?,
            receiver_end: FrameSocket::open(ends.1).map_err(failed("open its end towards the receiver"))?,
            counters: Arc::clone(&counters),
            stopped,
        };
        let thread = std::thread::Builder::new()
            .name(format!("{name} relay"))
            .spawn(move || carrier.carry())
            .map_err(failed("start its thread"))?;
        Ok(Self { segment: name, counters, stop: Some(stop), thread: Some(thread) })
    }

    /// The counts so far.
    pub fn counters(&self) -> SegmentCounters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it still carries frames.
    ///
    /// # Errors
    ///
    /// [`RelayError`] when it has stopped by itself.
    pub fn check(&mut self) -> Result<(), RelayError> {
        match self.thread.take_if(|thread| thread.is_finished()) {
            None => Ok(()),
            Some(thread) => Err(match thread.join() {
                Ok(Err(error)) => error,
                _ => RelayError {
                    segment: self.segment,
                    what: "go on",
                    source: io::Error::other("it panicked"),
                },
            }),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The thread sees the pipe close.
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One direction: the link, and the frames it had no chance to see.
#[derive(Debug)]
struct Lane {
    link: Link<Vec<u8>>,
    not_received: u64,
    not_sent: u64,
}

impl Lane {
    fn new(link: Link<Vec<u8>>) -> Self {
        Self { link, not_received: 0, not_sent: 0 }
    }

    /// Takes what waits at `from`, up to a batch. Returns whether more may be waiting.
    fn take_in(&mut self, from: &mut FrameSocket, clock: impl Fn() -> Duration) -> io::Result<bool> {
        let mut more = true;
        for _ in 0..BATCH {
            let Some(frame) = from.receive()? else {
                more = false;
                break;
            };
            // Only IPv4 is the experiment's; anything else a kernel says by itself.
            if socket::is_ipv4(frame) {
                let frame = frame.to_vec();
                self.link.push(clock(), frame.len() as u64, frame);
            }
        }
        self.not_received = from.overruns();
        Ok(more)
    }

    /// Puts out at `to` what is due.
    fn give_out(&mut self, to: &FrameSocket, clock: impl Fn() -> Duration) -> io::Result<()> {
        while let Some(frame) = self.link.pop(clock()) {
            if !to.send(&frame)? {
                self.not_sent += 1;
            }
        }
        Ok(())
    }

    fn counters(&self) -> DirectionCounters {
        DirectionCounters { link: self.link.counters(), overruns: self.not_received + self.not_sent }
    }
}

struct Carrier {
    segment: &'static str,
    to_receiver: Lane,
    to_sender: Lane,
    sender_end: FrameSocket,
    receiver_end: FrameSocket,
    counters: Arc<Mutex<SegmentCounters>>,
    stopped: PipeReader,
}

impl Carrier {
    fn carry(&mut self) -> Result<(), RelayError> {
        // A coarser timer only costs precision.
        let _ = nix::sys::prctl::set_timerslack(TIMER_SLACK_NS);
        #[allow(clippy::disallowed_methods, reason = "the edge: real frames meet the model in real time")]
        let start = Instant::now();
        let clock = || start.elapsed();
        loop {
            let step = self.exchange(clock);
            let more = step.map_err(|source| self.failed("carry frames", source))?;
            *self.counters.lock().unwrap_or_else(PoisonError::into_inner) = SegmentCounters {
                to_receiver: self.to_receiver.counters(),
                to_sender: self.to_sender.counters(),
            };
            let timeout = if more { Some(Duration::ZERO) } else { self.until_next(clock()) };
            let stop = self.wait(timeout).map_err(|source| self.failed("wait for frames", source))?;
            if stop {
                return Ok(());
            }
        }
    }

    /// One round over both directions. Returns whether more frames may be waiting.
    fn exchange(&mut self, clock: impl Fn() -> Duration + Copy) -> io::Result<bool> {
        let more_up = self.to_receiver.take_in(&mut self.sender_end, clock)?;
        self.to_receiver.give_out(&self.receiver_end, clock)?;
        let more_down = self.to_sender.take_in(&mut self.receiver_end, clock)?;
        self.to_sender.give_out(&self.sender_end, clock)?;
        Ok(more_up || more_down)
    }

    fn until_next(&self, now: Duration) -> Option<Duration> {
        let lanes = [&self.to_receiver, &self.to_sender];
        let next = lanes.iter().filter_map(|lane| lane.link.next_deadline()).min()?;
        Some(next.saturating_sub(now))
    }

    /// Waits for a frame or the timeout. Returns whether the relay shall stop.
    fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let ends: [BorrowedFd<'_>; 3] =
            [self.stopped.as_fd(), self.sender_end.as_fd(), self.receiver_end.as_fd()];
        let mut polled = ends.map(readable);
        match ppoll(&mut polled, timeout.map(TimeSpec::from), None) {
            Ok(_) => Ok(polled[0].any().unwrap_or(false)),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn failed(&self, what: &'static str, source: io::Error) -> RelayError {
        RelayError { segment: self.segment, what, source }
    }
}
