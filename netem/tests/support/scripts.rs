//! The program `sidekick-lab` with shell scripts in place of the real programs, and a check that it
//! leaves nothing behind.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// The program.
pub(crate) const LAB: &str = env!("CARGO_BIN_EXE_sidekick-lab");
/// A time much longer than any step takes.
const LONG: Duration = Duration::from_secs(60);

/// A proxy that runs until it is killed.
pub(crate) const PROXY: &str = r#"
echo "ready: listening on 10.77.1.2:5252, capturing on near"
read -r never < "${0%/*}/stay"
"#;
/// Reports to the test that it runs, and then waits until it is killed.
pub(crate) const STAY: &str = r#"echo here > "${0%/*}/up"; read -r never < "${0%/*}/stay""#;

/// A directory of programs. Its path is on the command line of every process of a lab. So it marks
/// these processes. Waiting programs read a pipe without a writer. They do not execute another
/// program, because a process has no command line for a moment during that.
pub(crate) struct Programs {
    pub(crate) directory: tempfile::TempDir,
}

impl Programs {
    /// Programs by name. Each is a shell script.
    pub(crate) fn new(scripts: &[(&str, &str)]) -> Self {
        let directory = tempfile::Builder::new().prefix("sidekick-lab-test-").tempdir().unwrap();
        for (name, script) in scripts {
            let path = directory.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::create_dir(directory.path().join("tmp")).unwrap();
        for pipe in ["up", "stay"] {
            assert!(
                Command::new("mkfifo").arg(directory.path().join(pipe)).status().unwrap().success()
            );
        }
        Self { directory }
    }

    pub(crate) fn temporary(&self) -> PathBuf {
        self.directory.path().join("tmp")
    }

    /// The lab with these programs, a command, and its arguments.
    pub(crate) fn lab(&self, arguments: &[&str]) -> Command {
        let (command, arguments) = arguments.split_first().unwrap();
        // A shell starts background programs with SIGINT ignored.
        let mut lab = Command::new("env");
        lab.args(["--default-signal=INT", LAB]);
        lab.arg(command).arg("--programs").arg(self.directory.path()).args(arguments);
        lab.env("TMPDIR", self.temporary()).stdin(Stdio::null());
        lab
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.lab(arguments).output().unwrap()
    }

    /// Starts a lab in which [`STAY`] runs, and returns once it runs.
    fn start_and_stay(&self, arguments: &[&str]) -> Child {
        let mut lab = self.lab(arguments);
        let lab = lab.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let (sender, receiver) = channel();
        let up = self.directory.path().join("up");
        std::thread::spawn(move || {
            let mut word = String::new();
            fs::File::open(up).unwrap().read_to_string(&mut word).unwrap();
            sender.send(word)
        });
        assert_eq!(receiver.recv_timeout(LONG).unwrap(), "here\n");
        lab
    }

    /// The processes that carry the mark.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let mark = self.directory.path().to_str().unwrap();
        all_processes()
            .filter(|pid| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).contains(mark)
            })
            .collect()
    }
}

fn all_processes() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The network namespaces of all threads of a process.
fn namespaces(pid: i32) -> BTreeSet<PathBuf> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return BTreeSet::new() };
    threads.filter_map(|thread| fs::read_link(thread.ok()?.path().join("ns/net")).ok()).collect()
}

/// Starts a lab in which [`STAY`] runs, and ends it by a signal to its outer process. Asserts that
/// its processes are the outer one, unshare, the inner one and `count` programs. Then asserts that
/// nothing is left behind.
pub(crate) fn ends_without_a_trace(
    programs: &Programs,
    arguments: &[&str],
    count: usize,
    signal: Signal,
    code: Option<i32>,
) {
    let mut lab = programs.start_and_stay(arguments);
    let processes = programs.processes();
    assert_eq!(processes.len(), 3 + count, "{processes:?}");

    // A namespace exists as long as a process is in it, or it is mounted. Only these processes are
    // in it.
    let own = namespaces(i32::try_from(std::process::id()).unwrap());
    let theirs: BTreeSet<PathBuf> = processes
        .iter()
        .flat_map(|&pid| namespaces(pid))
        .filter(|namespace| !own.contains(namespace))
        .collect();
    assert!(theirs.len() >= 5, "enclosure, lab, sender, proxy, receiver: {theirs:?}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    for namespace in &theirs {
        assert!(!mounts.contains(namespace.to_str().unwrap()), "{namespace:?} is mounted");
    }
    for pid in all_processes().filter(|pid| !processes.contains(pid)) {
        assert!(namespaces(pid).is_disjoint(&theirs), "process {pid} is in the lab's namespaces");
    }

    let handles: Vec<_> = processes
        .iter()
        .map(|&pid| pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap())
        .collect();
    kill_process(Pid::from_child(&lab), signal).unwrap();
    let status = lab.wait().unwrap();
    assert_eq!(status.code(), code, "{status}");
    if code.is_none() {
        assert_eq!(status.signal(), Some(signal.as_raw()));
    }
    let limit = Timespec { tv_sec: i64::try_from(LONG.as_secs()).unwrap(), tv_nsec: 0 };
    for (handle, pid) in handles.iter().zip(&processes) {
        let ended = poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&limit)).unwrap();
        assert_eq!(ended, 1, "process {pid} is still there");
    }
    assert_eq!(programs.processes(), Vec::<i32>::new());
    assert_eq!(fs::read_dir(programs.temporary()).unwrap().count(), 0, "files are left");
}

/// Output as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
