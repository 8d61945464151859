//! An open capture.

use std::os::fd::{AsFd, BorrowedFd};
use std::{fmt, mem};

use nix::errno::Errno;
use nix::net::if_::if_indextoname;
use pnet_datalink::NetworkInterface;
use tracing::warn;

use super::Counters;
use super::deliver::{Datagrams, Whole, count_unsplit, each_whole};
use super::error::CaptureError;
use super::settings::Direction;
use super::source::{Frames, Read, Source};
use crate::packet::Link;

/// One thread's capture on one interface.
pub(crate) struct Capture {
    source: Box<dyn Source>,
    interface: Interface,
}

/// The state of a capture beside its source. [`Frames`] borrow only the source.
#[derive(Debug)]
struct Interface {
    name: String,
    /// The kernel's index of the interface.
    index: u32,
    link: Link,
    direction: Direction,
    counters: Counters,
    down: bool,
    /// Another capture on the interface logs when it goes down, and when it is up again.
    silent: bool,
    /// Frames that the source discarded.
    discarded: u64,
    /// The source's drops when the capture last returned that datagrams are missing.
    reported_drops: u64,
    /// The last read was a gap.
    in_gap: bool,
    /// The source skipped a frame that may have held datagrams.
    skipped: bool,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("interface", &self.interface).finish_non_exhaustive()
    }
}

impl AsFd for Capture {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl Capture {
    /// A capture that reads an open source.
    pub(super) fn new(
        interface: &NetworkInterface,
        link: Link,
        direction: Direction,
        source: Box<dyn Source>,
    ) -> Self {
        let interface = Interface {
            name: interface.name.clone(),
            index: interface.index,
            link,
            direction,
            counters: Counters::default(),
            down: false,
            silent: false,
            discarded: 0,
            reported_drops: 0,
            in_gap: false,
            skipped: false,
        };
        Self { source, interface }
    }

    /// The same capture, if another one on the interface logs when it goes down, and when it is up
    /// again.
    #[must_use]
    pub(super) fn silent(mut self) -> Self {
        self.interface.silent = true;
        self
    }

    #[must_use]
    pub(crate) fn name(&self) -> &str {
        &self.interface.name
    }

    /// How the capture reads packets: `ring` or `pnet`.
    #[must_use]
    pub(crate) fn backend(&self) -> &'static str {
        self.source.name()
    }

    /// Whether the interface was up at the last check.
    #[must_use]
    pub(crate) fn is_up(&self) -> bool {
        !self.interface.down
    }

    /// The capture's counters. The drops are those of the last
    /// [`update_drops`](Self::update_drops).
    #[must_use]
    pub(crate) fn counters(&self) -> Counters {
        let dropped = self.source.dropped() + self.interface.discarded;
        Counters { dropped, ..self.interface.counters }
    }

    /// Asks the kernel how many packets it dropped. If there are more, a capture that counts
    /// discards all frames that wait now.
    pub(crate) fn update_drops(&mut self) {
        self.source.update_drops();
    }

    /// Returns whether datagrams are missing since the last call, and since the capture last
    /// yielded [`Captured::Missed`](super::Captured::Missed). All datagrams that it yields next
    /// arrived after them.
    pub(crate) fn take_missed(&mut self) -> bool {
        self.interface.take_missed(self.source.dropped())
    }

    /// Most frames that can wait. A reader of this many frames has seen all that waited at the
    /// beginning.
    #[must_use]
    pub(crate) fn most_waiting(&self) -> usize {
        self.source.most_waiting()
    }

