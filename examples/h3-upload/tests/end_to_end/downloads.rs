//! Downloads that succeed.

use std::process::{Command, Output};
use std::sync::mpsc;

use serde_json::Value;
use tempfile::tempdir;

use crate::child::PATIENCE;
use crate::programs::{Server, bytes, download, file, names};
use crate::relay::Relay;

fn report(command: &mut Command) -> Value {
    let output = command.arg("--json").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object and nothing else")
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// docs/examples.md lists each field of the object, and those of its parts.
#[test]
fn the_fields_are_documented() {
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples.md");
    let text = std::fs::read_to_string(text).unwrap();
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    std::fs::write(server.dir().join("x"), bytes(9)).unwrap();
    let report = report(&mut server.download("/x", scratch.path()));
    let fields = report.as_object().unwrap();
    let parts = fields.values().filter_map(Value::as_object).flat_map(|part| part.keys());
    for field in fields.keys().chain(parts) {
        assert!(text.contains(&format!("`{field}`")), "{field}");
    }
}

#[test]
fn files_of_all_sizes_arrive_unchanged() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    for len in [0, 1, 16 * 1024, 16 * 1024 + 1, 1024 * 1024, 3 * 1024 * 1024] {
        let name = format!("of-{len}");
        std::fs::write(server.dir().join(&name), bytes(len)).unwrap();
        let report = report(&mut server.download(&format!("/{name}"), scratch.path()));
        assert_eq!(report["bytes"], len);
        assert_eq!(report["file"], name);
        match len > 1024 * 1024 {
            true => assert_eq!(report["server_sha256"], Value::Null),
            false => assert_eq!(report["sha256"], report["server_sha256"]),
        }
        assert_eq!(report["assistance"], "off");
        assert_eq!(report["receiving"], "off");
        assert_eq!(report["mode"], "off");
        assert_eq!(report["repeats_requested"], 0);
        assert!(report["packets"]["received"].as_u64().unwrap() > len as u64 / 1350);
        assert!(report["rtt_ms"].as_f64().unwrap() > 0.0);
        assert!(report["time_s"].as_f64().unwrap() > 0.0);
        assert!(std::fs::read(scratch.path().join(&name)).unwrap() == bytes(len), "{len} differ");
    }
    assert_eq!(names(scratch.path()).len(), 6);
}

/// The server has hashed a large file once an upload or a download has carried it.
#[test]
fn the_hash_of_a_large_file_is_announced_once_it_is_known() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    let announced = |path: &str| {
        let report = report(server.download(path, scratch.path()).arg("--force"));
        match &report["server_sha256"] {
            Value::Null => false,
            hash => *hash == report["sha256"],
        }
    };
    let path = file(&scratch, "uploaded", 2_000_000);
    succeeds(&mut server.client(&path, "/"));
    assert!(announced("/uploaded"));
    for len in [2_000_000, 2_500_000] {
        std::fs::write(server.dir().join("placed"), bytes(len)).unwrap();
        assert!(!announced("/placed"));
        assert!(announced("/placed"));
    }
}

#[test]
fn what_is_uploaded_can_be_downloaded() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "50% #1? grüße.bin", 100_000);
    succeeds(&mut server.client(&path, "/"));
    let elsewhere = tempdir().unwrap();
    let url = "/50%25%20%231%3F%20gr%C3%BC%C3%9Fe.bin";
    succeeds(&mut server.download(url, elsewhere.path()));
    assert_eq!(names(elsewhere.path()), ["50% #1? grüße.bin"]);
}

#[test]
fn the_file_goes_where_the_user_says() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    std::fs::write(server.dir().join("x"), bytes(200_000)).unwrap();
    let mut elsewhere = server.download("/x", scratch.path());
    succeeds(elsewhere.args(["-o", "y"]));
    assert!(std::fs::read(scratch.path().join("y")).unwrap() == bytes(200_000));
    std::fs::write(scratch.path().join("y"), "old").unwrap();
    let mut again = server.download("/x", scratch.path());
    succeeds(again.args(["--force", "--output", "y"]));
    assert!(std::fs::read(scratch.path().join("y")).unwrap() == bytes(200_000));

    let output = succeeds(server.download("/x", scratch.path()).args(["-o", "-"]));
    assert!(output.stdout == bytes(200_000));
    assert!(String::from_utf8_lossy(&output.stderr).contains("-> standard output"));
    succeeds(server.download("/x", scratch.path()).args(["-o", "/dev/null"]));
    assert_eq!(names(scratch.path()), ["y"]);
}

