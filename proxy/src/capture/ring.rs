//! A ring of slots that the kernel fills and this program empties: no system call for a packet, and
//! no copy.
//!
//! It is version 2 of the kernel's ring (`packet(7)`, `PACKET_RX_RING`), one slot a packet, and not
//! version 3, which packs packets into blocks: a block that is not full is handed over by a timer,
//! of a millisecond at best. Measured by a program written for that (Linux 6.18 on a virtual
//! machine, 1,000 packets over loopback, 2 ms apart, from the sender's call to the reader): version
//! 2 takes 11 µs (99 of 100 within 45), version 3 takes 525 µs (1,010), one `recvfrom` a packet 14
//! µs (41). A quACK that leaves within 200 µs rules version 3 out; libpcap, too, takes version 2
//! where its user wants packets at once.
//!
//! Where there was no slot for packets, the kernel marks the frames that come after, until it is
//! asked how many packets that were. There may be more drops among frames that wait then, and no
//! marks behind those, so all that wait when it tells of drops are thrown away: what is handed on
//! has no holes but where it is said.
//!
//! A frame that is longer than a slot, as a merged one is, is put into the socket's queue as well,
//! whole, and is read from there. The queue may be full before the ring is; then the slot holds a
//! part of the frame, which is a hole, too.
//!
//! A merged frame that the kernel cannot describe leaves the next slot taken for ever, and all that
//! follow are dropped (seen with Linux 6.18). That shows as drops while the ring is empty.
//!
//! `unsafe` is confined to this file: the ring is memory that the kernel shares. Each use has its
//! argument.

#![allow(unsafe_code, reason = "memory shared with the kernel; see above, and each block")]

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::libc::{self, c_void, tpacket_req, tpacket2_hdr};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::socket::{MsgFlags, recv, setsockopt};

use super::socket::options::{CopyThreshold, RingRequest, RingVersion};
use super::{BATCH, Drained, Frame, LONGEST_READ, Source, socket};
use crate::offload::{self, HEADER_LEN, Merging};

/// Bytes of a slot: room for the kernel's header and a packet of 1,500 bytes, and a power of two,
/// so that whole ones fill whole blocks.
const SLOT: usize = 2048;
/// Bytes of a block, which the kernel takes from memory in one piece if it can.
const BLOCK: usize = 1 << 18;

/// A packet socket and its ring.
#[derive(Debug)]
pub(super) struct Ring {
    socket: OwnedFd,
    memory: Memory,
    /// The slot that will be filled next, or is filled already.
    next: usize,
    merging_told: bool,
    /// For what is longer than a slot.
    long: Vec<u8>,
    /// Packets that the kernel had no room for.
    dropped: u64,
    /// So many frames that wait are thrown away.
    doomed: usize,
    /// There were frames since the kernel was asked last.
    took: bool,
    /// Times in a row that there were drops, and neither frames before them nor behind.
    starved: u32,
    /// An error that was found where it could not be told.
    error: Option<Errno>,
}

/// As often the ring may seem to be stuck before it is.
const STARVED: u32 = 2;

/// The mapping of a ring; every slot of it is there as long as this is.
#[derive(Debug)]
pub(super) struct Memory {
    start: NonNull<c_void>,
    slots: usize,
}

// SAFETY: the mapping belongs to this value alone, and memory is not bound to a thread.
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `start` is what mmap gave for this length, and no reference into it outlives
        // `self`. That it could fail is of no use to know here.
        let _ = unsafe { munmap(self.start, self.slots * SLOT) };
    }
}

/// What the kernel says about a slot that it has filled.
struct Filled {
    status: u32,
    /// Bytes of the packet, and how many of them are in the slot.
    len: usize,
    kept: usize,
    /// Where they begin in the slot.
    offset: usize,
}

impl Filled {
    fn is(&self, status: u32) -> bool {
        self.status & status != 0
    }
}

