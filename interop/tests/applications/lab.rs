//! An emulated path, and programs on its hosts.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path as FilePath, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use sidekick_netem::namespace::Namespace;
use sidekick_netem::path::{Backend, Path};
use sidekick_netem::programs::{Program, Programs};
use sidekick_netem::scenario::Scenario;
use sidekick_netem::topology::{PROXY_PORT, RECEIVER, SERVER_PORT, Topology};

/// The longest wait for the end of a program. Only a failing test reaches it.
const PATIENCE: Duration = Duration::from_secs(120);

/// The servers' name in their certificate.
pub(crate) const NAME: &str = "applications.example";

pub(crate) struct Lab {
    path: Path,
    programs: Programs,
    directory: tempfile::TempDir,
}

impl Lab {
    /// The path of `upload-paper` with these settings, a directory, and a certificate in it.
    pub(crate) fn new(settings: &[&str]) -> Self {
        let mut scenario = Scenario::load("upload-paper").unwrap();
        scenario.apply(settings).unwrap();
        let path = Path::build(Backend::User, &scenario, 7).unwrap();
        let beside = FilePath::new(env!("CARGO_BIN_EXE_interop-client")).parent().unwrap();
        let lab = Self {
            path,
            programs: Programs::find(Some(beside)).unwrap(),
            directory: tempfile::tempdir().unwrap(),
        };
        let own = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
        fs::write(lab.certificate(), own.cert.pem()).unwrap();
        fs::write(lab.key(), own.signing_key.serialize_pem()).unwrap();
        lab
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory().join("certificate.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.directory().join("key.pem")
    }

    pub(crate) fn directory(&self) -> &FilePath {
        self.directory.path()
    }

    pub(crate) fn hosts(&self) -> &Topology {
        self.path.topology()
    }

    /// One of our programs.
    pub(crate) fn ours(&self, name: &'static str) -> Command {
        Command::new(self.programs.path(name).unwrap())
    }

    pub(crate) fn start(&self, name: &'static str, command: Command, host: &Namespace) -> Program {
        Program::start_command(name, command, host, self.directory()).unwrap()
    }

    /// Runs a program that must succeed, and returns its output.
    pub(crate) fn finish(&self, name: &'static str, command: Command, host: &Namespace) -> String {
        let mut program = self.start(name, command, host);
        let ended = program.wait(PATIENCE).unwrap();
        let ended = ended.unwrap_or_else(|| panic!("{name} did not end"));
        assert!(ended.status.success(), "{name}: {}", ended.last_words);
        ended.output
    }

    /// Starts a proxy that counts packets at this interface of its host.
    pub(crate) fn proxy(&self, interface: &str, address: Ipv4Addr) -> Program {
        let mut command = self.ours("sidekick-proxy");
        command.args(["--interface", interface, "--listen", &format!("{address}:{PROXY_PORT}")]);
        let mut proxy = self.start("the proxy", command, &self.hosts().proxy);
        proxy.wait_until_ready().unwrap();
        proxy
    }

    /// The proxy's status.
    pub(crate) fn proxy_status(&self) -> Value {
        let mut command = self.ours("sidekick-proxy");
        command.args(["status", "--all", "--json"]);
        let status = self.finish("the proxy's status", command, &self.hosts().proxy);
        println!("{}", status.trim());
        serde_json::from_str(&status).unwrap()
    }
}

/// The server's address.
pub(crate) fn server() -> SocketAddr {
    (RECEIVER, SERVER_PORT).into()
}
