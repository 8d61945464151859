//! `sidekick-lab exec`: runs commands of the tests over the emulated path.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use sidekick_netem::path::streams;
use sidekick_netem::scenario::{Direction, Scenario};
use sidekick_netem::topology::PROXY_NEAR;

use crate::support::scripts::{LAB, PROXY, Programs, STAY, ends_without_a_trace, text};
use crate::support::survivors::survivors;

/// Echoes every datagram, over every IP version of the hosts. Reports by a pipe that it is ready.
const ECHO: &str = r#"
import os, socket, sys
six = "SIDEKICK_RECEIVER_IPV6" in os.environ
echo = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
if six:
    echo.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
echo.bind(("::" if six else "0.0.0.0", 7))
print("it listens", flush=True)
open(sys.argv[1], "w").write("here\n")
while True:
    echo.sendto(*echo.recvfrom(100))
"#;
/// Sends a number of datagrams to an address, and waits for as many answers.
const ASK: &str = r#"
import socket, sys
address, count, answers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
ask = socket.socket(family, socket.SOCK_DGRAM)
ask.settimeout(60)
for number in range(count):
    ask.sendto(b"%d" % number, (address, 7))
for _ in range(answers):
    ask.recv(100)
"#;
/// Runs a command in its own terminal. Presses Ctrl-C when the command prints `ready`, and again
/// when it prints `on`. Exits with the status of the command.
const TERMINAL: &str = r#"
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
printed = b""
def until(word):
    global printed
    while word not in printed:
        try:
            printed += os.read(terminal, 1000)
        except OSError:
            return
for word in b"ready", b"on":
    until(word)
    os.write(terminal, b"\x03")
