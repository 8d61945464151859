//! Finds the source of the pristine quiche, which cargo downloaded as a dependency.

use std::path::{Path, PathBuf};

use crate::insertions::VERSION;

/// An explicit path, for build systems that keep sources elsewhere.
pub const OVERRIDE: &str = "QUICHE_PRISTINE_SRC";

/// Every directory with a package `quiche` of the wanted version, the likeliest first.
pub fn candidates(manifest_dir: &Path, out_dir: &Path) -> Vec<PathBuf> {
    if let Some(explicit) = std::env::var_os(OVERRIDE) {
        return vec![PathBuf::from(explicit)];
    }
    let mut found = Vec::new();
    let mut consider = |dir: PathBuf| {
        if is_pristine(&dir) && !found.contains(&dir) {
            found.push(dir);
        }
    };
    let homes = cargo_homes(manifest_dir);
    for home in &homes {
        let registries = std::fs::read_dir(home.join("registry/src"));
        for registry in registries.into_iter().flatten().flatten() {
            consider(registry.path().join(format!("quiche-{VERSION}")));
        }
    }
    for vendor in vendor_dirs(&homes, manifest_dir, out_dir) {
        consider(vendor.join("quiche"));
        consider(vendor.join(format!("quiche-{VERSION}")));
    }
    found
}

/// Whether `dir` is the wanted package, by its manifest alone.
fn is_pristine(dir: &Path) -> bool {
    let Ok(manifest) = std::fs::read_to_string(dir.join("Cargo.toml")) else { return false };
    let has = |key: &str, value: &str| {
        let line = format!("{key} = \"{value}\"");
        manifest.lines().any(|candidate| candidate.trim() == line)
    };
    has("name", "quiche") && has("version", VERSION) && dir.join("src/lib.rs").is_file()
}

/// Cargo's home directories: the configured one, the default, and the one that contains our own
/// checkout.
fn cargo_homes(manifest_dir: &Path) -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> =
        std::env::var_os("CARGO_HOME").map(PathBuf::from).into_iter().collect();
    let user = std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE"));
    homes.extend(user.map(|user| PathBuf::from(user).join(".cargo")));
    homes.extend(
        manifest_dir
            .ancestors()
            .filter(|dir| dir.join("registry/src").is_dir())
            .map(Path::to_path_buf),
    );
    homes
}

/// Directories that `cargo vendor` may have filled: next to and above this package and its output,
/// and where a `.cargo/config.toml` there replaces a source.
fn vendor_dirs(homes: &[PathBuf], manifest_dir: &Path, out_dir: &Path) -> Vec<PathBuf> {
    let started_in = std::env::var_os("PWD").map(PathBuf::from);
    let starts = [Some(manifest_dir), Some(out_dir), started_in.as_deref()];
    let mut dirs = Vec::new();
    for dir in starts.into_iter().flatten().flat_map(Path::ancestors) {
        dirs.push(dir.to_path_buf());
        dirs.push(dir.join("vendor"));
        for config in [".cargo/config.toml", ".cargo/config"] {
            dirs.extend(replaced_sources(&dir.join(config), dir));
        }
    }
    for home in homes {
        dirs.extend(replaced_sources(&home.join("config.toml"), home.parent().unwrap_or(home)));
    }
    dirs
}

/// The `directory = "..."` entries of a cargo configuration file, relative to `base`.
fn replaced_sources(config: &Path, base: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(config).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("directory")?.trim_start().strip_prefix('='))
        .map(|value| value.split('#').next().unwrap_or_default().trim().trim_matches(['"', '\'']))
        .map(|directory| base.join(directory))
        .collect()
}
