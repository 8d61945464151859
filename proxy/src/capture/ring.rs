//! A ring of slots that the kernel fills and this program empties: no system call for a packet, and
//! no copy.
//!
//! This is version 2 of the kernel's ring (`packet(7)`, `PACKET_RX_RING`), with one slot for each
//! packet. Version 3 packs packets into blocks, and a timer of at least a millisecond returns a
//! block that is not full. A program written for the purpose measured both (Linux 6.18 on a virtual
//! machine, 1,000 packets over loopback, 2 ms apart, from the sender's call to the reader). Version
//! 2 takes 11 µs (99 of 100 within 45), version 3 takes 525 µs (1,010), one `recvfrom` for each
//! packet 14 µs (41). A quACK must leave within 200 µs, which rules version 3 out. libpcap also
//! uses version 2 if its user requires packets at once.
//!
//! Where packets found no slot, the kernel marks the frames that come after, until it is asked how
//! many packets that were. By then there may be more drops among the waiting frames, with no marks
//! behind them. So the ring discards all frames that wait when the kernel reports drops, and lends
//! no frames with an unreported hole between them. A ring for copies lends them all: each frame is
//! whole, and a hole among them is a datagram that is not repeated.
//!
//! The kernel also puts a frame that is longer than a slot, such as a merged one, into the socket's
//! queue, where it is whole. The ring reads it from there. The queue can be full before the ring
//! is. Then the slot holds a part of the frame, which is a hole, too.
//!
//! After a merged frame that the kernel cannot describe, the next slot stays taken, and the kernel
//! drops all packets that follow (seen with Linux 6.18). The ring then sees drops while it is
//! empty.
//!
//! `unsafe` is confined to this file, since the kernel shares the ring's memory. A comment
//! justifies each use.

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

use super::socket;
use super::socket::options::{CopyThreshold, RingRequest, RingVersion};
use super::source::{BATCH, Frame, Frames, Holes, LONGEST_READ, Read, Source};
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
    slots: Slots,
    long: LongFrames,
    /// Whether a hole among the lent frames does harm.
    holes: Holes,
    /// Packets that the kernel had no room for.
    dropped: u64,
    /// Waiting frames to discard.
    doomed: usize,
    /// Slots whose frames are lent.
    lent: usize,
    /// There were frames since the last question about drops.
    active: bool,
    /// Questions in a row that reported drops while the ring was empty.
    starved: u32,
}

/// This many such questions in a row show that the ring is stuck.
const STARVED: u32 = 2;

/// The slots of a ring in their cyclic order.
#[derive(Debug)]
struct Slots {
    memory: Memory,
    /// The slot that the kernel fills next, or has filled already.
    next: usize,
    /// A virtio header precedes each packet.
    vnet_header: bool,
}

/// The socket's queue, which holds frames that are longer than a slot.
#[derive(Debug)]
struct LongFrames {
    buffer: Vec<u8>,
    vnet_header: bool,
    /// An error of the socket that a read found.
    error: Option<Errno>,
}

/// The mapping of a ring. All slots are mapped as long as this value exists.
#[derive(Debug)]
pub(super) struct Memory {
    start: NonNull<c_void>,
    slots: usize,
}

// SAFETY: the mapping belongs to this value alone, and memory is not bound to a thread.
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mmap returned `start` for this length, and no reference into it outlives `self`.
        // No caller could use an error here.
        let _ = unsafe { munmap(self.start, self.slots * SLOT) };
    }
}

/// The kernel's description of a slot that it has filled.
struct Filled {
    status: u32,
    /// Bytes of the packet.
    len: usize,
    /// Bytes of the packet that are in the slot.
    kept: usize,
    /// Where these bytes begin in the slot.
    offset: usize,
}

impl Filled {
    fn is(&self, status: u32) -> bool {
        self.status & status != 0
    }
}

