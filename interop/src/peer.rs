//! The folders of `peers/`, and the installation of peers.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use sidekick_netem::programs::{last_line, why};

use crate::case::Case;

/// The name of our own server among the peers.
pub(crate) const OURS: &str = "ours";

/// `peer.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    name: String,
    version: String,
    source: String,
    /// The server's congestion controller, for the tables.
    controller: Option<String>,
    /// A note on the server, for the tables.
    note: Option<String>,
    /// The cases that the peer does not support, with the evidence, by the case's name.
    #[serde(default)]
    unsupported: BTreeMap<String, String>,
}

/// A server that other people wrote.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// The folder's name.
    pub(crate) folder: String,
    path: PathBuf,
    about: About,
}

impl Peer {
    /// The peers of a directory, all or only some, ordered by name.
    pub(crate) fn all(directory: &Path, only: &[String]) -> anyhow::Result<Vec<Self>> {
        let mut peers = Vec::new();
        // Its programs run in other directories.
        let directory =
            &std::path::absolute(directory).context("cannot find the current directory")?;
        let cannot = || format!("cannot read the peers' directory {}", directory.display());
        for entry in fs::read_dir(directory).with_context(cannot)? {
            let path = entry.with_context(cannot)?.path();
            let folder = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let about = path.join("peer.toml");
            if about.is_file() && (only.is_empty() || only.contains(&folder)) {
                let wrong = || format!("{} is not a valid peer.toml", about.display());
                let about: About = toml::from_str(&fs::read_to_string(&about).with_context(wrong)?)
                    .with_context(wrong)?;
                for case in about.unsupported.keys() {
                    let known = Case::ALL.iter().any(|known| known.name() == case);
                    ensure!(known, "{folder}: there is no case {case} that could be unsupported");
                }
                peers.push(Self { folder, path, about });
            }
        }
        for name in only.iter().filter(|name| *name != OURS) {
            let there = peers.iter().any(|peer| peer.folder == *name);
            ensure!(there, "there is no peer {name} in {}: --list shows them", directory.display());
        }
        let none_wanted = only.iter().any(|name| name == OURS);
        ensure!(none_wanted || !peers.is_empty(), "there is no peer in {}", directory.display());
        peers.sort_by(|a, b| a.folder.cmp(&b.folder));
        Ok(peers)
    }

    /// Name and version.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.about.name, self.about.version)
    }

    /// The URL of its source.
    pub(crate) fn source(&self) -> &str {
        &self.about.source
    }

    /// Its congestion controller.
    pub(crate) fn controller(&self) -> Option<&str> {
        self.about.controller.as_deref()
    }

    /// A note on it, for the tables.
    pub(crate) fn note(&self) -> Option<&str> {
        self.about.note.as_deref()
    }

    /// Why it does not support a case, if so.
    pub(crate) fn unsupported(&self, case: Case) -> Option<&str> {
        self.about.unsupported.get(case.name()).map(String::as_str)
    }

    /// The directory in which it is installed.
    pub(crate) fn cache(&self, caches: &Path) -> anyhow::Result<PathBuf> {
        let cache = caches.join(&self.folder);
        std::path::absolute(&cache)
            .with_context(|| format!("cannot find the path of {}", cache.display()))
    }

    /// The file with the result of [`install`](Self::install).
    fn verdict(cache: &Path) -> PathBuf {
        cache.with_extension("verdict")
    }

    /// Installs it. A failure is no error here, so that the other peers run. The peer's own tries
    /// report it.
    pub(crate) fn install(&self, caches: &Path) -> anyhow::Result<()> {
        let cache = self.cache(caches)?;
        let cannot = || format!("cannot write to {}", cache.display());
        fs::create_dir_all(&cache).with_context(cannot)?;
        eprintln!("installing {}", self.title());
        let log = cache.with_extension("log");
        let errors = File::create(&log).with_context(cannot)?;
        let status = Command::new(self.path.join("install"))
            .arg(&cache)
            .env(PROGRAMS_VARIABLE, own_directory()?)
            .stdin(Stdio::null())
            .stdout(errors.try_clone().with_context(cannot)?)
            .stderr(errors)
            .status();
        let verdict = match status {
            Ok(status) if status.success() => String::new(),
            Ok(status) => why(status, &last_line(&log)),
            Err(error) => error.to_string(),
        };
        if !verdict.is_empty() {
            eprintln!("{} cannot be installed: {verdict} ({})", self.title(), log.display());
        }
        fs::write(Self::verdict(&cache), verdict).with_context(cannot)
    }

    /// Why it is not installed, if so.
    pub(crate) fn missing(&self, caches: &Path) -> Option<String> {
        let verdict =
            self.cache(caches).and_then(|cache| Ok(fs::read_to_string(Self::verdict(&cache))?));
        match verdict {
            Ok(verdict) => (!verdict.is_empty()).then_some(verdict),
            Err(error) => Some(format!("{error:#}")),
        }
    }

    /// The command that runs it, without options.
    pub(crate) fn serve(&self, caches: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new(self.path.join("serve"));
        command.arg(self.cache(caches)?);
        command.env(PROGRAMS_VARIABLE, own_directory()?);
        Ok(command)
    }
}

/// The variable with this program's directory, for a peer that is built with it.
const PROGRAMS_VARIABLE: &str = "SIDEKICK_PROGRAMS";

fn own_directory() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's directory")?;
    Ok(own.parent().unwrap_or(Path::new("/")).to_owned())
}
