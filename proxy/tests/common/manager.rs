//! A service manager, which a daemon notifies of its state (sd_notify(3)).

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use super::{Daemon, PATIENCE};

/// A service manager with a socket in a directory.
pub struct Manager {
    /// The path of the socket, for `NOTIFY_SOCKET`.
    pub path: PathBuf,
    socket: UnixDatagram,
}

impl Manager {
    pub fn new(directory: &Path) -> Self {
        let path = directory.join("manager");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { path, socket }
    }

    /// The next notification.
    pub fn hears(&self) -> String {
        let mut said = [0; 128];
        let len = self.socket.recv(&mut said).unwrap();
        String::from_utf8(said[..len].to_vec()).unwrap()
    }

    /// Lets a daemon reread its file, as `systemctl reload` does. Returns when it has.
    pub fn reload(&self, daemon: &Daemon) {
        daemon.signal(Signal::SIGHUP);
        assert!(self.hears().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(self.hears(), "READY=1\n");
    }
}
