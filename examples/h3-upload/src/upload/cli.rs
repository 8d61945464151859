//! The command line.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Parser;
use h3_client::options::{Options, Plan};
use h3_client::target::{Target, parse_url};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use url::Url;

use crate::PROGRAM;

/// Upload a file over HTTP/3, with a Sidekick proxy's help if there is one on the path.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version)]
pub(crate) struct Cli {
    /// The file to upload
    file: PathBuf,
    /// The destination: https://HOST:PORT/NAME, or https://HOST:PORT/ to keep the file's own name
    #[arg(value_parser = parse_url)]
    url: Url,
    #[command(flatten)]
    options: Options,
}

impl Cli {
    /// Checks the command line. Returns the file, and how to upload it.
    pub(crate) fn plan(self) -> anyhow::Result<(PathBuf, Plan)> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
