//! Waits for what can only be looked up. Between two looks, the test leaves the processor to the
//! program that it waits for.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

use super::download::now;

/// Longest wait for anything. Only a failing test waits this long.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Longest wait between two looks, in milliseconds.
const BETWEEN: u8 = 10;

/// Repeats `attempt` until it returns a value, and returns that. An error describes what is there
/// instead. A change of the links, addresses or routes of this namespace ends the wait between two
/// attempts.
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let changes = Changes::new();
    let deadline = now() + PATIENCE;
    loop {
        // Time may pass unnoticed between the attempt and the check.
        let is_last = now() >= deadline;
        match attempt() {
            Ok(value) => return value,
            Err(state) => assert!(!is_last, "never {what}: {state}"),
        }
        changes.wait();
    }
}

/// Changes of the links, addresses and routes of this network namespace (rtnetlink(7)).
struct Changes(OwnedFd);

impl Changes {
    fn new() -> Self {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = SockProtocol::NetlinkRoute;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol).unwrap();
        let groups = libc::RTMGRP_LINK
            | libc::RTMGRP_IPV4_IFADDR
            | libc::RTMGRP_IPV6_IFADDR
            | libc::RTMGRP_IPV4_ROUTE
            | libc::RTMGRP_IPV6_ROUTE;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups.cast_unsigned())).unwrap();
        Self(socket)
    }

    /// Returns at the next change, or after a moment.
    fn wait(&self) {
        poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], BETWEEN).unwrap();
        // The kernel reports by an error that it had no room for all changes.
        let mut buffer = [0; 4096];
        while recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()) != Err(Errno::EAGAIN) {}
    }
}
