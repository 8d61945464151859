//! Runs the real binaries.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::Receiver;

use tempfile::TempDir;

use crate::child::{Ends, PATIENCE, lines, memory, wait_for_port};

/// A running `h3-upload-server` with a directory of its own.
pub(crate) struct Server {
    pub(crate) child: Ends,
    log: Receiver<String>,
    scratch: TempDir,
    stored: PathBuf,
    pub(crate) port: u16,
}

impl Server {
    /// A server whose certificate is for 127.0.0.1 and `localhost`.
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::for_names(&["127.0.0.1", "localhost"], options)
    }

    /// A server whose certificate is for `names` only.
    pub(crate) fn for_names(names: &[&str], options: &[&str]) -> Self {
        let names = names.iter().flat_map(|name| ["--self-signed", name]);
        Self::spawn(None, names.chain(options.iter().copied()))
    }

    /// A server with a certificate from files.
    pub(crate) fn with_files(cert: &Path, key: &Path) -> Self {
        Self::spawn(None, ["--cert", cert.to_str().unwrap(), "--key", key.to_str().unwrap()])
    }

    /// A server that stores where `other` does.
    pub(crate) fn beside(other: &Self) -> Self {
        Self::spawn(Some(other.dir()), ["--self-signed", "127.0.0.1"])
    }

    fn spawn<'a>(stored: Option<PathBuf>, options: impl IntoIterator<Item = &'a str>) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let stored = stored.unwrap_or_else(|| {
            let stored = scratch.path().join("stored");
            std::fs::create_dir(&stored).unwrap();
            stored
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_h3-upload-server"));
        command.arg("--dir").arg(&stored).args(["--listen", "127.0.0.1:0"]);
        let options: Vec<_> = options.into_iter().collect();
        if options.contains(&"--self-signed") {
            command.arg("--write-ca").arg(scratch.path().join("ca.pem"));
        }
        command.args(options);
        command.env("RUST_LOG", "h3_server=debug,h3_upload_server=debug");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let port = wait_for_port(&mut child);
        let log = lines(child.stderr.take().unwrap());
        Self { child: Ends(child), log, scratch, stored, port }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.scratch.path().join("ca.pem")
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.stored.clone()
    }

    /// The value of a line of its `/proc/PID/status`, in KiB.
    pub(crate) fn memory(&self, line: &str) -> u64 {
        memory(&self.child, line)
    }

    /// Everything in the server's directory, hidden files included.
    pub(crate) fn stored(&self) -> Vec<String> {
        names(&self.dir())
    }

    /// Blocks until the server logs a line with `words` in it.
    pub(crate) fn wait_for(&mut self, words: &str) {
        let mut seen = Vec::new();
        loop {
            match self.log.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(words) => return,
                Ok(line) => seen.push(line),
                Err(error) => panic!("no {words:?} in the log, {error}:\n{}", seen.join("\n")),
            }
        }
    }

    /// `h3-download` of the file at `path`, which trusts this server and runs in `directory`.
    pub(crate) fn download(&self, path: &str, directory: &Path) -> Command {
        let mut command = download(&self.url(path), directory);
        command.arg("--cafile").arg(self.ca());
        command
    }

    /// An upload client that trusts this server.
    pub(crate) fn client(&self, file: &Path, path: &str) -> Command {
        let mut command = client(file, &self.url(path));
        command.arg("--cafile").arg(self.ca());
        command
    }
}

/// `h3-upload FILE URL`, with nothing on its standard input.
pub(crate) fn client(file: &Path, url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_h3-upload"));
    command.arg(file).arg(url).stdin(Stdio::null());
    command
}

/// `h3-download URL` in `directory`.
pub(crate) fn download(url: &str, directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_h3-download"));
    command.arg(url).current_dir(directory).stdin(Stdio::null());
    command
}

/// `h3-download --quiet URL` on a file system of 1 MB, in a namespace of its own, of which a part
/// stays free. It prints the names of the files that it leaves.
pub(crate) fn on_a_small_disk(url: &str, directory: &Path) -> Command {
    let mut shell = Command::new("unshare");
    shell.args(["--map-root-user", "--mount", "sh", "-c"]);
    shell.arg(
        "mount -t tmpfs -o size=1m none . && cd \"$PWD\" && \"$@\"; code=$?; ls -A; exit $code",
    );
    shell.args(["sh", env!("CARGO_BIN_EXE_h3-download"), "--quiet", url]).current_dir(directory);
    shell
}

/// The names of all files in `directory`, hidden ones included.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A file of `len` pseudo-random bytes.
pub(crate) fn file(dir: &TempDir, name: &str, len: usize) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes(len)).unwrap();
    path
}

/// Bytes of a linear congruential generator, so that no two parts of a file are the same.
pub(crate) fn bytes(len: usize) -> Vec<u8> {
    let mut state = 0x5eed_u64;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Asserts that the program failed with exit code 1, one sentence on standard error that contains
/// `words`, and nothing on standard output.
pub(crate) fn assert_complains(output: &Output, words: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains(words), "no {words:?} in: {errors}");
    assert_eq!(errors.trim_end().lines().count(), 1, "more than a sentence: {errors}");
    assert!(
        output.stdout.is_empty(),
        "standard output: {}",
        String::from_utf8_lossy(&output.stdout)
    );
}
