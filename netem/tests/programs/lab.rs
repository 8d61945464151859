//! The program `sidekick-lab` with shell scripts in place of the real programs. The tests check the
//! programs that it starts, its output, and that it leaves nothing behind.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::support::scripts::{LAB, PROXY, Programs, STAY, ends_without_a_trace, text};

const SERVER: &str = r#"
while [ $# -gt 0 ]; do
    case $1 in
        --write-ca) : > "$2" ;;
    esac
    shift
done
echo "ready: listening on 10.77.2.2:4433"
read -r never < "${0%/*}/stay"
"#;
const CLIENT_THAT_UPLOADS: &str = r#"
[ -f "$4" ] || { echo "no CA file" >&2; exit 1; }
cp "$1" "${4%/*}/store/upload"
cat << END
{"bytes":5000,"time_s":0.5,"goodput_mbit_s":0.08,"assisted":true,"assistance":"assisted","packets":{"sent":9,
"received":8,"retransmitted":1,"lost_end_to_end":0,"lost_early":1,"spurious":0},"quacks":{"received":7,"bytes":700,
"undecodable":0,"epochs":1,"polls":2,"malformed":0},"near_rtt_ms":2.5,"rtt_ms":53.0,"sha256":"","server_sha256":""}
END
"#;
const CLIENT_THAT_DOWNLOADS: &str = r#"
cp "${5%/*}/store/download" "$3"
cat << END
{"bytes":5000,"time_s":0.5,"goodput_mbit_s":0.08,"assisted":true,"assistance":"assisted","packets":{"sent":9,
"received":8,"retransmitted":1,"lost_end_to_end":0,"lost_early":0,"spurious":0},"quacks":{"received":0,"bytes":0,
"undecodable":0,"epochs":1,"polls":2,"malformed":0},"near_rtt_ms":2.5,"rtt_ms":53.0,"sha256":"","server_sha256":""}
END
"#;
const CLIENT_THAT_SPOILS: &str = r#"echo spoilt > "${4%/*}/store/upload""#;
const CLIENT_THAT_FAILS: &str = "echo one >&2; echo no route to 10.77.2.2 >&2; exit 1";

/// The programs of transfers, with this client.
fn with_client(client: &str) -> Programs {
    Programs::new(&[
        ("h3-upload-server", SERVER),
        ("sidekick-proxy", PROXY),
        ("h3-upload", client),
        ("h3-download", client),
    ])
}

