//! The enclosure of a test, which finds out the test's name by itself.

use super::enclosed::enclosed;

/// Runs `work`, which is a closure of a test, in its own enclosure.
pub(crate) fn in_enclosure<Work: FnOnce()>(work: Work) {
    // The type of a closure has the path of the function around it. If it had another, no test
    // would run in the enclosure, and `enclosed` would fail.
    let path = std::any::type_name::<Work>();
    let test = path
        .split_once("::")
        .and_then(|(_, in_program)| in_program.strip_suffix("::{{closure}}"))
        .unwrap_or_else(|| panic!("{path} is no closure of a test"));
    enclosed(test, work);
}
