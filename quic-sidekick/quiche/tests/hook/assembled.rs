//! The hook only inserts: every change is in the table, and removing the table's lines restores
//! quiche's source.

use std::path::Path;

use crate::assemble;
use crate::insertions::{Insertion, Side, INSERTIONS, SHA256};

fn pristine() -> Vec<assemble::File> {
    assemble::read_tree(&Path::new(env!("QUICHE_PRISTINE")).join("src")).unwrap()
}

/// The source that the build script wrote and the compiler read.
fn assembled() -> Vec<assemble::File> {
    assemble::read_tree(&Path::new(env!("OUT_DIR")).join("quiche")).unwrap()
}

fn ours() -> Vec<assemble::File> {
    assemble::read_tree(Path::new("hook")).unwrap()
}

#[test]
fn every_insertion_has_one_anchor_and_a_reason() {
    let pristine = pristine();
    println!("{} insertions, {} files of ours", INSERTIONS.len(), ours().len());
    for insertion in INSERTIONS {
        let side = if insertion.side == Side::Before { "before" } else { "after" };
        println!("src/{}, {side} `{}`:\n    {}", insertion.file, insertion.anchor, insertion.line);
        println!("    # {}\n", insertion.why);
        let (_, text) = pristine.iter().find(|(name, _)| name == insertion.file).unwrap();
        assert_eq!(text.lines().filter(|line| line.contains(insertion.anchor)).count(), 1);
        assert!(insertion.why.split_whitespace().count() >= 3, "a reason: {:?}", insertion.why);
        assert!(!insertion.line.contains('\n') && !insertion.why.contains('\n'), "single lines");
        assert!(
            SHA256.iter().any(|(name, _)| *name == insertion.file),
            "{} is verified",
            insertion.file
        );
    }
}

#[test]
fn without_the_insertions_it_is_the_pristine_source() {
    let assembled = assembled();
    let mut rest: Vec<_> = assembled.into_iter().filter(|file| !ours().contains(file)).collect();
    for insertion in INSERTIONS {
        let (_, text) = rest.iter_mut().find(|(name, _)| name == insertion.file).unwrap();
        let inserted = assemble::inserted_line(insertion);
        let lines: Vec<_> = text.lines().collect();
        let at = lines.iter().position(|line| line.trim_start() == inserted).unwrap();
        *text =
            lines[..at].iter().chain(&lines[at + 1..]).map(|line| format!("{line}\n")).collect();
    }
    let expected = assemble::includable(pristine());
    let names =
        |files: &[assemble::File]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&rest), names(&expected));
    for ((name, found), (_, expected)) in rest.iter().zip(&expected) {
        assert!(found == expected, "src/{name} differs by more than the table says");
    }
}

#[test]
fn only_inner_attributes_and_crate_documentation_are_blanked() {
    let (pristine, includable) = (pristine(), assemble::includable(pristine()));
    for ((name, before), (_, after)) in pristine.iter().zip(&includable) {
        for (before, after) in
            before.lines().zip(after.lines()).filter(|(before, after)| before != after)
        {
            assert_eq!((name.as_str(), after), ("lib.rs", ""));
            assert!(before.starts_with("//!") || before.starts_with("#!["), "{before}");
        }
        assert_eq!(before.lines().count(), after.lines().count());
    }
}

#[test]
fn an_anchor_must_occur_once() {
    let insertion = Insertion { anchor: "here", ..INSERTIONS[0] };
    for text in ["nowhere at all\nhere\n", "", "there is none\n\n"] {
        let lines = text.lines().filter(|line| line.contains("here")).count();
        assert_eq!(assemble::insert(text, &insertion).is_ok(), lines == 1, "{text:?}");
    }
}

#[test]
fn another_source_is_refused() {
    let mut files = pristine();
    assemble::verify(&files).unwrap();
    let (_, text) = files.iter_mut().find(|(name, _)| name == "frame.rs").unwrap();
    text.push(' ');
    let refusal = assemble::verify(&files).unwrap_err();
    assert!(refusal.contains("digest"), "{refusal}");

    let mut files = pristine();
    let (_, text) = files.iter_mut().find(|(name, _)| name == "lib.rs").unwrap();
    text.push(' ');
    let refusal = assemble::verify(&files).unwrap_err();
    assert!(refusal.contains("src/lib.rs has SHA-256"), "{refusal}");

    files.retain(|(name, _)| name != "recovery/mod.rs");
    assert!(assemble::verify(&files).is_err());
}
