//! Scenarios: the two segments, the flow and the Sidekick settings of one experiment.
//!
//! A scenario is a TOML file, built in or given by its path. Every setting has one name, `section.key`, and one parser,
//! whether it stands in a file or on the command line (`--set near.loss_percent=4`).

use std::path::Path;
use std::time::Duration;

use crate::link::LinkConfig;
use crate::units::{BitRate, Percent};

mod settings;

pub use settings::{SETTINGS, Setting};

/// The built-in scenarios: name and file.
const BUILT_IN: &[(&str, &str)] = &[("upload-paper", include_str!("../scenarios/upload-paper.toml"))];

/// Names that belong to scenarios which this build cannot run.
const NOT_IN_THIS_BUILD: &[&str] = &["audio-paper", "ack-reduction-paper", "smaq-leo", "smaq-geo"];

/// The drop-tail queue of a segment that names none, in bytes.
const DEFAULT_QUEUE_BYTES: u64 = 65_000;

/// One experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name, or the path it was read from.
    pub name: String,
    /// What it is, in a few words.
    pub description: String,
    /// Sender to proxy.
    pub near: Segment,
    /// Proxy to receiver.
    pub far: Segment,
    /// What is carried.
    pub flow: Flow,
    /// What the sender does with quACKs.
    pub sidekick: Sidekick,
}

/// One segment of the path. Each direction has the same delay, rate and queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// One-way delay.
    pub delay: Duration,
    /// Rate of each direction; `None` is no limit.
    pub rate: Option<BitRate>,
    /// Random loss of each direction, where it is not overridden.
    pub loss: Percent,
    /// Random loss towards the receiver, if it is another.
    pub loss_to: Option<Percent>,
    /// Random loss from the receiver, if it is another.
    pub loss_from: Option<Percent>,
    /// Bytes of the drop-tail queue of each direction.
    pub queue_bytes: u64,
}

/// A direction along the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the sender to the receiver.
    ToReceiver,
    /// From the receiver to the sender.
    ToSender,
}

impl Segment {
    /// The link of one direction.
    pub fn link(&self, direction: Direction) -> LinkConfig {
        let loss = match direction {
            Direction::ToReceiver => self.loss_to,
            Direction::ToSender => self.loss_from,
        };
        LinkConfig {
            delay: self.delay,
            rate: self.rate,
            loss: loss.unwrap_or(self.loss),
            queue_bytes: self.queue_bytes,
        }
    }
}

impl Default for Segment {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            rate: None,
            loss: Percent::default(),
            loss_to: None,
            loss_from: None,
            queue_bytes: DEFAULT_QUEUE_BYTES,
        }
    }
}

/// What is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Size of the upload.
    pub bytes: u64,
    /// The sender's congestion controller; `None` takes what the Sidekick mode goes with.
    pub cc: Option<CongestionControl>,
}

/// A congestion controller of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// CUBIC as quiche ships it, with its rollback.
    Cubic,
    /// CUBIC as RFC 9438 has it.
    CubicRfc9438,
    /// NewReno.
    Reno,
    /// BBR version 2.
    Bbr2,
}

impl CongestionControl {
    /// The name in scenarios, on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::CubicRfc9438 => "cubic-rfc9438",
            Self::Reno => "reno",
            Self::Bbr2 => "bbr2",
        }
    }
}

/// What the sender does with a quACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: a plain QUIC sender.
    Off,
    /// Losses on the near segment are repaired at once.
    EarlyLoss,
    /// Early loss, and CUBIC scaled to where the loss happened.
    Pacubic,
    /// Early loss, and near-segment losses kept out of BBR2's loss signal.
    PathAwareBbr,
}

impl Mode {
    /// The name in scenarios, on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::EarlyLoss => "early-loss",
            Self::Pacubic => "pacubic",
            Self::PathAwareBbr => "path-aware-bbr",
        }
    }
}

/// The Sidekick settings of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sidekick {
    /// What it does with quACKs.
    pub mode: Mode,
    /// Whether it may ask for a quACK.
    pub poll: bool,
    /// A quACK every so many packets; `None` leaves it to the time alone.
    pub every_packets: Option<u16>,
    /// A quACK every so many milliseconds; 0 for none by the clock.
    pub every_ms: u32,
    /// Missing packets that one quACK can tell.
    pub threshold: u8,
    /// What is the matter with the proxy.
    pub proxy: ProxyFate,
}

/// Where the proxy is that the sender asks, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyFate {
    /// On the path, from beginning to end.
    OnPath,
    /// Nowhere: nothing listens on the host between the segments.
    Absent,
    /// The sender has a wrong address, at which there is no host.
    WrongAddress,
    /// On the path, until it is killed when half of the file has passed.
    Dies,
}

impl ProxyFate {
    /// Its name in scenarios.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OnPath => "on-path",
            Self::Absent => "absent",
            Self::WrongAddress => "wrong-address",
            Self::Dies => "dies",
        }
    }
}

impl Default for Sidekick {
    fn default() -> Self {
        Self {
            mode: Mode::Off,
            poll: true,
            every_packets: None,
            every_ms: 30,
            threshold: 20,
            proxy: ProxyFate::OnPath,
        }
    }
}

