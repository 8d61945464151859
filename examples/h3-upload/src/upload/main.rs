//! `h3-upload`: uploads a file to an HTTP/3 server, with or without a Sidekick proxy's help.
//!
//! | file | what it does |
//! |---|---|
//! | `../client/` | what it shares with `h3-download`: options, connection, help, report |
//! | `body.rs` | reads and hashes the file on a thread of its own |
//! | `request.rs` | one request: headers, body, the server's answer |

mod body;
mod request;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use h3_client::options::{Options, Plan};
use h3_client::program;
use h3_client::report::Transfer;
use h3_client::target::{Target, parse_url};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use url::Url;

const PROGRAM: &str = "h3-upload";

/// The examples at the end of the help.
const ABOUT: &str = "\
Upload a file over HTTP/3.

Without --sidekick the upload is plain QUIC. With --sidekick auto, a Sidekick proxy helps if there
is one on the path:
    h3-upload --sidekick auto video.mp4 https://upload.example/
    h3-upload --sidekick auto --proxy 192.0.2.1 --proxy-key HEX video.mp4 https://upload.example/
To try it with h3-upload-server and its own certificate, add --cafile ca.pem.";

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = PROGRAM,
    version,
    about = ABOUT,
    override_usage = "h3-upload [OPTIONS] <FILE> <URL>",
    max_term_width = 100
)]
struct Cli {
    /// The file to upload
    file: PathBuf,
    /// The destination: https://HOST[:PORT]/NAME. Without NAME, the file keeps its own name
    #[arg(value_parser = parse_url)]
    url: Url,
    #[command(flatten)]
    options: Options,
}

impl Cli {
    /// Checks the command line. Returns the file, and how to upload it.
    fn plan(self) -> anyhow::Result<(PathBuf, Plan)> {
        let plan = self.options.plan(PROGRAM, target(&self.url, &self.file)?)?;
        Ok((self.file, plan))
    }
}

/// The characters to encode in a path segment: all but the unreserved ones of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn target(url: &Url, file: &Path) -> anyhow::Result<Target> {
    let mut path = url.path().to_owned();
    if path.ends_with('/') {
        let name = file.file_name().with_context(|| {
            format!("{} has no file name: add a name for it to the URL, {url}NAME", file.display())
        })?;
        path.push_str(&encode(name));
    }
    Target::new(url, path)
}

fn encode(name: &OsStr) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    percent_encode(name.as_bytes(), SEGMENT).to_string()
}

fn main() -> ExitCode {
    program::exit(PROGRAM, run(Cli::parse()))
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    program::log();
    let (file, plan) = cli.plan()?;
    program::run(PROGRAM, async |stop| {
        let outcome = request::upload(&file, &plan, stop).await?;
        let request::Outcome { sent, receipt, measured } = &outcome;
        let server_sha256 = Some(receipt.sha256.as_str());
        Transfer::new(&plan, measured, file.display().to_string(), sent, server_sha256)
            .show_upload(&plan)?;
        outcome.check()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_begins_with_the_default() {
        use clap::CommandFactory as _;
        let help = Cli::command().render_help().to_string();
        // A line of the help may end within a sentence.
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let place = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text} in {help}"));
        assert!(place("plain QUIC") < place("--sidekick auto"));
        assert!(place("--sidekick auto") < place("Usage:"));
        assert!(place("Usage:") < place("[default: off]"));
    }

    #[test]
    fn the_name_is_the_urls_or_the_files() {
        let of = |url: &str, file: &str| {
            target(&Url::parse(url).unwrap(), Path::new(file)).map(|t| t.path)
        };
        assert_eq!(of("https://h/", "dir/a file.bin").unwrap(), "/a%20file.bin");
        assert_eq!(of("https://h", "50%?#.bin").unwrap(), "/50%25%3F%23.bin");
        assert_eq!(of("https://h/other", "x").unwrap(), "/other");
        assert_eq!(of("https://h/other name", "x").unwrap(), "/other%20name");
        assert!(of("https://h/", "..").is_err());
        assert_eq!(of("https://h/parent", "..").unwrap(), "/parent");
    }
}
