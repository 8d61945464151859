//! Packets by pnet: one `poll` and one `recvfrom` for each. What there is where the kernel grants
//! no ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use pnet_datalink::DataLinkReceiver;

use super::{Drained, Frame, Source, socket};
use crate::offload::{self, Merging};

/// More packets than this wait in no socket's queue, however short they are.
const MOST_WAITING: usize = 1 << 16;

/// Frames that are read before the kernel is asked again for drops. Fewer than fit into the
/// smallest queue, however long they are: behind a drop there are as many as fit.
const ASK_EVERY: u32 = 8;

/// A packet socket that pnet reads.
pub(super) struct Portable {
    /// A second handle on pnet's socket, for its options.
    socket: OwnedFd,
    receiver: Box<dyn DataLinkReceiver>,
    merging_told: bool,
    /// Packets that the kernel had no room for.
    dropped: u64,
    /// Frames that may be read before it is asked for them again.
    unasked: u32,
    /// Frames are thrown away until none waits.
    discarding: bool,
}

impl Portable {
    /// Reads a bound socket by pnet's receiver of it.
    pub(super) fn new(
        socket: OwnedFd,
        receiver: Box<dyn DataLinkReceiver>,
        merging_told: bool,
    ) -> Self {
        Self { socket, receiver, merging_told, dropped: 0, unasked: 0, discarding: false }
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

    /// One at a time: an error behind a frame would be lost with what it says. Nobody tells where
    /// in the queue drops were, so all of it is thrown away.
    fn drain(&mut self, all: &mut dyn FnMut(&[Frame<'_>])) -> io::Result<Drained> {
        if self.unasked == 0 {
            self.ask();
            self.unasked = ASK_EVERY;
        }
        self.unasked -= 1;
        let read = match self.receiver.next() {
            Ok(_) if self.discarding => return Ok(Drained::Gap(1)),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                (self.discarding, self.unasked) = (false, 0);
                return Ok(Drained::Frames(0));
            }
            Err(error) => return Err(error),
        };
        let told = if self.merging_told {
            offload::split_header(read)
        } else {
            Some((Merging::Single, read))
        };
        if let Some((merging, bytes)) = told {
            all(&[Frame { merging, bytes, len: bytes.len() }]);
        }
        Ok(Drained::Frames(1))
    }

    fn take_error(&mut self) -> Errno {
        socket::pending_error(&self.socket)
    }

    fn ask(&mut self) -> u64 {
        let more = socket::drops(&self.socket);
        self.discarding |= more > 0;
        self.dropped += more;
        self.dropped
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}
