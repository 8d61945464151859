//! The pieces of the body that have arrived and are not written yet.
//!
//! The writer may wait for a pipe's reader. Meanwhile this queue takes from the connection what
//! fits. So a file that fits arrives whole, and its connection may end. Of a longer one, flow
//! control stops the server.

use std::sync::Arc;

use h3_client::http3::Piece;
use tokio::sync::{Semaphore, mpsc};

/// The most bytes in the queue. A server can make this program keep them beside the flow control
/// window.
const ROOM: u32 = 16 * 1024 * 1024;
/// The most bytes that a piece occupies beside its content. A piece may be a single byte.
const OVERHEAD: u32 = 128;

/// The end of the queue from which the writer takes.
#[derive(Debug)]
pub(crate) struct Arrived {
    pieces: mpsc::UnboundedReceiver<Piece>,
    room: Arc<Semaphore>,
    /// The room of the piece that was taken last.
    taken: u32,
}

/// Collects `arriving` from now on, in a task of its own.
pub(crate) fn collect(mut arriving: mpsc::Receiver<Piece>) -> Arrived {
    let room = Arc::new(Semaphore::new(ROOM as usize));
    let (to, pieces) = mpsc::unbounded_channel();
    let arrived = Arrived { pieces, room: Arc::clone(&room), taken: 0 };
    tokio::spawn(async move {
        while let Some(piece) = arriving.recv().await {
            let Ok(place) = room.acquire_many(size(&piece)).await else { break };
            place.forget();
            if to.send(piece).is_err() {
                break;
            }
        }
    });
    arrived
}

fn size(piece: &Piece) -> u32 {
    u32::try_from(piece.bytes.len()).unwrap_or(ROOM).saturating_add(OVERHEAD).min(ROOM)
}

impl Arrived {
    /// Waits for the next piece, after the previous one was written. `None` if none follows.
    pub(crate) fn next(&mut self) -> Option<Piece> {
        self.room.add_permits(self.taken as usize);
        self.taken = 0;
        let piece = self.pieces.blocking_recv()?;
        self.taken = size(&piece);
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(len: usize) -> Piece {
        Piece { bytes: vec![7; len].into(), last: false }
    }

    /// Sends pieces while the collector takes them. Returns how many it took, at most `most`.
    async fn fill(to: &mpsc::Sender<Piece>, len: usize, most: usize) -> usize {
        for sent in 0..most {
            to.try_send(piece(len)).unwrap();
            // The runtime has one thread, so the collector takes its turn.
            tokio::task::yield_now().await;
            if to.capacity() == 0 {
                return sent;
            }
        }
        most
    }

    #[tokio::test]
    async fn pieces_arrive_until_the_queue_is_full() {
        const PIECE: usize = 64 * 1024;
        let (to, frames) = mpsc::channel(1);
        let mut arrived = collect(frames);
        let fit = ROOM as usize / (PIECE + OVERHEAD as usize);
        // The collector holds one more, and the last one waits in the channel.
        assert_eq!(fill(&to, PIECE, 2 * fit).await, fit + 1);
        drop(to);
        let count = std::thread::spawn(move || std::iter::from_fn(|| arrived.next()).count());
        while !count.is_finished() {
            tokio::task::yield_now().await;
        }
        assert_eq!(count.join().unwrap(), fit + 2);
    }

    #[tokio::test]
    async fn single_bytes_take_more_room_than_they_have() {
        let (to, frames) = mpsc::channel(1);
        let _arrived = collect(frames);
        let most = ROOM as usize / OVERHEAD as usize;
        let taken = fill(&to, 1, most).await;
        assert!((most * 9 / 10..most).contains(&taken), "{taken}");
    }
}
