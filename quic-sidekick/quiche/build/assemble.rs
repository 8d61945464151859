//! Turns the pristine source of quiche into the hooked one. It works on text alone, so that the
//! tests can run it too.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::insertions::{Insertion, Side, INSERTIONS, SHA256, SHA256_OF_ALL, VERSION};

/// A source file: its path below `src/` with forward slashes, and its text.
pub type File = (String, String);

/// Reads every file below `dir`, in the order of their paths.
pub fn read_tree(dir: &Path) -> Result<Vec<File>, String> {
    let mut files = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(below) = pending.pop() {
        let here = dir.join(&below);
        let entries = std::fs::read_dir(&here).map_err(|e| unreadable(&here, &e))?;
        for entry in entries {
            let entry = entry.map_err(|e| unreadable(&here, &e))?;
            let path = below.join(entry.file_name());
            if entry.path().is_dir() {
                pending.push(path);
                continue;
            }
            let text =
                std::fs::read_to_string(entry.path()).map_err(|e| unreadable(&entry.path(), &e))?;
            let name: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
            files.push((name.join("/"), text));
        }
    }
    files.sort();
    Ok(files)
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!(
        "cannot read {} ({error}); run `cargo fetch` again, or remove that directory first",
        path.display()
    )
}

/// SHA-256 of one text, in hexadecimal.
pub fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// SHA-256 over all files: for each, its path, length and text, so that no two trees share a
/// digest.
pub fn digest(files: &[File]) -> String {
    let mut hash = Sha256::new();
    for (name, text) in files {
        hash.update(format!("{name}\n{}\n", text.len()));
        hash.update(text);
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// Checks that the files are those of the release that the hook was written for.
pub fn verify(files: &[File]) -> Result<(), String> {
    for (name, expected) in SHA256 {
        let Some((_, text)) = files.iter().find(|(file, _)| file == name) else {
            return Err(format!("src/{name} is missing from it; fetch quiche {VERSION} again"));
        };
        let found = sha256(text);
        if found != *expected {
            return Err(format!(
                "src/{name} has SHA-256 {found} instead of {expected}; fetch quiche {VERSION} again"
            ));
        }
    }
    let found = digest(files);
    if found != SHA256_OF_ALL {
        return Err(format!(
            "its files have digest {found} instead of {SHA256_OF_ALL}; fetch quiche {VERSION} again"
        ));
    }
    Ok(())
}

/// The pristine files in a form that another crate's root can include. `lib.rs` loses its inner
/// attributes and inner documentation, which must be on a crate's first lines. Empty lines replace
/// them, so that line numbers agree.
pub fn includable(files: Vec<File>) -> Vec<File> {
    let strip = |line: &str| {
        if line.starts_with("#![") || line.starts_with("//!") { "" } else { line }.to_owned()
    };
    files
        .into_iter()
        .map(|(name, text)| match name.as_str() {
            "lib.rs" => (name, text.lines().map(|line| strip(line) + "\n").collect()),
            _ => (name, text),
        })
        .collect()
}

/// Inserts the table's lines, and adds the hook's files as modules.
pub fn hook(mut files: Vec<File>, ours: Vec<File>) -> Result<Vec<File>, String> {
    for insertion in INSERTIONS {
        let Some((_, text)) = files.iter_mut().find(|(name, _)| name == insertion.file) else {
            return Err(format!("src/{} is missing; fetch quiche {VERSION} again", insertion.file));
        };
        *text = insert(text, insertion)?;
    }
    if let Some((name, _)) =
        ours.iter().find(|(ours, _)| files.iter().any(|(name, _)| name == ours))
    {
        return Err(format!("quiche already has a file src/{name}; give hook/{name} another name"));
    }
    files.extend(ours);
    Ok(files)
}

/// The inserted line in the assembled file, with its reason as a comment.
pub fn inserted_line(insertion: &Insertion) -> String {
    format!("{} // Sidekick: {}", insertion.line, insertion.why)
}

/// The text with one line inserted.
pub fn insert(text: &str, insertion: &Insertion) -> Result<String, String> {
    let Insertion { file, anchor, side, .. } = insertion;
    let line = inserted_line(insertion);
    let found = text.lines().filter(|candidate| candidate.contains(anchor)).count();
    if found != 1 {
        return Err(format!(
            "the anchor `{anchor}` occurs on {found} lines of src/{file} instead of one; correct build/insertions.rs"
        ));
    }
    let mut out = String::with_capacity(text.len() + line.len() + 80);
    for candidate in text.lines() {
        let here = candidate.contains(anchor);
        let indent = &candidate[..candidate.len() - candidate.trim_start().len()];
        if here && *side == Side::Before {
            let _ = writeln!(out, "{indent}{line}");
        }
        let _ = writeln!(out, "{candidate}");
        if here && *side == Side::After {
            let _ = writeln!(out, "{indent}{line}");
        }
    }
    Ok(out)
}
