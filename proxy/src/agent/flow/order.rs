//! Arriving packets of a flow that wait in the queue, in the order in which they passed the proxy.

use std::time::Instant;

use sidekick_protocol::policy::Resender;
use sidekick_protocol::repair::ReceiveRepair;
use sidekick_protocol::{Delivery, InOrder, Sender};

use super::super::frame::{Passing, Template};
use super::super::kind::Kind;
use super::super::outbox::Outbox;
use super::super::report::Totals;
use super::{HelpedFlow, KEEP};

/// After so many arriving frames, more than one turn reads, and nothing from the queue, a flow's
/// packets do not pass it.
const UNQUEUED: u32 = 512;

/// What the host gets next.
#[derive(Debug)]
enum Datagram {
    /// A packet that waits in the queue under this number.
    Queued(u32),
    /// A copy of the proxy, or what its parity rebuilt.
    Copy(Vec<u8>),
}

/// How a flow's order begins.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Begin {
    pub(in super::super) repair: ReceiveRepair,
    /// Other flows lately lost none on their way here.
    pub(in super::super) is_clean: bool,
}

/// The order of a flow's arriving packets.
#[derive(Debug)]
pub(in super::super) struct Order {
    gate: InOrder<Datagram>,
    /// The headers for copies.
    template: Template,
    /// Copies that the host got.
    pub(in super::super) delivered: u64,
    /// Frames that arrived since the latest packet of the queue.
    unqueued: u32,
}

impl Order {
    /// How many packets wait, how many the near segment lost, and what the gate does.
    pub(in super::super) fn gate(&self) -> &InOrder<impl Sized> {
        &self.gate
    }

    /// Forgets the path by which the flow came until now.
    pub(super) fn change_path(&mut self, sender: &mut Sender, now: Instant) {
        self.gate.change_path(sender, now);
    }

    /// Passes what may leave the gate on to the host.
    fn deliver(&mut self, outbox: &mut Outbox, totals: &mut Totals) {
        while let Some(Delivery { datagram, waited }) = self.gate.poll_delivery() {
            match datagram {
                Datagram::Queued(id) => outbox.push_held(id, waited),
                Datagram::Copy(copy) => {
                    let delivered = u64::from(outbox.push_packet(&self.template, &copy));
                    self.delivered += delivered;
                    totals.delivered += delivered;
                }
            }
        }
    }
}

impl HelpedFlow {
    /// Begins to put what arrives in order, if the flow's packets are to wait, so that the proxy
    /// lists the first of them, too.
    pub(in super::super) fn expect_order(&mut self, begin: Begin, now: Instant) {
        if self.order.is_none()
            && self.is_in_order()
            && let Some(template) = self.template.reversed()
        {
            self.begin_order(template, begin, now);
        }
    }

    /// Whether arriving packets wait, if there is a queue.
    fn is_in_order(&self) -> bool {
        // A transport stream may only arrive.
        (self.kind().minds_order() || self.arriving.kind == Kind::MpegTs) && self.is_own
    }

    fn begin_order(&mut self, template: Template, begin: Begin, now: Instant) {
        self.resender.sender.want_copies(KEEP, now);
        let repair =
            if self.kind().is_authenticated() { begin.repair } else { ReceiveRepair::Requests };
        let gate = InOrder::new(repair, begin.is_clean);
        self.passes_by = false;
        self.order = Some(Box::new(Order { gate, template, delivered: 0, unqueued: 0 }));
    }

    /// Takes a packet of the queue. Returns false if the flow's packets do not wait.
    pub(in super::super) fn on_queued(
        &mut self,
        id: u32,
        passing: &Passing<'_>,
        begin: Begin,
        now: Instant,
    ) -> bool {
        let mut payloads = passing.payloads();
        let (Some(payload), None) = (payloads.next(), payloads.next()) else { return false };
        if !self.is_in_order() || Sender::is_answer(payload) {
            return false;
        }
        if self.order.is_none() {
            let Some(template) = Template::of(passing) else { return false };
            self.begin_order(template, begin, now);
        }
        let whole = self.rtt();
        let Self { order, resender, position, .. } = self;
        let Some(order) = order else { return false };
        order.unqueued = 0;
        order.template.update(passing);
        whole.into_iter().for_each(|whole| order.gate.set_whole(whole));
        order.gate.set_acknowledged(resender.policy.is_acknowledged());
        let identifier = position.of_copy(payload);
        let sender = &mut resender.sender;
        order.gate.on_arrival(payload, identifier, Datagram::Queued(id), sender, now);
        true
    }

    /// Notes a captured frame whose packets should pass the queue. Returns true if the flow's
    /// packets do not, and then puts none in order.
    pub(in super::super) fn pass_by(
        &mut self,
        outbox: &mut Outbox,
        totals: &mut Totals,
        now: Instant,
    ) -> bool {
        let Some(order) = &mut self.order else { return false };
        order.unqueued += 1;
        let passes_by = order.unqueued == UNQUEUED;
        if passes_by {
            self.stop_receiving(outbox, totals, now);
            self.passes_by = true;
        }
        passes_by
    }

    /// Takes a proxy's copy, if the flow's packets wait for it. Returns whether they do.
    pub(super) fn order_copy(&mut self, copy: &[u8], now: Instant) -> bool {
        let may_receive = self.may_receive(now);
        let Self { order, resender, position, .. } = self;
        let Some(order) = order else { return false };
        let sender = &mut resender.sender;
        if let Some(identifier) = position.of_copy(copy).filter(|_| may_receive) {
            order.gate.on_copy(copy, identifier, Datagram::Copy(copy.to_vec()), sender, now);
        }
        true
    }

    /// Completes an input or a timeout of the sender.
    pub(super) fn settle_order(&mut self, outbox: &mut Outbox, totals: &mut Totals, now: Instant) {
        if !self.is_in_order() {
            // What began as another protocol is a call.
            self.end_order(outbox, totals, now);
        }
        let may_receive = self.may_receive(now);
        let Self { order, resender: Resender { sender, .. }, position, .. } = self;
        let Some(order) = order else { return };
        order.gate.update(sender, now);
        let mut rebuilt = Vec::new();
        while order.gate.next_rebuilt(&mut rebuilt, sender, now) {
            if let Some(identifier) = position.of_copy(&rebuilt).filter(|_| may_receive) {
                let copy = Datagram::Copy(rebuilt.clone());
                order.gate.on_copy(&rebuilt, identifier, copy, sender, now);
            }
        }
        order.deliver(outbox, totals);
    }

    /// Lets all that waits pass, because the help ends.
    pub(in super::super) fn end_order(
        &mut self,
        outbox: &mut Outbox,
        totals: &mut Totals,
        now: Instant,
    ) {
        let Some(mut order) = self.order.take() else { return };
        order.gate.open(&mut self.resender.sender, now);
        order.deliver(outbox, totals);
        totals.add_order(order.gate.counters());
    }
}