impl Memory {
    /// Puts a ring of about so many bytes under a packet socket that is not bound yet.
    ///
    /// # Errors
    /// When the kernel has no such ring, or not so much memory.
    pub(super) fn under(socket: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let blocks = bytes.div_ceil(BLOCK).max(1);
        let slots = blocks * (BLOCK / SLOT);
        let word = |n: usize| libc::c_uint::try_from(n).map_err(|_| Errno::EINVAL);
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        setsockopt(socket, RingVersion, &version)?;
        // Any number but 0: what is longer than a slot is queued whole.
        setsockopt(socket, CopyThreshold, &1)?;
        let request = tpacket_req {
            tp_block_size: word(BLOCK)?,
            tp_block_nr: word(blocks)?,
            tp_frame_size: word(SLOT)?,
            tp_frame_nr: word(slots)?,
        };
        setsockopt(socket, RingRequest, &request)?;
        let len = NonZeroUsize::new(slots * SLOT).ok_or(Errno::EINVAL)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses where; nothing else is there.
        let start = unsafe { mmap(None, len, protection, MapFlags::MAP_SHARED, socket, 0) }?;
        Ok(Self { start, slots })
    }

    /// Where a slot begins.
    fn slot(&self, index: usize) -> NonNull<u8> {
        debug_assert!(index < self.slots);
        // SAFETY: all callers keep `index` below `slots`, and so many slots were mapped.
        unsafe { self.start.cast::<u8>().add(index * SLOT) }
    }

