//! Packets by pnet: one `poll` and one `recvfrom` for each. What there is where the kernel grants no ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use pnet_datalink::DataLinkReceiver;

use super::{Drained, Frame, Source, socket};
use crate::offload::{self, Merging};

/// More packets than this wait in no socket's queue, however short they are.
const MOST_WAITING: usize = 1 << 16;

/// A packet socket that pnet reads.
pub(super) struct Portable {
    /// A second handle on pnet's socket, for its options.
    socket: OwnedFd,
    receiver: Box<dyn DataLinkReceiver>,
    merging_told: bool,
}

impl Portable {
    /// Reads a bound socket by pnet's receiver of it.
    pub(super) fn new(socket: OwnedFd, receiver: Box<dyn DataLinkReceiver>, merging_told: bool) -> Self {
        Self { socket, receiver, merging_told }
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

    /// One at a time: an error behind a frame would be lost with what it says. Where drops were, nobody tells.
    fn drain(&mut self, all: &mut dyn FnMut(&[Frame<'_>])) -> io::Result<Drained> {
        let read = match self.receiver.next() {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(Drained::Frames(0)),
            Err(error) => return Err(error),
        };
        let told =
            if self.merging_told { offload::split_header(read) } else { Some((Merging::Single, read)) };
        if let Some((merging, bytes)) = told {
            all(&[Frame { merging, bytes, len: bytes.len() }]);
        }
        Ok(Drained::Frames(1))
    }

    fn take_error(&mut self) -> Errno {
        socket::pending_error(&self.socket)
    }

    fn statistics(&mut self) -> (u64, u64) {
        socket::statistics(&self.socket)
    }
}
