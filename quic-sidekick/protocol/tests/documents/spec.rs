//! Every MUST of SPEC.md has a row in tests.md; rows, attacks and findings name tests that exist.
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

/// A page of the protocol.
fn page(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol");
    fs::read_to_string(docs.join(name)).unwrap()
}

/// The names of all tests of the workspace.
fn known_tests() -> BTreeSet<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut known = BTreeSet::new();
    for folder in ["quic-sidekick", "proxy", "examples", "interop", "netem"] {
        tests_below(&here.join("../..").join(folder), &mut known);
    }
    known
}

/// The sections of a page, without its head: the number and the text of each.
fn sections(page: &str) -> Vec<(&str, String)> {
    let parts = page.split("\n#").skip(1).filter_map(|part| {
        let heading = part.trim_start_matches('#').trim_start();
        let (number, text) = heading.split_once(' ')?;
        let words: Vec<_> = text.split_whitespace().collect();
        Some((number.trim_end_matches('.'), words.join(" ")))
    });
    parts.collect()
}

/// The numbers of the rules in a section: those in brackets that begin with the section's.
fn rules(section: &str, text: &str) -> Vec<String> {
    let bracketed = text.split('[').filter_map(|part| Some(part.split_once(']')?.0));
    let of_section = |rule: &&str| {
        let last = rule.strip_prefix(section).and_then(|rest| rest.strip_prefix('-'));
        last.is_some_and(|last| last.parse::<u32>().is_ok())
    };
    bracketed.filter(of_section).map(str::to_owned).collect()
}

/// The tests that a row of a table names.
fn named(row: &str) -> Vec<&str> {
    row.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_must_has_a_number() {
    let page = page("SPEC.md");
    let mut musts = 0;
    for (section, text) in sections(&page) {
        for (at, _) in text.match_indices("MUST") {
            let rest = &text[at + "MUST".len()..];
            let number = rest.find(&format!("[{section}-")).unwrap_or(rest.len());
            for end in ["MUST", ". "] {
                let before = rest.find(end).is_none_or(|end| number < end);
                let rule: String = rest.chars().take(200).collect();
                assert!(before, "section {section}: no number ends this rule: MUST{rule}");
            }
            musts += 1;
        }
    }
    assert!(musts >= 60, "{musts} times MUST");
}

#[test]
fn every_must_has_its_row_and_every_row_its_tests() {
    let known = known_tests();
    let mut expected = Vec::new();
    for page in [page("SPEC.md"), page("algorithms.md")] {
        for (section, text) in sections(&page) {
            let rules = rules(section, &text);
            let ordered: Vec<_> = (1..=rules.len()).map(|at| format!("{section}-{at}")).collect();
            assert_eq!(rules, ordered, "section {section} numbers its rules in another order");
            expected.extend(rules);
        }
    }
    let matrix = page("tests.md");
    let (_, matrix) = matrix.split_once("\n## Rules\n").unwrap();
    let (matrix, _) = matrix.split_once("\n## Attacks\n").unwrap();
    let rows = matrix.lines().filter(|line| line.contains('`'));
    let mut found = Vec::new();
    for row in rows {
        let columns: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [rule, short, tests] = columns[..] else { panic!("other columns than three: {row}") };
        assert!(!short.is_empty() && !named(tests).is_empty(), "{row}");
        for test in named(tests) {
            assert!(known.contains(test), "there is no test {test}, which is named for {rule}");
        }
        found.push(rule);
    }
    assert_eq!(found, expected, "the rows are not those of the rules, or in another order");
}

#[test]
fn every_attack_names_its_tests() {
    let (page, known) = (page("tests.md"), known_tests());
    let (_, table) = page.split_once("\n## Attacks\n").unwrap();
    let rows: Vec<_> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() >= 10, "{} attacks", rows.len());
    for row in rows {
        assert!(!named(row).is_empty(), "no test is named for: {row}");
        for test in named(row) {
            assert!(known.contains(test), "there is no test {test}, which is named for: {row}");
        }
    }
}

/// Each note of docs/findings.md has what a report needs, and its commands run tests that exist.
#[test]
fn every_finding_has_its_fields_and_its_commands_name_tests() {
    let known = known_tests();
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
