//! The files that paths name.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The most links that the kernel follows in a path.
const MOST_LINKS: u32 = 40;

/// Whether both paths name one file, which need not exist yet. A link counts as the file that it
/// leads to.
#[must_use]
pub fn same_file(one: &Path, other: &Path) -> bool {
    let known = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    match (known(one), known(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => {
            matches!((full(one), full(other)), (Some(one), Some(other)) if one == other)
        }
        _ => false,
    }
}

/// The path from the root of a file that does not exist yet. `None` without its directory.
fn full(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?;
    Some(fs::canonicalize(directory(path)).ok()?.join(name))
}

/// The directory of a file: where a file that replaces it must be made.
#[must_use]
pub fn directory(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The descriptor of this process that `path` names, as `/dev/stdout` does. Such a path leads
/// through a link of the kernel's to the open file. To rename a file to it would replace a link.
#[must_use]
pub fn descriptor(path: &Path) -> Option<u32> {
    let own = fs::canonicalize("/proc/self/fd").ok()?;
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let directory = fs::canonicalize(directory(&path)).ok()?;
        let name = path.file_name()?;
        if directory == own {
            return name.to_str()?.parse().ok();
        }
        let target = fs::read_link(directory.join(name)).ok()?;
        path = directory.join(target);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_many_names() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        std::os::unix::fs::symlink("sub", at("way")).unwrap();
        // First without the file, then with it.
        for content in [None, Some("abc")] {
            if let Some(content) = content {
                fs::write(at("sub/x"), content).unwrap();
                fs::hard_link(at("sub/x"), at("hard")).unwrap();
                std::os::unix::fs::symlink("sub/x", at("soft")).unwrap();
                assert!(same_file(&at("sub/x"), &at("hard")));
                assert!(same_file(&at("soft"), &at("sub/x")));
            }
            for name in ["sub/x", "sub/./x", "sub/../sub/x", "way/x"] {
                assert!(same_file(&at("sub/x"), &at(name)), "{name}");
            }
            for name in ["x", "sub/y", "none/x", "sub", ".."] {
                assert!(!same_file(&at("sub/x"), &at(name)), "{name}");
            }
        }
        assert!(same_file(Path::new("no-such-file"), Path::new("./no-such-file")));
        assert!(!same_file(Path::new("none/x"), Path::new("none/x")), "it cannot be made");
    }
}
