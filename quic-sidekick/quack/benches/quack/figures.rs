//! What comes out, for machines: `target/bench.json`.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// What was measured so far.
#[derive(Default)]
pub(crate) struct Figures(Vec<Value>);

impl Figures {
    /// Adds a figure, beside that of the textbook code; the ratio says how many times better ours is.
    pub(crate) fn add(&mut self, name: &str, unit: &str, (value, baseline): (f64, f64), ratio: f64) {
        println!("{name}: {value:.2} {unit}, the textbook {baseline:.2} {unit}, {ratio:.2} times");
        self.0.push(json!({
            "name": name, "value": rounded(value), "unit": unit,
            "baseline": rounded(baseline), "ratio": rounded(ratio),
        }));
    }

    /// Puts the figures into `target/bench.json`, in the place of those with the same names.
    pub(crate) fn write(&self) -> io::Result<()> {
        let path = target().join("bench.json");
        let mut all: Vec<Value> = match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        all.retain(|old| !self.0.iter().any(|new| new["name"] == old["name"]));
        all.extend(self.0.iter().cloned());
        fs::create_dir_all(target())?;
        fs::write(&path, serde_json::to_string_pretty(&all)? + "\n")
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The workspace's target directory, wherever the benchmark is started.
fn target() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from)
}
