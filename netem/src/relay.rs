//! The link in user space between the two lab ends of a segment. Its thread reads every frame from
//! one end, passes it through the [`Link`] model, and writes it to the other end.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};

use crate::link::{EthernetFrame, Link, LinkCounters};
use crate::pcap::SegmentPcap;
use crate::scenario::{Direction, Segment};

mod socket;

use socket::FrameSocket;

/// The most frames that the relay reads from one end before it serves the other end and due frames.
const BATCH: usize = 32;

/// A frame that leaves later than this counts as late.
const LATE: Duration = Duration::from_millis(1);

/// Timer slack of the relay's thread, in nanoseconds. The kernel's default of 50 µs is half of a
/// packet's time at 100 Mbit/s.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionCounters {
    /// The counts of the link model.
    #[serde(flatten)]
    pub link: LinkCounters,
    /// Frames that were lost outside the model because this machine was too slow. If this is not 0,
    /// the figures cannot be trusted.
    pub overruns: u64,
    /// Frames that this machine sent more than a millisecond late. If they are many, delays cannot
    /// be trusted.
    #[serde(default)]
    pub late: u64,
}

impl From<LinkCounters> for DirectionCounters {
    /// The counts of a link in virtual time, where no machine is too slow.
    fn from(link: LinkCounters) -> Self {
        Self { link, ..Self::default() }
    }
}

/// Counts of both directions of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentCounters {
    /// Sender to receiver.
    pub to_receiver: DirectionCounters,
    /// Receiver to sender.
    pub to_sender: DirectionCounters,
}

/// The time of a path's relays, which begins with the first frame. So outages and traces count from
/// there, as in virtual time, and not from the start of the programs.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathClock(Arc<OnceLock<Instant>>);

impl PathClock {
    fn begin(&self) {
        #[allow(
            clippy::disallowed_methods,
            reason = "the edge: real frames meet the model in real time"
        )]
        self.0.get_or_init(Instant::now);
    }

    fn now(&self) -> Duration {
        self.0.get().map_or(Duration::ZERO, Instant::elapsed)
    }
}

/// A running relay. It stops when this value is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    segment: &'static str,
    counters: Arc<Mutex<SegmentCounters>>,
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<Result<(), RelayError>>>,
}

