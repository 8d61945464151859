//! The results in machine-readable form: `target/bench.json`. A benchmark that cannot keep them
//! fails by panicking.

#![allow(clippy::expect_used, reason = "a benchmark that cannot run reports why")]

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The results so far.
pub(crate) struct Figures {
    /// The previous contents of the file.
    before: Vec<Value>,
    measured: Vec<Value>,
}

impl Figures {
    /// Reads the file, so that an unreadable one is detected before measuring.
    pub(crate) fn begin() -> Self {
        let text = match fs::read_to_string(path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => "[]".to_owned(),
            text => text.expect("target/bench.json can be read"),
        };
        let before = serde_json::from_str(&text).expect("remove target/bench.json");
        Self { before, measured: Vec::new() }
    }

    /// Adds a figure with its baseline. The ratio states how many times better ours is.
    pub(crate) fn add(
        &mut self,
        name: &str,
        unit: &str,
        (value, baseline): (f64, f64),
        ratio: f64,
    ) {
        println!("{name}: {value:.2} {unit}, the baseline {baseline:.2} {unit}, {ratio:.3} times");
        self.measured.push(json!({
            "name": name, "value": rounded(value), "unit": unit,
            "baseline": rounded(baseline), "ratio": rounded(ratio),
        }));
    }

    /// Writes the figures to `target/bench.json`, replacing those with the same names.
    pub(crate) fn write(self) {
        let Self { mut before, measured } = self;
        before.retain(|old| !measured.iter().any(|new| new["name"] == old["name"]));
        before.extend(measured);
        let text = serde_json::to_string_pretty(&before).expect("figures are JSON");
        fs::write(path(), text + "\n").expect("target/bench.json can be written");
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The file in the workspace's target directory. Cargo runs benchmarks in the package's.
fn path() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace =
        package.ancestors().find(|above| above.join("Cargo.lock").exists()).unwrap_or(package);
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    workspace.join(target).join("bench.json")
}
