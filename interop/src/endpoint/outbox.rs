//! A connection's packets on their way out, each at its time.

use std::time::Instant;

use quiche::{Connection, SendInfo};

/// Longer than any packet that is asked for here.
const ROOM: usize = 1500;

/// Of the time by which packets may go early, the part that a wait leaves: the rest is for the loop
/// to come round.
const LEEWAY: f64 = 0.5;

/// Makes packets no sooner than they may leave, and sends each as it is made.
#[derive(Debug)]
pub(crate) struct Outbox {
    buffer: Box<[u8; ROOM]>,
    release: Option<Instant>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { buffer: Box::new([0; ROOM]), release: None }
    }
}

impl Outbox {
    /// Hands to `put` all that the connection has to send by now. Nothing is held back: BBR2 takes
    /// the time at which a packet is made for the time at which it leaves, and so does the plugin.
    pub(crate) fn send(
        &mut self,
        conn: &mut Connection,
        clock: impl Fn() -> Instant,
        mut put: impl FnMut(&[u8], &SendInfo),
    ) -> Result<(), quiche::Error> {
        loop {
            self.release = paced_until(conn, clock());
            if self.release.is_some() {
                return Ok(());
            }
            match conn.send(self.buffer.as_mut_slice()) {
                Ok((len, info)) => put(self.buffer.get(..len).unwrap_or_default(), &info),
                Err(quiche::Error::Done) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// When [`send`](Self::send) wants to be called again, if nothing happens before.
    pub(crate) fn release(&self) -> Option<Instant> {
        self.release
    }
}

fn paced_until(conn: &Connection, now: Instant) -> Option<Instant> {
    let release = conn.get_next_release_time()?.time(now)?;
    let early = conn.max_release_into_future();
    (release.saturating_duration_since(now) >= early).then(|| release - early.mul_f64(LEEWAY))
}
