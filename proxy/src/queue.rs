//! Packets on their way to this host, which wait until this program lets them pass.
//!
//! A rule of the firewall ([`Rules`]) passes arriving packets to a queue of the kernel, which sends
//! a copy of each to this program and keeps the packet until the verdict. The verdict delivers it:
//! the packet is in the socket of its receiver, or on its way to the next host, when the system
//! call returns. So is a packet that was written to a TUN device. Their order is
//! therefore the order of these calls, unless the host spreads packets of the device over its
//! processors (`rps_cpus`).
//!
//! The queue fails open. When it is full, packets pass at once. The same holds when no program has
//! bound it, since the rules say so. When the socket closes, the kernel drops what waits, so
//! [`Queue::pass`] comes before. It also drops what waits, of any queue, when any program removes a
//! chain with a hook, such as a table of nftables.
//!
//! The kernel takes each message only from a process with CAP_NET_ADMIN, verdicts too.

mod message;
mod rules;

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc::{self, c_int};
use nix::sys::socket::{
    AddressFamily, MsgFlags, MultiHeaders, NetlinkAddr, SockFlag, SockProtocol, SockType,
    getsockopt, recvmmsg, send, setsockopt, socket, sockopt,
};
use thiserror::Error;
use tracing::warn;

use message::{Message, Request, VERDICT_LEN, messages};
pub use rules::{Exempt, Program, Rules, RulesError};

/// Most packets of a read.
const BATCH: usize = 32;
/// Bytes for a message: the longest packet, and what the kernel says about it.
const MESSAGE: usize = 0xffff + 1024;
/// Bytes of the socket's buffer for each packet that may wait. The kernel doubles this. A packet of
/// 1,500 bytes takes at most 4 KiB with its message.
const BUFFER: usize = 4096;
/// Most verdicts of a system call.
const VERDICTS: usize = 256;
/// The number of requests other than verdicts, each of which has that of its packet. The kernel
/// numbers packets from 1.
const CONFIGURATION: u32 = 0;

/// Socket options of netlink(7) without a name in nix.
mod options {
    use nix::{libc, setsockopt_impl, sockopt_impl};

    sockopt_impl!(
        /// Report no overflow of the socket's buffer. After a report, the kernel queues nothing
        /// until all has been read.
        NoOverflows,
        SetOnly,
        libc::SOL_NETLINK,
        libc::NETLINK_NO_ENOBUFS,
        bool
    );
}

/// Why there is no queue, for the operator.
#[derive(Debug, Error)]
pub enum QueueError {
    /// Netfilter or its queue is missing.
    #[error("the kernel has no netfilter queue: load the module nfnetlink_queue")]
    Unsupported,
    /// The process lacks CAP_NET_ADMIN.
    #[error("a netfilter queue requires CAP_NET_ADMIN: run the program as root or with it")]
    NotPermitted,
    /// The queue with this number belongs to another socket.
    #[error("another program has the netfilter queue {0}: stop it, or choose another number")]
    Taken(u16),
    /// Anything else.
    #[error("cannot bind the netfilter queue {0}: {1}")]
    Failed(u16, Errno),
}

/// What has happened to the packets of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Packets that were read.
    pub read: u64,
    /// Packets that were let pass.
    pub accepted: u64,
    /// Packets that were dropped, since the host got them otherwise.
    pub discarded: u64,
    /// Verdicts that came when the kernel no longer had the packet, as when its interface went
    /// down.
    pub late: u64,
    /// Packets that passed unread, because the socket's buffer was full. The kernel does not count
    /// those that pass because the queue is full.
    pub unread: u64,
}

/// A queue that this program has bound.
#[derive(Debug)]
pub struct Queue {
    socket: OwnedFd,
    number: u16,
    /// Room for the messages of a read.
    buffer: Vec<u8>,
    /// Verdicts that [`Queue::flush`] sends.
    verdicts: Vec<u8>,
    /// The last packet that was read.
    last: Option<u32>,
    counters: QueueCounters,
}