/// Why a scenario could not be had. Each is one sentence for the person at the command line.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// Neither a built-in name nor a file.
    #[error("there is no scenario `{name}`; take one of {valid}, or the path of a .toml file")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names there are.
        valid: String,
    },
    /// A name that is reserved for a scenario of a later build.
    #[error("scenario `{name}` is not in this build; it has {valid}")]
    NotInThisBuild {
        /// What was asked for.
        name: String,
        /// The names there are.
        valid: String,
    },
    /// The file cannot be read.
    #[error("cannot read scenario {path}")]
    Unreadable {
        /// The path as given.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{name} is not valid TOML: {message}")]
    NotToml {
        /// The scenario.
        name: String,
        /// What the TOML parser says.
        message: String,
    },
    /// A setting that does not exist.
    #[error("there is no setting `{key}`; the settings are {valid}")]
    UnknownSetting {
        /// What was asked for.
        key: String,
        /// The settings there are.
        valid: String,
    },
    /// A value that the setting does not take.
    #[error("`{value}` is no value for {key}; it takes {takes}")]
    BadValue {
        /// The setting.
        key: String,
        /// The value as given.
        value: String,
        /// What the setting takes.
        takes: String,
    },
    /// Not of the form `section.key=value`.
    #[error("`{text}` is not of the form section.key=value, for example near.loss_percent=2")]
    NotAnAssignment {
        /// The text as given.
        text: String,
    },
    /// Two settings that contradict each other.
    #[error(
        "flow.cc = {cc} does not go with sidekick.mode = {mode}; leave flow.cc out, or set it to {wanted}"
    )]
    Contradiction {
        /// The controller that was set.
        cc: &'static str,
        /// The mode that was set.
        mode: &'static str,
        /// The controller the mode works with.
        wanted: &'static str,
    },
}

/// The built-in scenarios: name and description.
pub fn built_in() -> impl Iterator<Item = (&'static str, String)> {
    BUILT_IN.iter().map(|(name, text)| {
        let description =
            Scenario::parse(name, text).map(|scenario| scenario.description).unwrap_or_default();
        (*name, description)
    })
}

impl Scenario {
    /// Loads a built-in scenario by its name, or a file by its path.
    ///
    /// # Errors
    ///
    /// One sentence that names what there is, or what is wrong with the file.
    pub fn load(name: &str) -> Result<Self, ScenarioError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Self::parse(name, text);
        }
        let valid = || BUILT_IN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        if NOT_IN_THIS_BUILD.contains(&name) {
            return Err(ScenarioError::NotInThisBuild { name: name.to_owned(), valid: valid() });
        }
        let looks_like_a_path =
            name.contains('/') || Path::new(name).extension().is_some_and(|ext| ext == "toml");
        if !looks_like_a_path {
            return Err(ScenarioError::Unknown { name: name.to_owned(), valid: valid() });
        }
        let text = std::fs::read_to_string(name)
            .map_err(|source| ScenarioError::Unreadable { path: name.to_owned(), source })?;
        Self::parse(name, &text)
    }

    /// Reads a scenario from the text of a TOML file.
    ///
    /// # Errors
    ///
    /// One sentence naming the setting that is wrong.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| ScenarioError::NotToml {
            name: name.to_owned(),
            message: error.message().to_owned(),
        })?;
        let mut scenario = Self {
            name: name.to_owned(),
            description: String::new(),
            near: Segment::default(),
            far: Segment::default(),
            flow: Flow { bytes: 10 * 1024 * 1024, cc: None },
            sidekick: Sidekick::default(),
        };
        for (section, value) in &table {
            match value {
                toml::Value::String(text) if section == "description" => {
                    scenario.description.clone_from(text);
                }
                toml::Value::Table(settings) => {
                    for (key, value) in settings {
                        let value = match value {
                            toml::Value::String(text) => text.clone(),
                            other => other.to_string(),
                        };
                        scenario.set(&format!("{section}.{key}"), &value)?;
                    }
                }
                _ => return Err(settings::unknown(section)),
            }
        }
        scenario.check()?;
        Ok(scenario)
    }

    /// Sets one setting by its name, e.g. `near.loss_percent` to `2`.
    ///
    /// # Errors
    ///
    /// One sentence that names the settings there are, or the values that this one takes.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ScenarioError> {
        settings::set(self, key, value.trim())
    }

    /// Sets what texts of the form `section.key=value` say, in their order, and checks the whole.
    ///
    /// # Errors
    ///
    /// As [`Scenario::set`] and [`Scenario::check`]; the first error ends it.
    pub fn apply<S: AsRef<str>>(&mut self, assignments: &[S]) -> Result<(), ScenarioError> {
        for text in assignments.iter().map(AsRef::as_ref) {
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| ScenarioError::NotAnAssignment { text: text.to_owned() })?;
            self.set(key.trim(), value)?;
        }
        self.check()
    }

    /// Checks that the settings go together.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Contradiction`] when the mode cannot work with the controller.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let Some(cc) = self.flow.cc else { return Ok(()) };
        let (fits, wanted) = match self.sidekick.mode {
            Mode::Off | Mode::EarlyLoss => (true, cc),
            Mode::Pacubic => {
                let cubic = matches!(cc, CongestionControl::Cubic | CongestionControl::CubicRfc9438);
                (cubic, CongestionControl::CubicRfc9438)
            }
            Mode::PathAwareBbr => (cc == CongestionControl::Bbr2, CongestionControl::Bbr2),
        };
        if fits {
            return Ok(());
        }
        let (cc, wanted) = (cc.name(), wanted.name());
        Err(ScenarioError::Contradiction { cc, mode: self.sidekick.mode.name(), wanted })
    }

    /// The controller that the sender runs: the one that was set, or the one that the mode goes with. PACUBIC always
    /// stands on CUBIC as in RFC 9438.
    pub fn congestion_control(&self) -> CongestionControl {
        match self.sidekick.mode {
            Mode::Pacubic => CongestionControl::CubicRfc9438,
            Mode::PathAwareBbr => CongestionControl::Bbr2,
            Mode::Off | Mode::EarlyLoss => self.flow.cc.unwrap_or(CongestionControl::Cubic),
        }
    }
}

#[cfg(test)]
mod tests;
