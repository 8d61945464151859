//! Every MUST of SPEC.md, and every finding, names the tests that check the code; they exist.
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The names of all test functions below a folder.
fn tests_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !["target", "corpus"].contains(&name.as_str()) {
            tests_below(&path, found);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            // A test is a function behind `#[test]` or tokio's, with at most other attributes
            // between.
            for part in text.replace("#[tokio::test", "#[test]").split("#[test]").skip(1) {
                let name = part.split_once("fn ").and_then(|(_, rest)| rest.split_once('('));
                found.extend(name.map(|(name, _)| name.to_owned()));
            }
        }
    }
}

/// The statements of the specification: from one MUST to where its tests are named.
fn statements(spec: &str) -> Vec<&str> {
    let body = spec.split_once("## 1.").unwrap().1;
    let mut rest = body;
    let mut found = Vec::new();
    while let Some(at) = rest.find("MUST") {
        rest = &rest[at..];
        // Several in one sentence have their tests in common.
        let end = rest.find("].").or_else(|| rest.find(".]")).map_or(rest.len(), |end| end + 2);
        found.push(&rest[..end]);
        rest = &rest[end..];
    }
    found
}

/// The specification, and the names of all tests of the workspace.
fn spec_and_tests() -> (String, BTreeSet<String>) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut known = BTreeSet::new();
    for folder in ["quic-sidekick", "proxy", "examples", "interop", "netem"] {
        tests_below(&here.join("../..").join(folder), &mut known);
    }
    (fs::read_to_string(here.join("../../docs/protocol/SPEC.md")).unwrap(), known)
}

#[test]
fn every_attack_names_its_tests() {
    let (spec, known) = spec_and_tests();
    let (_, table) = spec.split_once("### 9.1").unwrap();
    let rows: Vec<_> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() >= 10, "{} attacks", rows.len());
    for row in rows {
        let mut tests = row.split('`').skip(1).step_by(2).peekable();
        assert!(tests.peek().is_some(), "no test is named for: {row}");
        for test in tests {
            assert!(known.contains(test), "there is no test {test}, which is named for: {row}");
        }
    }
}

#[test]
fn every_finding_names_its_tests() {
    let (_, known) = spec_and_tests();
    let findings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/findings.md");
    let text = fs::read_to_string(findings).unwrap();
    // A finding, its kind, and its tests.
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let columns =
        rows.filter_map(|row| row.rsplit_once(" | ").filter(|(rest, _)| rest.contains(" | ")));
    let named: Vec<_> = columns.map(|(_, tests)| tests).filter(|tests| *tests != "tests").collect();
    assert!(named.len() >= 10, "{} findings", named.len());
    for tests in named {
        assert!(tests.contains('`'), "no test is named in: {tests}");
        for test in tests.split('`').skip(1).step_by(2) {
            assert!(known.contains(test), "there is no test {test}, which a finding names");
        }
    }
}

/// Each note of docs/findings.md has what a report needs, and its commands run tests that exist.
#[test]
fn every_finding_has_its_fields_and_its_commands_name_tests() {
    let (_, known) = spec_and_tests();
    let findings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/findings.md");
    let text = fs::read_to_string(findings).unwrap();
    let notes: Vec<_> = text.split("\n### ").skip(1).collect();
    assert!(notes.len() >= 20, "{} notes", notes.len());
    let mut commands = 0;
    for note in notes {
        let title = note.lines().next().unwrap_or_default();
        for field in ["Happens", "Expected", "Effect", "Reproduce", "Here"] {
            assert!(note.contains(&format!("- *{field}:* ")), "{title}: {field} is missing");
        }
        for command in note.split('`').skip(1).step_by(2) {
            let words: Vec<_> = command.split_whitespace().collect();
            let name = match words[..] {
                ["cargo", "test", .., "--test", _, name] | ["cargo", "test", .., "--lib", name] => {
                    name
                }
                [script, name] if script.ends_with("run-upstream-tests.sh") => name,
                _ => continue,
            };
            assert!(known.iter().any(|test| test.contains(name)), "{title}: no test {name}");
            commands += 1;
        }
    }
    assert!(commands >= 15, "{commands} commands");
}

#[test]
fn every_must_names_its_tests() {
    let (spec, known) = spec_and_tests();
    let statements = statements(&spec);
    assert!(statements.len() >= 12, "{} statements", statements.len());
    for statement in statements {
        let named = statement
            .split_once("[Test")
            .map(|(must, tests)| (must, tests.split('`').skip(1).step_by(2)));
        let Some((must, tests)) = named else { panic!("no test is named for: {statement}") };
        let sentence = must.find(". ").or_else(|| must.find(".\n")).unwrap_or(must.len());
        assert!(
            !must[sentence..].contains("MUST"),
            "another MUST stands before the tests of: {must}"
        );
        let tests: Vec<&str> = tests.collect();
        assert!(!tests.is_empty(), "no test is named for: {must}");
        for test in tests {
            assert!(known.contains(test), "there is no test {test}, which is named for: {must}");
        }
    }
}
