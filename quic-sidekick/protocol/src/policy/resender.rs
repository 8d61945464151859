//! A flow's sender, its copies and its policy, which together repair what leaves.

use super::{
    Carry, CarryAs, Carrying, MAX_AGE, Policy, STORE, Traits, Trust, Trusts, UNCOUNTED, Withheld,
    is_last, last_name, may_fetch, names,
};
use crate::identify::{Flow, Payload};
use crate::in_order::InOrderState;
use crate::loss_floor::Lost;
use crate::sender::{Assistance, RelayAs, Sender};
use crate::store::Store;
use crate::terms::Terms;
use std::mem;
use std::time::Instant;

/// The first bits of a long header (RFC 9000, section 17.2).
const LONG: u8 = 0xc0;

/// What a datagram shows of its flow, when it leaves for the first time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leaving {
    /// The flow is one of QUIC.
    pub is_quic: bool,
    /// The datagram begins the flow's handshake.
    pub begins: bool,
    /// Short headers have a spin bit.
    pub spins: bool,
    /// There is memory for a copy.
    pub keeps: bool,
    /// Its traffic class: DSCP and ECN.
    pub class: u8,
}

/// What [`Resender::settle`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// A proxy reports the flow for the first time.
    pub begins: bool,
    /// No session was there and none is: nothing was lost.
    pub idle: bool,
    /// Datagrams that were reported lost.
    pub lost: u64,
    /// Why none of these were sent again; `None` if nothing spoke against it.
    pub withheld: Option<Withheld>,
    /// Those that a queue dropped, so that the flow's sender must detect the loss.
    pub congested: u64,
    /// Those that are too old, or for which there was no budget or no room.
    pub late: u64,
}

/// Repairs the losses of one flow, with the datagrams that left. It does no I/O: its caller sends.
#[derive(Debug)]
pub struct Resender {
    /// The sender of the flow. Start and stop it at will.
    pub sender: Sender,
    /// What decides.
    pub policy: Policy,
    flow: Flow,
    store: Store,
    has_session: bool,
    was_assisted: bool,
    /// The tags of the handshake's datagrams that left before a proxy counted the flow.
    uncounted: Vec<u64>,
    /// How many more such datagrams may be sent again.
    uncounted_left: usize,
    next_tag: u64,
    lost: u64,
    found_lost: Vec<Lost>,
    found_received: Vec<u64>,
    /// The traffic class of the latest datagram.
    class: u8,
    /// The flow's receiver takes what comes late for lost.
    minds_order: bool,
    carrying: Carrying,
    relayed: u64,
}

impl Resender {
    /// Starts `sender` for `flow`, with the policy of a new flow.
    #[must_use]
    pub fn start(mut sender: Sender, flow: Flow, policy: Policy, now: Instant) -> Self {
        sender.start(flow, now);
        Self {
            sender,
            policy,
            flow,
            store: Store::new(STORE, MAX_AGE),
            has_session: false,
            was_assisted: false,
            uncounted: Vec::new(),
            uncounted_left: UNCOUNTED,
            next_tag: 0,
            lost: 0,
            found_lost: Vec::new(),
            found_received: Vec::new(),
            class: 0,
            minds_order: false,
            carrying: Carrying::default(),
            relayed: 0,
        }
    }

    /// Agrees on other terms, because the flow has other traits.
    pub fn set_terms(&mut self, traits: Traits, terms: Terms, now: Instant) {
        self.sender.set_terms(terms);
        self.policy.apply_order(traits, &mut self.sender);
        // The help begins again after a pause anyway.
        if !self.policy.rests() {
            self.restart(now);
        }
    }

    /// Asks for help again.
    pub fn restart(&mut self, now: Instant) {
        self.sender.start(self.flow, now);
    }

    /// Asks for help again if a pause is over.
    pub fn wake(&mut self, now: Instant) {
        if self.policy.wake(now) {
            self.restart(now);
        }
    }

    /// Asks for help on another path, by which the flow leaves from now on. Measurements, pauses
    /// and copies of the path before do not apply to it.
    pub fn change_path(&mut self, traits: Traits, now: Instant) {
        self.store.clear();
        self.policy.begin_again(traits, &mut self.sender);
        self.restart(now);
    }

    /// Notes a datagram of the program that left.
    pub fn on_sent(&mut self, payload: &[u8], leaving: Leaving, now: Instant) {
        let Leaving { is_quic, begins, spins, keeps, class } = leaving;
        self.class = class;
        self.policy.on_leaving(payload, begins, spins, now);
        self.wake(now);
        self.sender.on_sent(self.next_tag, Payload::whole(payload), now);
        let is_uncounted = !self.was_assisted
            && self.uncounted_left > 0
            && is_quic
            && payload.first().is_some_and(|first| first & LONG == LONG);
        if keeps && (self.has_session || is_uncounted) {
            self.store.push_copy(self.next_tag, payload, now);
            if is_uncounted {
                self.uncounted.push(self.next_tag);
                self.uncounted_left -= 1;
            }
        }
        self.next_tag += 1;
    }

    /// Notes that a datagram left again under this name. The proxy counts it as another one.
    pub fn on_resent(&mut self, name: u64, payload: &[u8], now: Instant) {
        self.policy.on_repaired();
        self.sender.on_sent(name, Payload::whole(payload), now);
    }

