//! Lists of what leaves (SPEC.md, section 7.14).

use super::*;
use crate::SentOrder;
use crate::identify::{Filter, Identification, Position};
use crate::testing::exchange;
use crate::wire::Protect;
use crate::{LeaveInOrder, NearLoss};

/// A sender whose proxy puts the flow in order.
fn ordered() -> Simulation {
    let observer = ObserverConfig { orders: true, ..ObserverConfig::default() };
    let mut s = Simulation::new(configured(), observer, near(0), 3);
    s.stream(200, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    s
}

fn lists(s: &Simulation) -> u64 {
    s.proxy.as_ref().map_or(0, |proxy| proxy.stats().lists)
}

#[test]
fn each_datagram_is_in_three_lists() {
    let mut s = ordered();
    let order = LeaveInOrder::new(false);
    order.update(true, Some(100 * MS), &mut s.sender, s.now);
    let wanted = s.sender.listing.wanted().unwrap();
    assert_eq!((wanted.every, wanted.longest), (4, MS / 2));
    assert_eq!((wanted.hold.gap, wanted.hold.list), (17 * MS, 5 * MS));
    let mut named = std::collections::BTreeMap::<u32, u32>::new();
    for number in 0..16_u8 {
        let payload = [number; 40];
        s.sender.on_sent((1 << 20) + u64::from(number), Payload::whole(&payload), s.now);
        // Silences end some lists early.
        if matches!(number, 3 | 4 | 6 | 10 | 11 | 15) {
            s.sender.on_timeout(s.now + MS);
            let mut room = [0; sidekick_parity::MAX_WINDOW];
            let list = s.sender.listing.take(&mut room).unwrap();
            for (place, _) in list.identifiers.iter().enumerate() {
                *named.entry(list.first + u32::try_from(place).unwrap()).or_default() += 1;
            }
        }
    }
    assert_eq!(named.len(), 16);
    assert!(named.iter().all(|(position, times)| *position > 6 || *times == 3), "{named:?}");
    // One that is not followed by others is listed after a quarter of a near round trip.
    s.sender.on_sent(1 << 21, Payload::whole(&[99; 40]), s.now);
    assert_eq!(s.sender.listing.poll_timeout(), Some(s.now + MS / 2));
}

#[test]
fn a_repair_has_no_place_of_its_own() {
    let mut s = ordered();
    LeaveInOrder::new(false).update(true, None, &mut s.sender, s.now);
    let tags = [1 << 20, (1 << 20) + 1, 1 << 20, 1 << 63, (1 << 20) + 2];
    for (number, tag) in (0..).zip(tags) {
        let payload = [number; 40];
        s.sender.on_sent(tag, Payload::whole(&payload), s.now);
    }
    s.sender.on_timeout(s.now + MS);
    let mut room = [0; sidekick_parity::MAX_WINDOW];
    let list = s.sender.listing.take(&mut room).unwrap();
    let named: Vec<_> = list.identifiers.iter().collect();
    assert_eq!(named, [0, 0x0101_0101, 0x0404_0404]);
}

#[test]
fn a_loss_without_a_repair_releases_the_order() {
    let mut s = ordered();
    let mut order = LeaveInOrder::new(true);
    order.update(true, None, &mut s.sender, s.now);
    assert_eq!(s.sender.listing.wanted(), None, "nothing was lost");
    order.on_lost(true, &mut s.sender, s.now);
    order.update(true, None, &mut s.sender, s.now);
    s.send(Some(false));
    let mut proxy = s.proxy.take().unwrap();
    s.sender.on_timeout(s.now + MS);
    exchange(&mut s.sender, &mut proxy, crate::testing::PEER, s.now + MS);
    let before = proxy.stats().lists;
    order.on_lost(false, &mut s.sender, s.now);
    exchange(&mut s.sender, &mut proxy, crate::testing::PEER, s.now + MS);
    assert_eq!(proxy.stats().lists, before + 1);
    // So does a growing queue, once.
    for _ in 0..2 {
        order.update(false, None, &mut s.sender, s.now);
        exchange(&mut s.sender, &mut proxy, crate::testing::PEER, s.now + MS);
        assert_eq!(proxy.stats().lists, before + 2);
    }
}

#[test]
fn a_distant_proxy_and_one_that_holds_nothing_get_no_lists() {
    let mut s = ordered();
    LeaveInOrder::new(false).update(true, Some(5 * MS), &mut s.sender, s.now);
    assert_eq!(s.sender.listing.wanted(), None);
    let mut s = simulation(near(0), 3);
    s.stream(200, MS);
    assert!(!s.sender.may_order());
    LeaveInOrder::new(false).update(true, None, &mut s.sender, s.now);
    s.stream(20, MS);
    assert_eq!(lists(&s), 0);
}

/// A flow beside a proxy at this near round trip, with identifiers at the end of each datagram.
fn protected() -> (Simulation, LeaveInOrder) {
    let mut s = ordered();
    let identification = Identification { position: Position::End, filter: Filter::All };
    s.sender.set_terms(Terms { identification, ..Terms::default() });
    s.sender.start(s.flow, s.now);
    s.stream(200, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    (s, LeaveInOrder::new(false).protecting(true))
}

#[test]
fn parity_goes_in_parts_that_fit_the_path() {
    let (mut s, mut order) = protected();
    assert!(order.protect(Some(80 * MS), &mut s.sender, s.now));
    let wanted = s.sender.listing.wanted().unwrap();
    assert_eq!((wanted.hold.gap, wanted.hold.list), (40 * MS, 16 * MS));
    let proxy = s.sender.proxy().unwrap().0;
    let most = Protect { share: 614, ..wanted.parity.unwrap() };
    s.sender.order(Some(SentOrder { parity: Some(most), ..wanted }));
    let (mut sent, mut longest, before) = (0, 0, s.sender.stats().parity_sent);
    let mut out = [0; MAX_DATAGRAM_LEN];
    let (datagrams, len) = (600, 1404);
    for number in 0..datagrams {
        let mut datagram = vec![0x40; len - 4];
        datagram.extend(u32::try_from(number).unwrap().to_be_bytes());
        s.sender.on_sent((1 << 20) + number as u64, Payload::whole(&datagram), s.now);
        while let Some(transmit) = s.sender.poll_transmit(&mut out) {
            assert_eq!(transmit.destination, proxy);
            (sent, longest) = (sent + transmit.size, longest.max(transmit.size));
        }
    }
    // Two messages for each repair symbol, which has two bytes more than a datagram.
    let parity = usize::try_from(s.sender.stats().parity_sent - before).unwrap() / 2 * (len + 2);
    assert!(sent > parity && longest < 800, "{sent}, and at most {longest}");
    let cap = datagrams * (len * 35 / 100) + (16 << 10);
    assert!((cap - 2 * len..=cap).contains(&parity), "{parity} of {cap}");
}

#[test]
fn a_datagram_that_is_too_long_ends_no_parity() {
    let (mut s, mut order) = protected();
    assert!(order.protect(Some(80 * MS), &mut s.sender, s.now));
    let mut out = [0; MAX_DATAGRAM_LEN];
    let mut before = s.sender.stats().parity_sent;
    for number in 0..60_u8 {
        let len = if number == 20 { 1500 } else { 90 };
        let datagram = vec![number; len];
        s.sender.on_sent((1 << 20) + u64::from(number), Payload::whole(&datagram), s.now);
        while s.sender.poll_transmit(&mut out).is_some() {}
        if number % 20 == 19 {
            let after = s.sender.stats().parity_sent;
            assert!(after >= before + 9, "{number}: {before} to {after}");
            before = after;
        }
    }
}

#[test]
fn a_silence_draws_parity_of_the_last_datagrams() {
    let (mut s, mut order) = protected();
    for lost in 0..200 {
        order.note_fates(usize::from(lost >= 20), &[]);
    }
    assert!(order.protect(Some(80 * MS), &mut s.sender, s.now));
    let mut out = [0; MAX_DATAGRAM_LEN];
    for number in 0..3_u8 {
        s.sender.on_sent((1 << 20) + u64::from(number), Payload::whole(&[number; 90]), s.now);
        while s.sender.poll_transmit(&mut out).is_some() {}
    }
    let before = s.sender.stats().parity_sent;
    let due = s.sender.listing.poll_timeout().unwrap();
    assert_eq!(due, s.now + 3 * MS);
    s.sender.on_timeout(due);
    while s.sender.poll_transmit(&mut out).is_some() {}
    assert!(s.sender.stats().parity_sent > before);
    // Once.
    assert!(s.sender.listing.poll_timeout().is_none());
}

#[test]
fn parity_ends_with_losses_and_with_congestion() {
    let (mut s, mut order) = protected();
    assert!(order.protect(Some(80 * MS), &mut s.sender, s.now));
    assert!(s.sender.covers_order());
    order.update(false, Some(80 * MS), &mut s.sender, s.now);
    assert!(!s.sender.covers_order() && s.sender.listing.wanted().is_none());
    // Where most losses are congestion, it ends with one of these, until a random one.
    for (congestion, repaired, goes_on) in
        [(0.6, false, false), (0.6, true, true), (0.4, false, true)]
    {
        s.sender.floor.pretend(NearLoss { rate: 0.04, congestion });
        order.on_lost(repaired, &mut s.sender, s.now);
        let is_sent = order.protect(Some(80 * MS), &mut s.sender, s.now);
        assert_eq!(is_sent, goes_on, "{congestion}, {repaired}");
    }
    let mut clean = LeaveInOrder::new(true).protecting(true);
    assert!(!clean.protect(Some(80 * MS), &mut s.sender, s.now), "nothing was lost");
    // Who has no leave to send parity has no proxy at this distance.
    let without = LeaveInOrder::new(false);
    assert!(!without.may_protect(40 * MS, true, false) && order.may_protect(40 * MS, true, false));
    assert!(!order.may_protect(9 * MS, false, false), "repairs are as fast");
    assert!(order.may_protect(9 * MS, false, true), "it need not change back and forth");
    // Hashes find no datagram among the equations.
    let identification = Identification { position: Position::Whole, filter: Filter::All };
    s.sender.set_terms(Terms { identification, ..Terms::default() });
    assert!(!order.protect(Some(80 * MS), &mut s.sender, s.now));
}

#[test]
fn a_list_without_datagrams_begins_the_order() {
    let mut s = ordered();
    let begins = |s: &mut Simulation| {
        let mut room = [0; sidekick_parity::MAX_WINDOW];
        let list = s.sender.listing.take(&mut room)?;
        assert!(list.gap_us > 0);
        Some((list.first, list.identifiers.len()))
    };
    LeaveInOrder::new(false).update(true, None, &mut s.sender, s.now);
    assert_eq!(begins(&mut s), Some((0, 0)), "before all that it lists");
    let send = |s: &mut Simulation, number: u8| {
        s.sender.on_sent((1 << 20) + u64::from(number), Payload::whole(&[number; 40]), s.now);
    };
    (0..4).for_each(|number| send(&mut s, number));
    assert_eq!(begins(&mut s), Some((0, 4)));
    s.now += 500 * MS;
    send(&mut s, 4);
    assert_eq!(begins(&mut s), Some((4, 0)), "that one has left before");
    (5..9).for_each(|number| send(&mut s, number));
    assert_eq!(begins(&mut s), Some((4, 4)), "and lists do not name what passed before");
}

/// A later acknowledgement makes up for a lost one, and the server would wait with those that wait.
#[test]
fn acknowledgements_are_not_put_in_order() {
    for (left, arrived) in [(40, 1200), (1200, 1200), (1200, 40)] {
        let mut s = ordered();
        let mut order = LeaveInOrder::new(false);
        for _ in 0..100 {
            order.on_sent(left);
            order.on_received(arrived);
        }
        order.update(true, None, &mut s.sender, s.now);
        assert_eq!(s.sender.listing.wanted().is_some(), left == 1200, "{left} and {arrived}");
        assert_eq!(order.is_acknowledged(), arrived == 40, "{left} and {arrived}");
    }
}
