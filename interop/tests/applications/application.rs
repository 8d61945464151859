//! An application of other people: finds it in cargo's registry, adds our lines, and builds it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use toml::Table;

use crate::additions::Additions;

/// The only file from which a diff may remove lines, because all of its lines are ours.
const MANIFEST: &str = "Cargo.toml";

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

    /// Assembles it with our lines in a directory below `directory`. Returns the table of its
    /// manifest that patches dependencies, which only the root of a workspace can have.
    fn assemble(&self, directory: &Path, metadata: &Value) -> Option<toml::Value> {
        let (name, version) = self.package;
        let original = directory_of(metadata, name, Some(version));
        let own = directory.join(self.name);
        let additions = Additions::parse(&self.diff());
        let manifest = read(&applications().join(self.name).with_extension("toml"));
        let mut files: Vec<_> = vec![(MANIFEST, manifest)];
        files.extend(self.files.iter().map(|&(from, to)| (to, read(&original.join(from)))));
        for additions in &additions {
            assert!(files.iter().any(|(file, _)| *file == additions.file), "{}", additions.file);
        }
        let mut patch = None;
        for (file, mut text) in files {
            if let Some(additions) = additions.iter().find(|additions| additions.file == file) {
                assert!(
                    file == MANIFEST || additions.removed() == 0,
                    "{file} loses lines that are not ours"
                );
                text = additions.apply(&text);
            }
            if file == MANIFEST {
                let mut manifest = within_this_checkout(&text, metadata);
                patch = manifest.remove("patch");
                text = manifest.to_string();
            }
            write(&own.join(file), &text);
        }
        patch
    }
}

/// Builds the applications as their owner would, as one workspace. Returns the programs'
/// directory.
///
/// Cargo downloads nothing, because the versions are those of this workspace's lock file. It
/// compiles little, because it reuses this workspace's dependencies, BoringSSL among them.
pub(crate) fn build(all: &[&Application]) -> PathBuf {
    let metadata = metadata();
    let target = target_directory();
    let own = target.join("applications");
    let names = all.iter().map(|application| application.name);
    let members: Vec<_> = names.chain([FEATURES]).map(toml::Value::from).collect();
    let mut patch = Table::new();
    for application in all {
        if let Some(toml::Value::Table(table)) = application.assemble(&own, &metadata) {
            patch.extend(table);
        }
    }
    write(&own.join(FEATURES).join(MANIFEST), &features(&metadata).to_string());
    write(&own.join(FEATURES).join("src/lib.rs"), "");
    let root: Table = read(&workspace().join(MANIFEST)).parse().unwrap();
    let table = |key: &str, value| Table::from_iter([(key.to_owned(), value)]);
    let mut manifest = table("workspace", table("members", members.into()).into());
    manifest["workspace"]
        .as_table_mut()
        .unwrap()
        .insert("resolver".to_owned(), root["workspace"]["resolver"].clone());
    manifest.insert("patch".to_owned(), patch.into());
    // Another profile would compile all dependencies again.
    manifest.insert("profile".to_owned(), table("dev", root["profile"]["dev"].clone()).into());
    write(&own.join(MANIFEST), &manifest.to_string());
    write(&own.join("Cargo.lock"), &read(&workspace().join("Cargo.lock")));
    let output = cargo()
        .args(["build", "--offline", "--workspace", "--target-dir"])
        .arg(&target)
        .current_dir(&own)
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.join("debug")
}

/// The name of an empty package beside the applications.
const FEATURES: &str = "features";

/// The manifest of an empty package that depends on what this workspace depends on. With it, cargo
/// selects the features that it selected for this workspace, and so need not compile the
/// dependencies again. Our own crates have the features that the applications select.
fn features(metadata: &Value) -> Table {
    let mut all = Table::new();
    // The hooked quiche has the dependencies of quiche, which the applications select, too.
    for package in packages(metadata)
        .filter(|package| package["source"].is_null() && package["name"] != "quiche")
    {
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            let ours = dependency["path"].is_string() || ["quiche", "tokio-quiche"].contains(&name);
            if ours || dependency["optional"] == true {
                continue;
            }
            let entry = all.entry(name).or_insert_with(|| {
                let version = ("version".to_owned(), dependency["req"].as_str().unwrap().into());
                Table::from_iter([version, ("default-features".to_owned(), false.into())]).into()
            });
            let entry = entry.as_table_mut().unwrap();
            if dependency["uses_default_features"] == true {
                entry.insert("default-features".to_owned(), true.into());
            }
            let selected =
                entry.entry("features").or_insert_with(|| toml::Value::Array(Vec::new()));
            let more = dependency["features"].as_array().unwrap().iter();
            let more = more.map(|feature| feature.as_str().unwrap().into());
            selected.as_array_mut().unwrap().extend(more);
        }
    }
    let mut manifest = Table::new();
    let package = [("name", FEATURES), ("version", "0.1.0"), ("edition", "2024")];
    let package = package.map(|(key, value)| (key.to_owned(), value.into()));
    manifest.insert("package".to_owned(), Table::from_iter(package).into());
    manifest.insert("dependencies".to_owned(), all.into());
    manifest
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
fn metadata() -> Value {
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
fn host() -> String {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .arg("-vV")
        .output();
    let version = String::from_utf8(output.unwrap().stdout).unwrap();
    version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
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
fn cargo() -> Command {
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
fn target_directory() -> PathBuf {
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
fn write(file: &Path, text: &str) {
    if fs::read_to_string(file).is_ok_and(|present| present == text) {
        return;
    }
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}
