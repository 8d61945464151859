//! `h3-download`: downloads a file from an HTTP/3 server, with or without a Sidekick proxy's help.
//!
//! With `--sidekick receive`, a proxy that keeps copies repeats the packets that the near segment
//! lost. The server needs no change.
//!
//! | file | what it does |
//! |---|---|
//! | `../client/` | what it shares with `h3-upload`: options, connection, help, report |
//! | `name.rs` | the file's name, from the URL |
//! | `output.rs` | the file, which has its name only once it is complete, and how long it may be |
//! | `body.rs` | hashes and writes the file on a thread of its own |
//! | `digest.rs` | the server's hashes of the file |
//! | `request.rs` | one request: headers, the server's answer, the checks |

mod body;
mod digest;
mod name;
mod output;
mod request;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::Parser;
use h3_client::options::{Options, Plan};
use h3_client::paths::same_file;
use h3_client::program;
use h3_client::report::Transfer;
use h3_client::target::{Target, parse_url};
use url::Url;

use name::file_name;
use output::{Output, Place};

const PROGRAM: &str = "h3-download";

/// Download a file over HTTP/3.
///
/// Without --sidekick the download is plain QUIC. With --sidekick receive or auto, a Sidekick proxy
/// helps if there is one on the path that keeps copies.
///
/// The file appears under its name only when it is complete, and matches the length and the SHA-256
/// that the server announces (Content-Length; Repr-Digest, Content-Digest or Digest).
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version)]
struct Cli {
    /// The file's address: https://HOST[:PORT]/NAME
    #[arg(value_parser = parse_url)]
    url: Url,
    /// Where to write the file; - is standard output. To a device or a pipe the program writes data
    /// as they arrive, before it can check them [default: the last part of the URL's path]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, short)]
    force: bool,
    /// Refuse a longer file. In any case the program refuses a file for which the disk has no room
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,
    #[command(flatten)]
    options: Options,
}

impl Cli {
    /// Checks the command line. Returns where to write the file, and how to download it.
    fn plan(self) -> anyhow::Result<(Output, Plan)> {
        let place = match self.output {
            Some(path) => Place::named(path),
            None => Place::File(file_name(&self.url)?),
        };
        // A query belongs to the request, a fragment does not.
        let query = self.url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let target = Target::new(&self.url, self.url.path().to_owned() + &query)?;
        let plan = self.options.plan(PROGRAM, target)?;
        ensure!(
            !(plan.json && place == Place::Stdout),
            "-o - and --json both write to standard output: leave one of them out"
        );
        if let (Place::File(path), Some(qlog)) = (&place, &plan.qlog) {
            ensure!(
                !same_file(path, qlog),
                "--qlog and the download name the same file: rename one of them"
            );
        }
        Ok((Output { place, replace: self.force, max_bytes: self.max_bytes }, plan))
    }
}

fn main() -> ExitCode {
    program::exit(PROGRAM, run(Cli::parse()))
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    program::log();
    let (output, plan) = cli.plan()?;
    program::run(PROGRAM, async |stop| {
        let outcome = request::download(&output, &plan, stop).await?;
        let request::Outcome { content, announced_digest, measured } = &outcome;
        // A download with another hash than the announced one fails.
        let server_sha256 = announced_digest.then_some(content.sha256.as_str());
        Transfer::new(&plan, measured, output.name(), content, server_sha256).show_download(&plan)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(args: &[&str]) -> anyhow::Result<(Output, Plan)> {
        Cli::try_parse_from([PROGRAM].iter().chain(args))?.plan()
    }

    #[test]
    fn the_name_is_the_options_or_the_urls() {
        let place = |args: &[&str]| plan(args).unwrap().0.place;
        let url = "https://example.org/some/file.bin?version=2#part";
        assert_eq!(place(&[url]), Place::File("file.bin".into()));
        assert_eq!(place(&[url, "-o", "dir/x"]), Place::File("dir/x".into()));
        assert_eq!(place(&[url, "--output", "-"]), Place::Stdout);
        // Below a directory it is a file like any other.
        assert_eq!(place(&[url, "-o", "./-"]), Place::File("./-".into()));
        for stdout in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
            assert_eq!(place(&[url, "-o", stdout]), Place::Stdout);
        }
        assert_eq!(place(&[url, "-o", "/dev/fd/2"]), Place::File("/dev/fd/2".into()));
        let said = plan(&["https://example.org/"]).unwrap_err().to_string();
        assert!(said.contains("-o FILE"), "{said}");
        assert_eq!(place(&["https://example.org/", "-o", "x"]), Place::File("x".into()));
    }

    #[test]
    fn the_request_has_path_and_query() {
        let path = |url: &str| plan(&[url, "-o", "x"]).unwrap().1.target.path;
        assert_eq!(path("https://h/a%20b/c?d=e&f#g"), "/a%20b/c?d=e&f");
        assert_eq!(path("https://h"), "/");
    }

    #[test]
    fn contradictions_are_named() {
        let complaint = |args: &[&str]| plan(args).unwrap_err().to_string();
        let said = complaint(&["https://h/x", "-o", "-", "--json"]);
        assert!(said.contains("standard output"), "{said}");
        let said = complaint(&["https://h/x", "-o", "/dev/stdout", "--json"]);
        assert!(said.contains("standard output"), "{said}");
        for other_name in ["x", "./x", "src/../x"] {
            let said = complaint(&["https://h/x", "--qlog", other_name]);
            assert!(said.contains("the same file"), "{said}");
        }
        let said = complaint(&["http://h/x"]);
        assert!(said.contains("https"), "{said}");
    }
}
