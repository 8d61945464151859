//! The example in C.

use std::path::Path as FilePath;
use std::process::Command;

/// Builds the example into a directory, as its first lines describe. `libraries` is the directory
/// of the library.
pub(crate) fn build(libraries: &FilePath, directory: &FilePath) {
    let output = Command::new("pkg-config")
        .args(["--cflags", "--libs", "quic-sidekick"])
        .env("PKG_CONFIG_PATH", libraries)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let flags = String::from_utf8(output.stdout).unwrap();
    let source =
        FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../quic-sidekick/c/examples/upload.c");
    let status = Command::new("gcc")
        .args(["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror"])
        .arg(source)
        .args(flags.split_whitespace())
        .arg("-o")
        .arg(directory.join("upload"))
        .status()
        .unwrap();
    assert!(status.success());
}
