//! Sends a connection's packets, each at its release time.

use std::time::Instant;

use quiche::{Connection, SendInfo};

/// The size of the buffer, longer than any packet here.
const ROOM: usize = 1500;

/// The loop waits until this part of the allowed earliness before the release time. The rest covers
/// the delay of the loop.
const LEEWAY: f64 = 0.5;

/// Requests packets from a connection at their release time, and passes each on at once.
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
    /// Passes to `put` all packets that are due. It holds none back, because BBR2 and the plugin
    /// use the time at which quiche makes a packet as the time on the wire.
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

    /// When [`send`](Self::send) is due again, if nothing happens before.
    pub(crate) fn release(&self) -> Option<Instant> {
        self.release
    }
}

/// As `quic_sidekick::tune::paced_until`, which a peer without the plugin cannot call.
fn paced_until(conn: &Connection, now: Instant) -> Option<Instant> {
    let release = conn.get_next_release_time()?.time(now)?;
    let early = conn.max_release_into_future();
    (release.saturating_duration_since(now) >= early).then(|| release - early.mul_f64(LEEWAY))
}
