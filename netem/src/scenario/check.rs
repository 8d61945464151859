//! Checks that the settings fit each other and the backend.

use super::CongestionControl::{Bbr2, Cubic, CubicRfc9438};
use super::{
    FlowKind, Mode, ProxyFate, ProxyPlace, Repair, Scenario, ScenarioError, Sidekick, Split,
    Tunnel, Uplinks,
};

/// The error of two settings that contradict each other. `instead` states how to correct them.
pub(super) fn clash(
    one: impl Into<String>,
    other: impl Into<String>,
    instead: impl Into<String>,
) -> Result<(), ScenarioError> {
    let (one, other, instead) = (one.into(), other.into(), instead.into());
    Err(ScenarioError::Contradiction { one, other, instead })
}

impl Scenario {
    /// Checks that the settings fit each other.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Contradiction`] names two settings that do not fit, and how to correct
    /// them.
    pub fn check(&self) -> Result<(), ScenarioError> {
        for (place, segment) in self.segments().chain(self.beside()) {
            segment.check(place.name())?;
            for (_, stage) in self.faults.later_stages(place, segment) {
                stage.check(place.name())?;
            }
            self.faults.first_stage(place, segment).check(place.name())?;
        }
        let Self { flow, sidekick, .. } = self;
        let (mode, kind) = (sidekick.mode, flow.kind);
        let of_mode = format!("sidekick.mode = {}", mode.name());
        let of_kind = format!("flow.kind = {}", kind.name());
        let by_schedule = mode != Mode::Off && kind != FlowKind::Listen;
        if by_schedule && sidekick.every_ms == 0 && sidekick.every_packets.is_none() {
            let instead = "a proxy needs a schedule for its quACKs; set one of them";
            return clash("sidekick.every_ms = 0", "sidekick.every_packets = off", instead);
        }
        let splits = flow.split != Split::Off;
        let of_split = format!("flow.split = {}", flow.split.name());
        if splits && mode != Mode::Off {
            return clash(of_split, of_mode, "set one of them to off");
        }
        self.check_tunnel(&of_mode, &of_split)?;
        if splits && let Some(setting) = self.not_of_a_split() {
            let instead = "a splitting proxy does not support it; leave one of them out";
            return clash(setting, of_split, instead);
        }
        if let (Some(cc), Split::Off | Split::Near) = (flow.split_cc, flow.split) {
            let setting = format!("flow.split_cc = {}", cc.name());
            return clash(setting, of_split, "set flow.split to both, or leave flow.split_cc out");
        }
        self.check_segments()?;
        if self.second.is_none() {
            let instead = "set second.delay_ms or another setting of it, or leave it out";
            let carries = sidekick.carry_mbit > 0;
            let carries = carries.then(|| format!("sidekick.carry_mbit = {}", sidekick.carry_mbit));
            let both = (flow.uplinks == Uplinks::Both).then(|| "flow.uplinks = both".to_owned());
            if let Some(setting) = carries.or(both) {
                return clash(setting, "a path without a second near segment", instead);
            }
        }
        if self.faults.migrates() && (splits || kind.is_call()) {
            let (other, instead) = if splits {
                (of_split, "the splitting proxy does not migrate")
            } else {
                (of_kind, "a call does not migrate")
            };
            let instead = format!("{instead}; leave one of them out");
            return clash("faults.events with migration", other, instead);
        }
        if let Some(setting) = self.competitor_setting() {
            if flow.limit.is_none() {
                let instead =
                    "both flows must last equally long; set flow.seconds, and a larger flow.bytes";
                return clash(setting, "a flow without flow.seconds", instead);
            }
            if kind == FlowKind::Messages {
                let instead = "messages do not compete for bandwidth; set competitor.cc to none";
                return clash(setting, of_kind, instead);
            }
        }
        if kind == FlowKind::Listen {
            return self.check_listener(of_mode, of_kind);
        }
        if sidekick.steady && kind != FlowKind::Audio {
            let instead =
                "only a call has packets at a steady interval; set sidekick.steady to off";
            return clash("sidekick.steady = on", of_kind, instead);
        }
        let receives = kind.is_download();
        if receives {
            if !matches!(mode, Mode::Receive | Mode::Auto) && !mode.is_plain() {
                let instead = "the client receives the data; set sidekick.mode to off, receive, auto, agent, \
                     agent-in-order or socket";
                return clash(of_kind, of_mode, instead);
            }
            return Ok(());
        }
        if kind == FlowKind::Audio {
            if let Some((setting, without)) = self.not_of_a_call() {
                return clash(setting, of_kind, format!("a call does not support it; {without}"));
            }
            if !matches!(mode, Mode::Off | Mode::Reinject) && !mode.is_of_agent() {
                let instead = "set sidekick.mode to off, reinject, agent or agent-in-order";
                return clash(of_kind, of_mode, instead);
            }
        }
        let Some(cc) = flow.cc else { return Ok(()) };
        let wanted = match mode {
            Mode::Off | Mode::EarlyLoss | Mode::Reinject | Mode::Receive => return Ok(()),
            Mode::Agent | Mode::AgentInOrder | Mode::Measure | Mode::Socket => return Ok(()),
            Mode::Pacubic if cc == Cubic => return Ok(()),
            Mode::Pacubic => CubicRfc9438,
            Mode::AckReduction if cc != Bbr2 => return Ok(()),
            Mode::AckReduction => Cubic,
            Mode::PathAwareBbr | Mode::Auto => Bbr2,
        };
        if cc == wanted {
            return Ok(());
        }
        let instead = format!("leave flow.cc out, or set it to {}", wanted.name());
        clash(format!("flow.cc = {}", cc.name()), of_mode, instead)
    }

