//! The settings of sections `near`, `middle` and `far`.

use std::time::Duration;

use super::super::setting::{
    MILLISECONDS, PERCENT, RATE, SWITCH, Values, mbit, numbers, or_word, settings, whole,
};
use super::{Queue, ReplayFile, Segment, TraceFile};
use crate::link::{JitterShape, Outage, Outages};
use crate::units::{BitRate, Percent};

settings! { SETTINGS: Segment;
    "delay_ms", MILLISECONDS, "one-way delay" => both.delay;
    "jitter_ms", MILLISECONDS, "variation of the delay, down to 0" => both.jitter.spread;
    "jitter_shape", JITTER_SHAPE, "how the delay varies" => both.jitter.shape;
    "jitter_reorders", SWITCH,
        "whether packets of a shorter delay overtake others" => both.jitter.reorders;
    "reorder_percent", PERCENT, "packets spared the delay, which overtake others" => both.reorder;
    "rate_mbit", RATE, "rate of each direction" => both.rate;
    "rate_to_mbit", RATE, "rate towards the receiver, if different" => rate_to;
    "rate_from_mbit", RATE, "rate from the receiver, if different" => rate_from;
    "trace", TRACE,
        "times when 1504 bytes may leave, instead of the rate; a path in a scenario is relative to \
         its file" => trace;
    "overhead_bytes", numbers!(u64, "bytes", 0..=1000),
        "bytes on the line for each packet in addition to its Ethernet frame" =>
        both.overhead_bytes;
    "loss_percent", PERCENT, "random loss of each direction" => both.loss;
    "loss_to_percent", PERCENT, "random loss towards the receiver, if different" => loss_to;
    "loss_from_percent", PERCENT, "random loss from the receiver, if different" => loss_from;
    "loss_correlation_percent", CORRELATION,
        "packets that share the fate of the previous one; the mean loss stays loss_percent" =>
        loss_correlation;
    "bad_enter_percent", PERCENT,
        "Gilbert-Elliott: chance with each packet to enter the bad state; loss_percent applies to \
         the good state" => bad_state.enter;
    "bad_leave_percent", PERCENT,
        "Gilbert-Elliott: chance with each packet to leave the bad state" => bad_state.leave;
    "good_ms", LONG_OR_NONE,
        "fading: mean time in the good state, in which loss_percent applies, for both directions at \
         once" => bad_state.good;
    "bad_ms", LONG_OR_NONE, "fading: mean time in the bad state" => bad_state.bad;
    "bad_loss_percent", PERCENT,
        "loss in the bad state of fading or Gilbert-Elliott; 100 if not set" => bad_state.loss;
    "bad_rate_percent", BAD_RATE,
        "fading: what is left of the rate in the bad state; 100 if not set" => bad_state.rate;
    "replay", REPLAY,
        "a recorded link whose losses, late packets and jitter come in addition, for both \
         directions at once; a path in a scenario is relative to its file" => replay;
    "retries", numbers!(u32, "transmissions", 0..=20),
        "how often the link sends a lost frame again at most, while later ones wait" => retries;
    "retry_ms", MILLISECONDS,
        "how long after the previous transmission, besides what that took" => retry_after;
    "handover_every_ms", LONG_OR_NONE,
        "from one handover to the next, for both directions at once" => handovers.every;
    "handover_ms", HANDOVER,
        "how long the link drops all packets in a handover: the shortest and the longest time" =>
        handovers.outage;
    "handover_delay_ms", MILLISECONDS,
        "the most that the delay grows by a handover, until the next one" => handovers.delay;
    "duplicate_percent", PERCENT, "packets that arrive twice" => both.duplicate;
    "corrupt_percent", PERCENT,
        "packets damaged on the way, which the receiver's checksum drops" => both.corrupt;
    "policer_mbit", POLICER,
        "rate of a token bucket before the queue of each direction, which drops the packets that \
         exceed it" => both.policer;
    "policer_to_mbit", POLICER,
        "the policer's rate towards the receiver, if different" => policer_to;
    "policer_from_mbit", POLICER,
        "the policer's rate from the receiver, if different" => policer_from;
    "policer_burst_bytes", numbers!(u64, "bytes", 1514..=1_000_000_000),
        "what the policer's bucket holds" => both.policer_burst_bytes;
    "queue", Queue::VALUES,
        "what the queue of each direction drops; queue_bytes configures the adaptive red" => queue;
    "queue_bytes", numbers!(u64, "bytes", 1500..=1_000_000_000),
        "room in the queue of each direction" => both.queue_bytes;
    "queue_packets", QUEUE_PACKETS,
        "room in the queue of each direction, in addition to queue_bytes" => both.queue_packets;
    "codel_target_ms", POSITIVE_MS,
        "CoDel: acceptable standing delay; 5 if not set" => codel.target;
    "codel_interval_ms", POSITIVE_MS,
        "CoDel: about the longest usual round trip; 100 if not set" => codel.interval;
    "ecn", SWITCH,
        "whether red and codel mark packets of ECN-capable transports instead of dropping them" =>
        both.ecn;
    "mtu_bytes", MTU_BYTES,
        "largest IP packet that passes; the link drops larger ones silently" => both.mtu_bytes;
    "outages_ms", OUTAGES, "times in which the link drops all packets" => both.outages;
}

