//! The command lines of both programs, and their files.

use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use crate::programs::{agent, assert_fails, assert_sentence, fails, proxy, ran};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, getsockname, socket};

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
        let error = assert_fails(&mut agent(&format!("status --config {path}")), &[&said]);
        assert!(error.starts_with("sidekick-agent: "), "{error}");
    }
}

#[test]
fn buffers_larger_than_the_memory_are_refused() {
    for (flags, amount) in [("--threads 64 --buffer 1024", "65664"), ("--keep 1024G", "1048576")] {
        let (_, stdout, stderr) = fails(&mut proxy(&format!("-i lo {flags} --listen 127.0.0.1:0")));
        if !stderr.contains("CAP_NET_RAW") {
            let amount = format!("{amount} MiB");
            assert_sentence(
                (&stdout, &stderr),
                &[&amount, "reduce buffer, threads, keep or max-sessions"],
            );
        }
    }
}

#[test]
fn nonsense_on_the_command_line_is_refused() {
    let of_proxy = [
        ("", "--interface"),
        (
            "-i lo --listen 0.0.0.0:1 --max-sessions 3 --buffer 9 --threads 2 --idle-timeout 5 \
             --max-threshold 9 --capture ring --promiscuous --metrics off --bogus",
            "--bogus",
        ),
    ];
    let of_agent = [
        ("", "no interface to help on: name one with --interface IF"),
        (
            "-i lo --max-flows 3 --buffer 9 --memory 2M --idle-timeout 5 --min-packets 9 \
             --capture ring --metrics off --proxy 192.0.2.1:5252 --bogus",
            "--bogus",
        ),
    ];
    let of_proxy = of_proxy.map(|(line, complaint)| (proxy(line), complaint));
    let of_agent = of_agent.map(|(line, complaint)| (agent(line), complaint));
    for (mut command, complaint) in of_proxy.into_iter().chain(of_agent) {
        let (code, out, error) = ran(&mut command);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{command:?}");
        assert!(error.contains(complaint), "{error}");
        assert!(error.lines().count() <= 6, "a long usage hides the error: {error}");
    }
}

/// A file, the exit status of `check`, and what it says.
type Checked = (&'static str, i32, &'static str);

/// Checks the sample file of a program, whose settings begin like this, and these files. Their
/// settings have this line.
fn checks(
    program: fn(&str) -> Command,
    (sample, interface, first): (&str, &str, &str),
    line: &str,
    files: &[Checked],
) {
    let check = |path: &str| ran(&mut program(&format!("check {path}")));
    let (code, out, remarks) = check(&format!("{}/{sample}", env!("CARGO_MANIFEST_DIR")));
    assert_eq!(code, Some(0));
    assert!(out.starts_with(first), "{out}");
    let absent = format!("there is no interface {interface}");
    assert!(remarks.is_empty() || remarks.contains(&absent), "{remarks}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("it.toml").display().to_string();
    for (text, code, said) in files {
        std::fs::write(&path, text).unwrap();
        let (checked, out, error) = check(&path);
        assert_eq!(checked, Some(*code), "{text}{error}");
        assert!(out.contains(line), "{out}");
        assert!(error.contains(said) && error.contains(&path), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn check_reads_a_file_and_starts_nothing() {
    let first = "interfaces = [\"eth0\"]\nlisten = \"[::]:5252\"\n";
    checks(
        proxy,
        ("sidekick-proxy.toml", "eth0", first),
        "listen = \"[::]:5252\"\n",
        // With an interface that may come later it can start, and without any it cannot.
        &[
            ("interfaces = [\"nonesuch0\"]\n", 0, "there is no interface nonesuch0"),
            ("log = \"info\"\n", 1, "no interface to capture on"),
            ("interfaces = []\n", 1, "interfaces = [\"IF\"]"),
            ("interfaces = [\"lo\"]\nkeep = \"99K\"\nthreads = 2\n", 0, "write at least 128K"),
            (
                "interfaces = [\"lo\"]\nkeep = 0\nparity-percent = 50\n",
                0,
                "parity-percent has no effect while keep is 0",
            ),
            (
                "interfaces = [\"lo\"]\nkeep = \"1024G\"\n",
                0,
                "reduce buffer, threads, keep or max-sessions",
            ),
            (
                "interfaces = [\"lo\"]\nmetrics = \"192.0.2.1:9252\"\n",
                0,
                "metrics: 192.0.2.1 is not an address of this machine now",
            ),
            (
                "interfaces = [\"lo\"]\nannounce = [\"127.0.0.1:5353\"]\n",
                0,
                "announce: the proxy does not listen on 127.0.0.1:5353, but on [::]:5252",
            ),
            (
                "interfaces = [\"lo\"]\nannounce = [\"192.0.2.1:5252\"]\n",
                0,
                "announce: 192.0.2.1 is not an address of this machine now",
            ),
        ],
    );
    let first = "interfaces = [\"wlan0\"]\ntun = \"sidekick0\"\nin-order = false\nupload-parity = false\ncarry = 0\ncarry-budget = \"1G\"\nqueue = 5252\n\
                 only = []\nexcept = []\n";
    checks(
        agent,
        ("sidekick-agent.toml", "wlan0", first),
        "max-flows = 256\n",
        &[
            ("interfaces = [\"nonesuch0\"]\n", 0, "there is no interface nonesuch0"),
            ("log = \"info\"\n", 1, "no interface to help on"),
            ("interfaces = []\n", 1, "interfaces = [\"IF\"]"),
            (
                "interfaces = [\"lo\"]\nmemory = \"1024G\"\n",
                0,
                "reduce buffer, memory or max-flows",
            ),
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
        ],
    );
    let line = concat!("check ", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert_fails(&mut proxy(line), &["Cargo.toml:", "this is not a key"]);
}
