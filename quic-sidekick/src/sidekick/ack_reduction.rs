//! [`Paper::AckReduction`](crate::Paper::AckReduction): packets that reached the proxy free the
//! window, so that the receiver may acknowledge less often.

use crate::measured::Measured;
use quiche::{BufFactory, Connection};
use sidekick_protocol::{Assistance, Sender};
use std::time::{Duration, Instant};

/// The connection requests one acknowledgement per this many packets, or one per round trip.
const ACK_PACKETS: u64 = 1024;
/// The connection requests acknowledgements no later than this. Only they reveal losses behind the
/// proxy.
const MAX_ACK_DELAY: Duration = Duration::from_millis(100);
/// The mode does nothing after this many quACKs of a proxy in an unsuitable place. The receiver
/// then acknowledges as usual, and end-to-end loss detection finds all losses.
const MAX_UNFIT: u32 = 16;

#[derive(Debug)]
pub(super) struct AckReduction {
    /// quACKs in a row that found the proxy in an unsuitable place; [`MAX_UNFIT`] before the first.
    unfit: u32,
    /// The connection requested fewer acknowledgements, if the receiver offers that.
    requested: bool,
    /// Scratch of [`AckReduction::on_quack`], kept to avoid allocation.
    scratch_received: Vec<u64>,
}

impl Default for AckReduction {
    fn default() -> Self {
        Self { unfit: MAX_UNFIT, requested: false, scratch_received: Vec::new() }
    }
}

impl AckReduction {
    /// Whether one of the latest quACKs found the proxy in a suitable place.
    pub(super) fn is_fit(&self) -> bool {
        self.unfit < MAX_UNFIT
    }

    /// Discards what earlier quACKs showed, because the connection migrated.
    pub(super) fn on_migrated(&mut self) {
        self.unfit = MAX_UNFIT;
    }

    /// Frees the window of the packets that the latest quACK reports, and requests fewer
    /// acknowledgements. Both depend on a proxy in a suitable place. Returns whether the connection
    /// has something to send.
    pub(super) fn on_quack<F: BufFactory>(
        &mut self,
        conn: &mut Connection<F>,
        sender: &mut Sender,
        path_id: Option<usize>,
        now: Instant,
    ) -> bool {
        self.scratch_received.clear();
        sender.drain_received(&mut self.scratch_received);
        let Some(path_id) = path_id else { return false };
        if sender.assistance() != Assistance::Assisted {
            return false;
        }
        let measured = Measured::of(sender, conn, path_id);
        if !measured.is_some_and(Measured::is_prompt_far_proxy) {
            self.unfit = self.unfit.saturating_add(1);
            return !self.is_fit() && self.request_usual_acks(conn, now);
        }
        self.unfit = 0;
        conn.sidekick_received(path_id, &self.scratch_received, now);
        let requested = self.request_fewer_acks(conn, path_id, now);
        requested || !self.scratch_received.is_empty()
    }

    /// Requests fewer acknowledgements, once. Returns whether the connection has a request to send.
    fn request_fewer_acks<F: BufFactory>(
        &mut self,
        conn: &mut Connection<F>,
        path_id: usize,
        now: Instant,
    ) -> bool {
        if self.requested || !conn.is_established() {
            return false;
        }
        self.requested = true;
        let delay = conn.sidekick_rtt(path_id).unwrap_or_default().min(MAX_ACK_DELAY);
        let offered = conn.sidekick_ask_for_acks(ACK_PACKETS, delay, now);
        tracing::debug!(offered, ?delay, "the connection requests fewer acknowledgements");
        offered
    }

    /// Whether the connection requested fewer acknowledgements.
    #[inline]
    pub(super) fn has_requested(&self) -> bool {
        self.requested
    }

    /// Requests the usual acknowledgements, if the connection requested fewer. Returns whether it
    /// has a request to send.
    pub(super) fn request_usual_acks<F: BufFactory>(
        &mut self,
        conn: &mut Connection<F>,
        now: Instant,
    ) -> bool {
        std::mem::take(&mut self.requested) && conn.sidekick_ask_for_usual_acks(now)
    }
}
