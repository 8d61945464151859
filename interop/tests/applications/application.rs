//! An application of other people: finds it in cargo's registry, and adds our lines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use toml::Table;

use crate::additions::Additions;

/// The only file from which a diff may remove lines, because all of its lines are ours.
pub(crate) const MANIFEST: &str = "Cargo.toml";

/// An example of a published package, as a package of its own.
pub(crate) struct Application {
    /// The name of its files in `applications/`, and of the program.
    pub(crate) name: &'static str,
    /// The published package, and the version to which the line numbers apply.
    pub(crate) package: (&'static str, &'static str),
    /// Files of that package, and their paths in the new one.
    pub(crate) files: &'static [(&'static str, &'static str)],
}

impl Application {
    /// The changes to it, as the documents show them: the diff from its first file on.
    pub(crate) fn diff(&self) -> String {
        let text = read(&applications().join(self.name).with_extension("diff"));
        let start = text.find("--- ").unwrap();
        text[start..].to_owned()
    }

    /// Writes its files with our lines to `directory`, but for its manifest, which it returns.
    pub(crate) fn assemble(&self, directory: &Path, metadata: &Value) -> Table {
        let (name, version) = self.package;
        let original = directory_of(metadata, name, Some(version));
        let additions = Additions::parse(&self.diff());
        let of = |file: &str| additions.iter().find(|additions| additions.file == file);
        for additions in &additions {
            let known = self.files.iter().any(|(_, file)| *file == additions.file);
            assert!(known || additions.file == MANIFEST, "{}", additions.file);
        }
        for (from, to) in self.files {
            let mut text = read(&original.join(from));
            if let Some(additions) = of(to) {
                assert!(additions.removed() == 0, "{to} loses lines that are not ours");
                text = additions.apply(&text);
            }
            write(&directory.join(to), &text);
        }
        let manifest = read(&applications().join(self.name).with_extension("toml"));
        let manifest = of(MANIFEST).map_or(manifest.clone(), |lines| lines.apply(&manifest));
        within_this_checkout(&manifest, metadata)
    }
}

/// The manifest for a local checkout of our repository.
fn within_this_checkout(manifest: &str, metadata: &Value) -> Table {
    let mut manifest: Table = manifest.parse().unwrap();
    let ours = directory_of(metadata, "quic-sidekick", None);
    let repository =
        packages(metadata).find(|package| manifest_directory(package) == ours).unwrap();
    by_path(&mut manifest, repository["repository"].as_str().unwrap(), metadata);
    manifest
}

/// Replaces dependencies on a repository by their directories in this checkout of it.
fn by_path(table: &mut Table, repository: &str, metadata: &Value) {
    for (name, value) in table.iter_mut() {
        let Some(table) = value.as_table_mut() else { continue };
        if table.get("git").and_then(toml::Value::as_str) == Some(repository) {
            table.remove("git");
            let directory = packages(metadata)
                .find(|package| package["name"] == name.as_str() && package["source"].is_null())
                .map(manifest_directory);
            table.insert("path".to_owned(), directory.unwrap().display().to_string().into());
        }
        by_path(table, repository, metadata);
    }
}

/// Cargo's metadata of the workspace.
pub(crate) fn metadata() -> Value {
    let mut command = cargo();
    command
        .args(["metadata", "--offline", "--locked", "--format-version", "1"])
        .current_dir(workspace());
    // Cargo has not fetched the dependencies of other systems.
    command.args(["--filter-platform", &host()]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The target triple.
pub(crate) fn host() -> String {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .arg("-vV")
        .output();
    let version = String::from_utf8(output.unwrap().stdout).unwrap();
    version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

pub(crate) fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().unwrap().iter()
}

/// The directory of a package: in the registry if it has a version, otherwise in the workspace.
fn directory_of(metadata: &Value, name: &str, version: Option<&str>) -> PathBuf {
    let found = packages(metadata).find(|package| {
        package["name"] == name
            && package["source"].is_null() == version.is_none()
            && version.is_none_or(|version| package["version"] == version)
    });
    let missing =
        "the workspace has none; if it has another version, update the line numbers of our lines";
    manifest_directory(
        found.unwrap_or_else(|| panic!("{name} {}: {missing}", version.unwrap_or_default())),
    )
}

fn manifest_directory(package: &Value) -> PathBuf {
    Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned()
}

/// Cargo with a user's environment. Some build scripts depend on variables that cargo sets for this
/// test, and would run again after a change of these.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

/// The workspace's target directory.
pub(crate) fn target_directory() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_interop-client")).ancestors().nth(2).unwrap().to_owned()
}

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn applications() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("applications")
}

pub(crate) fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Writes a file unless it is unchanged, because cargo compares modification times.
pub(crate) fn write(file: &Path, text: &str) {
    if fs::read_to_string(file).is_ok_and(|present| present == text) {
        return;
    }
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}