/// Neither is replaced by a file.
#[test]
fn open_files_and_pipes_are_written_at_once() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    std::fs::write(server.dir().join("x"), bytes(200_000)).unwrap();
    for (redirection, place) in
        [(">all", "/dev/stdout"), (">>all", "/dev/stdout"), ("3>all", "/dev/fd/3")]
    {
        std::fs::write(scratch.path().join("all"), "").unwrap();
        let mut shell = Command::new("sh");
        let line = format!("exec {redirection}; \"$@\" --force --quiet -o {place}");
        shell.args(["-c", &line, "sh", env!("CARGO_BIN_EXE_h3-download")]);
        shell.arg(server.url("/x")).arg("--cafile").arg(server.ca()).current_dir(scratch.path());
        succeeds(&mut shell);
        let all = std::fs::read(scratch.path().join("all")).unwrap();
        assert!(all == bytes(200_000), "{redirection}: {} bytes", all.len());
    }
    assert!(std::fs::symlink_metadata("/dev/stdout").unwrap().is_symlink());

    let pipe = scratch.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut command = server.download("/x", scratch.path());
    let mut child = command.args(["--force", "--quiet", "-o", "pipe"]).spawn().unwrap();
    let (read, content) = mpsc::channel();
    let reader = pipe.clone();
    std::thread::spawn(move || read.send(std::fs::read(reader).unwrap()));
    let content = content.recv_timeout(PATIENCE).unwrap();
    assert!(child.wait().unwrap().success() && content == bytes(200_000));
    assert_eq!(names(scratch.path()), ["all", "pipe"]);
    assert!(!std::fs::metadata(&pipe).unwrap().is_file());
}

#[test]
fn a_new_file_has_the_usual_permissions() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    std::fs::write(server.dir().join("x"), "abc").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 027; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_h3-download")]);
    shell.arg(server.url("/x")).arg("--cafile").arg(server.ca()).current_dir(scratch.path());
    succeeds(&mut shell);
    let mode = std::fs::metadata(scratch.path().join("x")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn quiet_prints_nothing_and_otherwise_there_is_a_summary() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    std::fs::write(server.dir().join("x"), "abc").unwrap();
    let plain = succeeds(&mut server.download("/x", scratch.path()));
    let said = String::from_utf8(plain.stderr).unwrap();
    let hash = "sha256 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad, as the \
                server announced";
    assert!(said.contains("packets received") && said.contains(hash), "{said}");
    assert!(plain.stdout.is_empty());
    let quiet = succeeds(server.download("/x", scratch.path()).args(["-q", "-f"]));
    assert!(quiet.stdout.is_empty() && quiet.stderr.is_empty());
}

#[test]
fn without_its_proxy_a_download_is_unassisted() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    std::fs::write(server.dir().join("x"), bytes(500_000)).unwrap();
    for mode in ["receive", "auto", "reinject"] {
        let mut command = server.download("/x", scratch.path());
        // No program listens at the discard port.
        command.args(["--force", "--sidekick", mode, "--proxy", "127.0.0.1:9"]);
        let report = report(&mut command);
        assert_eq!(report["mode"], mode);
        assert_eq!(report["assisted"], false);
        assert_eq!(report["repeats_requested"], 0);
        assert_eq!(report["repaired_near"], 0);
        assert_eq!(report["held_ms"]["max"], 0.0);
        if mode != "reinject" {
            assert_eq!(report["receiving"], "no proxy keeps copies of what is received");
        }
    }
}

/// The near segment loses every fortieth packet of the server. The proxy's copies replace them.
#[test]
fn a_proxy_repairs_what_the_near_segment_lost() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    std::fs::write(server.dir().join("x"), bytes(2_000_000)).unwrap();
    let relay = Relay::for_downloads(server.port, 40);
    let url = format!("https://127.0.0.1:{}/x", relay.port);
    let mut command = download(&url, scratch.path());
    command.arg("--cafile").arg(server.ca());
    command.args(["--sidekick", "receive", "--proxy", &relay.proxy.to_string()]);
    let report = report(&mut command);
    println!("{report}");
    assert_eq!(report["assisted"], true);
    assert!(report["repaired_near"].as_u64().unwrap() > 10, "{report}");
    assert!(report["repeats_received"].as_u64() >= report["repaired_near"].as_u64());
    // A request may name several packets.
    assert!(report["repeats_requested"].as_u64().unwrap() > 0, "{report}");
    assert!(report["held_ms"]["max"].as_f64() >= report["held_ms"]["p50"].as_f64());
    assert_ne!(report["receiving"], "off");
    assert!(std::fs::read(scratch.path().join("x")).unwrap() == bytes(2_000_000));
}

/// The whole file fits in the server's send window, so the server has written it long before the
/// slow path has carried it.
#[test]
fn a_slow_download_is_not_cut_off() {
    let server = Server::start(&["--request-timeout", "2"]);
    let scratch = tempdir().unwrap();
    std::fs::write(server.dir().join("x"), bytes(600_000)).unwrap();
    let relay = Relay::for_downloads(server.port, 20);
    let url = format!("https://127.0.0.1:{}/x", relay.port);
    succeeds(download(&url, scratch.path()).arg("--cafile").arg(server.ca()));
    assert!(std::fs::read(scratch.path().join("x")).unwrap() == bytes(600_000));
}

#[test]
fn many_clients_at_once() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    std::fs::write(server.dir().join("x"), bytes(300_000)).unwrap();
    let clients: Vec<_> = (0..6)
        .map(|n| {
            let mut command = server.download("/x", scratch.path());
            command.args(["-q", "-o", &format!("x{n}")]).spawn().unwrap()
        })
        .collect();
    for mut client in clients {
        assert!(client.wait().unwrap().success());
    }
    assert_eq!(names(scratch.path()), ["x0", "x1", "x2", "x3", "x4", "x5"]);
    for name in names(scratch.path()) {
        assert!(std::fs::read(scratch.path().join(name)).unwrap() == bytes(300_000));
    }
}
