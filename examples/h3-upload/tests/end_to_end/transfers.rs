//! Uploads and downloads that succeed.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;

use serde_json::Value;
use tempfile::tempdir;

use crate::child::PATIENCE;
use crate::programs::{Server, bytes, download, file, names};
use crate::relay::Relay;

/// The hash of the empty string. The tests compare other hashes with the server's.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

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
    let path = file(&scratch, "x", 9);
    let upload = report(&mut server.client(&path, "/"));
    let download = report(server.download("/x", scratch.path()).arg("--force"));
    for report in [upload, download] {
        let fields = report.as_object().unwrap();
        let parts = fields.values().filter_map(Value::as_object).flat_map(|part| part.keys());
        for field in fields.keys().chain(parts) {
            assert!(text.contains(&format!("`{field}`")), "{field}");
        }
    }
}

#[test]
fn files_of_all_sizes_arrive_unchanged() {
    let server = Server::start(&[]);
    let (scratch, back) = (tempdir().unwrap(), tempdir().unwrap());
    let sizes = [0, 1, 16 * 1024, 16 * 1024 + 1, 64 * 1024, 1024 * 1024, 3 * 1024 * 1024];
    for len in sizes {
        let name = format!("of-{len}");
        let path = file(&scratch, &name, len);
        let upload = report(&mut server.client(&path, "/"));
        assert!(std::fs::read(server.dir().join(&name)).unwrap() == bytes(len), "{len} differ");
        let download = report(&mut server.download(&format!("/{name}"), back.path()));
        assert!(std::fs::read(back.path().join(&name)).unwrap() == bytes(len), "{len} differ");
        assert_eq!(upload["cc"], "bbr2");
        // The client sends up to 1452 bytes in a datagram once it knows that the path carries them.
        let sent = upload["packets"]["sent"].as_u64().unwrap();
        assert!(sent > len as u64 / 1452, "{sent} packets for {len} bytes");
        assert_eq!(download["file"], name);
        assert!(download["packets"]["received"].as_u64().unwrap() > len as u64 / 1452);
        for report in [upload, download] {
            assert_eq!(report["bytes"], len);
            assert_eq!(report["sha256"], report["server_sha256"]);
            assert_eq!(report["sha256"] == EMPTY_SHA256, len == 0);
            assert!(report["packets"]["received"].as_u64().unwrap() > 0);
            assert!(report["rtt_ms"].as_f64().unwrap() > 0.0);
            assert!(report["time_s"].as_f64().unwrap() > 0.0);
            for off in ["assistance", "receiving", "mode"] {
                assert_eq!(report[off], "off", "{off}");
            }
            assert_eq!(report["assisted"], false);
            assert_eq!(report["near_rtt_ms"], Value::Null);
            assert_eq!(report["repeats_requested"], 0);
        }
    }
    assert_eq!(server.stored().len(), sizes.len());
    assert_eq!(names(back.path()).len(), sizes.len());
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
fn the_report_has_what_was_tuned() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 10_000);
    let tune = |options: &[&str]| report(server.client(&path, "/").args(options))["tune"].clone();
    let geo = tune(&["--network", "geo"]);
    for begin in ["UDP payload up to 1452 bytes: ", "pacing off: ", "initial RTT 700 ms: "] {
        let mut sentences = geo.as_array().unwrap().iter().filter_map(Value::as_str);
        assert!(sentences.any(|sentence| sentence.starts_with(begin)), "{begin}: {geo}");
    }
    assert_eq!(tune(&["--tune", "off"]), Value::Null);
}

#[test]
fn every_congestion_control_works() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 500_000);
    for cc in ["cubic", "cubic-rfc9438", "reno", "bbr2"] {
        assert_eq!(report(server.client(&path, "/").args(["--cc", cc]))["cc"], cc);
    }
}