    /// Reads waiting frames, at most [`BATCH`](super::BATCH), and returns their datagrams. Never
    /// blocks. Call [`release`](Self::release) when the datagrams are observed.
    ///
    /// # Errors
    /// Why the capture has ended.
    pub(crate) fn read<'a, 'f>(
        &'a mut self,
        frames: &'f mut Frames<'a>,
    ) -> Result<Datagrams<'a, 'f>, CaptureError> {
        let Self { source, interface } = self;
        let mut missed = interface.take_missed(source.dropped());
        let read = match source.read(frames) {
            Ok(Read::Frames) => {
                interface.in_gap &= frames.len() == 0;
                frames.len()
            }
            Ok(Read::Gap { discarded, dropped }) => {
                interface.discarded += discarded as u64;
                // Reported at the beginning of a gap, and when it has grown: the capture yields no
                // datagram before the gap ends.
                missed |= interface.take_missed(dropped) || !interface.in_gap;
                interface.in_gap = true;
                discarded
            }
            Err(error) => {
                let errno = error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw);
                interface.recover(errno)?;
                // The source consumed a frame that the kernel cannot describe. Others may wait
                // behind it.
                usize::from(errno == Errno::EINVAL)
            }
        };
        if read > 0 {
            interface.on_frames()?;
        }
        let Interface { name, link, direction, counters, .. } = interface;
        Ok(Datagrams::new((name, *link, *direction), counters, frames, read, missed))
    }

    /// Reads waiting frames, at most [`BATCH`](super::BATCH), and passes their datagrams to
    /// `handle`, with the frames. Returns how many frames there were. Never blocks.
    ///
    /// # Errors
    /// Why the capture has ended.
    pub(crate) fn read_whole(
        &mut self,
        handle: impl FnMut(Whole<'_>),
    ) -> Result<usize, CaptureError> {
        let Self { source, interface } = self;
        let mut frames = Frames::default();
        let read = match source.read(&mut frames) {
            Ok(Read::Frames) => frames.len(),
            Ok(Read::Gap { discarded, .. }) => {
                interface.discarded += discarded as u64;
                discarded
            }
            Err(error) => {
                let errno = error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw);
                interface.recover(errno)?;
                usize::from(errno == Errno::EINVAL)
            }
        };
        if read > 0 {
            interface.on_frames()?;
        }
        let Interface { name, link, direction, counters, .. } = interface;
        each_whole(&frames, (name, *link, *direction), counters, handle);
        self.source.release();
        Ok(read)
    }

    /// Returns the memory of the frames read last to the kernel.
    pub(crate) fn release(&mut self) {
        self.source.release();
    }

    /// Checks the capture for errors. Call this when the socket has an error, and every second.
    ///
    /// # Errors
    /// Why the capture has ended.
    pub(crate) fn check(&mut self) -> Result<(), CaptureError> {
        self.source.update_drops();
        if self.source.is_stuck() {
            return Err(CaptureError::Stuck {
                name: self.interface.name.clone(),
                direction: self.interface.direction,
            });
        }
        self.interface.check_name()?;
        let errno = self.source.take_error();
        // An interface that disappears goes down first, and the kernel does not always report the
        // second step.
        if errno as i32 == 0 && !self.interface.down {
            return Ok(());
        }
        self.interface.recover(errno)
    }
}

impl Interface {
    /// Returns whether datagrams are missing since the last call. `dropped`: those that the kernel
    /// had no room for.
    fn take_missed(&mut self, dropped: u64) -> bool {
        let more = dropped > self.reported_drops;
        self.reported_drops = dropped;
        mem::take(&mut self.skipped) || more
    }

    /// Checks that the interface still has the name that the operator gave. A packet socket follows
    /// the interface, and the rest of the program the name.
    fn check_name(&self) -> Result<(), CaptureError> {
        let now = if_indextoname(self.index).unwrap_or_default();
        let now = now.to_string_lossy();
        // It has no name once it has disappeared, which another error shows.
        if now.is_empty() || now == self.name {
            return Ok(());
        }
        Err(CaptureError::Renamed { name: self.name.clone(), now: now.into_owned() })
    }

    /// Checks whether an interface that was down is up again, because frames arrived. They may be
    /// from before it went down.
    fn on_frames(&mut self) -> Result<(), CaptureError> {
        if self.down { self.recover(Errno::ENETDOWN) } else { Ok(()) }
    }

    fn set_up(&mut self) {
        if mem::take(&mut self.down) && !self.silent {
            // A warning, too. At the default level an operator would not see another message.
            warn!("{} is up again", self.name);
        }
    }

    /// Decides whether the capture continues after an error.
    fn recover(&mut self, errno: Errno) -> Result<(), CaptureError> {
        match errno {
            Errno::EINTR | Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM => Ok(()),
            // A kernel before 6.2 returns this for merged UDP datagrams, which its virtio header
            // cannot describe.
            Errno::EINVAL => {
                count_unsplit(&self.name, self.direction, &mut self.counters);
                self.skipped = true;
                Ok(())
            }
            Errno::ENETDOWN | Errno::ENODEV | Errno::ENXIO | Errno::UnknownErrno => {
                // By index, because its name is checked elsewhere.
                let interfaces = pnet_datalink::interfaces();
                match interfaces.iter().find(|interface| interface.index == self.index) {
                    None => {
                        // The list also lacks an interface that was renamed meanwhile.
                        self.check_name()?;
                        return Err(CaptureError::Gone { name: self.name.clone() });
                    }
                    Some(interface) if interface.is_up() => self.set_up(),
                    Some(_) if !self.down => {
                        self.down = true;
                        if !self.silent {
                            warn!(
                                "{} is down: nothing is captured there until it is up",
                                self.name
                            );
                        }
                    }
                    Some(_) => {}
                }
                Ok(())
            }
            _ => Err(CaptureError::Socket { name: self.name.clone(), cause: errno.into() }),
        }
    }
}