impl Queue {
    /// Binds the queue with this number. At most `longest` packets wait in it; when there are more,
    /// they pass at once, before those that wait.
    ///
    /// # Errors
    /// One sentence for the operator: why this is impossible.
    pub fn bind(number: u16, longest: u32) -> Result<Self, QueueError> {
        let mut queue = Self::probe(number)?;
        let room = BUFFER.saturating_mul(usize::try_from(longest).unwrap_or(usize::MAX));
        let room = room.clamp(1 << 16, 1 << 29);
        let failed = |errno| QueueError::Failed(number, errno);
        // In a user namespace, root may not force the size.
        let forced = setsockopt(&queue.socket, sockopt::RcvBufForce, &room);
        if forced == Err(Errno::EPERM) {
            setsockopt(&queue.socket, sockopt::RcvBuf, &room).map_err(failed)?;
            let most = getsockopt(&queue.socket, sockopt::RcvBuf).map_err(failed)?;
            if most < room {
                warn!(
                    "the queue has room for {} packets, not {longest}, and more pass unread: raise \
                     net.core.rmem_max on the host to {room}",
                    most / BUFFER
                );
            }
        } else {
            forced.map_err(failed)?;
        }
        setsockopt(&queue.socket, options::NoOverflows, &true).map_err(failed)?;
        // All in one message: a rule that a killed program has left may pass packets already, and
        // the queue drops them before it has a mode.
        let [a, b, c, d] = u32::from(u16::MAX).to_be_bytes();
        let mode = [a, b, c, d, low_byte(libc::NFQNL_COPY_PACKET)];
        // Without the second flag, the kernel splits merged packets, and writes the checksums that
        // it would leave to a network card. So each packet gets a verdict of its own, and its bytes
        // are those of a wire.
        let flags = libc::NFQA_CFG_F_FAIL_OPEN.to_be_bytes();
        let mask = (libc::NFQA_CFG_F_FAIL_OPEN | libc::NFQA_CFG_F_GSO).to_be_bytes();
        queue
            .configure(&[
                (libc::NFQA_CFG_CMD, &command(libc::NFQNL_CFG_CMD_BIND)),
                (libc::NFQA_CFG_PARAMS, &mode),
                (libc::NFQA_CFG_QUEUE_MAXLEN, &longest.to_be_bytes()),
                (libc::NFQA_CFG_MASK, &mask),
                (libc::NFQA_CFG_FLAGS, &flags),
            ])
            .map_err(|errno| match errno {
                Errno::EPERM | Errno::EBUSY => QueueError::Taken(number),
                errno => failed(errno),
            })?;
        Ok(queue)
    }