#[test]
fn without_its_proxy_a_transfer_is_unassisted() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 500_000);
    for (mode, cc, receives) in [
        ("early-loss", "bbr2", false),
        ("pacubic", "cubic-rfc9438", false),
        ("path-aware-bbr", "bbr2", false),
        ("receive", "bbr2", true),
        ("auto", "bbr2", true),
    ] {
        // No program listens at the discard port.
        let sidekick = ["--sidekick", mode, "--proxy", "127.0.0.1:9"];
        let upload = report(server.client(&path, "/").args(sidekick));
        let mut download = server.download("/x", scratch.path());
        let download = report(download.arg("--force").args(sidekick));
        for report in [upload, download] {
            assert_eq!(report["mode"], mode);
            assert_eq!(report["cc"], cc);
            assert_eq!(report["assisted"], false);
            // Early in the search, or after it.
            let said = report["assistance"].as_str().unwrap();
            assert!(said.contains("no answer") && said.contains("from 127.0.0.1:9"), "{said}");
            assert_eq!(report["packets"]["lost_early"], 0);
            assert_eq!(report["quacks"]["received"], 0);
            assert_eq!(report["repeats_requested"], 0);
            assert_eq!(report["repaired_near"], 0);
            assert_eq!(report["held_ms"]["max"], 0.0);
            let receiving =
                if receives { "no proxy keeps copies of what is received" } else { "off" };
            assert_eq!(report["receiving"], receiving, "{mode}");
        }
    }
}

#[test]
fn the_url_names_the_file_and_odd_names_survive() {
    const ODD: &str = "50% #1? grüße.bin";
    let server = Server::start(&[]);
    let (scratch, elsewhere) = (tempdir().unwrap(), tempdir().unwrap());
    let path = file(&scratch, ODD, 10);
    for to in ["/", "/renamed", "/with%20a%20space"] {
        succeeds(&mut server.client(&path, to));
    }
    assert_eq!(server.stored(), [ODD, "renamed", "with a space"]);
    let url = "/50%25%20%231%3F%20gr%C3%BC%C3%9Fe.bin";
    succeeds(&mut server.download(url, elsewhere.path()));
    assert_eq!(names(elsewhere.path()), [ODD]);
}

#[test]
fn a_second_upload_replaces_the_first() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    for len in [2000, 1000] {
        let path = file(&scratch, "x", len);
        succeeds(&mut server.client(&path, "/"));
        assert!(std::fs::read(server.dir().join("x")).unwrap() == bytes(len));
    }
}

#[test]
fn a_pipe_is_read_until_it_ends() {
    let server = Server::start(&[]);
    let mut command = server.client("/dev/stdin".as_ref(), "/piped");
    let mut client = command.stdin(Stdio::piped()).spawn().unwrap();
    client.stdin.take().unwrap().write_all(&bytes(300_000)).unwrap();
    assert!(client.wait().unwrap().success());
    assert!(std::fs::read(server.dir().join("piped")).unwrap() == bytes(300_000));
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
    let path = scratch.path().join("x");
    std::fs::write(&path, "abc").unwrap();
    let upload = || server.client(&path, "/");
    let download = || {
        let mut command = server.download("/x", scratch.path());
        command.arg("-f");
        command
    };
    let hash = "sha256 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let checked = format!("{hash}, as the server announced");
    for (quiet, plain, words) in [
        (succeeds(upload().arg("--quiet")), succeeds(&mut upload()), ["control bbr2", hash]),
        (succeeds(download().arg("-q")), succeeds(&mut download()), ["received", &checked]),
    ] {
        assert!(quiet.stdout.is_empty() && quiet.stderr.is_empty() && plain.stdout.is_empty());
        let said = String::from_utf8(plain.stderr).unwrap();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
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
    let mut clients = Vec::new();
    for n in 0..6 {
        let path = file(&scratch, &format!("up{n}"), 200_000);
        clients.push(server.client(&path, "/").arg("-q").spawn().unwrap());
        let mut command = server.download("/x", scratch.path());
        clients.push(command.args(["-q", "-o", &format!("down{n}")]).spawn().unwrap());
    }
    for client in &mut clients {
        assert!(client.wait().unwrap().success());
    }
    for n in 0..6 {
        assert!(std::fs::read(server.dir().join(format!("up{n}"))).unwrap() == bytes(200_000));
        let down = scratch.path().join(format!("down{n}"));
        assert!(std::fs::read(down).unwrap() == bytes(300_000));
    }
    assert_eq!((server.stored().len(), names(scratch.path()).len()), (7, 12));
}