impl Relay {
    /// Starts to carry frames between the interfaces `ends` (the sender's side first) of the
    /// calling thread's network namespace. All random numbers follow from `seed` and the two
    /// `streams` (to the receiver, to the sender). Records frames in `pcap`, if any. The relays of
    /// one path share a `clock`.
    pub(crate) fn start(
        name: &'static str,
        ends: (&str, &str),
        segment: &Segment,
        seed: u64,
        streams: (u64, u64),
        clock: &PathClock,
        pcap: Option<SegmentPcap>,
    ) -> Result<Self, RelayError> {
        let failed = |what| move |source: io::Error| RelayError { segment: name, what, source };
        let counters = Arc::new(Mutex::new(SegmentCounters::default()));
        let (stopped, stop) = io::pipe().map_err(failed("make a pipe"))?;
        let mut carrier = Carrier {
            segment: name,
            lanes: [
                Lane::new(Link::new(segment.link(Direction::ToReceiver), seed, streams.0)),
                Lane::new(Link::new(segment.link(Direction::ToSender), seed, streams.1)),
            ],
            ends: [
                FrameSocket::open(ends.0).map_err(failed("open its end towards the sender"))?,
                FrameSocket::open(ends.1).map_err(failed("open its end towards the receiver"))?,
            ],
            counters: Arc::clone(&counters),
            stopped,
            clock: clock.clone(),
            pcap,
        };
        let thread = std::thread::Builder::new()
            .name(format!("{name} relay"))
            .spawn(move || carrier.carry())
            .map_err(failed("start its thread"))?;
        Ok(Self { segment: name, counters, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn counters(&self) -> SegmentCounters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that the relay still carries frames.
    pub(crate) fn check(&mut self) -> Result<(), RelayError> {
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

/// One direction: the link, and the frames that were lost before or after it.
#[derive(Debug)]
struct Lane {
    link: Link<EthernetFrame>,
    not_received: u64,
    not_sent: u64,
    late: u64,
}

impl Lane {
    fn new(link: Link<EthernetFrame>) -> Self {
        Self { link, not_received: 0, not_sent: 0, late: 0 }
    }

    /// Reads waiting frames from `from`, up to a batch. Returns whether more may be waiting.
    fn take_in(
        &mut self,
        from: &mut FrameSocket,
        pcap: &mut Option<SegmentPcap>,
        clock: &PathClock,
    ) -> io::Result<bool> {
        let mut more = true;
        for _ in 0..BATCH {
            let Some(frame) = from.receive()? else {
                more = false;
                break;
            };
            // Only IP to one host belongs to the experiment. Kernels send the rest by themselves.
            if let Some(frame) = EthernetFrame::from_ip(frame) {
                clock.begin();
                let now = clock.now();
                if let Some(pcap) = pcap {
                    pcap.sent.write(now, frame.as_bytes())?;
                }
                self.link.push(now, frame);
            }
        }
        self.not_received = from.overruns();
        Ok(more)
    }

    /// Writes the frames that are due to `to`.
    fn give_out(
        &mut self,
        to: &FrameSocket,
        pcap: &mut Option<SegmentPcap>,
        clock: &PathClock,
    ) -> io::Result<()> {
        loop {
            let now = clock.now();
            let due = self.link.poll_timeout();
            let Some(frame) = self.link.pop(now) else { return Ok(()) };
            if due.is_some_and(|due| now > due + LATE) {
                self.late += 1;
            }
            if let Some(pcap) = pcap {
                pcap.delivered.write(now, frame.as_bytes())?;
            }
            if !to.send(frame.as_bytes())? {
                self.not_sent += 1;
            }
        }
    }

    fn counters(&self) -> DirectionCounters {
        let overruns = self.not_received + self.not_sent;
        DirectionCounters { link: self.link.counters(), overruns, late: self.late }
    }
}

struct Carrier {
    segment: &'static str,
    /// The direction to the receiver, and that to the sender.
    lanes: [Lane; 2],
    /// The end towards the sender, and that towards the receiver.
    ends: [FrameSocket; 2],
    counters: Arc<Mutex<SegmentCounters>>,
    stopped: PipeReader,
    clock: PathClock,
    pcap: Option<SegmentPcap>,
}

impl Carrier {
    fn carry(&mut self) -> Result<(), RelayError> {
        // With a coarser timer, the relay is only less precise.
        let _ = nix::sys::prctl::set_timerslack(TIMER_SLACK_NS);
        let counters = Arc::clone(&self.counters);
        loop {
            // The relay holds this lock until it has counted the frames, so a receiver of a frame
            // finds it counted.
            let mut counters = counters.lock().unwrap_or_else(PoisonError::into_inner);
            let step = self.exchange();
            let more = step.map_err(|source| self.failed("carry frames", source))?;
            let [to_receiver, to_sender] = self.lanes.each_ref().map(Lane::counters);
            *counters = SegmentCounters { to_receiver, to_sender };
            drop(counters);
            let timeout =
                if more { Some(Duration::ZERO) } else { self.until_next(self.clock.now()) };
            let stop =
                self.wait(timeout).map_err(|source| self.failed("wait for frames", source))?;
            if stop {
                return Ok(());
            }
        }
    }

    /// Does one round over both directions. Returns whether more frames may be waiting.
    fn exchange(&mut self) -> io::Result<bool> {
        let Self { lanes: [to_receiver, to_sender], ends: [sender, receiver], pcap, clock, .. } =
            self;
        let more_up = to_receiver.take_in(sender, pcap, clock)?;
        to_receiver.give_out(receiver, pcap, clock)?;
        let more_down = to_sender.take_in(receiver, pcap, clock)?;
        to_sender.give_out(sender, pcap, clock)?;
        Ok(more_up || more_down)
    }

    fn until_next(&self, now: Duration) -> Option<Duration> {
        let next = self.lanes.iter().filter_map(|lane| lane.link.poll_timeout()).min()?;
        Some(next.saturating_sub(now))
    }

    /// Waits for a frame or the timeout. Returns whether to stop the relay.
    fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let ends: [BorrowedFd<'_>; 3] =
            [self.stopped.as_fd(), self.ends[0].as_fd(), self.ends[1].as_fd()];
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
