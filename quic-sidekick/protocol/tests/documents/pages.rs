//! The documents: every relative link leads to a file, and to a heading if it names one; the book
//! has every page; lines end at 100 columns, as do comments in Rust, which rustfmt leaves alone.
use sidekick_protocol::{Assistance, Reason};
use std::fs;
use std::path::{Path, PathBuf};

/// The Markdown files below a folder.
fn documents_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !["target", "book"].contains(&name.as_str()) {
            documents_below(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    documents_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), &mut found);
    assert!(found.len() >= 10, "{found:?}");
    found
}

/// The lines of a document outside of code blocks.
fn prose(document: &Path) -> Vec<String> {
    let text = fs::read_to_string(document).unwrap();
    let (mut fenced, mut indented, mut before) = (false, false, "");
    let outside = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        // Behind other text, an indented line continues a paragraph of a list.
        let may_begin = indented || before.is_empty() || before.starts_with('#');
        indented = line.starts_with("    ") && may_begin || line.is_empty() && indented;
        before = line;
        !fenced && !fence && !indented
    });
    outside.map(str::to_owned).collect()
}

/// Where the links of a line lead: `[text](here)`, `[name]: here`.
fn destinations(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let defined = line.split_once("]: ").filter(|_| line.starts_with('[')).map(|(_, to)| to.trim());
    inline.chain(defined).collect()
}

/// The anchors of a document's headings, as GitHub and mdBook make them.
fn anchors(document: &Path) -> Vec<String> {
    let text = fs::read_to_string(document).unwrap();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let kept = |&char: &char| char.is_alphanumeric() || " -_".contains(char);
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            heading.chars().filter(kept).collect::<String>().replace(' ', "-")
        })
        .collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut dead = Vec::new();
    for document in documents() {
        for line in prose(&document) {
            let line: String = line.split('`').step_by(2).collect();
            for to in destinations(&line).into_iter().filter(|to| !to.contains("://")) {
                let (file, anchor) = to.split_once('#').unwrap_or((to, ""));
                let target = match file {
                    "" => document.clone(),
                    file => document.with_file_name(file),
                };
                if !target.exists()
                    || !anchor.is_empty() && !anchors(&target).iter().any(|one| one == anchor)
                {
                    dead.push(format!("{}: {to}", document.display()));
                }
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn the_book_has_every_page() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut pages = Vec::new();
    documents_below(&docs, &mut pages);
    for page in pages {
        let page = page.strip_prefix(&docs).unwrap().to_str().unwrap();
        let link = format!("]({page})");
        assert!(page == "SUMMARY.md" || summary.contains(&link), "SUMMARY.md lacks {page}");
    }
}

#[test]
fn lines_end_at_100_columns() {
    for document in documents() {
        // A program writes its lines, one a peer or a reason.
        if document.ends_with("interop-results.md") {
            continue;
        }
        for line in prose(&document).iter().filter(|line| !line.starts_with('|')) {
            let short = line.chars().count() <= 100 || line.contains("://");
            assert!(short, "{}: {line}", document.display());
        }
    }
}

/// The names of all files below a folder, with their paths from it.
fn files_below(folder: &Path, at: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !path.is_dir() {
            found.push(format!("{at}/{name}"));
        } else if !name.starts_with('.') && name != "target" {
            files_below(&path, &format!("{at}/{name}"), found);
        }
    }
}

#[test]
fn comments_end_at_100_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    files_below(&root, "", &mut files);
    let mut long = Vec::new();
    for file in files.iter().filter(|file| !file.ends_with(".md")) {
        // A file that is no text has no comments.
        let Ok(text) = fs::read_to_string(root.join(&file[1..])) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            let code = line.trim_start();
            let table = code.starts_with("//! |") || code.starts_with("/// |");
            let marks = ["//", "# ", "-- ", "/* ", "* "];
            let comment = marks.iter().any(|mark| code.starts_with(mark));
            if comment && !table && !line.contains("://") && line.chars().count() > 100 {
                long.push(format!("{file}:{number}"));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// Where the pictures of a page are.
fn destinations_of_pictures(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|to| to.ends_with(".svg"))
}

#[test]
fn the_architecture_names_files_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    let mut files = Vec::new();
    files_below(&root, "", &mut files);
    // Its pictures name files, too.
    let pictures = destinations_of_pictures(&text)
        .map(|picture| fs::read_to_string(root.join("docs").join(picture)).unwrap())
        .collect::<Vec<_>>();
    assert_eq!(pictures.len(), 4);
    let drawn = pictures.iter().flat_map(|picture| picture.split([' ', ',', '>', '<']));
    let written = text.split('`').skip(1).step_by(2);
    for file in written.chain(drawn).filter(|code| code.ends_with(".rs")) {
        let end = format!("/{file}");
        assert!(files.iter().any(|path| path.ends_with(&end)), "there is no {file}");
    }
}

/// The compiler checks the documentation of `Store`, and this test the copy in the book.
#[test]
fn the_example_for_any_udp_sender_is_the_one_that_compiles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = fs::read_to_string(root.join("src/store.rs")).unwrap();
    let page = fs::read_to_string(root.join("../../docs/integrate.md")).unwrap();
    let (_, section) = page.split_once("## Any other UDP sender").unwrap();
    let (_, example) = section.split_once("```rust\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let documented: Vec<_> = example.lines().map(|line| format!("/// {line}")).collect();
    let documented = documented.join("\n").replace("/// \n", "///\n");
    assert!(compiled.contains(&documented), "store.rs lacks:\n{documented}");
}

/// The compiler checks the documentation of the module, and this test the copy in the book.
#[test]
fn the_example_for_a_tokio_quiche_client_is_the_one_that_compiles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = fs::read_to_string(root.join("../src/tokio_quiche.rs")).unwrap();
    let page = fs::read_to_string(root.join("../../docs/integrate.md")).unwrap();
    let (_, section) = page.split_once("*A client* sets").unwrap();
    let (_, example) = section.split_once("```rust\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let documented: String = example.lines().map(|line| format!("//! {line}\n")).collect();
    let documented = documented.replace("//! \n", "//!\n");
    assert!(compiled.contains(&documented), "tokio_quiche.rs lacks:\n{documented}");
}

#[test]
fn the_citation_names_this_version() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("CITATION.cff")).unwrap();
    assert!(text.contains(concat!("\nversion: ", env!("CARGO_PKG_VERSION"), "\n")), "{text}");
}

/// An application shows these sentences to a user, who then looks for them.
#[test]
fn every_status_has_its_advice() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/plugin.md")).unwrap();
    let reasons = [
        Reason::NoAnswer,
        Reason::NotFound,
        Reason::NotOnPath,
        Reason::ProxyLost,
        Reason::NoSocket,
        Reason::ProxyFull,
        Reason::TermsRefused,
        Reason::FlowTaken,
        Reason::Unintelligible,
        Reason::StoodDown,
    ];
    for status in reasons.map(|reason| reason.to_string()) {
        assert!(page.contains(&format!("\n| {status} | ")), "plugin.md lacks: {status}");
    }
    let seeking = Assistance::Seeking.to_string();
    assert!(page.contains(&format!("\n| {seeking} | ")), "plugin.md lacks: {seeking}");
}
