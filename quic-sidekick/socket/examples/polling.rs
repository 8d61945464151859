//! A loop that polls, as those around quiche or str0m, over a socket that gets help. The bind and
//! one more deadline differ from a loop over a plain socket.
//!
//! `cargo run -p sidekick-socket --example polling` exchanges datagrams on this machine, where no
//! proxy is.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sidekick_socket::UdpSocket;

const ROUNDS: u32 = 100;

fn main() -> io::Result<()> {
    let peer = std::net::UdpSocket::bind("127.0.0.1:0")?;
    let address = peer.local_addr()?;
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((len, from)) = peer.recv_from(&mut buffer) {
            let _ = peer.send_to(&buffer[..len], from);
        }
    });

    // In place of std::net::UdpSocket::bind and set_nonblocking.
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let (mut buffer, mut answered, mut next) = ([0; 1500], 0, Some(now()));
    while answered < ROUNDS {
        // The stack's packets, which are encrypted, and its own timer.
        if next.take_if(|at| *at <= now()).is_some() {
            socket.send_to(&[0x41; 1200], address)?;
        }
        // Once more than for a plain socket: until its timeout.
        let due = [next, socket.poll_timeout()].into_iter().flatten().min();
        let wait = due.map(|at| at.saturating_duration_since(now()));
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        poll(&mut [PollFd::new(&socket, PollFlags::IN)], wait.as_ref())?;
        loop {
            match socket.recv_from(&mut buffer) {
                Ok((_len, _from)) => {
                    // The stack takes buffer[.._len] here.
                    answered += 1;
                    next = Some(now() + Duration::from_millis(1));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
    }
    println!("{answered} answers");
    socket.status().iter().for_each(|flow| println!("{}: {flow}", flow.peer));
    Ok(())
}

#[allow(clippy::disallowed_methods, reason = "the edge: a loop's clock")]
fn now() -> Instant {
    Instant::now()
}