    /// Completes an input of the sender. `resend` gets each datagram to be sent again, and the name
    /// for [`Resender::on_resent`]; it returns false if it has no room. `order` is what happens to
    /// arriving datagrams that wait for those before them, and `fetches` says whether the receiver
    /// can use copies.
    pub fn settle(
        &mut self,
        traits: Traits,
        trusts: &mut Trusts,
        (order, fetches): (Option<InOrderState>, bool),
        now: Instant,
        mut resend: impl FnMut(u64, &[u8]) -> bool,
    ) -> Settled {
        self.policy.note_queue(&mut self.sender, now);
        let had_session = self.has_session;
        let mut settled = Settled { begins: self.note_session(), ..Settled::default() };
        if !had_session && !self.has_session {
            // What left meanwhile is no news of the next proxy.
            self.policy.report(&mut self.sender, trusts, 0, now);
            return Settled { idle: true, ..settled };
        }
        if self.has_session {
            // No quACK will report whether they arrived.
            for tag in mem::take(&mut self.uncounted) {
                let name = last_name(tag);
                settled.late += repair(&mut self.store, tag, [name], None, now, &mut resend);
            }
        }
        // The sender keeps reported packets until a caller takes them.
        self.found_received.clear();
        self.sender.drain_received(&mut self.found_received);
        let mut lost = mem::take(&mut self.found_lost);
        self.sender.drain_lost(&mut lost);
        lost.retain(|lost| !is_last(lost.tag));
        settled.lost = lost.len() as u64;
        self.lost += settled.lost;
        if settled.lost > 0 {
            self.policy.judge(traits, &mut self.sender);
        }
        let mut trust = self.policy.report(&mut self.sender, trusts, settled.lost, now);
        settled.withheld = self.policy.withheld(traits, &self.sender, now);
        let may_fetch = may_fetch(settled.withheld, order) && !self.policy.queue_grew(now);
        self.sender.set_fetching(fetches && may_fetch);
        let repairs = settled.withheld.is_none();
        self.minds_order = traits.minds_order;
        if traits.minds_order {
            let fates = (self.found_received.len(), lost.as_slice());
            self.policy.order(traits, settled.withheld, fates, &mut self.sender, now);
        } else {
            self.sender.order(None);
        }
        for Lost { tag, congestion, .. } in lost.drain(..).filter(|_| repairs) {
            if congestion {
                settled.congested += 1;
                continue;
            }
            if self.carrying.has(tag) {
                continue;
            }
            let Self { store, sender, class, .. } = self;
            let mut trust = trust.as_deref_mut();
            if sender.repairs_by_second_link(now)
                && repair(store, tag, [tag], trust.as_deref_mut(), now, &mut |_, payload| {
                    let (again, class, confirm) = (None, *class, false);
                    let relay = RelayAs { tag, again, class, wait_ms: 0, confirm };
                    sender.relay(relay, payload, now)
                }) == 0
            {
                self.relayed += 1;
                self.policy.on_repaired();
                continue;
            }
            settled.late += repair(store, tag, names(tag, traits), trust, now, &mut resend);
        }
        self.found_lost = lost;
        settled
    }

    /// While the first link is silent, relays by the second what left and is not reported, and
    /// requests what arrives, as far as `may` allows. Call it after each input.
    pub fn carry(&mut self, may: &mut Carry, now: Instant) {
        let Self { carrying, sender, store, class, next_tag, minds_order, .. } = self;
        let carried = CarryAs { next: *next_tag, class: *class, in_order: *minds_order };
        self.relayed += carrying.carry(sender, may, carried, now, |tag| store.get(tag, now));
    }

    /// Completes an input of the sender in place of [`Resender::settle`], for a caller that only
    /// watches. `on_fate` gets the number of each datagram that the proxy reported, of those that
    /// left, and whether it was lost. Returns whether a proxy reports the flow for the first time.
    pub fn observe(&mut self, mut on_fate: impl FnMut(u64, bool)) -> bool {
        let begins = self.note_session();
        self.found_received.clear();
        self.sender.drain_received(&mut self.found_received);
        self.found_received.iter().for_each(|tag| on_fate(*tag, false));
        self.sender.drain_lost(&mut self.found_lost);
        self.lost += self.found_lost.len() as u64;
        self.found_lost.drain(..).for_each(|lost| on_fate(lost.tag, true));
        begins
    }

    /// Notes whether there is a session. Returns whether a proxy reports the flow for the first
    /// time.
    fn note_session(&mut self) -> bool {
        let assistance = self.sender.assistance();
        let has_proxy = !matches!(assistance, Assistance::Unassisted(_));
        self.has_session = has_proxy && self.sender.session_numbers().next().is_some();
        let is_first = !self.was_assisted && assistance == Assistance::Assisted;
        self.was_assisted |= is_first;
        is_first
    }

    /// Whether the loss of datagrams that leave now can be detected.
    #[must_use]
    pub fn has_session(&self) -> bool {
        self.has_session
    }

    /// Datagrams of the program that left.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.next_tag
    }

    /// Losses of these before the proxy. The loss of a repair counts, too.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Datagrams that left again by the second link.
    #[must_use]
    pub fn relayed(&self) -> u64 {
        self.relayed
    }

    /// Bytes of copies.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.store.bytes()
    }

    /// Drops copies that are too old to be sent again.
    pub fn expire(&mut self, now: Instant) {
        self.store.expire(now);
    }
}

/// Sends a datagram again, once for each of these names. Returns 1 if it cannot be sent at all.
fn repair(
    store: &mut Store,
    tag: u64,
    names: impl IntoIterator<Item = u64>,
    mut trust: Option<&mut Trust>,
    now: Instant,
    resend: &mut impl FnMut(u64, &[u8]) -> bool,
) -> u64 {
    for name in names {
        let is_first = u64::from(name == tag);
        let Some(payload) = store.get_for_resend(tag, now) else { return is_first };
        let len = payload.len();
        let affords = trust.as_mut().is_none_or(|trust| trust.spend(name, len));
        if !affords || !resend(name, payload) {
            trust.filter(|_| affords).into_iter().for_each(|trust| trust.refund(len));
            store.refund(len);
            return is_first;
        }
    }
    0
}
