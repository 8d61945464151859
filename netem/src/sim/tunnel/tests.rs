use super::*;
use std::collections::BTreeSet;

const MS: Duration = Duration::from_millis(1);

/// Both ends of a tunnel, with a segment of 5 ms between them. The tests choose its losses.
struct Pair {
    now: Instant,
    near: TunnelEnd,
    far: TunnelEnd,
    /// Packets by arrival time, each with its direction.
    under_way: Vec<(Instant, Side, Packet)>,
    /// The first byte of each packet that left the far end, with the time since the start.
    came: Vec<(u8, Duration)>,
    start: Instant,
}

#[allow(clippy::disallowed_methods, reason = "any instant will do for a start")]
fn pair(tunnel: Tunnel) -> Pair {
    let start = Instant::now();
    let end = |outside| TunnelEnd::new(tunnel, outside).unwrap();
    let (near, far) = (end(Side::Right), end(Side::Left));
    Pair { now: start, near, far, under_way: Vec::new(), came: Vec::new(), start }
}

fn packet(byte: u8) -> Packet {
    Packet::new(([10, 77, 1, 1], 4000).into(), ([10, 77, 2, 2], 4433).into(), &[byte; 100])
}

impl Pair {
    /// Runs for some milliseconds. `lost` chooses the messages to the far end that are lost.
    fn run(&mut self, milliseconds: u32, mut lost: impl FnMut(&Message) -> bool) {
        for _ in 0..milliseconds {
            self.now += MS;
            let now = self.now;
            let (mut from_near, mut from_far) = (Outbox::new(), Outbox::new());
            let (due, later) =
                self.under_way.drain(..).partition::<Vec<_>, _>(|(at, ..)| *at <= now);
            self.under_way = later;
            for (_, towards, packet) in due {
                match towards {
                    Side::Right => self.far.receive(Side::Left, packet, now, &mut from_far),
                    Side::Left => self.near.receive(Side::Right, packet, now, &mut from_near),
                }
            }
            self.near.on_timeout(now, &mut from_near);
            self.far.on_timeout(now, &mut from_far);
            self.carry(from_near, &mut lost);
            for (side, packet) in from_far {
                match side {
                    Side::Right => self.came.push((packet.payload[0], now - self.start)),
                    Side::Left => self.under_way.push((now + 5 * MS, Side::Left, packet)),
                }
            }
        }
    }

    fn carry(&mut self, out: Outbox, lost: &mut impl FnMut(&Message) -> bool) {
        for (side, packet) in out {
            assert_eq!(side, Side::Right, "the near host is sent nothing");
            if !lost(&Message::decode(&packet.payload).unwrap()) {
                self.under_way.push((self.now + 5 * MS, Side::Right, packet));
            }
        }
    }

    /// The near host sends packets, one a millisecond.
    fn send(&mut self, bytes: std::ops::Range<u8>, mut lost: impl FnMut(&Message) -> bool) {
        for byte in bytes {
            let mut out = Outbox::new();
            self.near.receive(Side::Left, packet(byte), self.now, &mut out);
            self.carry(out, &mut lost);
            self.run(1, &mut lost);
        }
    }

    fn order(&self) -> Vec<u8> {
        self.came.iter().map(|(byte, _)| *byte).collect()
    }
}

/// Loses the first transmissions of these packets.
fn first_of(numbers: &[u32]) -> impl FnMut(&Message) -> bool {
    let mut left: BTreeSet<u32> = numbers.iter().copied().collect();
    move |message| matches!(message, Message::Data { number, .. } if left.remove(number))
}

#[test]
fn lost_packets_are_sent_again_once_a_block_shows_them() {
    let mut pair = pair(Tunnel::Unordered);
    pair.send(0..40, first_of(&[3, 20, 21]));
    pair.run(40, |_| false);
    let late: Vec<_> = pair.came.iter().filter(|(byte, _)| [3, 20, 21].contains(byte)).collect();
    let numbers: Vec<_> = pair.order();
    assert_eq!(numbers.len(), 40, "{numbers:?}");
    assert_ne!(numbers, (0..40).collect::<Vec<_>>());
    for (byte, at) in late {
        // The wait is a round trip, the delay of the acknowledgement, and the time to the next
        // packet.
        let waited = *at - u32::from(*byte) * MS;
        assert!(waited > 10 * MS && waited < 22 * MS, "{byte} after {waited:?}");
    }
}

#[test]
fn in_order_packets_wait_for_those_before_them() {
    let mut pair = pair(Tunnel::Ordered);
    pair.send(0..40, first_of(&[3, 20, 21]));
    pair.run(40, |_| false);
    assert_eq!(pair.order(), (0..40).collect::<Vec<_>>());
}

#[test]
fn the_last_packet_is_sent_again_although_nothing_follows() {
    for tunnel in [Tunnel::Unordered, Tunnel::Ordered] {
        let mut pair = pair(tunnel);
        pair.send(0..10, first_of(&[9]));
        pair.run(100, |_| false);
        assert_eq!(pair.order(), (0..10).collect::<Vec<_>>());
        // After that, no timer remains.
        assert_eq!(pair.near.poll_timeout().or(pair.far.poll_timeout()), None);
    }
}

#[test]
fn a_packet_is_given_up_after_seven_more_transmissions() {
    let mut pair = pair(Tunnel::Ordered);
    let mut transmissions = 0;
    let mut lost = |message: &Message| {
        let third = matches!(message, Message::Data { number: 2, .. });
        transmissions += u32::from(third);
        third
    };
    pair.send(0..10, &mut lost);
    pair.run(1000, &mut lost);
    assert_eq!(transmissions, 8);
    assert_eq!(pair.order(), [0, 1, 3, 4, 5, 6, 7, 8, 9]);
    let waited = pair.came[2].1;
    assert!(waited > REORDER_DELAY && waited < REORDER_DELAY + 20 * MS, "{waited:?}");
    assert_eq!(pair.near.poll_timeout(), None);
}

/// 32 packets may wait. The next one ends the wait for what is missing.
#[test]
fn the_reorder_buffer_is_short() {
    let mut pair = pair(Tunnel::Ordered);
    pair.send(0..60, |message| matches!(message, Message::Data { number: 2, .. }));
    let at = pair.came[2].1;
    assert_eq!((pair.order()[1], pair.order()[2]), (1, 3));
    // The 33rd packet after it leaves at 35 ms, and is 5 ms on its way.
    assert_eq!(at, 40 * MS);
}

#[test]
fn a_packet_that_comes_twice_is_handed_on_once() {
    for tunnel in [Tunnel::Unordered, Tunnel::Ordered] {
        let mut end = TunnelEnd::new(tunnel, Side::Left).unwrap();
        let mut out = Outbox::new();
        let now = pair(tunnel).now;
        for transmission in 0..2 {
            let message = Message::Data { number: 0, transmission, packet: packet(1) };
            let outer = Packet::new((SENDER, 1).into(), (PROXY_NEAR, 1).into(), &message.encode());
            end.receive(Side::Left, outer, now, &mut out);
        }
        assert_eq!(out, [(Side::Right, packet(1))]);
    }
}
