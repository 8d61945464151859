//! The runner itself, with the peers that need no registry, and with peers that fail in typical
//! ways.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn runner(out: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidekick-interop"));
    command.arg("--out").arg(out).args(arguments).output().unwrap()
}

/// The results of a run: the `tries` with peers, or the downloads from our own server (`served`).
fn results(out: &Path, of: &str) -> Vec<Value> {
    let results: Value =
        serde_json::from_slice(&fs::read(out.join("results.json")).unwrap()).unwrap();
    results[of].as_array().unwrap().clone()
}

fn tries(out: &Path) -> Vec<Value> {
    results(out, "tries")
}

/// A peer whose two programs are shell scripts.
fn peer(peers: &Path, name: &str, install: &str, serve: &str) {
    let folder = peers.join(name);
    fs::create_dir_all(&folder).unwrap();
    let about = format!("name = {name:?}\nversion = \"1\"\nsource = \"https://peer.example\"\n");
    fs::write(folder.join("peer.toml"), about).unwrap();
    for (program, script) in [("install", install), ("serve", serve)] {
        fs::write(folder.join(program), format!("#!/bin/sh\nset -eu\n{script}\n")).unwrap();
        fs::set_permissions(folder.join(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// The goodput of one more try.
fn goodput_of(peer: &str, case: &str, sender: &str) -> f64 {
    let out = tempfile::tempdir().unwrap();
    let only = ["--peer", peer, "--case", case, "--sender", sender, "--near-loss", "2"];
    let output = runner(out.path(), &only);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    tries(out.path())[0]["goodput_mbit_s"].as_f64().unwrap()
}

#[test]
fn quinn_and_stock_quiche_pass_every_case_up_and_down() {
    let out = tempfile::tempdir().unwrap();
    let output = runner(
        out.path(),
        &["--peer", "quinn,quiche", "--sender", "auto,cubic-rfc9438,receive", "--near-loss", "2"],
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let tries = tries(out.path());
    // `receive` runs only the three cases in which a file goes down.
    assert_eq!(tries.len(), 2 * (15 + 15 + 3), "{said}");
    for tried in &tries {
        // quiche begins no key update. Whether a client prefers ChaCha20 depends on the processor.
        let cannot = tried["peer"] == "quiche" && tried["case"] == "key-update"
            || tried["case"] == "chacha20"
                && !cfg!(any(target_arch = "x86", target_arch = "x86_64"));
        assert_eq!(tried["outcome"], if cannot { "unsupported" } else { "passed" }, "{tried}");
    }
    // The purpose of the project. A download from quiche gains less: its CUBIC undoes its reaction
    // to an episode in which few packets are lost. A pause of the machine only slows a try, so the
    // best of three counts, with help and without.
    let find = |peer, case, sender| {
        let found =
            tries.iter().find(|t| t["peer"] == peer && t["case"] == case && t["sender"] == sender);
        found.unwrap()
    };
    for (peer, case, sender, least) in [
        ("quinn", "upload", "auto", 3.0),
        ("quiche", "upload", "auto", 3.0),
        ("quinn", "download", "receive", 2.0),
    ] {
        let goodput = |sender| find(peer, case, sender)["goodput_mbit_s"].as_f64().unwrap();
        let (mut helped, mut alone) = (goodput(sender), goodput("cubic-rfc9438"));
        for _ in 0..2 {
            if helped >= least * alone {
                break;
            }
            println!("{peer}, {case}: {helped}, and {alone} without help");
            helped = helped.max(goodput_of(peer, case, sender));
            alone = alone.max(goodput_of(peer, case, "cubic-rfc9438"));
        }
        assert!(helped >= least * alone, "{peer}, {case}: {helped}, and {alone} without help");
    }
    let helped =
        [("quinn", "auto"), ("quinn", "receive"), ("quiche", "auto"), ("quiche", "receive")];
    for (peer, sender) in helped {
        let helped = find(peer, "download", sender);
        let count = |what: &str| helped[what].as_u64().unwrap();
        assert_eq!(count("bytes"), 4 << 20);
        assert_eq!(helped["copies_kept"], true, "{helped}");
        // On a busy machine the client pauses at times. The proxy's own packets are lost too.
        assert!(count("repaired_near") > count("near_lost_down") / 4, "{helped}");
        assert!(count("repeats_received") >= count("repaired_near"), "{helped}");
    }
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("| 2 MiB up, the server updates the keys | no [1] | 2/2 |"), "{table}");
}

#[test]
fn our_own_server_is_helped_until_it_has_ended() {
    let out = tempfile::tempdir().unwrap();
    let output = runner(out.path(), &["--peer", "ours", "--sender", "auto", "--near-loss", "2"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let served = results(out.path(), "served");
    assert_eq!(served.len(), 3, "{said}");
    for download in &served {
        assert_eq!(
            (&download["outcome"], &download["assisted"]),
            (&"passed".into(), &true.into()),
            "{download}"
        );
    }
    // 2 % are lost before the proxy. End-to-end loss detection finds less than half of them first.
    let first_hop = served.iter().find(|download| download["place"] == "first-hop").unwrap();
    let count = |what| first_hop["packets"][what].as_u64().unwrap();
    assert!(count("lost_early") > count("sent") / 100, "{first_hop}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(table.matches("## ").count(), 1, "{table}");
}

#[test]
fn a_failing_peer_has_reasons_in_its_cells_and_the_rest_runs() {
    let (out, peers) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = r#"exec "$SIDEKICK_PROGRAMS/stock-quiche-server" "$@""#;
    // A real peer whose package index does not answer.
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/aioquic/install");
    peer(
        peers.path(),
        "no-registry",
        &format!("PIP_INDEX_URL=http://127.0.0.1:9 exec {} \"$1\"", real.display()),
        "exit 1",
    );
    peer(peers.path(), "no-start", "", "echo 'starting' >&2; echo 'no such module' >&2; exit 1");
    peer(peers.path(), "silent", "", "exec sleep 1000");
    // Another server has its port.
    let taken = format!(
        r#"shift; {} > other.out & until grep -q ready other.out; do :; done; {server}"#,
        server.trim_start_matches("exec ")
    );
    peer(peers.path(), "port-taken", "", &taken);
    // It closes its files before it is said to be ready, because only its end closes the pipe. The
    // client takes longer than the rest of its end.
    let dies = "mkfifo alive; { read -r _ < alive || echo 'ready: for a moment'; } & \
                exec 3> alive; echo 'out of memory' >&2; exit 1";
    peer(peers.path(), "dies", "", dies);
    peer(peers.path(), "well", "", &format!("shift; {server}"));
    let arguments = [
        "--case",
        "small",
        "--sender",
        "cubic-rfc9438",
        "--near-loss",
        "0",
        "--jobs",
        "6",
        "--peers-from",
    ];
    let output = runner(out.path(), &[&arguments[..], &[peers.path().to_str().unwrap()]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("5 of 6 tries failed"), "{said}");
    let table = String::from_utf8(output.stdout).unwrap();
    let tries = tries(out.path());
    for (peer, outcome, why) in [
        ("no-registry", "missing", "check that the package index"),
        ("no-start", "failed", "ended before it was ready: no such module (exit status: 1)"),
        ("silent", "failed", "was not ready within"),
        ("port-taken", "failed", "cannot listen on 10.77.2.2:4433"),
        ("dies", "failed", "the server ended: out of memory (exit status: 1)"),
        ("well", "passed", ""),
    ] {
        let tried = tries.iter().find(|tried| tried["peer"] == peer).unwrap();
        assert_eq!(tried["outcome"], outcome, "{tried}");
        let reason = tried["why"].as_str().unwrap_or_default();
        assert!(reason.contains(why), "{peer}: {reason}");
        // The table has every reason, too, with escapes.
        assert!(table.replace('\\', "").contains(reason), "{peer}: {table}");
    }
    let kept = out.path().join("failed/no-start--small--cubic-rfc9438--0---near-loss");
    assert!(kept.join("the server.stderr").is_file());
    assert!(fs::read_to_string(kept.join("why")).unwrap().contains("no such module"));
}

#[test]
fn errors_name_unknown_peers_cases_and_senders() {
    let out = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&["--peer", "nobody"][..], "there is no peer nobody"),
        (&["--case", "everything"], "choose one of upload, download"),
        (&["--near-loss", "200"], "between 0 and 100"),
        (&["--peer", "quinn", "--case", "small", "--sender", "bbr2"], "there is nothing to try"),
        (&["--case", "download", "--sender", "pacubic"], "only auto and receive run the case"),
        (&["--peer", "ours", "--case", "small"], "leave out --case"),
        (&["--peer", "ours,quinn", "--case", "download"], "leave out --case"),
        (&["--peers-from", "/nonexistent"], "cannot read the peers' directory /nonexistent"),
    ] {
        let output = runner(out.path(), arguments);
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_list_that_cannot_be_written_is_an_error() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidekick-interop"));
    let output = command.arg("--list").stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
}

/// The versions in the tables are those that are installed.
#[test]
fn the_peers_have_the_stated_versions() {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    let read = |file: &str| fs::read_to_string(peers.join(file)).unwrap();
    let table = |text: String| -> toml::Table { text.parse().unwrap() };
    let version = |peer: &str| {
        let about = table(read(&format!("{peer}/peer.toml")));
        assert!(
            about["source"].as_str().unwrap().contains(about["version"].as_str().unwrap())
                || peer == "caddy"
        );
        about["version"].as_str().unwrap().to_owned()
    };
    // The versions that cargo builds: the manifest requires "=VERSION", or the lock file has only
    // one version.
    let manifest = table(read("quiche/Cargo.toml"));
    assert_eq!(
        manifest["dependencies"]["quiche"]["version"].as_str(),
        Some(&*format!("={}", version("quiche")))
    );
    let lock = table(read("../../Cargo.lock"));
    let locked: Vec<&str> = lock["package"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|package| package["name"].as_str() == Some("quinn"))
        .map(|package| package["version"].as_str().unwrap())
        .collect();
    assert_eq!(locked, [version("quinn")]);
    // The versions that the others' own files fetch.
    for (peer, file, what) in [
        ("aioquic", "requirements.txt", "aioquic=={version} "),
        ("caddy", "install", "package=caddy version={version}-"),
        ("flupke", "jars.sha256", "tech/kwik/flupke/{version}/flupke-{version}.jar\n"),
        ("quic-go", "go.mod", "github.com/quic-go/quic-go v{version}\n"),
    ] {
        let what = what.replace("{version}", &version(peer));
        assert!(read(&format!("{peer}/{file}")).contains(&what), "{peer}: {file} has no {what}");
    }
}