    /// Checks that no other proxy stands at the end of a tunnel.
    fn check_tunnel(&self, of_mode: &str, of_split: &str) -> Result<(), ScenarioError> {
        let Self { flow, sidekick, .. } = self;
        if flow.tunnel == Tunnel::Off {
            return Ok(());
        }
        let of_tunnel = format!("flow.tunnel = {}", flow.tunnel.name());
        for (other, is_off) in
            [(of_mode, sidekick.mode == Mode::Off), (of_split, flow.split == Split::Off)]
        {
            if !is_off {
                return clash(of_tunnel, other, "set one of them to off");
            }
        }
        match self.not_without_a_proxy() {
            Some(setting) => {
                let instead = "a tunnel ends where the proxy would be; leave one of them out";
                clash(setting, of_tunnel, instead)
            }
            None => Ok(()),
        }
    }

    /// Checks the settings that need a middle segment, and those that exclude two proxies.
    fn check_segments(&self) -> Result<(), ScenarioError> {
        let Self { flow, sidekick, .. } = self;
        let at = format!("sidekick.at = {}", sidekick.at.name());
        if self.middle.is_none() {
            let instead =
                "set middle.delay_ms or another setting of the middle segment, or leave it out";
            let fault = || Some(format!("faults.events with {}", self.faults.of_the_middle()?));
            let split = (flow.split == Split::Both).then(|| "flow.split = both".to_owned());
            let second = (sidekick.at != ProxyPlace::First).then(|| at.clone());
            return match second.or(split).or_else(fault) {
                Some(setting) => clash(setting, "a path without a middle segment", instead),
                None => Ok(()),
            };
        }
        if sidekick.at == ProxyPlace::Both && sidekick.proxy != ProxyFate::Found {
            let proxy = format!("sidekick.proxy = {}", sidekick.proxy.name());
            return clash(
                at,
                proxy,
                "a sender can configure only one proxy; set sidekick.proxy to found",
            );
        }
        Ok(())
    }

    /// Checks a call whose listener is behind the near segment.
    fn check_listener(&self, of_mode: String, of_kind: String) -> Result<(), ScenarioError> {
        if let Some((setting, without)) = self.not_of_a_call() {
            return clash(setting, of_kind, format!("a call does not support it; {without}"));
        }
        let Sidekick { mode, repair, .. } = self.sidekick;
        if mode == Mode::Receive
            && let Some(setting) = self.not_of_a_listener()
        {
            let instead = "a call's listener ignores it; leave it out";
            return clash(setting, of_kind, instead);
        }
        if !matches!(mode, Mode::Off | Mode::Receive) && !mode.is_of_agent() {
            let instead = "set sidekick.mode to off, receive, agent or agent-in-order";
            return clash(of_kind, of_mode, instead);
        }
        if mode == Mode::Receive && repair != Repair::Parity {
            let instead = "a call's listener requests nothing; set sidekick.repair to parity";
            return clash(format!("sidekick.repair = {}", repair.name()), of_kind, instead);
        }
        Ok(())
    }

