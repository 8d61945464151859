//! Whether the settings go together, and with the backend.

use super::{CongestionControl, Flow, FlowKind, Mode, Place, ProxyFate, Scenario, ScenarioError};

impl Scenario {
    /// Checks that the settings go together.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Contradiction`] names two that do not, and what to do.
    pub fn check(&self) -> Result<(), ScenarioError> {
        for (place, segment) in [(Place::Near, &self.near), (Place::Far, &self.far)] {
            segment.check(place.name())?;
            for (_, stage) in self.faults.later_stages(place, segment) {
                stage.check(place.name())?;
            }
            self.faults.first_stage(place, segment).check(place.name())?;
        }
        let mode = self.sidekick.mode;
        let contradiction = |one: String, instead: String| {
            let other = format!("sidekick.mode = {}", mode.name());
            Err(ScenarioError::Contradiction { one, other, instead })
        };
        if mode != Mode::Off && self.sidekick.every_ms == 0 && self.sidekick.every_packets.is_none()
        {
            return Err(ScenarioError::Contradiction {
                one: "sidekick.every_ms = 0".to_owned(),
                other: "sidekick.every_packets = off".to_owned(),
                instead: "a proxy refuses to report on no schedule at all: set one of them"
                    .to_owned(),
            });
        }
        if self.flow.split && mode != Mode::Off {
            return contradiction(
                "flow.split = on".to_owned(),
                "set one of them to off".to_owned(),
            );
        }
        if self.flow.split
            && let Some(setting) = self.not_of_a_split()
        {
            return Err(ScenarioError::Contradiction {
                one: setting,
                other: "flow.split = on".to_owned(),
                instead: "the splitting proxy stands in the other's place; leave one of them out"
                    .to_owned(),
            });
        }
        if let (Some(cc), None) = (self.competitor.cc, self.flow.limit) {
            return Err(ScenarioError::Contradiction {
                one: format!("competitor.cc = {}", cc.name()),
                other: "a flow without flow.seconds".to_owned(),
                instead: "shares are of a time: set flow.seconds, and flow.bytes to more than fits"
                    .to_owned(),
            });
        }
        let kind = self.flow.kind;
        if matches!(kind, FlowKind::Download | FlowKind::Requests) && mode != Mode::Off {
            return contradiction(
                format!("flow.kind = {}", kind.name()),
                "a Sidekick helps whom it sends data for, and that is the receiver here; set it to off"
                    .to_owned(),
            );
        }
        if kind == FlowKind::Messages
            && let Some(cc) = self.competitor.cc
        {
            return Err(ScenarioError::Contradiction {
                one: format!("competitor.cc = {}", cc.name()),
                other: "flow.kind = messages".to_owned(),
                instead: "messages take no share of a path; set it to none".to_owned(),
            });
        }
        let audio = kind == FlowKind::Audio;
        if audio && let Some((setting, without)) = self.not_of_a_call() {
            return Err(ScenarioError::Contradiction {
                one: setting,
                other: "flow.kind = audio".to_owned(),
                instead: format!("a call has no such thing; {without}"),
            });
        }
        if audio && !matches!(mode, Mode::Off | Mode::Reinject) {
            return contradiction(
                "flow.kind = audio".to_owned(),
                "set sidekick.mode to off or reinject".to_owned(),
            );
        }
        let Some(cc) = self.flow.cc else { return Ok(()) };
        let (fits, wanted) = match mode {
            Mode::Off | Mode::EarlyLoss | Mode::Reinject => (true, cc),
            Mode::Pacubic => {
                let cubic =
                    matches!(cc, CongestionControl::Cubic | CongestionControl::CubicRfc9438);
                (cubic, CongestionControl::CubicRfc9438)
            }
            Mode::AckReduction => (cc != CongestionControl::Bbr2, CongestionControl::Cubic),
            Mode::PathAwareBbr | Mode::Auto => {
                (cc == CongestionControl::Bbr2, CongestionControl::Bbr2)
            }
        };
        if fits {
            return Ok(());
        }
        let instead = format!("leave flow.cc out, or set it to {}", wanted.name());
        contradiction(format!("flow.cc = {}", cc.name()), instead)
    }

    /// A setting that is about a proxy which only listens, or about a flow that is not split.
    fn not_of_a_split(&self) -> Option<String> {
        if self.sidekick.proxy != ProxyFate::OnPath {
            return Some(format!("sidekick.proxy = {}", self.sidekick.proxy.name()));
        }
        if let Some(cc) = self.competitor.cc {
            return Some(format!("competitor.cc = {}", cc.name()));
        }
        let fault = self.faults.of_the_proxy()?;
        Some(format!("faults.events with {fault}"))
    }

