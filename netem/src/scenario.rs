//! Scenarios: the segments of the path, the flow and the Sidekick settings of one experiment.
//!
//! A scenario is a TOML file, built in or named by its path. Every setting has one name,
//! `section.key`, and one parser for files and for the command line (`--set near.loss_percent=4`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

mod check;
mod faults;
mod flow;
mod segment;
mod setting;
mod settings;
mod sidekick;

pub use faults::{Event, Fault, Faults, Lie, Place};
pub use flow::{Cipher, Competitor, CongestionControl, Flow, FlowKind, Split, Tunnel, Uplinks};
pub use segment::{BadState, Direction, Queue, ReplayFile, Segment, TraceFile};
pub use settings::{About, settings};
pub use sidekick::{Mode, ProxyFate, ProxyPlace, Repair, Sidekick};

/// The built-in scenarios: name and file.
const BUILT_IN: [(&str, &str); 17] = [
    ("upload-paper", include_str!("../scenarios/upload-paper.toml")),
    ("audio-paper", include_str!("../scenarios/audio-paper.toml")),
    ("audio-far-proxy", include_str!("../scenarios/audio-far-proxy.toml")),
    ("messages", include_str!("../scenarios/messages.toml")),
    ("ack-reduction-paper", include_str!("../scenarios/ack-reduction-paper.toml")),
    ("smaq-leo", include_str!("../scenarios/smaq-leo.toml")),
    ("smaq-geo", include_str!("../scenarios/smaq-geo.toml")),
    ("download-paper", include_str!("../scenarios/download-paper.toml")),
    ("packrat-wifi", include_str!("../scenarios/packrat-wifi.toml")),
    ("packrat-cellular", include_str!("../scenarios/packrat-cellular.toml")),
    ("packrat-satellite", include_str!("../scenarios/packrat-satellite.toml")),
    ("wifi-far-room", include_str!("../scenarios/wifi-far-room.toml")),
    ("lte-drive", include_str!("../scenarios/lte-drive.toml")),
    ("train", include_str!("../scenarios/train.toml")),
    ("leo", include_str!("../scenarios/leo.toml")),
    ("geo", include_str!("../scenarios/geo.toml")),
    ("microwave", include_str!("../scenarios/microwave.toml")),
];