    fn competitor_setting(&self) -> Option<String> {
        Some(format!("competitor.cc = {}", self.competitor.cc?.name()))
    }

    /// The first setting that needs an observing proxy, or a flow that is not split.
    fn not_of_a_split(&self) -> Option<String> {
        self.not_without_a_proxy().or_else(|| self.competitor_setting())
    }

    /// The first setting that needs an observing proxy.
    fn not_without_a_proxy(&self) -> Option<String> {
        if self.sidekick.proxy != ProxyFate::OnPath {
            return Some(format!("sidekick.proxy = {}", self.sidekick.proxy.name()));
        }
        Some(format!("faults.events with {}", self.faults.of_the_proxy()?))
    }

    /// A setting that an audio call does not support, and how to correct it.
    fn not_of_a_call(&self) -> Option<(String, &'static str)> {
        if self.sidekick.proxy == ProxyFate::Found {
            let setting = format!("sidekick.proxy = {}", self.sidekick.proxy.name());
            return Some((setting, "configure its proxy instead: set sidekick.proxy to on-path"));
        }
        if self.flow.split != Split::Off {
            let setting = format!("flow.split = {}", self.flow.split.name());
            return Some((setting, "set flow.split to off"));
        }
        if let Some(cc) = self.flow.cc {
            return Some((format!("flow.cc = {}", cc.name()), "leave flow.cc out"));
        }
        Some((self.competitor_setting()?, "set competitor.cc to none"))
    }

    /// The first setting of quACKs that differs from its default. The listener of a call uses none.
    fn not_of_a_listener(&self) -> Option<String> {
        let (set, usual) = (&self.sidekick, Sidekick::default());
        let switch = if set.poll { "on" } else { "off" };
        let packets = set.every_packets.map_or("off".to_owned(), |packets| packets.to_string());
        let unusual = [
            ("poll", switch.to_owned(), set.poll != usual.poll),
            ("every_packets", packets, set.every_packets != usual.every_packets),
            ("every_ms", set.every_ms.to_string(), set.every_ms != usual.every_ms),
            ("threshold", set.threshold.to_string(), set.threshold != usual.threshold),
            ("steady", "on".to_owned(), set.steady),
        ];
        let found = unusual.into_iter().find(|(.., set)| *set);
        found.map(|(setting, value, _)| format!("sidekick.{setting} = {value}"))
    }

    /// The first setting that only virtual time supports. The real programs lack such an option, or
    /// their host lacks such a fault.
    pub fn only_in_virtual_time(&self) -> Option<String> {
        if let Some(fault) = self.faults.only_in_virtual_time() {
            return Some(format!("faults.events with {fault}"));
        }
        if self.middle.is_some() {
            return Some("a middle segment".to_owned());
        }
        let (flow, kind) = (&self.flow, self.flow.kind);
        if matches!(kind, FlowKind::Page | FlowKind::Messages | FlowKind::Listen) {
            return Some(format!("flow.kind = {}", kind.name()));
        }
        let receives = kind.is_download();
        // The real server has CUBIC without rollback.
        if receives && flow.cc.is_some_and(|cc| cc != CubicRfc9438) {
            return Some(format!("flow.cc = {} of a server", self.congestion_control().name()));
        }
        let named = |section: &str, changed: Vec<&str>| {
            let mut names = changed.into_iter().map(|key| format!("{section}.{key}"));
            names.find(|name| ONLY_IN_VIRTUAL_TIME.contains(&name.as_str()))
        };
        let seconds = flow.limit.filter(|_| !kind.is_call());
        let seconds = seconds.map(|_| "flow.seconds of a transfer".to_owned());
        let replayable = receives && !flow.replayable;
        let replayable = replayable.then(|| "flow.replayable".to_owned());
        let beside = named("competitor", self.competitor.changed());
        let found = named("flow", flow.changed()).or(named("sidekick", self.sidekick.changed()));
        found.or(seconds).or(replayable).or(beside)
    }
}