const JITTER_SHAPE: Values<JitterShape> = Values {
    takes: "uniform (jitter_ms at most) or normal (jitter_ms is the standard deviation)",
    read: |value| match value {
        "uniform" => Some(JitterShape::Uniform),
        "normal" => Some(JitterShape::Normal),
        _ => None,
    },
};
const TRACE: Values<Option<TraceFile>> = Values {
    takes: "the path of a file of times in milliseconds, in the format of mahimahi, or none",
    read: |value| match value {
        "" => None,
        "none" => Some(None),
        path => Some(Some(TraceFile { path: path.into(), trace: None })),
    },
};
const REPLAY: Values<Option<ReplayFile>> = Values {
    takes: "the path of a file that `sidekick-agent measure --trace` wrote, or none",
    read: |value| match value {
        "" => None,
        "none" => Some(None),
        path => Some(Some(ReplayFile { path: path.into(), directions: None })),
    },
};
const CORRELATION: Values<Percent> = Values {
    takes: "percent from 0 to 99.9",
    read: |value| (PERCENT.read)(value).filter(|percent| percent.get() <= 99.9),
};
/// Shorter times would be a burden to the lab, and mean nothing.
const LONG_OR_NONE: Values<Duration> = Values {
    takes: "milliseconds from 1 to 60000, or 0 for none",
    read: |value| {
        let time = (MILLISECONDS.read)(value)?;
        (time.is_zero() || time.as_millis() > 0).then_some(time)
    },
};
const BAD_RATE: Values<Percent> = Values {
    takes: "percent from 1 to 100",
    read: |value| (PERCENT.read)(value).filter(|percent| percent.get() >= 1.0),
};
const HANDOVER: Values<(Duration, Duration)> = Values {
    takes: "two times in milliseconds up to 60000, such as 50-300",
    read: |value| {
        let (shortest, longest) = value.split_once('-')?;
        let [shortest, longest] = [shortest, longest].map(|time| (MILLISECONDS.read)(time.trim()));
        Some((shortest?, longest?)).filter(|(shortest, longest)| shortest <= longest)
    },
};
const POLICER: Values<Option<BitRate>> = Values {
    takes: "Mbit/s from 0.001 to 100000, or none",
    read: |value| or_word(value, "none", mbit),
};
const QUEUE_PACKETS: Values<Option<u64>> = Values {
    takes: "packets from 1 to 1000000, or unlimited",
    read: |value| or_word(value, "unlimited", |value| whole(value, 1..=1_000_000)),
};
const POSITIVE_MS: Values<Duration> = Values {
    takes: "milliseconds from 0.001 to 60000",
    read: |value| (MILLISECONDS.read)(value).filter(|time| time.as_micros() > 0),
};
const MTU_BYTES: Values<Option<u64>> = Values {
    takes: "bytes from 576 to 65535, or unlimited",
    read: |value| or_word(value, "unlimited", |value| whole(value, 576..=65_535)),
};
/// Outages that begin within a day.
const OUTAGES: Values<Outages> = Values {
    takes: "begin+length in milliseconds, such as 2000+500,8000+100, or none",
    read: |value| match value {
        "none" => Some(Outages::default()),
        list => list.split(',').map(outage).collect(),
    },
};

fn outage(text: &str) -> Option<Outage> {
    let (from, length) = text.split_once('+')?;
    let from = Duration::from_millis(whole(from.trim(), 0..=86_400_000)?);
    Some(Outage { from, length: (MILLISECONDS.read)(length.trim())? })
}
