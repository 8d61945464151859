//! Why a scenario could not be had.

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
    /// The file cannot be read.
    #[error("cannot read scenario {path}")]
    Unreadable {
        /// The path as given.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("not valid TOML: {message}")]
    NotToml {
        /// What the TOML parser says.
        message: String,
    },
    /// What a file says is wrong.
    #[error("{file}, line {line}: {problem}")]
    InFile {
        /// The scenario's name or path.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        problem: Box<ScenarioError>,
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
    /// A text that is no event.
    #[error("`{event}` is no event for faults.events: {expected}")]
    BadEvent {
        /// The text as given.
        event: String,
        /// What was expected, as a clause.
        expected: String,
    },
    /// Not of the form `section.key=value`.
    #[error("`{text}` is not of the form section.key=value, for example near.loss_percent=2")]
    NotAnAssignment {
        /// The text as given.
        text: String,
    },
    /// The trace that a setting names.
    #[error(transparent)]
    Trace(#[from] crate::link::TraceError),
    /// Two settings that contradict each other.
    #[error("{one} does not go with {other}; {instead}")]
    Contradiction {
        /// One setting and its value.
        one: String,
        /// The other.
        other: String,
        /// What to do.
        instead: String,
    },
}
