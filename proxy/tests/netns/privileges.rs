//! The capabilities of a running daemon.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::{Daemon, get, in_namespace, proxy, until};

/// Bit 13: CAP_NET_RAW.
const NET_RAW: &str = "0000000000002000";
const NONE: &str = "0000000000000000";

/// The daemon's directory in /proc. The test has a process namespace of its own, and /proc is that
/// of the machine.
fn directory(daemon: &Daemon) -> PathBuf {
    let ours = fs::read_link("/proc/self/ns/net").unwrap();
    let is_it = |directory: &PathBuf| {
        fs::read_link(directory.join("ns/net")).is_ok_and(|namespace| namespace == ours)
            && fs::read_to_string(directory.join("status")).is_ok_and(|status| {
                let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
                numbers.and_then(|numbers| numbers.split_whitespace().last())
                    == Some(&daemon.id().to_string())
            })
    };
    let all = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.join("task").exists()).find(is_it).expect("the daemon")
}

/// The fields of a thread's status.
fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().trim().to_owned()
}

/// The status of each thread, once all have given themselves a name.
fn threads(daemon: &Daemon) -> Vec<String> {
    until("named", || {
        let tasks = fs::read_dir(directory(daemon).join("task")).unwrap();
        let all: Vec<_> = tasks
            .map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap())
            .collect();
        let unnamed = all.iter().filter(|status| field(status, "Name") == "sidekick-proxy").count();
        // The main thread has the program's name.
        if unnamed == 1 { Ok(all) } else { Err(format!("{all:?}")) }
    })
}

/// Each thread has capabilities of its own, and all must give them up.
fn assert_confined(daemon: &Daemon) {
    let mut names = Vec::new();
    for status in threads(daemon) {
        let field = |name: &str| field(&status, name);
        names.push(field("Name"));
        for (name, expected) in [
            ("CapEff", NET_RAW),
            ("CapPrm", NET_RAW),
            ("CapBnd", NET_RAW),
            ("CapInh", NONE),
            ("CapAmb", NONE),
            ("NoNewPrivs", "1"),
        ] {
            assert_eq!(field(name), expected, "{name} of {}", field("Name"));
        }
    }
    names.sort();
    let expected =
        ["metrics", "sidekick-proxy", "signals", "tokio-rt-worker", "worker-0", "worker-1"];
    assert_eq!(names, expected);
}

#[test]
fn a_daemon_keeps_net_raw_alone() {
    in_namespace(|| {
        let line = "-i lo --threads 2";
        // The daemon starts once with all capabilities, like root, and once with one, as under a
        // service manager.
        let root = Daemon::start(line);
        assert_eq!(get("127.0.0.1:9252", "/health").0, 200);
        assert_confined(&root);
        root.stop();
        let mut granted = Command::new("setpriv");
        granted
            .args([
                "--bounding-set=-all,+net_raw",
                "--inh-caps=-all,+net_raw",
                "--ambient-caps=-all,+net_raw",
            ])
            .arg(proxy("").get_program())
            .args(line.split(' '))
            .stdin(Stdio::null());
        let granted = Daemon::begin(&mut granted);
        assert_eq!(get("127.0.0.1:9252", "/health").0, 200);
        assert_confined(&granted);
        granted.stop();
    });
}