impl Memory {
    /// Adds a ring of about `bytes` bytes to a packet socket that is not bound yet.
    ///
    /// # Errors
    /// When the kernel has no such ring, or too little memory.
    pub(super) fn under(socket: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let blocks = bytes.div_ceil(BLOCK).max(1);
        let slots = blocks * (BLOCK / SLOT);
        let word = |n: usize| libc::c_uint::try_from(n).map_err(|_| Errno::EINVAL);
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        setsockopt(socket, RingVersion, &version)?;
        // With any number but 0, the kernel queues whole frames that are longer than a slot.
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
        // SAFETY: the kernel chooses an address where nothing else is mapped.
        let start = unsafe { mmap(None, len, protection, MapFlags::MAP_SHARED, socket, 0) }?;
        Ok(Self { start, slots })
    }

    fn slot(&self, index: usize) -> NonNull<u8> {
        debug_assert!(index < self.slots);
        // SAFETY: all callers keep `index` below `slots`, which is the number of mapped slots.
        unsafe { self.start.cast::<u8>().add(index * SLOT) }
    }

    /// The word that shows whether the kernel or this program owns the slot.
    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: a slot begins with this word (`tpacket2_hdr`), and is aligned to its length. Both
        // sides change the whole word at once.
        unsafe { AtomicU32::from_ptr(self.slot(index).cast::<u32>().as_ptr()) }
    }

    /// The kernel's description of a slot, if this program owns the slot.
    fn filled(&self, index: usize) -> Option<Filled> {
        // Acquire: what the kernel wrote before is visible from here on.
        let status = self.status(index).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: this program owns the slot now, the slot begins with this header, and any bytes
        // are a valid header.
        let header = unsafe { self.slot(index).cast::<tpacket2_hdr>().read() };
        let number = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let offset = usize::from(header.tp_mac);
        let kept = number(header.tp_snaplen).min(SLOT.saturating_sub(offset));
        Some(Filled { status, len: number(header.tp_len).max(kept), kept, offset })
    }

    /// Bytes of a slot that this program owns; empty unless all of them lie in the slot.
    fn bytes(&self, index: usize, start: usize, len: usize) -> &[u8] {
        if start.checked_add(len).is_none_or(|end| end > SLOT) {
            return &[];
        }
        // SAFETY: the bytes lie in the slot. The kernel does not write to it before `give_back`.
        // That takes `self` by mutable reference, so this reference no longer exists then.
        unsafe { std::slice::from_raw_parts(self.slot(index).add(start).as_ptr(), len) }
    }

    /// Returns a slot to the kernel.
    fn give_back(&mut self, index: usize) {
        // Release: no read of the slot moves behind this store.
        self.status(index).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

impl Slots {
    /// The slot `places` places behind the next; `places` is less than the number of slots.
    fn behind(&self, places: usize) -> usize {
        // A division would be slow: this runs several times for each packet.
        let slot = self.next + places;
        if slot < self.memory.slots { slot } else { slot - self.memory.slots }
    }

    /// The frame in a slot that this program owns.
    fn frame(&self, slot: usize, filled: &Filled) -> Frame<'_> {
        let merging = match filled.offset.checked_sub(HEADER_LEN).filter(|_| self.vnet_header) {
            // The header stands right before the packet.
            Some(start) => offload::split_header(self.memory.bytes(slot, start, HEADER_LEN))
                .map_or(Merging::Other, |(merging, _)| merging),
            None => Merging::Single,
        };
        let bytes = self.memory.bytes(slot, filled.offset, filled.kept);
        Frame { merging, bytes, len: filled.len }
    }

    /// Whether a slot holds only a part of a merged frame, which hides the ends of its datagrams.
    fn is_cut(&self, slot: usize, filled: &Filled) -> bool {
        filled.kept < filled.len && self.frame(slot, filled).merging != Merging::Single
    }

    /// How many frames wait.
    fn waiting(&self) -> usize {
        (0..self.memory.slots)
            .take_while(|places| self.memory.filled(self.behind(*places)).is_some())
            .count()
    }

    /// Returns this many slots to the kernel.
    fn give_back(&mut self, slots: usize) {
        for _ in 0..slots {
            self.memory.give_back(self.next);
            self.next = self.behind(1);
        }
    }
}

