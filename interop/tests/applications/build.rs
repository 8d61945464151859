//! Builds the applications, with the dependencies of this workspace.

use std::path::{Path, PathBuf};

use serde_json::Value;
use toml::Table;

use crate::application::{
    Application, MANIFEST, cargo, host, metadata, packages, read, target_directory, workspace,
    write,
};

/// The directory of the built programs.
pub(crate) fn programs() -> PathBuf {
    target_directory().join("debug")
}

/// Builds the applications as one workspace, after it has resolved each alone, as its owner would.
///
/// In the workspace they share a `[patch]` table and the features of dependencies. So a build does
/// not show that a manifest names each feature that it needs.
///
/// Cargo downloads nothing, because the versions are those of this workspace's lock file. It
/// compiles little, because it reuses this workspace's dependencies, BoringSSL among them.
pub(crate) fn build(all: &[&Application]) {
    let metadata = metadata();
    let own = target_directory().join("applications");
    let mut patches = Table::new();
    for application in all {
        let directory = own.join(application.name);
        let mut manifest = application.assemble(&directory, &metadata);
        resolve_alone(&manifest, &own.join("alone").join(application.name));
        // Only the root of a workspace can have one.
        if let Some(toml::Value::Table(patch)) = manifest.remove("patch") {
            for (source, entries) in patch {
                let all = patches.entry(source).or_insert_with(|| Table::new().into());
                all.as_table_mut().unwrap().extend(entries.as_table().unwrap().clone());
            }
        }
        write(&directory.join(MANIFEST), &manifest.to_string());
    }
    write(&own.join(FEATURES).join(MANIFEST), &features(&metadata).to_string());
    write(&own.join(FEATURES).join("src/lib.rs"), "");

    let root: Table = read(&workspace().join(MANIFEST)).parse().unwrap();
    let names = all.iter().map(|application| application.name);
    let members: Vec<_> = names.chain([FEATURES]).map(toml::Value::from).collect();
    let resolver = root["workspace"]["resolver"].clone();
    let manifest = table([
        ("workspace", table([("members", members.into()), ("resolver", resolver)]).into()),
        ("patch", patches.into()),
        // Another profile would compile all dependencies again.
        ("profile", table([("dev", root["profile"]["dev"].clone())]).into()),
    ]);
    write(&own.join(MANIFEST), &manifest.to_string());
    let target = target_directory();
    run(&["build", "--workspace", "--target-dir", target.to_str().unwrap()], &own);
}

/// Resolves the dependencies of a package that is its own workspace.
fn resolve_alone(manifest: &Table, directory: &Path) {
    let mut manifest = manifest.clone();
    manifest.insert("workspace".to_owned(), Table::new().into());
    write(&directory.join(MANIFEST), &manifest.to_string());
    write(&directory.join("src/main.rs"), "fn main() {}\n");
    // Cargo has not fetched the dependencies of other systems.
    run(&["metadata", "--format-version", "1", "--filter-platform", &host()], directory);
}

/// Runs cargo in a directory that begins with the lock file of this workspace.
fn run(arguments: &[&str], directory: &Path) {
    write(&directory.join("Cargo.lock"), &read(&workspace().join("Cargo.lock")));
    let output = cargo().args(arguments).arg("--offline").current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The name of an empty package beside the applications.
const FEATURES: &str = "features";

/// The manifest of an empty package that depends on what this workspace depends on. With it, cargo
/// selects the features that it selected for this workspace, and so need not compile the
/// dependencies again. Our own crates have the features that the applications select.
fn features(metadata: &Value) -> Table {
    let mut all = Table::new();
    // The hooked quiche has the dependencies of quiche, which the applications select, too.
    let own = |package: &&Value| package["source"].is_null() && package["name"] != "quiche";
    for package in packages(metadata).filter(own) {
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            let ours = dependency["path"].is_string() || ["quiche", "tokio-quiche"].contains(&name);
            // Cargo has not fetched those of other systems. Those of build scripts have features of
            // their own.
            let elsewhere = !dependency["target"].is_null() || dependency["kind"] == "build";
            if ours || elsewhere || dependency["optional"] == true {
                continue;
            }
            let entry = all.entry(name).or_insert_with(|| {
                let version = dependency["req"].as_str().unwrap();
                table([
                    ("version", version.into()),
                    ("default-features", false.into()),
                    ("features", toml::Value::Array(Vec::new())),
                ])
                .into()
            });
            assert_eq!(entry["version"].as_str(), dependency["req"].as_str(), "{name} twice");
            let entry = entry.as_table_mut().unwrap();
            if dependency["uses_default_features"] == true {
                entry.insert("default-features".to_owned(), true.into());
            }
            let more = dependency["features"].as_array().unwrap().iter();
            let more = more.map(|feature| feature.as_str().unwrap().into());
            entry["features"].as_array_mut().unwrap().extend(more);
        }
    }
    let package = [("name", FEATURES), ("version", "0.1.0"), ("edition", "2024")];
    let package = table(package.map(|(key, value)| (key, value.into())));
    table([("package", package.into()), ("dependencies", all.into())])
}

fn table<const N: usize>(entries: [(&str, toml::Value); N]) -> Table {
    entries.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
}