until(b"\0")
print(printed.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

/// A directory with the Python programs.
fn in_python() -> Programs {
    let programs = Programs::new(&[]);
    for (name, text) in [("echo.py", ECHO), ("ask.py", ASK), ("terminal.py", TERMINAL)] {
        fs::write(programs.directory.path().join(name), text).unwrap();
    }
    programs
}

#[test]
fn a_command_has_the_streams_the_environment_and_the_exit_status() {
    let programs = Programs::new(&[]);
    let script = "cat; echo $MINE from $SIDEKICK_SENDER_IP to $SIDEKICK_RECEIVER_IP; \
                  env | grep SIDEKICK_LAB_; env | grep SIDEKICK_PROXY; echo oops >&2; exit 7";
    let mut lab = programs.lab(&["exec", "upload-paper", "--", "sh", "-c", script]);
    lab.env("MINE", "mine").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut lab = lab.spawn().unwrap();
    lab.stdin.take().unwrap().write_all(b"of the test\n").unwrap();
    let output = lab.wait_with_output().unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(7), "{error}");
    assert_eq!(out, "of the test\nmine from 10.77.1.1 to 10.77.2.2\n");
    assert!(error.starts_with("oops\nupload-paper, seed 1: sh ended with 7 after "), "{error}");
    assert!(error.contains("near, to the receiver"), "{error}");

    let killed = programs.run(&["exec", "upload-paper", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(killed.status.code(), Some(143), "{}", text(&killed.stderr));
}

#[test]
fn the_addresses_answer() {
    let programs = in_python();
    let here = programs.directory.path().display();
    let peer = format!("echo first; python3 {here}/echo.py {here}/up");
    let script = format!(
        "read -r _ < {here}/up
        for address in $SIDEKICK_RECEIVER_IP $SIDEKICK_RECEIVER_IPV6; do
            python3 {here}/ask.py $address 1 1 || exit
        done"
    );
    let exec = ["exec", "upload-paper", "--set", "near.loss_percent=0", "--peer", &peer];
    let command = ["--", "sh", "-c", &script];
    let shown = programs.run(&[&exec[..], &command].concat());
    let error = text(&shown.stderr);
    assert!(shown.status.success(), "{error}");
    assert!(error.starts_with("peer: first\npeer: it listens\n"), "{error}");

    let log = programs.directory.path().join("log");
    let to_file = ["--peer-log", log.to_str().unwrap()];
    let logged = programs.run(&[&exec[..], &to_file, &command].concat());
    let error = text(&logged.stderr);
    assert!(logged.status.success() && !error.contains("peer"), "{error}");
    assert_eq!(fs::read_to_string(log).unwrap(), "first\nit listens\n");
}

#[test]
fn a_command_line_runs_between_the_segments() {
    let programs = in_python();
    let here = programs.directory.path().display();
    let middle = format!("python3 {here}/echo.py {here}/up");
    let script = format!("read -r _ < {here}/up; exec python3 {here}/ask.py {PROXY_NEAR} 1 1");
    let exec = ["exec", "upload-paper", "--set", "near.loss_percent=0", "--middle", &middle];
    let output = programs.run(&[&exec[..], &["--", "sh", "-c", &script]].concat());
    let error = text(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(error.starts_with("middle: it listens\n"), "{error}");
}

#[test]
fn the_record_counts_the_losses_of_the_links() {
    let programs = in_python();
    let (here, seed) = (programs.directory.path().display(), 12);
    let settings = [
        "near.loss_percent=20",
        "near.rate_mbit=unlimited",
        "far.rate_mbit=unlimited",
        "far.delay_ms=2",
        "sidekick.mode=auto",
    ];
    let scenario = Scenario::with("upload-paper", &settings).unwrap();
    // The buffer of any socket has room for this many.
    let sent: Vec<u32> = (0..150).collect();
    let lossy =
        |sent: &[u32], direction, stream| survivors(sent, &scenario.near, direction, seed, stream);
    let asked = lossy(&sent, Direction::ToReceiver, streams::NEAR.0);
    let answered = lossy(&asked, Direction::ToSender, streams::NEAR.1);
    // When the last answer arrives, the others have arrived or are lost.
    assert_eq!(answered.last(), sent.last(), "seed {seed}: choose another");

    let file = programs.directory.path().join("record");
    let script = format!(
        "read -r _ < {here}/up
        exec python3 {here}/ask.py $SIDEKICK_RECEIVER_IP {} {}",
        sent.len(),
        answered.len()
    );
    let mut lab = Command::new(LAB);
    lab.args(["exec", "upload-paper", "--seed", &seed.to_string()]);
    lab.args(settings.iter().flat_map(|setting| ["--set", setting]));
    lab.args(["--peer", &format!("python3 {here}/echo.py {here}/up")]);
    lab.arg("--json-file").arg(&file).args(["--", "sh", "-c", &script]);
    let output = lab.output().unwrap();
    let error = text(&output.stderr);
    assert!(output.status.success(), "seed {seed}: {error}");
    assert_eq!(error, "peer: it listens\n");

    let record: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let (sent, asked, answered) = (sent.len(), asked.len(), answered.len());
    for (link, packets, delivered) in [
        ("near/to_receiver", sent, asked),
        ("far/to_receiver", asked, asked),
        ("far/to_sender", asked, asked),
        ("near/to_sender", asked, answered),
    ] {
        for (count, expected) in [
            ("packets", packets),
            ("delivered", delivered),
            ("lost_random", packets - delivered),
            ("lost_queue", 0),
        ] {
            let counted = &record["links"].pointer(&format!("/{link}/{count}")).unwrap();
            assert_eq!(**counted, expected, "seed {seed}: {link} {count}: {record}");
        }
    }
    assert_eq!(record["exit_code"], 0, "{record}");
    assert_eq!(record["command"][0], "sh", "{record}");
    // This count is that of the real proxy, which sees every packet that reaches the second
    // segment.
    assert!(record["proxy"]["captured"].as_u64().unwrap() > 0, "{record}");
    assert_eq!(record["agent"], Value::Null, "{record}");
}

#[test]
fn the_agent_starts_before_the_command_and_reports_after_it() {
    let agent = r#"
trap 'echo "{\"resent\":3,\"lost\":0}"; exit' INT
sleep 1000 > /dev/null 2>&1 &
echo "$*" > "${0%/*}/arguments"
echo "ready: capturing on near"
wait"#;
    let proxy = r#"
trap 'echo "{\"quacks\":5}"; exit' TERM
sleep 1000 > /dev/null 2>&1 &
echo "ready: listening on 10.77.1.2:5252"
wait"#;
    let programs = Programs::new(&[("sidekick-agent", agent), ("sidekick-proxy", proxy)]);
    let arguments = programs.directory.path().join("arguments");
    let script = format!("cat {}; echo $SIDEKICK_PROXY_ADDRESS", arguments.display());
    let exec = ["exec", "upload-paper", "--set", "sidekick.mode=auto"];
    let command = ["--", "sh", "-c", &script];
    let own = programs.directory.path().join("sidekick-agent");
    for agent in [&["--agent"][..], &["--agent", own.to_str().unwrap()]] {
        let output = programs.run(&[&exec[..], agent, &command].concat());
        let error = text(&output.stderr);
        assert!(output.status.success(), "{error}");
        assert_eq!(text(&output.stdout), "--interface near --json\n10.77.1.2:5252\n");
        assert!(error.ends_with("proxy: quacks 5\nagent: resent 3\n"), "{error}");
        fs::remove_file(&arguments).unwrap();
    }
}

#[test]
fn the_lab_reports_programs_that_end_early() {
    let programs = Programs::new(&[("sidekick-proxy", "echo ready: here\nexec > \"${0%/*}/up\"")]);
    // The command waits until the peer and the proxy have ended. The peer's child then has another
    // parent. The proxy's end of the pipe is closed.
    let here = programs.directory.path().display();
    let child = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass";
    let (peer, script) = (
        format!("python3 -c '{child}' $$ > {here}/stay & exit 4"),
        format!("read -r _ < {here}/stay; read -r _ < {here}/up; exit 3"),
    );
    let exec = ["exec", "upload-paper", "--set", "sidekick.mode=auto", "--peer", &peer];
    let output = programs.run(&[&exec[..], &["--", "sh", "-c", &script]].concat());
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{error}");
    for sentence in ["sidekick-proxy ", "the peer ended during the run: exit status: 4"] {
        assert!(error.lines().any(|line| line.starts_with(sentence)), "{error}");
    }
}

#[test]
fn there_is_a_proxy_if_the_scenario_has_one() {
    let programs = Programs::new(&[("sidekick-proxy", "echo no such interface >&2; exit 1")]);
    let run = |options: &[&str]| {
        let output =
            programs.run(&[&["exec", "upload-paper"], options, &["--", "echo", "run"]].concat());
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let helped = ["--set", "sidekick.mode=auto"];
    for without in [&[][..], &[&helped[..], &["--no-proxy"]].concat()] {
        let (code, out, error) = run(without);
        assert_eq!((code, out.as_str()), (Some(0), "run\n"), "{error}");
    }
    let (code, out, error) = run(&helped);
    assert_eq!((code, out.as_str()), (Some(125), ""), "{error}");
    assert_eq!(
        error,
        "sidekick-lab: sidekick-proxy ended before it was ready: no such interface (exit status: \
         1)\n"
    );
}

/// A command is ended beside a peer, a proxy and an agent. The lab kills one that ignores a signal.
#[test]
fn nothing_is_left_after_a_signal() {
    for (before, signal, code) in [
        ("", Signal::INT, Some(130)),
        ("", Signal::TERM, Some(143)),
        ("", Signal::KILL, None),
        ("trap '' INT", Signal::INT, Some(137)),
    ] {
        let client = format!("{before}\n{STAY}");
        let scripts = [("sidekick-proxy", PROXY), ("sidekick-agent", PROXY), ("client", &client)];
        let programs = Programs::new(&scripts);
        let here = programs.directory.path().display();
        let (client, peer) = (format!("{here}/client"), format!("read -r never < {here}/stay"));
        let helped = ["--set", "sidekick.mode=auto", "--agent", "--peer", &peer];
        let arguments = [&["exec", "upload-paper"], &helped[..], &["--", &client]].concat();
        ends_without_a_trace(&programs, &arguments, 4, signal, code);
    }
}

#[test]
fn ctrl_c_reaches_only_the_command() {
    let programs = in_python();
    let here = programs.directory.path().display();
    // The command survives the first Ctrl-C, and ends at the second. It blocks the signal. With a
    // handler, a signal that comes just before the read would not interrupt it.
    let command = "
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print('ready', flush=True)
signal.sigwait([signal.SIGINT])
print('on', flush=True)
signal.sigwait([signal.SIGINT])
sys.exit(9)
";
    let output = Command::new("env")
        .args(["--default-signal=INT", "python3", &format!("{here}/terminal.py")])
        .args([LAB, "exec", "upload-paper"])
        .args(["--peer", &format!("read -r never < {here}/stay"), "--", "python3", "-c", command])
        .output()
        .unwrap();
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(9), "{out}{}", text(&output.stderr));
    assert!(out.contains("upload-paper, seed 1: python3 ended with 9 after "), "{out}");
    assert!(!out.contains("the peer ended"), "{out}");
}

#[test]
fn errors_state_what_cannot_run_and_how_to_correct_it() {
    let programs = Programs::new(&[]);
    let here = programs.directory.path().display();
    let agent = format!(
        "there is no program `sidekick-agent` in {here}; run `make lab`, or give --programs \
         DIR, or --agent PATH"
    );
    let to_file = ["--json-file", "/nonexistent/file"];
    let logged = ["--peer", "true", "--peer-log", "/nonexistent/file"];
    for (options, program, sentence) in [
        (
            &[][..],
            "/nonexistent",
            "there is no program `/nonexistent`: install it, or give its path",
        ),
        (
            &[],
            "/etc/passwd",
            "cannot start /etc/passwd: Permission denied (os error 13); name a program that can \
             run",
        ),
        (&["--agent"], "true", &agent),
        (
            &["--agent", "/nonexistent"],
            "true",
            "there is no program /nonexistent; give --agent the path of one",
        ),
        (
            &to_file,
            "true",
            "cannot write /nonexistent/file; give --json-file a file in a directory that exists",
        ),
        (
            &logged,
            "true",
            "cannot write /nonexistent/file: No such file or directory (os error 2); give \
             --peer-log a file that can be written",
        ),
        (
            &["--set", "faults.events=proxy-restart at 9"],
            "true",
            "the only faults for a command are outages; omit proxy-restart from faults.events",
        ),
        (
            &["--set", "middle.delay_ms=100"],
            "true",
            "a command's path has no middle segment; omit middle.*, or choose another \
             scenario",
        ),
        (
            &["--set", "sidekick.proxy=dies"],
            "true",
            "sidekick.proxy = dies needs a transfer, of which half has passed; set it to on-path, \
             or use --no-proxy",
        ),
    ] {
        let output = programs.run(&[&["exec", "upload-paper"], options, &["--", program]].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{error}");
        assert_eq!(error, format!("sidekick-lab: {sentence}\n"));
    }
}
