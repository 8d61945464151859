//! Packets by pnet, with one `poll` and one `recvfrom` for each: for kernels that grant no ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use pnet_datalink::DataLinkReceiver;

use super::socket;
use super::source::{Frame, Frames, Holes, Read, Source};
use crate::offload::{self, Merging};

/// More packets than this wait in no socket's queue, however short they are.
const MOST_WAITING: usize = 1 << 16;

/// Frames to read before the next question about drops. Fewer frames than this fit into the
/// smallest queue, however long they are, and after a drop the queue is full.
const QUESTION_INTERVAL: u32 = 8;

/// A packet socket that pnet reads.
pub(super) struct Portable {
    /// A second handle on pnet's socket, for its options.
    socket: OwnedFd,
    receiver: Box<dyn DataLinkReceiver>,
    vnet_header: bool,
    /// Whether a hole among the lent frames does harm.
    holes: Holes,
    /// Packets that the kernel had no room for.
    dropped: u64,
    /// Frames to read before the next question about drops.
    until_question: u32,
    /// Discard frames until none waits.
    discarding: bool,
}

impl Portable {
    /// A reader of a bound socket by pnet's receiver of it.
    pub(super) fn new(
        socket: OwnedFd,
        receiver: Box<dyn DataLinkReceiver>,
        vnet_header: bool,
        holes: Holes,
    ) -> Self {
        let (dropped, until_question, discarding) = (0, 0, false);
        Self { socket, receiver, vnet_header, holes, dropped, until_question, discarding }
    }
}

impl AsFd for Portable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Source for Portable {
    fn name(&self) -> &'static str {
        "pnet"
    }

    fn most_waiting(&self) -> usize {
        MOST_WAITING
    }

    /// One frame at a time: otherwise an error after a frame would be lost. The kernel does not
    /// report where in the queue it dropped packets, so after a drop the whole queue is discarded.
    fn read<'a>(&'a mut self, frames: &mut Frames<'a>) -> io::Result<Read> {
        if self.until_question == 0 {
            self.update_drops();
            self.until_question = QUESTION_INTERVAL;
        }
        self.until_question -= 1;
        let read = match self.receiver.next() {
            Ok(_) if self.discarding => {
                return Ok(Read::Gap { discarded: 1, dropped: self.dropped });
            }
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                (self.discarding, self.until_question) = (false, 0);
                return Ok(Read::Frames);
            }
            Err(error) => return Err(error),
        };
        let (merging, bytes) = if self.vnet_header {
            offload::split_header(read).unwrap_or((Merging::Other, &[]))
        } else {
            (Merging::Single, read)
        };
        frames.push(Frame { merging, bytes, len: bytes.len() });
        Ok(Read::Frames)
    }

    fn take_error(&mut self) -> Errno {
        socket::pending_error(&self.socket)
    }

    fn update_drops(&mut self) {
        let more = socket::drops(&self.socket);
        self.discarding |= more > 0 && self.holes == Holes::Matter;
        self.dropped += more;
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}