/// The settings for which no real program has an option, in any flow.
const ONLY_IN_VIRTUAL_TIME: [&str; 16] = [
    "flow.window_bytes",
    "flow.payload_bytes",
    "flow.pmtud",
    "flow.whole_packets",
    "flow.cipher",
    "flow.ack_delay_ms",
    "flow.ack_packets",
    "flow.zero_rtt",
    "flow.uplinks",
    "flow.split",
    "flow.tunnel",
    "flow.sample_ms",
    "flow.requests",
    "sidekick.repeat_handshake",
    "sidekick.parity_percent",
    "competitor.cc",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(scenario: &str, settings: &[&str]) -> String {
        Scenario::with(scenario, settings).unwrap_err().to_string()
    }

    #[test]
    fn real_programs_refuse_settings_that_they_do_not_support() {
        for (scenario, setting, named) in [
            ("upload-paper", "flow.kind=messages", "flow.kind = messages"),
            ("upload-paper", "flow.kind=page", "flow.kind = page"),
            ("upload-paper", "flow.whole_packets=on", "flow.whole_packets"),
            ("upload-paper", "flow.split=near", "flow.split"),
            ("upload-paper", "flow.tunnel=ordered", "flow.tunnel"),
            ("upload-paper", "middle.delay_ms=5", "a middle segment"),
            ("upload-paper", "flow.seconds=5", "flow.seconds of a transfer"),
            ("upload-paper", "flow.payload_bytes=1200", "flow.payload_bytes"),
            ("upload-paper", "flow.cipher=chacha20", "flow.cipher"),
            ("upload-paper", "flow.window_bytes=65536", "flow.window_bytes"),
            ("upload-paper", "flow.ack_packets=1", "flow.ack_packets"),
            ("upload-paper", "sidekick.repeat_handshake=on", "sidekick.repeat_handshake"),
            ("upload-paper", "flow.kind=listen", "flow.kind = listen"),
            ("upload-paper", "sidekick.parity_percent=50", "sidekick.parity_percent"),
            ("upload-paper", "sidekick.mode=agent", ""),
            ("upload-paper", "sidekick.mode=measure", ""),
            ("upload-paper", "sidekick.mode=socket", ""),
            (
                "upload-paper",
                "faults.events=proxy-restart at 1",
                "faults.events with proxy-restart",
            ),
            ("upload-paper", "near.loss_percent=3", ""),
            ("upload-paper", "flow.bytes=5", ""),
            ("upload-paper", "sidekick.mode=pacubic", ""),
            ("upload-paper", "near.queue=red", ""),
            ("audio-paper", "near.loss_percent=3", ""),
            ("download-paper", "near.loss_percent=3", ""),
            ("download-paper", "flow.cc=bbr2", "flow.cc = bbr2 of a server"),
            ("download-paper", "flow.requests=2", "flow.requests"),
            ("download-paper", "flow.replayable=off", "flow.replayable"),
        ] {
            let found = Scenario::with(scenario, &[setting]).unwrap().only_in_virtual_time();
            assert_eq!(found.unwrap_or_default(), named, "{scenario}, {setting}");
        }
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        for settings in [
            ["competitor.cc=reno", "near.loss_percent=0"],
            ["flow.kind=download", "sidekick.mode=pacubic"],
            ["sidekick.every_ms=0", "sidekick.mode=pacubic"],
            ["flow.kind=requests", "sidekick.mode=path-aware-bbr"],
            ["flow.kind=messages", "competitor.cc=reno"],
            ["flow.split=near", "sidekick.mode=pacubic"],
            ["flow.split=near", "sidekick.proxy=absent"],
            ["flow.split=near", "competitor.cc=reno"],
            ["flow.split=near", "faults.events=proxy-restart at 500"],
            ["flow.split=near", "faults.events=quack-loss 50 at 0"],
            ["flow.split=near", "faults.events=migration at 5"],
            ["flow.tunnel=ordered", "sidekick.mode=pacubic"],
            ["flow.tunnel=ordered", "sidekick.proxy=absent"],
            ["flow.tunnel=unordered", "flow.split=near"],
            ["flow.uplinks=both", "near.loss_percent=0"],
            ["sidekick.carry_mbit=5", "sidekick.mode=agent"],
            ["flow.tunnel=unordered", "faults.events=quack-loss 50 at 0"],
        ] {
            let error = Scenario::with("upload-paper", &settings).unwrap_err();
            assert!(matches!(error, ScenarioError::Contradiction { .. }), "{settings:?}: {error}");
        }
        for setting in ["flow.split=both", "sidekick.at=second", "faults.events=middle-outage at 5"]
        {
            let error = refused("upload-paper", &[setting]);
            assert!(error.contains("without a middle segment"), "{setting}: {error}");
            Scenario::with("upload-paper", &["middle.delay_ms=5", setting]).unwrap();
        }
        for rival in ["flow.split=near", "flow.tunnel=ordered"] {
            let fine = [rival, "faults.events=near-outage at 500 for 5"];
            Scenario::with("upload-paper", &fine).unwrap();
        }
    }

    #[test]
    fn the_sentence_states_how_to_correct_it() {
        let [listener, receive] = ["audio-far-proxy", "sidekick.mode=receive"];
        let steady = ["sidekick.mode=reinject", "sidekick.steady=on"];
        for (scenario, settings, word) in [
            (
                "upload-paper",
                &["middle.delay_ms=5", "sidekick.at=both", "sidekick.mode=auto"][..],
                "set sidekick.proxy to found",
            ),
            ("upload-paper", &["flow.split=near", "flow.split_cc=reno"], "set flow.split to both"),
            ("upload-paper", &steady, "only a call"),
            ("audio-paper", &["sidekick.mode=pacubic"], "off, reinject, agent or"),
            (listener, &[receive, "sidekick.repair=requests"], "requests nothing"),
            (listener, &[receive, "sidekick.repair=both"], "requests nothing"),
            (
                listener,
                &["sidekick.mode=reinject", "sidekick.repair=parity"],
                "off, receive, agent",
            ),
        ] {
            let error = refused(scenario, settings);
            assert!(error.contains(word), "{scenario}, {settings:?}: {error}");
        }
        Scenario::with("audio-paper", &steady).unwrap();
        Scenario::with("audio-paper", &["sidekick.mode=reinject"]).unwrap();
        let mut talks = Scenario::with(listener, &[receive]).unwrap();
        talks.apply(&["flow.kind=audio", "sidekick.mode=reinject"]).unwrap();
    }

    #[test]
    fn a_listener_refuses_settings_of_quacks() {
        let receive = "sidekick.mode=receive";
        for (setting, named) in [
            ("sidekick.poll=off", "sidekick.poll = off"),
            ("sidekick.every_packets=2", "sidekick.every_packets = 2"),
            ("sidekick.every_ms=0", "sidekick.every_ms = 0"),
            ("sidekick.threshold=8", "sidekick.threshold = 8"),
            ("sidekick.steady=on", "sidekick.steady = on"),
        ] {
            let error = refused("audio-far-proxy", &[receive, setting]);
            let sentence = format!("{named} does not go with flow.kind = listen; ");
            assert!(error.starts_with(&sentence), "{error}");
            // The talker uses it. Without help, no sender uses it, as in every flow.
            let schedule = "sidekick.every_packets=2";
            let talker = ["flow.kind=audio", "sidekick.mode=reinject", schedule, setting];
            Scenario::with("audio-far-proxy", &talker).unwrap();
            Scenario::with("audio-far-proxy", &[setting]).unwrap();
        }
    }

    #[test]
    fn a_call_refuses_settings_of_a_transfer() {
        let migrates = "faults.events=migration at 5";
        for setting in ["flow.split=near", "flow.cc=reno", "competitor.cc=bbr2", migrates] {
            for (scenario, kind) in [("audio-paper", "audio"), ("audio-far-proxy", "listen")] {
                let error = refused(scenario, &[setting]);
                assert!(error.contains(&format!("does not go with flow.kind = {kind}")), "{error}");
            }
        }
    }
}
