//! The settings of sections `near`, `middle` and `far`.

use std::time::Duration;

use super::super::setting::{
    MILLISECONDS, PERCENT, RATE, SWITCH, limit, milliseconds, percent, rate, settings, switch,
    whole,
};
use super::{Queue, Segment, TraceFile};
use crate::link::{JitterShape, Outage, Outages};
use crate::units::BitRate;

/// The values that [`policer`] accepts, in words.
const POLICER: &str = "Mbit/s from 0.001 to 100000, or none";

settings! { Segment, value;
    "delay_ms", MILLISECONDS, "one-way delay" => both.delay = milliseconds(value);
    "jitter_ms", MILLISECONDS, "variation of the delay, down to 0" =>
        both.jitter.spread = milliseconds(value);
    "jitter_shape", "uniform (jitter_ms at most) or normal (jitter_ms is the standard deviation)",
        "how the delay varies" => both.jitter.shape = jitter_shape(value);
    "jitter_reorders", SWITCH, "whether packets of a shorter delay overtake others" =>
        both.jitter.reorders = switch(value);
    "reorder_percent", PERCENT, "packets spared the delay, which overtake others" =>
        both.reorder = percent(value);
    "rate_mbit", RATE, "rate of each direction" => both.rate = rate(value);
    "rate_to_mbit", RATE, "rate towards the receiver, if different" =>
        rate_to = rate(value).map(Some);
    "rate_from_mbit", RATE, "rate from the receiver, if different" =>
        rate_from = rate(value).map(Some);
    "trace", "the path of a file of times in milliseconds, in the format of mahimahi, or none",
        "times when 1504 bytes may leave, instead of the rate; a path in a scenario is relative to \
         its file" => trace = trace(value);
    "overhead_bytes", "bytes from 0 to 1000",
        "bytes on the line for each packet in addition to its Ethernet frame" =>
        both.overhead_bytes = whole(value, 0..=1000);
    "loss_percent", PERCENT, "random loss of each direction" => both.loss = percent(value);
    "loss_to_percent", PERCENT, "random loss towards the receiver, if different" =>
        loss_to = percent(value).map(Some);
    "loss_from_percent", PERCENT, "random loss from the receiver, if different" =>
        loss_from = percent(value).map(Some);
    "loss_correlation_percent", "percent from 0 to 99.9",
        "packets that share the fate of the previous one; the mean loss stays loss_percent" =>
        loss_correlation = percent(value).filter(|percent| percent.get() <= 99.9);
    "bad_enter_percent", PERCENT,
        "Gilbert-Elliott: chance with each packet to enter the bad state; loss_percent applies to \
         the good state" => bad_state.enter = percent(value);
    "bad_leave_percent", PERCENT,
        "Gilbert-Elliott: chance with each packet to leave the bad state" =>
        bad_state.leave = percent(value);
    "bad_loss_percent", PERCENT, "Gilbert-Elliott: loss in the bad state; 100 if not set" =>
        bad_state.loss = percent(value);
    "duplicate_percent", PERCENT, "packets that arrive twice" => both.duplicate = percent(value);
    "corrupt_percent", PERCENT,
        "packets damaged on the way, which the receiver's checksum drops" =>
        both.corrupt = percent(value);
    "policer_mbit", POLICER,
        "rate of a token bucket before the queue of each direction, which drops the packets that \
         exceed it" => both.policer = policer(value);
    "policer_to_mbit", POLICER, "the policer's rate towards the receiver, if different" =>
        policer_to = policer(value).map(Some);
    "policer_from_mbit", POLICER, "the policer's rate from the receiver, if different" =>
        policer_from = policer(value).map(Some);
    "policer_burst_bytes", "bytes from 1514 to 1000000000", "what the policer's bucket holds" =>
        both.policer_burst_bytes = whole(value, 1514..=1_000_000_000);
    "queue", "drop-tail, red or codel",
        "what the queue of each direction drops; queue_bytes configures the adaptive red" =>
        queue = Queue::of_name(value);
    "queue_bytes", "bytes from 1500 to 1000000000", "room in the queue of each direction" =>
        both.queue_bytes = whole(value, 1500..=1_000_000_000);
    "queue_packets", "packets from 1 to 1000000, or unlimited",
        "room in the queue of each direction, in addition to queue_bytes" =>
        both.queue_packets = limit(value, 1..=1_000_000);
    "codel_target_ms", "milliseconds from 0.001 to 60000",
        "CoDel: acceptable standing delay; 5 if not set" =>
        codel.target = positive_milliseconds(value);
    "codel_interval_ms", "milliseconds from 0.001 to 60000",
        "CoDel: about the longest usual round trip; 100 if not set" =>
        codel.interval = positive_milliseconds(value);
    "ecn", SWITCH,
        "whether red and codel mark packets of ECN-capable transports instead of dropping them" =>
        both.ecn = switch(value);
    "mtu_bytes", "bytes from 576 to 65535, or unlimited",
        "largest IP packet that passes; the link drops larger ones silently" =>
        both.mtu_bytes = limit(value, 576..=65_535);
    "outages_ms", "begin+length in milliseconds, such as 2000+500,8000+100, or none",
        "times in which the link drops all packets" => both.outages = outages(value);
}

fn jitter_shape(value: &str) -> Option<JitterShape> {
    match value {
        "uniform" => Some(JitterShape::Uniform),
        "normal" => Some(JitterShape::Normal),
        _ => None,
    }
}

/// The rate of a policer, or `none`.
fn policer(value: &str) -> Option<Option<BitRate>> {
    match value {
        "none" => Some(None),
        number => BitRate::from_mbit(number.parse().ok()?).map(Some),
    }
}

fn trace(value: &str) -> Option<Option<TraceFile>> {
    match value {
        "" => None,
        "none" => Some(None),
        path => Some(Some(TraceFile { path: path.into(), trace: None })),
    }
}

/// Outages that begin within a day.
fn outages(value: &str) -> Option<Outages> {
    let outage = |text: &str| {
        let (from, length) = text.split_once('+')?;
        let from = Duration::from_millis(whole(from.trim(), 0..=86_400_000)?);
        Some(Outage { from, length: milliseconds(length.trim())? })
    };
    match value {
        "none" => Some(Outages::default()),
        list => list.split(',').map(outage).collect(),
    }
}

fn positive_milliseconds(value: &str) -> Option<Duration> {
    milliseconds(value).filter(|time| time.as_micros() > 0)
}