impl LongFrames {
    /// The next frame of the queue. `None` if the queue had no room for it.
    fn read(&mut self, socket: &OwnedFd) -> Option<Frame<'_>> {
        // The kernel first returns a pending error of the socket. The frame is still there then.
        let mut receive = || recv(socket.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT);
        let len = match receive() {
            Ok(len) => len,
            Err(error) => {
                self.error = Some(error);
                receive().ok()?
            }
        };
        let read = self.buffer.get(..len)?;
        let (merging, bytes) =
            if self.vnet_header { offload::split_header(read)? } else { (Merging::Single, read) };
        Some(Frame { merging, bytes, len: bytes.len() })
    }
}

impl Ring {
    /// A reader of the ring of a socket, which must be bound by now.
    pub(super) fn new(socket: OwnedFd, memory: Memory, vnet_header: bool, holes: Holes) -> Self {
        Self {
            socket,
            slots: Slots { memory, next: 0, vnet_header },
            long: LongFrames { buffer: vec![0; LONGEST_READ], vnet_header, error: None },
            holes,
            dropped: 0,
            doomed: 0,
            lent: 0,
            active: false,
            starved: 0,
        }
    }

    /// Discards doomed frames, at most [`BATCH`], and returns how many.
    fn discard(&mut self) -> usize {
        let most = self.doomed.min(BATCH);
        let mut discarded = 0;
        while discarded < most
            && let Some(filled) = self.slots.memory.filled(self.slots.next)
        {
            if filled.is(libc::TP_STATUS_COPY) {
                self.long.read(&self.socket);
            }
            self.slots.give_back(1);
            discarded += 1;
        }
        self.doomed = if discarded < most { 0 } else { self.doomed - discarded };
        discarded
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
        self.slots.memory.slots
    }

    fn read<'a>(&'a mut self, frames: &mut Frames<'a>) -> io::Result<Read> {
        self.release();
        let (holes, losing) = (self.holes, libc::TP_STATUS_LOSING);
        let follows_hole = |filled: &Filled| holes == Holes::Matter && filled.is(losing);
        let head = self.slots.memory.filled(self.slots.next);
        if self.doomed == 0 && head.is_some_and(|head| follows_hole(&head)) {
            self.update_drops();
        }
        if self.doomed > 0 {
            self.active = true;
            let discarded = self.discard();
            return Ok(Read::Gap { discarded, dropped: self.dropped });
        }
        let slots = &self.slots;
        while frames.len() < BATCH {
            let slot = slots.behind(frames.len());
            let Some(filled) = slots.memory.filled(slot) else { break };
            let long = filled.is(libc::TP_STATUS_COPY);
            let cut = slots.is_cut(slot, &filled);
            if !long && !cut && (frames.len() == 0 || !follows_hole(&filled)) {
                frames.push(slots.frame(slot, &filled));
                continue;
            }
            // Such a frame is read alone, when it is the next.
            if frames.len() == 0 {
                (self.lent, self.active) = (1, true);
                match if long { self.long.read(&self.socket) } else { None } {
                    Some(whole) => frames.push(whole),
                    None => return Ok(Read::Gap { discarded: 1, dropped: self.dropped }),
                }
                return Ok(Read::Frames);
            }
            break;
        }
        self.lent = frames.len();
        self.active |= self.lent > 0;
        Ok(Read::Frames)
    }

    fn release(&mut self) {
        self.slots.give_back(std::mem::take(&mut self.lent));
    }

    fn take_error(&mut self) -> Errno {
        self.long.error.take().unwrap_or_else(|| socket::pending_error(&self.socket))
    }

    fn update_drops(&mut self) {
        self.release();
        let more = socket::drops(&self.socket);
        let waiting = if more > 0 { self.slots.waiting() } else { 0 };
        self.dropped += more;
        if more > 0 && self.holes == Holes::Matter {
            self.doomed = waiting;
        }
        if std::mem::take(&mut self.active) {
            self.starved = 0;
        } else if more > 0 && waiting == 0 {
            self.starved += 1;
        }
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }

    fn is_stuck(&self) -> bool {
        self.starved >= STARVED
    }
}
