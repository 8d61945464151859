//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::case::{Case, SENDERS, Sender};
use crate::peer::{OURS, Peer};

/// Upload to and download from HTTP/3 servers that other people wrote, over an emulated path, with
/// and without a Sidekick proxy.
///
/// Peers that this workspace does not build are installed from their registries at pinned versions
/// into the output directory. Each peer runs in a network namespace of its own. Like sidekick-lab,
/// the program needs the right to make network namespaces. It leaves nothing behind but its files.
#[derive(Debug, Parser)]
#[command(name = "sidekick-interop", version)]
pub(crate) struct Cli {
    /// Only these peers; `ours` is for downloads from our own server, which is helped
    /// [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) peer: Vec<String>,
    /// Only these cases; `download` for only the downloads [default: all]
    #[arg(long, value_name = "CASE", value_delimiter = ',')]
    pub(crate) case: Vec<Case>,
    /// Only these senders [default: all]
    #[arg(long, value_name = "SENDER", value_delimiter = ',', value_parser = parse_sender)]
    pub(crate) sender: Vec<Sender>,
    /// Loss on the near segment, in percent; downloads from our own server use the greatest of
    /// these [default: 0 and 2; for the case download also 10]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', allow_negative_numbers = true, value_parser = parse_percent)]
    pub(crate) near_loss: Vec<f64>,
    /// The seed of the losses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The number of simultaneous tries
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) jobs: u8,
    /// List the peers, cases and senders, and exit
    #[arg(long)]
    pub(crate) list: bool,
    /// The directory for the installed peers and the results
    #[arg(long, value_name = "DIR", default_value = "target/interop")]
    pub(crate) out: PathBuf,
    /// Write the tables to FILE (Markdown) instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Print every try as JSON instead of the tables
    #[arg(long, conflicts_with = "write")]
    pub(crate) json: bool,
    /// The directory with a folder for each peer
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/peers"), hide_default_value = true)]
    pub(crate) peers_from: PathBuf,
}

impl Cli {
    /// Whether the command line selects downloads from our own server.
    pub(crate) fn selects_ours(&self) -> bool {
        self.peer.iter().any(|peer| peer == OURS) || self.peer.is_empty() && self.case.is_empty()
    }

    /// The command line, without the options that do not affect the results.
    pub(crate) fn command(&self) -> String {
        let mut kept = String::new();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let option = word.split('=').next().unwrap_or_default();
            if matches!(option, "--write" | "--out" | "--peers-from") {
                if option == word {
                    words.next();
                }
            } else {
                kept += &format!(" {word}");
            }
        }
        if kept.is_empty() {
            "make interop".to_owned()
        } else {
            format!("target/debug/sidekick-interop{kept}")
        }
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| "between 0 and 100".to_owned())
}

fn parse_sender(name: &str) -> Result<Sender, String> {
    SENDERS
        .into_iter()
        .find(|sender| sender.name == name)
        .ok_or_else(|| format!("choose one of {}", SENDERS.map(|sender| sender.name).join(", ")))
}

/// The output of `--list`.
pub(crate) fn listing(peers: &[Peer]) -> String {
    let mut text = String::from("peers:\n");
    for peer in peers {
        text += &format!("  {:<20} {}\n", peer.folder, peer.title());
    }
    text += &format!(
        "  {OURS:<20} our own server on the hooked quiche, with help; for downloads only\n"
    );
    text += "cases:\n";
    for case in Case::ALL {
        text += &format!("  {:<20} {}\n", case.name(), case.about());
    }
    text += "senders:\n";
    for sender in SENDERS {
        text += &format!("  {:<20} {}\n", sender.name, sender.about);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_and_senders_are_named() {
        let cli = Cli::try_parse_from(["p", "--case", "upload,cid-0", "--sender", "auto"]).unwrap();
        assert_eq!(cli.case, [Case::Upload, Case::Cid0]);
        assert_eq!(cli.sender.first().map(|sender| sender.name), Some("auto"));
        let error = Cli::try_parse_from(["p", "--sender", "fast"]).unwrap_err().to_string();
        assert!(error.contains("path-aware-bbr"), "{error}");
    }
}
