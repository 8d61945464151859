//! The parts of a raw quiche loop around its connections, for both ends.

pub(crate) mod sockets;

use quiche::{Connection, ConnectionId, SendInfo};
use sha2::{Digest as _, Sha256};
use std::io;
use std::time::{Duration, Instant};

/// The idle timeout of a connection.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The flow control window, in bytes: ample for 10 Mbit/s and a long round trip.
pub(crate) const WINDOW: u64 = 4 << 20;

/// The digest of the bytes so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digest {
    bytes: u64,
    hash: Sha256,
}

impl Digest {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hash.update(bytes);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// SHA-256, in lower-case hexadecimal.
    pub(crate) fn sha256(&self) -> String {
        self.hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

pub(crate) fn connection_id(length: u8) -> io::Result<ConnectionId<'static>> {
    let mut id = vec![0; length.into()];
    fill(&mut id)?;
    Ok(ConnectionId::from_vec(id))
}

/// A stateless reset token (RFC 9000, section 10.3).
pub(crate) fn reset_token() -> io::Result<u128> {
    let mut bytes = [0; 16];
    fill(&mut bytes)?;
    Ok(u128::from_ne_bytes(bytes))
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes)
        .map_err(|error| io::Error::other(format!("the system provides no randomness: {error}")))
}

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
