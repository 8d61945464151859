//! The interface of the ways in which a capture reads frames.

use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;

use crate::offload::Merging;

/// Longest frame that the kernel returns: a merged frame of 64 KiB, its link header and tags, and
/// the virtio header.
pub(super) const LONGEST_READ: usize = (1 << 16) + 256;
/// Most frames that a capture reads together.
pub const BATCH: usize = 32;

/// A captured frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// Whether the kernel merged several datagrams into the frame.
    pub(super) merging: Merging,
    /// The first bytes of the frame: all, or as many as were kept.
    pub(super) bytes: &'a [u8],
    /// The length of the frame on the wire.
    pub(super) len: usize,
}

/// Frames that a source has read together, at most [`BATCH`]. They borrow the source's memory.
#[derive(Debug)]
pub(crate) struct Frames<'a> {
    frames: [Frame<'a>; BATCH],
    len: usize,
}

impl Default for Frames<'_> {
    #[inline]
    fn default() -> Self {
        let none = Frame { merging: Merging::Single, bytes: &[], len: 0 };
        Self { frames: [none; BATCH], len: 0 }
    }
}

impl<'a> Frames<'a> {
    /// Adds a frame. Does nothing if there are [`BATCH`] already.
    #[inline]
    pub(super) fn push(&mut self, frame: Frame<'a>) {
        if let Some(place) = self.frames.get_mut(self.len) {
            *place = frame;
            self.len += 1;
        }
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&Frame<'a>> {
        self.frames.get(..self.len)?.get(index)
    }

    /// How many frames there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The source lends the frames that it put into [`Frames`]: perhaps none.
    Frames,
    /// The source discarded frames, since others are missing right before them, among them or right
    /// after.
    Gap {
        /// The discarded frames.
        discarded: usize,
        /// The source's [`dropped`](Source::dropped) after this read.
        dropped: u64,
    },
}

/// Whether missing frames between those that a source lends do harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holes {
    /// The reader counts frames. It must know where some are missing, so the source discards all
    /// frames among which the kernel may have dropped others.
    Matter,
    /// The reader copies frames. It can use each of them without the others.
    Harmless,
}

/// A packet socket, and the way in which frames are read from it.
pub(super) trait Source: AsFd + Send {
    /// The source's name in logs and metrics.
    fn name(&self) -> &'static str;

    /// Most frames that can wait in the source. A reader of this many frames has seen all that
    /// waited at the beginning.
    fn most_waiting(&self) -> usize;

    /// Reads waiting frames into `frames`, which must be empty. Never blocks.
    ///
    /// # Errors
    /// The error of the socket. The read has lent no frame then.
    fn read<'a>(&'a mut self, frames: &mut Frames<'a>) -> io::Result<Read>;

    /// Returns the frames of the last read to the kernel. The next read does so, too.
    fn release(&mut self) {}

    /// Removes and returns the error that is pending on the socket.
    fn take_error(&mut self) -> Errno;

    /// Asks the kernel how many packets it dropped, which changes [`dropped`](Self::dropped).
    ///
    /// If there are more, and [`Holes::Matter`], the next calls of [`read`](Self::read) discard all
    /// frames that wait now. The question clears the marks that show where among them the hole is.
    fn update_drops(&mut self);

    /// Packets that the kernel had no room for, as of the last question.
    fn dropped(&self) -> u64;

    /// Whether the source will deliver no more frames, however many packets arrive.
    fn is_stuck(&self) -> bool {
        false
    }
}
