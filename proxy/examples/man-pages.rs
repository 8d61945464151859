//! Writes the man pages of both programs and their commands into a directory:
//!
//! ```text
//! cargo run -p sidekick-proxy --example man-pages -- DIRECTORY
//! ```
//!
//! They are made from the definitions of the command lines, when the packages are built.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use sidekick_proxy::testing::commands;

/// The section of the manual for programs in /usr/bin.
const SECTION: &str = "1";
/// The indent of a command in the notes.
const COMMAND: &str = "      ";

fn main() -> io::Result<()> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let Some(directory) = directory else {
        return Err(io::Error::other("name the directory of the man pages"));
    };
    std::fs::create_dir_all(&directory)?;
    for (name, page) in pages()? {
        std::fs::write(directory.join(name), page)?;
    }
    Ok(())
}

/// The file names of all pages, and their text.
pub(crate) fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut pages = Vec::new();
    for program in commands() {
        // `help` is no command of its own: each command has --help.
        let mut program = program.disable_help_subcommand(true);
        program.build();
        for command in program.get_subcommands() {
            pages.push(page(command)?);
        }
        pages.push(page(&program)?);
    }
    Ok(pages)
}

/// The file name and the text of one page.
fn page(command: &Command) -> io::Result<(String, Vec<u8>)> {
    let source = concat!("quic-sidekick ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).section(SECTION).source(source);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    section("NAME", &name(command), &mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(notes) = command.get_after_help() {
        section("NOTES", &notes.to_string(), &mut page)?;
    }
    // Each program has a package of its own name.
    if command.has_subcommands() {
        let name = command.get_name();
        let files = format!(
            "/etc/{name}.toml is the configuration. Its comments explain each key.\n\n\
             /usr/share/doc/{name} has the operator's documents, alerts and a dashboard."
        );
        section("FILES", &files, &mut page)?;
    }
    Ok((man.get_filename(), page))
}

/// The line that `whatis` prints: for a program as its Debian package says, because its description
/// is a paragraph.
fn name(command: &Command) -> String {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let what = match name {
        "sidekick-proxy" => "proxy that reports to QUIC senders which packets arrived",
        "sidekick-agent" => "agent that repairs losses of UDP flows before a Sidekick proxy",
        _ => about.split(". ").next().unwrap_or_default(),
    };
    format!("{name} - {what}")
}

/// Writes a section. roff keeps empty lines, and begins a new line for one with an indent. It fills
/// the lines of a paragraph, but not those of [`COMMAND`].
fn section(heading: &str, text: &str, page: &mut impl Write) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    let mut fills = true;
    for line in text.lines() {
        if line.starts_with(COMMAND) == fills {
            fills = !fills;
            roff.control(if fills { "fi" } else { "nf" }, []);
        }
        roff.text([roman(line)]);
    }
    roff.to_writer(page)
}