    /// The word by which kernel and program tell each other whose the slot is.
    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: a slot begins with this word (`tpacket2_hdr`), and is aligned to its length. Both
        // sides change it as a whole.
        unsafe { AtomicU32::from_ptr(self.slot(index).cast::<u32>().as_ptr()) }
    }

    /// What is said about a slot, if it is ours to read.
    fn filled(&self, index: usize) -> Option<Filled> {
        // What the kernel wrote before it handed the slot over is seen from here on.
        let status = self.status(index).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the slot is ours now, it begins with this header, and any bytes are a value of
        // it.
        let header = unsafe { self.slot(index).cast::<tpacket2_hdr>().read() };
        let number = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let offset = usize::from(header.tp_mac);
        let kept = number(header.tp_snaplen).min(SLOT.saturating_sub(offset));
        Some(Filled { status, len: number(header.tp_len).max(kept), kept, offset })
    }

    /// Bytes of a slot that is ours; empty unless all of them lie in it.
    fn bytes(&self, index: usize, start: usize, len: usize) -> &[u8] {
        if start.checked_add(len).is_none_or(|end| end > SLOT) {
            return &[];
        }
        // SAFETY: they lie in the slot. The kernel does not write to it before `give_back`, which
        // takes `self` by mutable reference, so that this one is gone by then.
        unsafe { std::slice::from_raw_parts(self.slot(index).add(start).as_ptr(), len) }
    }

    /// Lets the kernel fill a slot again.
    fn give_back(&mut self, index: usize) {
        // What was read before is not read later.
        self.status(index).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

impl Ring {
    /// The ring that was put under a socket, which is bound by now.
    pub(super) fn new(socket: OwnedFd, memory: Memory, merging_told: bool) -> Self {
        let long = vec![0; LONGEST_READ];
        let (next, dropped, doomed, took, starved, error) = (0, 0, 0, false, 0, None);
        Self { socket, memory, next, merging_told, long, dropped, doomed, took, starved, error }
    }

    /// A frame that did not fit into its slot, from the socket's queue.
    fn read_long(&mut self) -> Option<Frame<'_>> {
        // An error that was pending on the socket is told first, and the frame is still there.
        let mut receive = || recv(self.socket.as_raw_fd(), &mut self.long, MsgFlags::MSG_DONTWAIT);
        let len = match receive() {
            Ok(len) => len,
            Err(error) => {
                self.error = Some(error);
                receive().ok()?
            }
        };
        let read = self.long.get(..len)?;
        let (merging, bytes) =
            if self.merging_told { offload::split_header(read)? } else { (Merging::Single, read) };
        Some(Frame { merging, bytes, len: bytes.len() })
    }

    /// The frame in a slot that is ours.
    fn frame(&self, slot: usize, filled: &Filled) -> Frame<'_> {
        let merging = match filled.offset.checked_sub(HEADER_LEN).filter(|_| self.merging_told) {
            // Right before the packet.
            Some(start) => offload::split_header(self.memory.bytes(slot, start, HEADER_LEN))
                .map_or(Merging::Other, |(merging, _)| merging),
            None => Merging::Single,
        };
        Frame {
            merging,
            bytes: self.memory.bytes(slot, filled.offset, filled.kept),
            len: filled.len,
        }
    }

    /// The slot so many places behind the next; fewer than there are.
    fn behind(&self, places: usize) -> usize {
        // Not by a division: it is asked several times for each packet.
        let slot = self.next + places;
        if slot < self.memory.slots { slot } else { slot - self.memory.slots }
    }

    /// Throws away frames that wait, at most [`BATCH`], and says how many.
    fn throw_away(&mut self) -> usize {
        let most = self.doomed.min(BATCH);
        let mut thrown = 0;
        while thrown < most
            && let Some(filled) = self.memory.filled(self.next)
        {
            if filled.is(libc::TP_STATUS_COPY) {
                self.read_long();
            }
            self.give_back(1);
            thrown += 1;
        }
        self.doomed = if thrown < most { 0 } else { self.doomed - thrown };
        thrown
    }

    /// Frames that wait.
    fn waiting(&self) -> usize {
        (0..self.memory.slots)
            .take_while(|place| self.memory.filled(self.behind(*place)).is_some())
            .count()
    }

    /// Whether a slot holds a part of a train of datagrams: nobody knows where the others end.
    fn is_cut(&self, slot: usize, filled: &Filled) -> bool {
        filled.kept < filled.len && self.frame(slot, filled).merging != Merging::Single
    }

    /// Gives back so many slots.
    fn give_back(&mut self, slots: usize) {
        for _ in 0..slots {
            self.memory.give_back(self.next);
            self.next = self.behind(1);
        }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Source for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn most_waiting(&self) -> usize {
        self.memory.slots
    }

    fn drain(&mut self, all: &mut dyn FnMut(&[Frame<'_>])) -> io::Result<Drained> {
        let mut frames = [Frame { merging: Merging::Single, bytes: &[], len: 0 }; BATCH];
        let mut taken = 0;
        if self.doomed == 0
            && self.memory.filled(self.next).is_some_and(|head| head.is(libc::TP_STATUS_LOSING))
        {
            self.ask();
        }
        if self.doomed > 0 {
            self.took = true;
            return Ok(Drained::Gap(self.throw_away()));
        }
        for frame in &mut frames {
            let slot = self.behind(taken);
            let Some(filled) = self.memory.filled(slot) else { break };
            // Alone, in their turn.
            let long = filled.is(libc::TP_STATUS_COPY);
            if taken > 0
                && (long || filled.is(libc::TP_STATUS_LOSING) || self.is_cut(slot, &filled))
            {
                break;
            }
            if long {
                let whole = self.read_long().map(|whole| all(&[whole]));
                self.give_back(1);
                self.took = true;
                return Ok(if whole.is_some() { Drained::Frames(1) } else { Drained::Gap(1) });
            }
            if self.is_cut(slot, &filled) {
                self.give_back(1);
                self.took = true;
                return Ok(Drained::Gap(1));
            }
            *frame = self.frame(slot, &filled);
            taken += 1;
        }
        if taken > 0 {
            all(frames.get(..taken).unwrap_or_default());
            self.give_back(taken);
            self.took = true;
        }
        Ok(Drained::Frames(taken))
    }

    fn take_error(&mut self) -> Errno {
        self.error.take().unwrap_or_else(|| socket::pending_error(&self.socket))
    }

    fn ask(&mut self) -> u64 {
        let more = socket::drops(&self.socket);
        if more > 0 {
            self.dropped += more;
            self.doomed = self.waiting();
        }
        let starved = more > 0 && self.doomed == 0 && !self.took;
        self.starved = if starved {
            self.starved + 1
        } else if self.took {
            0
        } else {
            self.starved
        };
        self.took = false;
        self.dropped
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }

    fn is_stuck(&self) -> bool {
        self.starved >= STARVED
    }
}