/// A client with quinn's report.
const CLIENT_OF_QUINN: &str = r#"
[ -f "$2" ] || { echo "no CA file" >&2; exit 1; }
case $3 in
    --upload) file=$4; cp "$4" "${2%/*}/store/upload" ;;
    *) file=${2%/*}/store/download ;;
esac
set -- $(sha256sum "$file")
echo '{"bytes":10485760,"time_s":8.0,"goodput_mbit_s":10.5,"packets_sent":9,"packets_lost":2,'
echo "\"sha256\":\"$1\"}"
"#;
/// An agent that prints its summary on SIGINT.
const AGENT: &str = r#"
trap 'echo "{\"flows_assisted\":1,\"sent\":9,\"lost\":4,\"resent\":3,\"resent_bytes\":99,
\"withheld_congested\":0,\"withheld_far\":0,\"withheld_late\":1,
\"delivered\":2}" | tr -d "\n"; exit 0' INT
sleep 1000 > /dev/null 2>&1 &
echo "ready: helping what leaves by near, in order"
wait"#;

/// The programs of the agent's demonstration, with this client and this agent. Every call fails.
fn unmodified(client: &str, agent: &str) -> Programs {
    Programs::new(&[
        ("h3-upload-server", SERVER),
        ("quinn-client", client),
        ("audio-receive", SERVER),
        ("audio-send", "echo no microphone >&2; exit 1"),
        ("sidekick-proxy", PROXY),
        ("sidekick-agent", agent),
    ])
}

/// A lab is ended during an upload, which has a server, a proxy and a client.
#[test]
fn nothing_is_left_after_a_signal() {
    let arguments = ["run", "upload-paper", "--backend", "user", "--set", "sidekick.mode=pacubic"];
    for (signal, code) in
        [(Signal::KILL, None), (Signal::INT, Some(130)), (Signal::TERM, Some(130))]
    {
        ends_without_a_trace(&with_client(STAY), &arguments, 3, signal, code);
    }
}

#[test]
fn json_is_one_object_a_run() {
    let programs = with_client(CLIENT_THAT_UPLOADS);
    let settings = ["--set", "flow.bytes=5000", "--set", "sidekick.mode=pacubic"];
    let arguments = [
        &["run", "upload-paper", "--backend", "user", "--json", "--seed", "7", "--runs", "2"],
        &settings[..],
    ]
    .concat();
    let output = programs.run(&arguments);
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{error}");
    let objects: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 2, "{out}");
    for (object, seed) in objects.iter().zip([7, 8]) {
        for (path, value) in [
            ("/scenario", serde_json::json!("upload-paper")),
            ("/backend", "user".into()),
            ("/seed", seed.into()),
            ("/mode", "pacubic".into()),
            ("/cc", "cubic-rfc9438".into()),
            ("/bytes", 5000.into()),
            ("/time_s", 0.5.into()),
            ("/goodput_mbit_s", 0.08.into()),
            ("/packets/sent", 9.into()),
            ("/packets/retransmitted", 1.into()),
            ("/packets/lost_end_to_end", 0.into()),
            // The client does not report them.
            ("/packets/probe_timeouts", serde_json::Value::Null),
            ("/packets/spurious", 0.into()),
            // The scripts send no packets over the path.
            ("/packets/lost_near", 0.into()),
            ("/packets/lost_far", 0.into()),
            ("/ack_packets", 0.into()),
            ("/quacks/received", 7.into()),
            ("/quacks/bytes", 700.into()),
            ("/quacks/undecodable", 0.into()),
            ("/quacks/epochs", 1.into()),
            ("/quacks/polls", 2.into()),
        ] {
            assert_eq!(object.pointer(path), Some(&value), "{path} in {object}");
        }
    }
    assert_ne!(objects[0]["sha256"], objects[1]["sha256"], "each seed has its file");
    assert!(
        error.contains("upload-paper, seed 7: started")
            && error.contains("upload-paper, seed 8: 0.08 Mbit/s")
    );
    assert_eq!(programs.processes(), Vec::<i32>::new());
}

#[test]
fn a_run_keeps_what_its_agent_records() {
    let trace = "sidekick-trace 1\nu 0 1200\nu 500 1200 -\nend 500\n";
    let agent = format!("[ $1$4 = measure--trace ] || exit 1; printf '{trace}' > \"$5\"{AGENT}");
    let programs = Programs::new(&[
        ("h3-upload-server", SERVER),
        ("sidekick-proxy", PROXY),
        ("h3-upload", CLIENT_THAT_UPLOADS),
        ("sidekick-agent", &agent),
    ]);
    let traces = programs.temporary().join("traces");
    let arguments = [
        &["run", "upload-paper", "--backend", "user", "--json", "--seed", "7"][..],
        &["--set", "flow.bytes=5000", "--set", "sidekick.mode=measure"],
        &["--trace", traces.to_str().unwrap()],
    ];
    let output = programs.run(&arguments.concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["measured"]["up"]["lost"], 1, "{record}");
    assert_eq!(record["agent"]["resent"], 3, "{record}");
    assert_eq!(fs::read_to_string(traces.join("seed-7.trace")).unwrap(), trace);
}

#[test]
fn what_the_server_of_a_download_does_not_report_is_null() {
    let programs = with_client(CLIENT_THAT_DOWNLOADS);
    let arguments = ["run", "download-paper", "--backend", "user", "--set", "flow.bytes=5000"];
    let output = programs.run(&[&arguments[..], &["--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for figure in ["retransmitted", "lost_end_to_end", "probe_timeouts"] {
        assert_eq!(record["packets"].get(figure), Some(&serde_json::Value::Null), "{record}");
    }
    // The scripts send no packets over the path.
    assert_eq!(record.pointer("/packets/sent"), Some(&0.into()), "{record}");
    let output = programs.run(&arguments);
    let table = text(&output.stdout);
    let row = table.lines().find(|line| line.contains("0.5 s")).unwrap();
    // The two dashes are the losses found end to end, and the probe timeouts.
    assert_eq!(row.split(['│', '┆']).filter(|entry| entry.trim() == "-").count(), 2, "{table}");
}

#[test]
fn a_demo_names_no_file_that_it_deletes() {
    let programs = with_client(CLIENT_THAT_DOWNLOADS);
    let output = programs.run(&["demo-satellite", "--json"]);
    // The client reports another length than the file has.
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let demo: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(demo.get("file"), Some(&serde_json::Value::Null), "{demo}");
    assert_eq!(demo["bytes"], 1024 * 1024, "{demo}");
}

/// In the demonstration of the agent, the transfers end, without an agent and with one. The calls
/// fail.
#[test]
fn the_demo_of_the_agent_goes_on_from_one_run_to_the_next() {
    let programs = unmodified(CLIENT_OF_QUINN, AGENT);
    let output = programs.run(&["demo-agent", "--json"]);
    let error = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()), "{error}");
    for sentence in [
        "upload by quinn, without an agent: 10.50 Mbit/s in 8.0 s",
        "upload by quinn, with the agent: 10.50 Mbit/s in 8.0 s",
        "download by quinn, without an agent: 10.50 Mbit/s in 8.0 s",
        "download by quinn, with the agent: 10.50 Mbit/s in 8.0 s",
        "sidekick-lab: call: the call failed: no microphone (exit status: 1)",
    ] {
        assert!(error.lines().any(|line| line == sentence), "{sentence}: {error}");
    }
    assert_eq!(programs.processes(), Vec::<i32>::new());
}

#[test]
fn nothing_is_left_of_the_demo_of_the_agent_after_ctrl_c() {
    // The six programs are two servers and clients, a proxy and an agent. The second client reports
    // that both run.
    let client = format!(
        "if mkdir \"${{0%/*}}/first\" 2> /dev/null; then\nread -r never < \"${{0%/*}}/stay\"\n\
         else\n{STAY}\nfi"
    );
    let agent = PROXY.replace("capturing on near", "capturing on near, in order");
    let programs = unmodified(&client, &agent);
    ends_without_a_trace(&programs, &["demo-agent"], 6, Signal::INT, Some(130));
}

#[test]
fn a_given_file_is_uploaded() {
    let programs = with_client(CLIENT_THAT_UPLOADS);
    let file = programs.directory.path().join("file");
    fs::write(&file, "abc").unwrap();
    let output = programs.run(&[
        "run",
        "upload-paper",
        "--backend",
        "user",
        "--json",
        "--file",
        file.to_str().unwrap(),
    ]);
    let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert!(text(&output.stdout).contains(expected), "{}", text(&output.stderr));
}

#[test]
fn a_failed_run_ends_with_one_sentence_and_1() {
    for (client, sentence) in [
        (CLIENT_THAT_FAILS, "sidekick-lab: the upload failed: no route to 10.77.2.2"),
        (CLIENT_THAT_SPOILS, "sidekick-lab: h3-upload printed no report that the lab can read"),
    ] {
        let programs = with_client(client);
        let output = programs.run(&["run", "upload-paper", "--backend", "user", "--json"]);
        let error = text(&output.stderr);
        assert_eq!(
            (output.status.code(), text(&output.stdout)),
            (Some(1), String::new()),
            "{error}"
        );
        assert!(error.lines().last().unwrap().starts_with(sentence), "{error}");
    }
}

#[test]
fn the_lab_reports_a_proxy_that_ends_early() {
    // The client waits until the proxy has closed its end of the pipe.
    let programs = with_client(&format!("read -r _ < \"${{0%/*}}/up\"\n{CLIENT_THAT_UPLOADS}"));
    let proxy =
        "echo ready: listening\necho the interface is gone >&2\nexec > \"${0%/*}/up\"\nexit 1";
    fs::write(programs.directory.path().join("sidekick-proxy"), format!("#!/bin/sh\n{proxy}\n"))
        .unwrap();
    let output = programs.run(&[
        "run",
        "upload-paper",
        "--backend",
        "user",
        "--set",
        "sidekick.mode=pacubic",
    ]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    let sentence =
        "sidekick-lab: sidekick-proxy ended during the run: the interface is gone (exit status: 1)";
    assert_eq!(error.lines().last(), Some(sentence));
}

#[test]
fn invalid_commands_fail_before_anything_starts() {
    let nowhere = Path::new("/nonexistent");
    for (arguments, sentence) in [
        (
            &["run", "uplaod"][..],
            "there is no scenario `uplaod`: choose one of upload-paper, audio-paper,",
        ),
        (
            &["run", "upload-paper", "--backend", "ns3"],
            "there is no backend `ns3`; use sim, user, or tc",
        ),
        (&["run", "upload-paper", "--file", "/nonexistent"], "backend sim makes its own contents"),
        (&["demo", "--backend", "sim"], "the demo runs real programs"),
        (
            &["run", "upload-paper", "--backend", "user"],
            "there is no program `h3-upload-server` in /nonexistent",
        ),
        (&["demo", "--file", "/nonexistent"], "cannot read /nonexistent"),
        (&["demo-audio", "--wav", "/nonexistent"], "cannot read /nonexistent"),
        (&["demo-audio", "--backend", "sim"], "the demo runs real programs"),
        (&["demo-satellite", "--backend", "sim"], "the demo runs real programs"),
        (&["demo-agent", "--backend", "sim"], "the demo runs real programs"),
    ] {
        let output =
            Command::new(LAB).args(arguments).arg("--programs").arg(nowhere).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.starts_with(&format!("sidekick-lab: {sentence}")), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn real_programs_meet_no_fault_but_an_outage() {
    let programs = with_client(CLIENT_THAT_FAILS);
    for backend in ["user", "tc"] {
        let set = "faults.events=near-outage at 5 for 5; proxy-restart at 9";
        let mut lab = Command::new(LAB);
        lab.args(["run", "upload-paper", "--backend", backend, "--set", set, "--programs"]);
        let output = lab.arg(programs.directory.path()).output().unwrap();
        let error = text(&output.stderr);
        let sentence = format!(
            "sidekick-lab: backend {backend} does not support faults.events with proxy-restart; \
             use --backend sim, or omit the setting\n"
        );
        assert_eq!((output.status.code(), error), (Some(1), sentence));
    }
}

#[test]
fn list_names_scenarios_and_settings() {
    let output = Command::new(LAB).arg("list").output().unwrap();
    let out = text(&output.stdout);
    assert!(output.status.success());
    for name in
        ["upload-paper", "audio-paper", "near.loss_percent", "flow.cc", "proxy-lies too-much|"]
    {
        assert!(out.contains(name), "{out}");
    }
}
