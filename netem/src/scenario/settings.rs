//! The one table of settings: names, meanings, parsers.

use std::time::Duration;

use super::{CongestionControl, Mode, ProxyFate, Scenario, ScenarioError, Segment};
use crate::units::{BitRate, Percent};

/// One setting of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// `section.key`.
    pub key: &'static str,
    /// The values it takes, in words.
    pub takes: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// Parses and stores a value; `None` if it is no value for this setting.
    store: fn(&mut Scenario, &str) -> Option<()>,
}

/// The modes that a later build runs.
const LATER_MODES: &[&str] = &["reinject", "ack-reduction", "auto"];

const MODES: [Mode; 4] = [Mode::Off, Mode::EarlyLoss, Mode::Pacubic, Mode::PathAwareBbr];
const PROXIES: [ProxyFate; 4] =
    [ProxyFate::OnPath, ProxyFate::Absent, ProxyFate::WrongAddress, ProxyFate::Dies];
const CONTROLLERS: [CongestionControl; 4] = [
    CongestionControl::Cubic,
    CongestionControl::CubicRfc9438,
    CongestionControl::Reno,
    CongestionControl::Bbr2,
];

const MILLISECONDS: &str = "milliseconds from 0 to 60000";
const RATE: &str = "Mbit/s from 0.001 to 100000, or unlimited";
const PERCENT: &str = "percent from 0 to 100";
const QUEUE: &str = "bytes from 1500 to 1000000000";

/// Every setting there is.
pub const SETTINGS: &[Setting] = &[
    setting("near.delay_ms", MILLISECONDS, "one-way delay, sender to proxy", |s, v| delay(&mut s.near, v)),
    setting("near.rate_mbit", RATE, "rate of each direction", |s, v| rate(&mut s.near, v)),
    setting("near.loss_percent", PERCENT, "random loss of each direction", |s, v| loss(&mut s.near, v)),
    setting("near.loss_to_percent", PERCENT, "random loss towards the receiver, if another", |s, v| {
        s.near.loss_to = Some(percent(v)?);
        Some(())
    }),
    setting("near.loss_from_percent", PERCENT, "random loss from the receiver, if another", |s, v| {
        s.near.loss_from = Some(percent(v)?);
        Some(())
    }),
    setting("near.queue_bytes", QUEUE, "drop-tail queue of each direction", |s, v| queue(&mut s.near, v)),
    setting("far.delay_ms", MILLISECONDS, "one-way delay, proxy to receiver", |s, v| delay(&mut s.far, v)),
    setting("far.rate_mbit", RATE, "rate of each direction", |s, v| rate(&mut s.far, v)),
    setting("far.loss_percent", PERCENT, "random loss of each direction", |s, v| loss(&mut s.far, v)),
    setting("far.loss_to_percent", PERCENT, "random loss towards the receiver, if another", |s, v| {
        s.far.loss_to = Some(percent(v)?);
        Some(())
    }),
    setting("far.loss_from_percent", PERCENT, "random loss from the receiver, if another", |s, v| {
        s.far.loss_from = Some(percent(v)?);
        Some(())
    }),
    setting("far.queue_bytes", QUEUE, "drop-tail queue of each direction", |s, v| queue(&mut s.far, v)),
    setting("flow.kind", "upload", "what is carried", |_, v| (v == "upload").then_some(())),
    setting("flow.bytes", "bytes from 1 to 10000000000", "size of the upload", |s, v| {
        s.flow.bytes = whole(v, 1, 10_000_000_000)?;
        Some(())
    }),
    setting("flow.cc", "cubic, cubic-rfc9438, reno or bbr2", "the sender's congestion controller", |s, v| {
        s.flow.cc = Some(CONTROLLERS.into_iter().find(|cc| cc.name() == v)?);
        Some(())
    }),
    setting(
        "sidekick.mode",
        "off, early-loss, pacubic or path-aware-bbr",
        "what the sender does with quACKs",
        |s, v| {
            s.sidekick.mode = MODES.into_iter().find(|mode| mode.name() == v)?;
            Some(())
        },
    ),
    setting("sidekick.poll", "on or off", "whether the sender may ask for a quACK", |s, v| {
        s.sidekick.poll = match v {
            "on" | "true" => true,
            "off" | "false" => false,
            _ => return None,
        };
        Some(())
    }),
    setting("sidekick.every_packets", "packets from 1 to 65535", "a quACK every so many packets", |s, v| {
        s.sidekick.every_packets = Some(u16::try_from(whole(v, 1, 65_535)?).ok()?);
        Some(())
    }),
    setting(
        "sidekick.every_ms",
        "milliseconds from 1 to 60000, or 0 for none by the clock",
        "a quACK every so many milliseconds",
        |s, v| {
            s.sidekick.every_ms = u32::try_from(whole(v, 0, 60_000)?).ok()?;
            Some(())
        },
    ),
    setting("sidekick.threshold", "packets from 1 to 255", "missing packets one quACK can tell", |s, v| {
        s.sidekick.threshold = u8::try_from(whole(v, 1, 255)?).ok()?;
        Some(())
    }),
    setting(
        "sidekick.proxy",
        "on-path, absent, wrong-address or dies",
        "whether the proxy is there, is asked at a wrong address, or is killed halfway",
        |s, v| {
            s.sidekick.proxy = PROXIES.into_iter().find(|proxy| proxy.name() == v)?;
            Some(())
        },
    ),
];

const fn setting(
    key: &'static str,
    takes: &'static str,
    meaning: &'static str,
    store: fn(&mut Scenario, &str) -> Option<()>,
) -> Setting {
    Setting { key, takes, meaning, store }
}

/// Finds the setting and stores the value.
pub(super) fn set(scenario: &mut Scenario, key: &str, value: &str) -> Result<(), ScenarioError> {
    let setting = SETTINGS.iter().find(|setting| setting.key == key).ok_or_else(|| unknown(key))?;
    (setting.store)(scenario, value).ok_or_else(|| {
        let later = key == "sidekick.mode" && LATER_MODES.contains(&value);
        let takes = if later { format!("{} in this build", setting.takes) } else { setting.takes.to_owned() };
        ScenarioError::BadValue { key: key.to_owned(), value: value.to_owned(), takes }
    })
}

/// The error for a setting or section that does not exist.
pub(super) fn unknown(key: &str) -> ScenarioError {
    let valid = SETTINGS.iter().map(|setting| setting.key).collect::<Vec<_>>().join(", ");
    ScenarioError::UnknownSetting { key: key.to_owned(), valid }
}

fn delay(segment: &mut Segment, value: &str) -> Option<()> {
    let ms: f64 = value.parse().ok()?;
    segment.delay = (0.0..=60_000.0).contains(&ms).then(|| Duration::from_secs_f64(ms / 1000.0))?;
    Some(())
}

fn rate(segment: &mut Segment, value: &str) -> Option<()> {
    segment.rate = match value {
        "unlimited" => None,
        number => Some(BitRate::from_mbit(number.parse().ok()?)?),
    };
    Some(())
}

fn loss(segment: &mut Segment, value: &str) -> Option<()> {
    segment.loss = percent(value)?;
    Some(())
}

fn queue(segment: &mut Segment, value: &str) -> Option<()> {
    segment.queue_bytes = whole(value, 1500, 1_000_000_000)?;
    Some(())
}

fn percent(value: &str) -> Option<Percent> {
    Percent::new(value.parse().ok()?)
}

fn whole(value: &str, least: u64, most: u64) -> Option<u64> {
    value.parse().ok().filter(|number| (least..=most).contains(number))
}