    /// A socket for the queue with this number, which it has not bound. It shows whether the kernel
    /// has such queues, and lets this process have one.
    ///
    /// # Errors
    /// As [`Queue::bind`].
    pub fn probe(number: u16) -> Result<Self, QueueError> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = SockProtocol::NetlinkNetFilter;
        let failed = |errno| match errno {
            Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT => QueueError::Unsupported,
            Errno::EACCES | Errno::EPERM => QueueError::NotPermitted,
            _ => QueueError::Failed(number, errno),
        };
        let socket =
            socket(AddressFamily::Netlink, SockType::Raw, flags, protocol).map_err(failed)?;
        let mut queue = Self {
            socket,
            number,
            buffer: vec![0; BATCH * MESSAGE],
            verdicts: Vec::new(),
            last: None,
            counters: QueueCounters::default(),
        };
        // This has no effect, but it is refused without the privilege. The error for a queue that
        // is taken is the same.
        let probe = command(libc::NFQNL_CFG_CMD_PF_BIND);
        queue.configure(&[(libc::NFQA_CFG_CMD, &probe)]).map_err(|errno| match errno {
            Errno::EINVAL => QueueError::Unsupported,
            errno => failed(errno),
        })?;
        Ok(queue)
    }

    /// What has happened so far.
    #[must_use]
    pub fn counters(&self) -> QueueCounters {
        self.counters
    }

    /// Passes packets that wait to `each`, with their identifiers, from their IP headers on and in
    /// the order of their arrival. Each needs a verdict. One system call reads at most 32. Returns
    /// how many messages of the kernel it read: with 0, no packet waits.
    ///
    /// # Errors
    /// When the socket fails, or the kernel refuses verdicts.
    pub fn read(&mut self, mut each: impl FnMut(u32, &[u8])) -> io::Result<usize> {
        let mut refused = None;
        let (last, counters) = (&mut self.last, &mut self.counters);
        let mut handle = |message: Message<'_>| match message {
            Message::Packet { id, bytes } => {
                // Each packet has the number after that of the one before, read or not.
                let unread = last.map_or(0, |last| id.wrapping_sub(last).wrapping_sub(1));
                counters.unread += u64::from(unread);
                *last = Some(id);
                counters.read += 1;
                each(id, bytes);
            }
            Message::Answer { sequence: CONFIGURATION, .. }
            | Message::Answer { outcome: Ok(()), .. } => {}
            Message::Answer { outcome: Err(Errno::ENOENT), .. } => counters.late += 1,
            Message::Answer { outcome: Err(errno), .. } => refused = Some(errno),
        };
        let read = receive(&self.socket, &mut self.buffer, &mut handle)?;
        match refused {
            Some(errno) => Err(errno.into()),
            None => Ok(read),
        }
    }

    /// Lets a packet pass at the next [`Queue::flush`], after those of earlier verdicts.
    pub fn accept(&mut self, id: u32) {
        self.counters.accepted += 1;
        self.decide(id, libc::NF_ACCEPT);
    }

    /// Drops a packet at the next [`Queue::flush`].
    pub fn discard(&mut self, id: u32) {
        self.counters.discarded += 1;
        self.decide(id, libc::NF_DROP);
    }

    fn decide(&mut self, id: u32, verdict: c_int) {
        let request = Request { queue: self.number, sequence: id, answered: false };
        request.write_verdict(&mut self.verdicts, libc::NFQNL_MSG_VERDICT, verdict, id);
    }

    /// Sends the verdicts. All accepted packets have been delivered in the order of their verdicts
    /// when this returns.
    ///
    /// # Errors
    /// When the socket does not take them. They are given up then, and [`Queue::pass`] lets their
    /// packets pass.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut outcome = Ok(());
        for some in self.verdicts.chunks(VERDICTS * VERDICT_LEN) {
            outcome = outcome.and(self.send(some));
        }
        self.verdicts.clear();
        Ok(outcome?)
    }

    /// Lets all packets that wait pass in the order of their arrival, read or not, and from now on
    /// every packet at once.
    ///
    /// # Errors
    /// When the socket does not take this.
    pub fn pass(&mut self) -> io::Result<()> {
        let flushed = self.flush();
        let request = Request { queue: self.number, sequence: CONFIGURATION, answered: false };
        let mut both = Vec::new();
        // A queue for no packets is always full, and fails open.
        let full = [(libc::NFQA_CFG_QUEUE_MAXLEN, &[0; 4][..])];
        request.write(&mut both, libc::NFQNL_MSG_CONFIG, &full);
        // Half of the numbers are after the last packet, and half before.
        let all = self.last.unwrap_or_default().wrapping_add(1 << 30);
        let kind = libc::NFQNL_MSG_VERDICT_BATCH;
        request.write_verdict(&mut both, kind, libc::NF_ACCEPT, all);
        self.send(&both)?;
        flushed
    }

    /// Changes the queue. Packets that it meets on the way pass.
    fn configure(&mut self, attributes: &[(c_int, &[u8])]) -> nix::Result<()> {
        let request = Request { queue: self.number, sequence: CONFIGURATION, answered: true };
        let mut message = Vec::new();
        request.write(&mut message, libc::NFQNL_MSG_CONFIG, attributes);
        self.send(&message)?;
        let mut answer = None;
        let mut packets = Vec::new();
        // The answer waits already: the kernel works during the call that sends to it.
        while answer.is_none() {
            let mut handle = |message: Message<'_>| match message {
                Message::Packet { id, .. } => packets.push(id),
                Message::Answer { outcome, .. } => answer = Some(outcome),
            };
            if receive(&self.socket, &mut self.buffer, &mut handle)? == 0 {
                return Err(Errno::EIO);
            }
        }
        for id in packets {
            self.last = Some(id);
            self.decide(id, libc::NF_ACCEPT);
        }
        let _ = self.flush();
        answer.unwrap_or(Err(Errno::EIO))
    }

    fn send(&self, messages: &[u8]) -> nix::Result<()> {
        send(self.socket.as_raw_fd(), messages, MsgFlags::empty()).map(|_| ())
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // No caller could use an error here.
        let _ = self.pass();
    }
}

/// The value of a command about the queue (`nfqnl_msg_config_cmd`).
fn command(command: c_int) -> [u8; 4] {
    [low_byte(command), 0, 0, 0]
}

/// A constant of the kernel's headers that fits.
fn low_byte(constant: c_int) -> u8 {
    let [.., byte] = constant.to_be_bytes();
    byte
}

/// Passes the messages that one system call returns to `handle`. Returns how many datagrams had
/// them.
fn receive(
    socket: &OwnedFd,
    buffer: &mut [u8],
    handle: &mut impl FnMut(Message<'_>),
) -> nix::Result<usize> {
    let mut rooms = buffer.chunks_mut(MESSAGE);
    let mut slices: [_; BATCH] =
        std::array::from_fn(|_| [IoSliceMut::new(rooms.next().unwrap_or_default())]);
    let flags = MsgFlags::MSG_DONTWAIT;
    // A queue that kept these could not move to another thread.
    let mut headers = MultiHeaders::<NetlinkAddr>::preallocate(BATCH, None);
    let received = match recvmmsg(socket.as_raw_fd(), &mut headers, &mut slices, flags, None) {
        Ok(received) => received,
        Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS) => return Ok(0),
        Err(errno) => return Err(errno),
    };
    let mut datagrams = 0;
    for datagram in received {
        datagrams += 1;
        // A privileged program may send to this socket, too. The kernel's number is 0.
        if datagram.address.is_none_or(|from| from.pid() == 0) {
            datagram.iovs().flat_map(messages).for_each(&mut *handle);
        }
    }
    Ok(datagrams)
}