    /// A setting that says nothing to an audio call, and what to do about it.
    fn not_of_a_call(&self) -> Option<(String, &'static str)> {
        if self.sidekick.proxy == ProxyFate::Found {
            let setting = format!("sidekick.proxy = {}", self.sidekick.proxy.name());
            return Some((setting, "its sender is told where the proxy is"));
        }
        if self.flow.split {
            return Some(("flow.split = on".to_owned(), "set it to off"));
        }
        if let Some(cc) = self.flow.cc {
            return Some((format!("flow.cc = {}", cc.name()), "leave it out"));
        }
        let cc = self.competitor.cc?;
        Some((format!("competitor.cc = {}", cc.name()), "set it to none"))
    }

    /// A setting that only virtual time can do, if there is one: the real programs have no such
    /// option, or their host no such fault.
    pub fn only_in_virtual_time(&self) -> Option<String> {
        if let Some(fault) = self.faults.only_in_virtual_time() {
            return Some(format!("faults.events with {fault}"));
        }
        let Flow {
            kind,
            payload_bytes,
            pmtud,
            whole_packets,
            cipher,
            ack_delay,
            ack_packets,
            zero_rtt,
            ..
        } = self.flow;
        if !matches!(kind, FlowKind::Upload | FlowKind::Audio) {
            return Some(format!("flow.kind = {}", kind.name()));
        }
        let usual = Flow::default();
        let unusual = [
            ("flow.payload_bytes", payload_bytes != usual.payload_bytes),
            ("flow.pmtud", pmtud),
            ("flow.whole_packets", whole_packets),
            ("flow.cipher", cipher != usual.cipher),
            ("flow.ack_delay_ms", ack_delay != usual.ack_delay),
            ("flow.ack_packets", ack_packets != usual.ack_packets),
            ("flow.zero_rtt", zero_rtt),
            ("flow.split", self.flow.split),
            ("sidekick.repeat_handshake", self.sidekick.repeat_handshake),
            ("flow.sample_ms", self.flow.sample.is_some()),
            ("flow.seconds of an upload", kind == FlowKind::Upload && self.flow.limit.is_some()),
            ("competitor.cc", self.competitor.cc.is_some()),
        ];
        unusual.into_iter().find(|&(_, set)| set).map(|(setting, _)| setting.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_programs_refuse_what_they_would_pass_over() {
        let with = |setting: &str| {
            let mut scenario = Scenario::load("upload-paper").unwrap();
            scenario.apply(&[setting]).unwrap();
            scenario.only_in_virtual_time()
        };
        for (setting, named) in [
            ("flow.kind=download", "flow.kind = download"),
            ("flow.kind=messages", "flow.kind = messages"),
            ("flow.whole_packets=on", "flow.whole_packets"),
            ("flow.split=on", "flow.split"),
            ("flow.seconds=5", "flow.seconds of an upload"),
            ("flow.payload_bytes=1200", "flow.payload_bytes"),
            ("flow.cipher=chacha20", "flow.cipher"),
            ("flow.ack_packets=1", "flow.ack_packets"),
            ("sidekick.repeat_handshake=on", "sidekick.repeat_handshake"),
            ("faults.events=proxy-restart at 100", "faults.events with proxy-restart"),
        ] {
            assert_eq!(with(setting).as_deref(), Some(named));
        }
        for fine in
            ["near.loss_percent=3", "flow.bytes=5", "sidekick.mode=pacubic", "near.queue=red"]
        {
            assert_eq!(with(fine), None, "{fine}");
        }
        assert_eq!(Scenario::load("audio-paper").unwrap().only_in_virtual_time(), None);
    }

    #[test]
    fn what_would_be_passed_over_is_refused() {
        for settings in [
            ["competitor.cc=reno", "near.loss_percent=0"],
            ["flow.kind=download", "sidekick.mode=pacubic"],
            ["sidekick.every_ms=0", "sidekick.mode=pacubic"],
            ["flow.kind=requests", "sidekick.mode=path-aware-bbr"],
            ["flow.kind=messages", "competitor.cc=reno"],
            ["flow.split=on", "sidekick.mode=pacubic"],
            ["flow.split=on", "sidekick.proxy=absent"],
            ["flow.split=on", "competitor.cc=reno"],
            ["flow.split=on", "faults.events=proxy-restart at 500"],
            ["flow.split=on", "faults.events=quack-loss 50 at 0"],
        ] {
            let error = Scenario::load("upload-paper").unwrap().apply(&settings).unwrap_err();
            assert!(matches!(error, ScenarioError::Contradiction { .. }), "{settings:?}: {error}");
        }
        let fine = ["flow.split=on", "faults.events=near-outage at 500 for 5"];
        Scenario::load("upload-paper").unwrap().apply(&fine).unwrap();
    }

    #[test]
    fn a_call_takes_no_settings_of_a_transfer() {
        for setting in ["flow.split=on", "flow.cc=reno", "competitor.cc=bbr2"] {
            let error =
                Scenario::load("audio-paper").unwrap().apply(&[setting]).unwrap_err().to_string();
            assert!(error.contains("does not go with flow.kind = audio"), "{error}");
        }
    }
}
