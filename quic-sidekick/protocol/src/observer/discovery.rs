//! How senders find a proxy: it answers the markers that it captures (SPEC.md, section 6.1).

use super::Observer;
use super::answers::OutgoingAnswer;
use super::outgoing::Outgoing;
use crate::cookie::Proof;
use crate::flow::Flow;
use crate::wire::discovery::{Answer, Marker};
use std::time::Instant;

impl Observer {
    /// Answers a marker that was captured on `interface`, at most once and within the rate limits.
    /// Anyone can forge its addresses, so the answer goes only where a sender on that interface can
    /// be.
    pub(super) fn answer_marker(
        &mut self,
        marker: &Marker,
        flow: &Flow,
        interface: u32,
        now: Instant,
    ) {
        let flow = flow.canonical();
        let Some(proxy) = self.addresses.announced_for(interface, &flow) else { return };
        if !self.addresses.can_cross(interface, &flow) {
            self.stats.markers_refused += 1;
            return;
        }
        if self.answered.contains(&marker.nonce) {
            return;
        }
        if !self.answered.record(marker.nonce, flow.source, now) {
            self.stats.markers_deferred += 1;
            return;
        }
        let Some(cookie) = self.cookies.issue(Proof::Path(&flow), now) else { return };
        let answer = Answer { handle: marker.handle, nonce: marker.nonce, proxy, flow, cookie };
        self.stats.markers += 1;
        let interface = Some(interface);
        self.queue(Outgoing::Answer(OutgoingAnswer { answer, reply: marker.reply, interface }));
    }
}
