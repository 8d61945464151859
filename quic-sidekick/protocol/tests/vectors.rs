//! `vectors.json` held against a second implementation, in another language.
//!
//! That the file says what the code does is for the crate's own tests to see; this one shows that
//! the code does what the specification says, down to the handshake and the seals.

use std::path::Path;
use std::process::Command;

#[test]
fn an_independent_implementation_makes_the_same_vectors() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("python3")
        // Isolated: whatever the user's Python has been told is none of the test's business.
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
    // It says itself what it has compared; an empty file would agree with everything.
    assert!(printed.ends_with(" values compared, 0 differ\n"), "{printed}{complaints}");
}
