//! The agent's command line and its file.

use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::programs::{self, ran};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, getsockname, socket};

/// Runs the agent with these arguments. Returns its exit status, stdout and stderr.
fn agent(line: &str) -> (Option<i32>, String, String) {
    ran(&mut programs::agent(line))
}

/// A TCP port of this machine at which no program listens. No other can take it as long as the
/// socket exists.
fn closed_port() -> (OwnedFd, SocketAddrV4) {
    let closed =
        socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(closed.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
    let address: SockaddrIn = getsockname(closed.as_raw_fd()).unwrap();
    (closed, address.into())
}

#[test]
fn without_an_agent_the_status_command_names_a_remedy() {
    let (_closed, free) = closed_port();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.toml").display().to_string();
    for (file, said) in [
        (format!("metrics = \"{free}\""), format!("no agent answers at {free}: start it")),
        (
            "metrics = \"off\"".to_owned(),
            format!("{path} has metrics off: its agent has no status to show"),
        ),
        ("metric = \"off\"".to_owned(), "did you mean metrics?".to_owned()),
    ] {
        std::fs::write(&path, file).unwrap();
        let (code, out, error) = agent(&format!("status --config {path}"));
        assert_eq!((code, out.as_str(), error.lines().count()), (Some(1), "", 1), "{error}");
        assert!(error.starts_with("sidekick-agent: ") && error.contains(&said), "{error}");
    }
}

#[test]
fn nonsense_on_the_command_line_is_refused() {
    for (line, complaint) in [
        ("-i lo --bogus", "--bogus"),
        ("", "no interface to help on: name one with --interface IF"),
        ("-i lo --only https", "expected a port like 443"),
        ("-i lo --only 10.0.0.1/8", "write 10.0.0.0/8"),
        ("-i lo --proxy 192.0.2.1", "add a port to it, like 192.0.2.1:5252"),
        (
            "-i lo --max-flows 3 --buffer 9 --memory 2M --idle-timeout 5 --min-packets 9 \
             --capture ring --metrics off --proxy 192.0.2.1:5252 --bogus",
            "--bogus",
        ),
    ] {
        let (code, out, error) = agent(line);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{line}");
        assert!(error.contains(complaint), "{error}");
        assert!(error.lines().count() <= 6, "a long usage hides the error: {error}");
    }
}

#[test]
fn check_reads_a_file_and_starts_nothing() {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/sidekick-agent.toml");
    let (code, out, remarks) = agent(&format!("check {sample}"));
    assert_eq!(code, Some(0));
    let first = "interfaces = [\"wlan0\"]\ntun = \"sidekick0\"\nonly = []\nexcept = []\n";
    assert!(out.starts_with(first), "{out}");
    assert!(remarks.is_empty() || remarks.contains("there is no interface wlan0"), "{remarks}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.toml").display().to_string();
    for (text, code, said) in [
        ("interfaces = [\"nonesuch0\"]\n", 0, "there is no interface nonesuch0"),
        ("log = \"info\"\n", 1, "no interface to help on"),
        ("interfaces = []\n", 1, "interfaces = [\"IF\"]"),
        ("interfaces = [\"lo\"]\nmemory = \"1024G\"\n", 0, "reduce buffer, memory or max-flows"),
        (
            "interfaces = [\"lo\"]\nonly = [443, 80]\nexcept = [80]\n",
            0,
            "80 is both in only and in except",
        ),
        (
            "interfaces = [\"lo\"]\nmetrics = \"192.0.2.1:9253\"\n",
            0,
            "metrics: 192.0.2.1 is not an address of this machine now",
        ),
        (
            "interfaces = [\"lo\"]\nproxy = \"127.0.0.1:5252\"\n",
            0,
            "proxy: 127.0.0.1 is an address of this machine",
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let (checked, out, error) = agent(&format!("check {path}"));
        assert_eq!(checked, Some(code), "{text}{error}");
        assert!(out.contains("max-flows = 256\n"), "{out}");
        assert!(error.contains(said) && error.contains(&path), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
