//! The configuration file. Each of its keys is a flag of the command line, and each value is read
//! as the flag's: so the program's settings are declared once.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Parser};
use thiserror::Error;
use toml::de::{DeTable, DeValue};

use super::shared::error;

/// Flags that are no keys, because they are about one start of the program.
const FLAGS: [&str; 5] = ["config", "json", "verbose", "help", "version"];

/// Why a configuration file cannot be used, as a sentence for the operator.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum FileError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        cause: std::io::Error,
    },
    /// The file has an error on this line, counted from 1.
    #[error("{}:{line}: {message}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The key, the fault, and a correct form.
        message: String,
    },
    /// Keys contradict one another.
    #[error("{}: {message}", path.display())]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// Which ones.
        message: String,
    },
}

/// A command line, with the settings of the file that it names.
pub(crate) struct Parsed<P> {
    /// The options.
    pub(crate) options: P,
    /// Whether some of them come from a file.
    pub(crate) has_file: bool,
}

/// Reads a command line, which begins with the program's name. `file` is the file that it names,
/// whose settings its flags override.
///
/// # Errors
/// The text to print: what is wrong, or the help that the operator requested.
pub(crate) fn with_file<P: Parser>(
    line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    file: impl Fn(&P) -> &Option<PathBuf>,
) -> Result<Parsed<P>, clap::Error> {
    let line: Vec<OsString> = line.into_iter().map(Into::into).collect();
    let mut command = P::command();
    command.build();
    let given = command.clone().try_get_matches_from(&line)?;
    let options = P::from_arg_matches(&given)?;
    let Some(path) = file(&options) else { return Ok(Parsed { options, has_file: false }) };
    let flags =
        flags(path, &command, &given).map_err(|cause| error(ErrorKind::InvalidValue, &cause))?;
    let options = P::try_parse_from(line.into_iter().chain(flags.into_iter().map(Into::into)))?;
    Ok(Parsed { options, has_file: true })
}

/// The options of a file alone.
///
/// # Errors
/// [`FileError`] says what is wrong with the file.
pub(crate) fn options_of<P: Parser>(path: &Path) -> Result<P, FileError> {
    let mut command = P::command();
    command.build();
    let flags = flags(path, &command, &ArgMatches::default())?;
    P::try_parse_from([command.get_name().to_owned()].into_iter().chain(flags)).map_err(|error| {
        FileError::Contradiction { path: path.to_owned(), message: sentence(&error) }
    })
}

/// The keys of a file as flags, but for those about which `given` flags decide.
fn flags(path: &Path, command: &Command, given: &ArgMatches) -> Result<Vec<String>, FileError> {
    let text = std::fs::read_to_string(path)
        .map_err(|cause| FileError::Unreadable { path: path.to_owned(), cause })?;
    parse(&text, command, given).map_err(|(at, message)| {
        let before = text.get(..at).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        FileError::Wrong { path: path.to_owned(), line, message }
    })
}

/// The keys in the text of a file as flags. An error has its place in bytes.
fn parse(
    text: &str,
    command: &Command,
    given: &ArgMatches,
) -> Result<Vec<String>, (usize, String)> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let before = text.get(..at).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        let message = error.message().replace('\n', ", ");
        let message = match line.split_once('=') {
            // The parser takes a text without quotes for a number by its first letters.
            Some((key, _)) => format!("{}: {message} (a text needs quotes)", key.trim()),
            None => message,
        };
        (at, message)
    })?;
    let mut flags = Vec::new();
    for (key, value) in table.get_ref() {
        let at = key.span().start;
        let wrong = |message: String| (at, format!("{}: {message}", key.get_ref()));
        let (arg, new) = flags_of(key.get_ref(), value.get_ref(), command).map_err(wrong)?;
        let name = command.get_name();
        command
            .clone()
            .try_get_matches_from([name].into_iter().chain(new.iter().map(String::as_str)))
            .map_err(|error| wrong(sentence(&error).replace(&format!(" for '{arg}'"), "")))?;
        let decides = |arg: &Arg| {
            let id = arg.get_id().as_str();
            let is_there = given.try_contains_id(id).unwrap_or(false);
            is_there && given.value_source(id) == Some(ValueSource::CommandLine)
        };
        // Each of two flags that exclude one another decides about both.
        let excludes =
            |one: &Arg, other: &Arg| command.get_arg_conflicts_with(one).contains(&other);
        let is_rival = |other: &&Arg| excludes(arg, other) || excludes(other, arg);
        if !decides(arg) && !command.get_arguments().filter(is_rival).any(decides) {
            flags.extend(new);
        }
    }
    Ok(flags)
}

