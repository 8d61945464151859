//! The data of each event. `QLOG.md` defines the fields; a test compares the events with it.

use crate::Config;
use crate::sidekick::Direction;
use crate::sidekick::repair::Repair;
use quiche::sidekick::Reaction;
use serde::Serialize;
use sidekick_protocol::{
    Assistance, Flow, Handling, LastQuack, NearLoss, QuackOutcome, Reason, Selection,
};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::Duration;

/// A time in qlog: milliseconds, with decimals.
fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[derive(Debug, Serialize)]
pub(super) struct ModeSet {
    mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    congestion_control: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every_packets: Option<NonZeroU16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every_ms: Option<f64>,
    threshold: u8,
    poll: bool,
}

impl ModeSet {
    pub(super) const NAME: &str = "sidekick:mode_set";

    pub(super) fn new(config: &Config, congestion_control: Option<&'static str>) -> Self {
        // The terms that the sender requests, which may differ from the application's.
        let asked = config.sender();
        Self {
            mode: config.mode.to_string(),
            congestion_control,
            proxy: config.proxy,
            every_packets: asked.terms.every_packets,
            every_ms: asked.terms.every.map(milliseconds),
            threshold: asked.terms.threshold,
            poll: asked.poll,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct QuackReceived {
    proxy: SocketAddr,
    outcome: &'static str,
    count: u32,
    sums: usize,
    received: u32,
    missing: usize,
    lost: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    near_rtt: Option<f64>,
}

impl QuackReceived {
    pub(super) const NAME: &str = "sidekick:quack_received";

    pub(super) fn new(
        quack: &LastQuack,
        proxy: SocketAddr,
        lost: u64,
        near_rtt: Option<Duration>,
    ) -> Self {
        Self {
            proxy,
            outcome: match quack.outcome {
                QuackOutcome::Empty => "empty",
                QuackOutcome::Decoded => "decoded",
                QuackOutcome::TooManyMissing => "too_many_missing",
                QuackOutcome::Misaligned => "misaligned",
                _ => "other",
            },
            count: quack.count,
            sums: quack.sums,
            received: quack.received,
            missing: quack.missing,
            lost,
            near_rtt: near_rtt.map(milliseconds),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct EarlyLoss {
    packet_numbers: Vec<u64>,
    count: usize,
    path_id: usize,
    local: SocketAddr,
    remote: SocketAddr,
    reaction: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_ratio: Option<f64>,
}

impl EarlyLoss {
    pub(super) const NAME: &str = "sidekick:early_loss";

    pub(super) fn new(
        packet_numbers: Vec<u64>,
        count: usize,
        path_id: usize,
        flow: Flow,
        repair: Repair,
    ) -> Self {
        let (reaction, rtt_ratio) = match repair {
            Repair::EarlyLoss(Reaction::Loss | Reaction::Congestion) => ("loss", None),
            Repair::EarlyLoss(Reaction::NearLoss { ratio }) => ("near_loss", Some(ratio)),
            Repair::EarlyLoss(Reaction::Neutered) => ("neutered", None),
            Repair::Reinject => ("reinjected", None),
        };
        Self {
            packet_numbers,
            count,
            path_id,
            local: flow.source,
            remote: flow.destination,
            reaction,
            rtt_ratio,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct EarlyLossSpurious {
    pub(super) count: u64,
    pub(super) total: u64,
}

impl EarlyLossSpurious {
    pub(super) const NAME: &str = "sidekick:early_loss_spurious";
}

#[derive(Debug, Serialize)]
pub(super) struct AssistanceChanged {
    old: &'static str,
    new: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy: Option<SocketAddr>,
    message: String,
}

impl AssistanceChanged {
    pub(super) const NAME: &str = "sidekick:assistance_changed";

    pub(super) fn new(old: Assistance, new: Assistance, proxy: Option<SocketAddr>) -> Self {
        Self {
            old: state(old),
            new: state(new),
            reason: reason(new),
            proxy,
            message: new.to_string(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct ProxyChosen {
    proxy: SocketAddr,
    of: usize,
    message: String,
}

impl ProxyChosen {
    pub(super) const NAME: &str = "sidekick:proxy_chosen";

    pub(super) fn new(choice: &Selection) -> Self {
        Self { proxy: choice.proxy, of: choice.candidates, message: choice.to_string() }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct NearLossChanged {
    direction: &'static str,
    handling: &'static str,
    rate: f32,
    congestion: f32,
    message: String,
}

impl NearLossChanged {
    pub(super) const NAME: &str = "sidekick:near_loss_changed";

    pub(super) fn new(direction: Direction, loss: NearLoss) -> Self {
        Self {
            direction: match direction {
                Direction::Sent => "sent",
                Direction::Received => "received",
            },
            handling: match loss.handling() {
                Handling::Nothing => "nothing",
                Handling::Repaired => "repaired",
                Handling::Shared => "shared",
                Handling::Left => "left",
            },
            rate: loss.rate,
            congestion: loss.congestion,
            message: loss.to_string(),
        }
    }
}

fn state(assistance: Assistance) -> &'static str {
    match assistance {
        Assistance::Seeking => "seeking",
        Assistance::Assisted => "assisted",
        Assistance::Unassisted(_) => "unassisted",
    }
}

fn reason(assistance: Assistance) -> Option<&'static str> {
    let Assistance::Unassisted(reason) = assistance else { return None };
    Some(match reason {
        Reason::NoAnswer => "no_answer",
        Reason::NotFound => "not_found",
        Reason::NotOnPath => "not_on_path",
        Reason::ProxyLost => "proxy_lost",
        Reason::NoSocket => "no_socket",
        Reason::ProxyFull => "proxy_full",
        Reason::TermsRefused => "terms_refused",
        Reason::FlowTaken => "flow_taken",
        Reason::Unintelligible => "unintelligible",
        Reason::StoodDown => "stood_down",
        _ => "other",
    })
}

#[cfg(test)]
#[path = "../../tests/raw/schema.rs"]
#[allow(dead_code, reason = "these events are not in a file")]
mod schema;

#[cfg(test)]
mod tests {
    use super::schema::{Event, check};
    use super::*;
    use crate::Mode;
    use sidekick_protocol::sender::SelectionReason;

    fn documented(name: &str, data: &impl Serialize) {
        let data = serde_json::to_value(data).unwrap();
        println!("{name}: {data}");
        check(&[Event {
            time: 0.0,
            name: name.to_owned(),
            data: data.as_object().unwrap().clone(),
        }]);
    }

    #[test]
    fn every_value_is_documented() {
        for &mode in Mode::ALL {
            let mut config = Config::new("[2001:db8::1]:5252".parse().unwrap(), mode);
            documented(ModeSet::NAME, &ModeSet::new(&config, Some("reno")));
            (config.every, config.every_packets, config.threshold) = (None, NonZeroU16::new(32), 0);
            let event = ModeSet::new(&config, None);
            assert_eq!(
                event.threshold, 1,
                "the event has the requested terms, not the configured ones"
            );
            documented(ModeSet::NAME, &event);
        }

        for reason in [SelectionReason::Farthest, SelectionReason::Nearest { saw: 9, most: 10 }] {
            let choice =
                Selection { proxy: "192.0.2.1:5252".parse().unwrap(), candidates: 2, reason };
            documented(ProxyChosen::NAME, &ProxyChosen::new(&choice));
        }

        let (source, destination) =
            ("192.0.2.1:1".parse().unwrap(), "[2001:db8::1]:2".parse().unwrap());
        let reactions = [Reaction::Loss, Reaction::NearLoss { ratio: 0.25 }, Reaction::Neutered];
        for repair in reactions.map(Repair::EarlyLoss).into_iter().chain([Repair::Reinject]) {
            let event =
                EarlyLoss::new(vec![1, u64::MAX], 2, 0, Flow { source, destination }, repair);
            assert_eq!(event.rtt_ratio, (event.reaction == "near_loss").then_some(0.25));
            documented(EarlyLoss::NAME, &event);
        }
        documented(EarlyLossSpurious::NAME, &EarlyLossSpurious { count: 1, total: 2 });

        for direction in [Direction::Sent, Direction::Received] {
            for (rate, congestion) in [(0.0, 0.0), (0.1, 0.0), (0.1, 0.5), (0.1, 1.0)] {
                let loss = NearLoss { rate, congestion };
                documented(NearLossChanged::NAME, &NearLossChanged::new(direction, loss));
            }
        }

        let reasons = [
            Reason::NoAnswer,
            Reason::NotFound,
            Reason::NotOnPath,
            Reason::FlowTaken,
            Reason::Unintelligible,
            Reason::ProxyLost,
            Reason::NoSocket,
            Reason::ProxyFull,
            Reason::TermsRefused,
            Reason::StoodDown,
        ];
        let states = [Assistance::Seeking, Assistance::Assisted];
        for new in states.into_iter().chain(reasons.map(Assistance::Unassisted)) {
            let event = AssistanceChanged::new(Assistance::Assisted, new, None);
            assert_eq!(event.reason.is_some(), event.new == "unassisted");
            documented(AssistanceChanged::NAME, &event);
        }
    }
}