/// Why a scenario cannot be used, in one sentence for the user.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// An unknown name, value or text, with the known ones.
    #[error("{0}")]
    Wrong(String),
    /// The file cannot be read.
    #[error("cannot read scenario {path}")]
    Unreadable {
        /// The path as given.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A line of a file is invalid.
    #[error("{file}, line {line}: {problem}")]
    InFile {
        /// The scenario's name or path.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        problem: Box<ScenarioError>,
    },
    /// The trace that a setting names cannot be used.
    #[error(transparent)]
    Trace(#[from] crate::link::TraceError),
    /// The recording that a setting names cannot be used.
    #[error(transparent)]
    Replay(#[from] crate::link::ReplayError),
    /// Two settings that contradict each other.
    #[error("{one} does not go with {other}; {instead}")]
    Contradiction {
        /// One setting and its value.
        one: String,
        /// The other.
        other: String,
        /// How to correct it.
        instead: String,
    },
}

/// One experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scenario {
    /// Its name, or the path of its file.
    pub name: String,
    /// A description in a few words.
    pub description: String,
    /// The segment between sender and proxy.
    pub near: Segment,
    /// A second segment between sender and proxy, if the sender has two uplinks.
    pub second: Option<Segment>,
    /// A segment between the proxy and a second proxy, if the path has three segments.
    pub middle: Option<Segment>,
    /// The segment between the last proxy and the receiver.
    pub far: Segment,
    /// The first flow.
    pub flow: Flow,
    /// A second, plain flow.
    pub competitor: Competitor,
    /// The proxy, and how the sender uses it.
    pub sidekick: Sidekick,
    /// The faults that occur during the run.
    pub faults: Faults,
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
    /// No scenario has this name, or the file cannot be read or is invalid.
    pub fn load(name: &str) -> Result<Self, ScenarioError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Self::parse(name, text);
        }
        let looks_like_a_path =
            name.contains('/') || Path::new(name).extension().is_some_and(|ext| ext == "toml");
        if !looks_like_a_path {
            let valid = BUILT_IN.map(|(name, _)| name).join(", ");
            return Err(ScenarioError::Wrong(format!(
                "there is no scenario `{name}`: choose one of {valid}, or the path of a .toml file"
            )));
        }
        let text = std::fs::read_to_string(name)
            .map_err(|source| ScenarioError::Unreadable { path: name.to_owned(), source })?;
        Self::parse(name, &text)
    }

    /// Loads a scenario and [applies](Scenario::apply) settings.
    ///
    /// # Errors
    ///
    /// As [`Scenario::load`] and [`Scenario::apply`].
    pub fn with<S: AsRef<str>>(name: &str, settings: &[S]) -> Result<Self, ScenarioError> {
        let mut scenario = Self::load(name)?;
        scenario.apply(settings)?;
        Ok(scenario)
    }

    /// Reads a scenario from the text of a TOML file.
    ///
    /// # Errors
    ///
    /// The text is invalid. The error names the file, the line, and the expected text.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let at = |offset: usize, problem: ScenarioError| {
            let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
            let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
            ScenarioError::InFile { file: name.to_owned(), line, problem: Box::new(problem) }
        };
        let table = DeTable::parse(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            at(offset, ScenarioError::Wrong(format!("not valid TOML: {}", error.message())))
        })?;
        let mut scenario = Self { name: name.to_owned(), ..Self::default() };
        let mut places = BTreeMap::new();
        let directory = Path::new(name).parent().unwrap_or(Path::new(""));
        for (section, value) in table.get_ref() {
            match value.get_ref() {
                DeValue::String(text) if section.get_ref() == "description" => {
                    scenario.description = text.clone().into_owned();
                }
                DeValue::Table(settings) => {
                    for (key, value) in settings {
                        let setting = format!("{}.{}", section.get_ref(), key.get_ref());
                        let value = match value.get_ref() {
                            DeValue::Array(items) if setting == faults::EVENTS => {
                                let items = items
                                    .iter()
                                    .map(|item| (item.span().start, text_of(item, text)));
                                let list = faults::list(items);
                                Cow::Owned(list.map_err(|(offset, problem)| at(offset, problem))?)
                            }
                            _ => Cow::Borrowed(text_of(value, text)),
                        };
                        scenario
                            .set_from(directory, &setting, &value)
                            .map_err(|problem| at(key.span().start, problem))?;
                        places.insert(setting, key.span().start);
                    }
                }
                _ => return Err(at(section.span().start, settings::unknown(section.get_ref()))),
            }
        }
        scenario.check().map_err(|problem| {
            let place = match &problem {
                ScenarioError::Contradiction { one, .. } => {
                    one.split_once(' ').and_then(|(setting, _)| places.get(setting))
                }
                _ => None,
            };
            at(place.copied().unwrap_or(0), problem)
        })?;
        Ok(scenario)
    }

    /// The segments of the path, from the sender to the receiver.
    pub fn segments(&self) -> impl Iterator<Item = (Place, &Segment)> {
        let middle = self.middle.as_ref().map(|middle| (Place::Middle, middle));
        [Some((Place::Near, &self.near)), middle, Some((Place::Far, &self.far))]
            .into_iter()
            .flatten()
    }

    /// The second near segment.
    fn beside(&self) -> impl Iterator<Item = (Place, &Segment)> {
        self.second.iter().map(|second| (Place::Second, second))
    }

    fn segments_mut(&mut self) -> impl Iterator<Item = &mut Segment> {
        let Self { near, second, middle, far, .. } = self;
        [Some(near), second.as_mut(), middle.as_mut(), Some(far)].into_iter().flatten()
    }

    /// Sets one setting by its name, e.g. `near.loss_percent` to `2`.
    ///
    /// # Errors
    ///
    /// The setting or its value is unknown. The error names the nearest setting and those of the
    /// section, or the values that the setting accepts.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ScenarioError> {
        self.set_from(Path::new(""), name, value)
    }

    /// Sets one setting. A relative path in a value counts from `directory`.
    fn set_from(&mut self, directory: &Path, name: &str, value: &str) -> Result<(), ScenarioError> {
        let mut changed = self.clone();
        settings::set(&mut changed, name, value.trim())?;
        for segment in changed.segments_mut() {
            segment.read_files(directory)?;
        }
        *self = changed;
        Ok(())
    }

    /// Applies settings of the form `section.key=value` in order, and checks the scenario.
    ///
    /// # Errors
    ///
    /// The first error of [`Scenario::set`] or [`Scenario::check`].
    pub fn apply<S: AsRef<str>>(&mut self, assignments: &[S]) -> Result<(), ScenarioError> {
        for text in assignments.iter().map(AsRef::as_ref) {
            let (key, value) = text.split_once('=').ok_or_else(|| {
                let form = "of the form section.key=value, for example near.loss_percent=2";
                ScenarioError::Wrong(format!("`{text}` is not {form}"))
            })?;
            self.set(key.trim(), value)?;
        }
        self.check()
    }

    /// The controller of the data sender: the one that is set, or else that of the mode. PACUBIC
    /// always uses CUBIC of RFC 9438.
    pub fn congestion_control(&self) -> CongestionControl {
        let usual = if self.flow.tune { CongestionControl::Bbr2 } else { CongestionControl::Cubic };
        let set = self.flow.cc.unwrap_or(usual);
        if self.flow.kind.is_download() {
            // The data sender is a server, which has no mode.
            return set;
        }
        match self.sidekick.mode {
            Mode::Pacubic => CongestionControl::CubicRfc9438,
            Mode::PathAwareBbr | Mode::Auto => CongestionControl::Bbr2,
            _ => set,
        }
    }
}

/// A value as [`Scenario::set`] accepts it: a string without its quotes, or the text of another
/// value.
fn text_of<'a>(value: &'a Spanned<DeValue<'_>>, file: &'a str) -> &'a str {
    match value.get_ref() {
        DeValue::String(text) => text,
        _ => file.get(value.span()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
