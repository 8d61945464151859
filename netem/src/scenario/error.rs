//! The errors of scenarios.

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
