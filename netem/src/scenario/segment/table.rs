//! The settings of sections `near` and `far`.

use super::super::setting::{MILLISECONDS, Setting, milliseconds, switch, whole};
use super::{Queue, Segment, TraceFile};
use crate::link::{JitterShape, Outage};
use crate::units::{BitRate, Percent};

const PERCENT: &str = "percent from 0 to 100";

/// The settings of both sections.
pub(in super::super) const SETTINGS: &[Setting<Segment>] = &[
    Setting { key: "delay_ms", takes: MILLISECONDS, meaning: "one-way delay", store: delay },
    Setting {
        key: "jitter_ms",
        takes: MILLISECONDS,
        meaning: "what the delay varies by; packets keep their order",
        store: jitter,
    },
    Setting {
        key: "jitter_shape",
        takes: "uniform (jitter_ms at most) or normal (jitter_ms is the standard deviation)",
        meaning: "how the delay varies",
        store: jitter_shape,
    },
    Setting {
        key: "reorder_percent",
        takes: PERCENT,
        meaning: "packets spared the delay, which overtake others",
        store: reorder,
    },
    Setting {
        key: "rate_mbit",
        takes: "Mbit/s from 0.001 to 100000, or unlimited",
        meaning: "rate of each direction",
        store: rate,
    },
    Setting {
        key: "trace",
        takes: "the path of a file of times in milliseconds, as mahimahi's, or none",
        meaning: "when 1504 bytes may leave, in place of the rate; a path in a scenario counts from its file",
        store: trace,
    },
    Setting {
        key: "overhead_bytes",
        takes: "bytes from 0 to 1000",
        meaning: "what each packet takes on the line beside its Ethernet frame",
        store: overhead,
    },
    Setting {
        key: "loss_percent",
        takes: PERCENT,
        meaning: "random loss of each direction",
        store: loss,
    },
    Setting {
        key: "loss_to_percent",
        takes: PERCENT,
        meaning: "random loss towards the receiver, if another",
        store: loss_to,
    },
    Setting {
        key: "loss_from_percent",
        takes: PERCENT,
        meaning: "random loss from the receiver, if another",
        store: loss_from,
    },
    Setting {
        key: "loss_correlation_percent",
        takes: "percent from 0 to 99.9",
        meaning: "packets that share the fate of the one before; the share lost stays loss_percent",
        store: loss_correlation,
    },
    Setting {
        key: "bad_enter_percent",
        takes: PERCENT,
        meaning: "Gilbert-Elliott: chance with each packet to enter the bad state; loss_percent is for the good one",
        store: bad_enter,
    },
    Setting {
        key: "bad_leave_percent",
        takes: PERCENT,
        meaning: "Gilbert-Elliott: chance with each packet to leave the bad state",
        store: bad_leave,
    },
    Setting {
        key: "bad_loss_percent",
        takes: PERCENT,
        meaning: "Gilbert-Elliott: loss in the bad state; 100 if not set",
        store: bad_loss,
    },
    Setting {
        key: "duplicate_percent",
        takes: PERCENT,
        meaning: "packets that come twice",
        store: duplicate,
    },
    Setting {
        key: "corrupt_percent",
        takes: PERCENT,
        meaning: "packets damaged on the way, which the receiver's checksum drops",
        store: corrupt,
    },
    Setting {
        key: "queue",
        takes: "drop-tail, red or codel",
        meaning: "what the queue of each direction drops; red is adaptive and set up from queue_bytes",
        store: queue,
    },
    Setting {
        key: "queue_bytes",
        takes: "bytes from 1500 to 1000000000",
        meaning: "room in the queue of each direction",
        store: queue_bytes,
    },
    Setting {
        key: "queue_packets",
        takes: "packets from 1 to 1000000, or unlimited",
        meaning: "room in the queue of each direction, beside queue_bytes",
        store: queue_packets,
    },
    Setting {
        key: "codel_target_ms",
        takes: "milliseconds from 0.001 to 60000",
        meaning: "CoDel: standing delay that is acceptable; 5 if not set",
        store: codel_target,
    },
    Setting {
        key: "codel_interval_ms",
        takes: "milliseconds from 0.001 to 60000",
        meaning: "CoDel: about the longest usual round trip; 100 if not set",
        store: codel_interval,
    },
    Setting {
        key: "ecn",
        takes: "on or off",
        meaning: "whether red and codel mark packets of ECN-capable transports and do not drop them",
        store: ecn,
    },
    Setting {
        key: "mtu_bytes",
        takes: "bytes from 576 to 65535, or unlimited",
        meaning: "largest IP packet that passes; larger ones are lost without a word",
        store: mtu,
    },
    Setting {
        key: "outages_ms",
        takes: "begin+length in milliseconds, such as 2000+500,8000+100, or none",
        meaning: "times in which all that comes is lost",
        store: outages,
    },
];

fn delay(segment: &mut Segment, value: &str) -> Option<()> {
    segment.delay = milliseconds(value)?;
    Some(())
}