/// The flag of a key, and how the command line has its values.
fn flags_of<'a>(
    key: &str,
    value: &DeValue<'_>,
    command: &'a Command,
) -> Result<(&'a Arg, Vec<String>), String> {
    let arg = flag(key, command)?;
    let long = arg.get_long().unwrap_or_default();
    let texts = match (value, arg.get_action()) {
        (DeValue::Boolean(on), ArgAction::SetTrue | ArgAction::SetFalse) => {
            let is_given = *on == matches!(arg.get_action(), ArgAction::SetTrue);
            return Ok((arg, is_given.then(|| format!("--{long}")).into_iter().collect()));
        }
        (_, ArgAction::SetTrue | ArgAction::SetFalse) => {
            return Err("write true or false".to_owned());
        }
        (DeValue::Array(values), ArgAction::Append) => {
            values.iter().map(|value| text(value.get_ref())).collect::<Result<Vec<_>, _>>()?
        }
        (value, _) => vec![text(value)?],
    };
    Ok((arg, texts.iter().map(|text| format!("--{long}={text}")).collect()))
}

/// The flag of this name, or of the opposite.
fn flag<'a>(key: &str, command: &'a Command) -> Result<&'a Arg, String> {
    let named = |name: &str| {
        command.get_arguments().find(|arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(name) || aliases.contains(&name)
        })
    };
    let is_inverse = |arg: &&Arg| matches!(arg.get_action(), ArgAction::SetFalse);
    // Flags under a heading of their own exclude a file.
    let is_key =
        |arg: &&Arg| arg.get_help_heading().is_none() && !FLAGS.contains(&arg.get_id().as_str());
    let arg = named(key).filter(|arg| !is_inverse(arg));
    let arg = arg.or_else(|| named(&format!("no-{key}")).filter(is_inverse));
    match arg {
        Some(arg) if is_key(&arg) => Ok(arg),
        Some(_) => Err(format!("this is a flag, and no key of a file: use --{key} alone")),
        None if let Some(name) = key.strip_prefix("no-")
            && named(key).is_some() =>
        {
            Err(format!("this is not a key: write {name} = false"))
        }
        None => {
            let line = [command.get_name().to_owned(), format!("--{key}")];
            let error = command.clone().try_get_matches_from(line).err();
            let similar = error.as_ref().and_then(|error| error.get(ContextKind::SuggestedArg));
            Err(match similar {
                Some(ContextValue::String(flag)) => {
                    let key = flag.trim_start_matches("--");
                    format!("this is not a key: did you mean {key}?")
                }
                _ => "this is not a key: each flag of --help is one".to_owned(),
            })
        }
    }
}

/// A value as the command line has it.
fn text(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Float(number) => Ok(number.to_string()),
        DeValue::Boolean(is_true) => Ok(is_true.to_string()),
        DeValue::Array(_) => Err("one value is needed, and no list".to_owned()),
        DeValue::Datetime(_) | DeValue::Table(_) => Err("write a text or a number".to_owned()),
    }
}

/// What clap says, in one line.
fn sentence(error: &clap::Error) -> String {
    let text = error.to_string();
    let (first, _) = text.split_once("\n\n").unwrap_or((&text, ""));
    let words = first.strip_prefix("error: ").unwrap_or(first).split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
