//! Compares `vectors.json` with a second implementation, in another language.
//!
//! A test of the crate compares the file with the code. This one shows that the code follows the
//! specification, down to the handshake and the seals.

use std::path::Path;
use std::process::Command;

#[test]
fn an_independent_implementation_makes_the_same_vectors() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("python3")
        // Isolated from the user's Python settings.
        .arg("-I")
        .arg(directory.join("tests/vectors.py"))
        .arg(directory.join("../../docs/protocol/vectors.json"))
        .output()
        .unwrap_or_else(|error| {
            panic!("this test runs python3, which `.ci/deps test` installs: {error}")
        });
    let printed = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{complaints}");
    // The program reports the number of comparisons, because an empty file would always agree.
    assert!(printed.ends_with(" values compared, 0 differ\n"), "{printed}{complaints}");
}