fn jitter(segment: &mut Segment, value: &str) -> Option<()> {
    segment.jitter.spread = milliseconds(value)?;
    Some(())
}

fn jitter_shape(segment: &mut Segment, value: &str) -> Option<()> {
    segment.jitter.shape = match value {
        "uniform" => JitterShape::Uniform,
        "normal" => JitterShape::Normal,
        _ => return None,
    };
    Some(())
}

fn reorder(segment: &mut Segment, value: &str) -> Option<()> {
    segment.reorder = percent(value)?;
    Some(())
}

fn rate(segment: &mut Segment, value: &str) -> Option<()> {
    segment.rate = match value {
        "unlimited" => None,
        number => Some(BitRate::from_mbit(number.parse().ok()?)?),
    };
    Some(())
}

fn trace(segment: &mut Segment, value: &str) -> Option<()> {
    segment.trace = match value {
        "" => return None,
        "none" => None,
        path => Some(TraceFile { path: path.into(), trace: None }),
    };
    Some(())
}

fn overhead(segment: &mut Segment, value: &str) -> Option<()> {
    segment.overhead_bytes = whole(value, 0, 1000)?;
    Some(())
}

fn loss(segment: &mut Segment, value: &str) -> Option<()> {
    segment.loss = percent(value)?;
    Some(())
}

fn loss_to(segment: &mut Segment, value: &str) -> Option<()> {
    segment.loss_to = Some(percent(value)?);
    Some(())
}

fn loss_from(segment: &mut Segment, value: &str) -> Option<()> {
    segment.loss_from = Some(percent(value)?);
    Some(())
}

fn loss_correlation(segment: &mut Segment, value: &str) -> Option<()> {
    segment.loss_correlation = percent(value).filter(|percent| percent.get() <= 99.9)?;
    Some(())
}

fn bad_enter(segment: &mut Segment, value: &str) -> Option<()> {
    segment.bad_state.enter = percent(value)?;
    Some(())
}

fn bad_leave(segment: &mut Segment, value: &str) -> Option<()> {
    segment.bad_state.leave = percent(value)?;
    Some(())
}

fn bad_loss(segment: &mut Segment, value: &str) -> Option<()> {
    segment.bad_state.loss = percent(value)?;
    Some(())
}

fn duplicate(segment: &mut Segment, value: &str) -> Option<()> {
    segment.duplicate = percent(value)?;
    Some(())
}

fn corrupt(segment: &mut Segment, value: &str) -> Option<()> {
    segment.corrupt = percent(value)?;
    Some(())
}

fn queue(segment: &mut Segment, value: &str) -> Option<()> {
    let queues = [Queue::DropTail, Queue::Red, Queue::CoDel];
    segment.queue = queues.into_iter().find(|queue| queue.name() == value)?;
    Some(())
}

fn queue_bytes(segment: &mut Segment, value: &str) -> Option<()> {
    segment.queue_bytes = whole(value, 1500, 1_000_000_000)?;
    Some(())
}

fn queue_packets(segment: &mut Segment, value: &str) -> Option<()> {
    segment.queue_packets = unlimited_or(value, 1, 1_000_000)?;
    Some(())
}

fn codel_target(segment: &mut Segment, value: &str) -> Option<()> {
    segment.codel.target = positive_milliseconds(value)?;
    Some(())
}

fn codel_interval(segment: &mut Segment, value: &str) -> Option<()> {
    segment.codel.interval = positive_milliseconds(value)?;
    Some(())
}

fn ecn(segment: &mut Segment, value: &str) -> Option<()> {
    segment.ecn = switch(value)?;
    Some(())
}

fn mtu(segment: &mut Segment, value: &str) -> Option<()> {
    segment.mtu_bytes = unlimited_or(value, 576, 65_535)?;
    Some(())
}

fn outages(segment: &mut Segment, value: &str) -> Option<()> {
    let outage = |text: &str| {
        let (from, length) = text.split_once('+')?;
        Some(Outage { from: since_start(from.trim())?, length: milliseconds(length.trim())? })
    };
    segment.outages = match value {
        "none" => Vec::new(),
        list => list.split(',').map(outage).collect::<Option<Vec<_>>>()?,
    }
    .into_iter()
    .collect();
    Some(())
}

fn percent(value: &str) -> Option<Percent> {
    Percent::new(value.parse().ok()?)
}

fn unlimited_or(value: &str, least: u64, most: u64) -> Option<Option<u64>> {
    if value == "unlimited" { Some(None) } else { whole(value, least, most).map(Some) }
}

fn positive_milliseconds(value: &str) -> Option<std::time::Duration> {
    milliseconds(value).filter(|time| time.as_micros() > 0)
}

/// A day of milliseconds at most.
fn since_start(value: &str) -> Option<std::time::Duration> {
    whole(value, 0, 86_400_000).map(std::time::Duration::from_millis)
}
