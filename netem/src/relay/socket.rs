//! A packet socket on one interface, for whole Ethernet frames.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvmsg,
    send, setsockopt, socket, sockopt,
};

/// Room for one frame. Offloads are off, so no frame is larger than an Ethernet frame.
const FRAME_ROOM: usize = 2048;

/// The requested receive buffer: a third of a second at 100 Mbit/s, for times when this machine is
/// busy.
const RECEIVE_BUFFER: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct FrameSocket {
    socket: OwnedFd,
    buffer: Box<[u8; FRAME_ROOM]>,
    control: Vec<u8>,
    overruns: u64,
}

impl FrameSocket {
    /// Opens the interface of this name in the calling thread's network namespace.
    pub(super) fn open(interface: &str) -> io::Result<Self> {
        let address = getifaddrs()?
            .filter(|entry| entry.interface_name == interface)
            .find_map(|entry| {
                entry.address.as_ref().and_then(|address| address.as_link_addr().copied())
            })
            .ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::NotFound,
                    format!("there is no interface {interface}"),
                )
            })?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
        bind(socket.as_raw_fd(), &address)?;
        setsockopt(&socket, sockopt::RxqOvfl, &1)?;
        // Only the real root can exceed the system's limit. Other users receive a buffer of at most
        // the limit.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
        }
        Ok(Self {
            socket,
            buffer: Box::new([0; FRAME_ROOM]),
            control: cmsg_space!(u32),
            overruns: 0,
        })
    }

    /// The next waiting frame, if any.
    pub(super) fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        let mut space = [IoSliceMut::new(self.buffer.as_mut_slice())];
        let received = recvmsg::<()>(
            self.socket.as_raw_fd(),
            &mut space,
            Some(&mut self.control),
            MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC,
        );
        let length = match received {
            Ok(message) => {
                for control in message.cmsgs()? {
                    if let ControlMessageOwned::RxqOvfl(total) = control {
                        self.overruns = u64::from(total);
                    }
                }
                message.bytes
            }
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        self.buffer.get(..length).map(Some).ok_or_else(|| {
            io::Error::other(format!(
                "a frame of {length} bytes came: a device still merges packets"
            ))
        })
    }

    /// Sends a frame. Returns false if this machine had no room for it.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<bool> {
        match send(self.socket.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Frames that the kernel dropped because the buffer was full, up to the last received frame.
    pub(super) fn overruns(&self) -> u64 {
        self.overruns
    }
}

impl AsFd for FrameSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
