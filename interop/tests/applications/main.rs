//! Other people's applications with the plugin: the published examples of tokio-quiche and quiche,
//! with the lines of `applications/` added. The tests build them, and run them over a path that
//! loses packets.
//!
//! | file | what it does |
//! |---|---|
//! | `additions.rs` | reads and applies a diff |
//! | `application.rs` | finds and assembles an example |
//! | `build.rs` | builds them all |
//! | `lab.rs` | a path, and programs on its hosts |
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod additions;
mod application;
mod build;
#[path = "../../../netem/tests/support/enclosed.rs"]
mod enclosed;
mod lab;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sidekick_netem::source::hexadecimal;
use sidekick_netem::topology::{FAR, NEAR, PROXY_FAR, PROXY_NEAR};

use additions::Additions;
use application::{Application, read, workspace};
use build::{build, programs};
use enclosed::{ENCLOSED, enclosed};
use lab::{Lab, NAME, server};

const TOKIO_QUICHE: Application = Application {
    name: "async_http3_server",
    package: ("tokio-quiche", "0.20.1"),
    files: &[
        ("examples/async_http3_server/args.rs", "src/args.rs"),
        ("examples/async_http3_server/body.rs", "src/body.rs"),
        ("examples/async_http3_server/main.rs", "src/main.rs"),
        ("examples/async_http3_server/server.rs", "src/server.rs"),
        // It needs them even if its options name another certificate.
        ("examples/cert.crt", "examples/cert.crt"),
        ("examples/cert.key", "examples/cert.key"),
    ],
};

const QUICHE: Application = Application {
    name: "http3-client",
    package: ("quiche", "0.30.0"),
    files: &[("examples/http3-client.rs", "src/main.rs")],
};

/// The program of an application. The first call builds all applications. A test inside an
/// enclosure is another process, which finds them built: two builds would write the same files.
fn program(application: &Application) -> PathBuf {
    static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| {
        if std::env::var_os(ENCLOSED).is_none() {
            build(&[&TOKIO_QUICHE, &QUICHE]);
        }
        programs()
    });
    PROGRAMS.join(application.name)
}

/// (lines removed, lines added) of a file.
fn size(all: &[Additions], file: &str) -> (usize, usize) {
    all.iter().filter(|additions| additions.file == file).fold((0, 0), |(gone, come), additions| {
        (gone + additions.removed(), come + additions.added())
    })
}

#[test]
fn the_guide_counts_the_lines_that_are_built_here() {
    let guide = read(&workspace().join("docs/integrate.md"));
    let all = Additions::parse(&TOKIO_QUICHE.diff());
    assert!(guide.contains("two lines of Rust and two of `Cargo.toml`"));
    assert_eq!(size(&all, "Cargo.toml"), (1, 2));
    assert_eq!((size(&all, "src/main.rs"), size(&all, "src/server.rs")), ((0, 1), (0, 1)));

    let all = Additions::parse(&QUICHE.diff());
    assert_eq!(size(&all, "Cargo.toml"), (1, 1));
    let (gone, come) = size(&all, "src/main.rs");
    assert_eq!(gone, 0);
    assert!(
        guide.contains(&format!("takes {come} lines")),
        "docs/integrate.md lacks the number of lines, {come}"
    );
}

/// The bytes that tokio-quiche's server serves.
const SERVED: usize = 4 << 20;

/// Losses on the server's first hop, and a slow segment behind it. The path begins at the client.
const SERVER_S_FIRST_HOP: [&str; 6] = [
    "near.loss_percent=0",
    "near.delay_ms=25",
    "near.rate_mbit=10",
    "far.loss_percent=15",
    "far.delay_ms=1",
    "far.rate_mbit=100",
];

/// Downloads from the server, and returns the goodput in Mbit/s.
fn download(program: &Path, with_proxy: bool) -> f64 {
    let lab = Lab::new(&SERVER_S_FIRST_HOP);
    let _proxy = with_proxy.then(|| lab.proxy(FAR, PROXY_FAR));
    let mut command = Command::new(program);
    command.args([
        "--address",
        &server().to_string(),
        "--cc-algorithm",
        "bbr2_gcongestion",
        "--enable-pacing",
    ]);
    command
        .arg("--tls-cert-path")
        .arg(lab.certificate())
        .arg("--tls-private-key-path")
        .arg(lab.key());
    let _server = lab.start("the server", command, &lab.hosts().receiver);

    let get = |bytes: usize| -> Value {
        let mut command = lab.ours("interop-client");
        command.args(["--server", &server().to_string(), "--name", NAME]);
        command.arg("--cafile").arg(lab.certificate());
        command.args(["get", &format!("stream-bytes/{bytes}")]);
        let report = lab.finish("the client", command, &lab.hosts().sender);
        println!("{}", report.trim());
        serde_json::from_str(&report).unwrap()
    };
    // The server does not report when it is ready, but its first answer shows it.
    get(1);
    let report = get(SERVED);
    assert_eq!(report["sha256"], hexadecimal(&Sha256::digest(vec![b'W'; SERVED])));
    if with_proxy {
        let totals = lab.proxy_status()["totals"].take();
        // No option names the proxy, so the server discovered it.
        for what in ["markers", "sessions", "quacks"] {
            assert!(totals[what].as_u64().unwrap() > 0, "{what}: {totals}");
        }
    }
    report["goodput_mbit_s"].as_f64().unwrap()
}

#[test]
fn a_proxy_helps_tokio_quiche_s_own_server() {
    let program = program(&TOKIO_QUICHE);
    enclosed("a_proxy_helps_tokio_quiche_s_own_server", || {
        let (mut helped, mut alone) = (download(&program, true), download(&program, false));
        println!("{helped:.2} Mbit/s with a proxy on the path, {alone:.2} without");
        // A pause of the machine only slows a download, so the best of three counts, with a proxy
        // and without.
        for _ in 0..2 {
            if helped > 2.0 * alone {
                break;
            }
            helped = helped.max(download(&program, true));
            alone = alone.max(download(&program, false));
            println!("{helped:.2} Mbit/s with a proxy in the best of these, {alone:.2} without");
        }
        assert!(helped > 2.0 * alone, "{helped} with a proxy on the path, {alone} without");
    });
}

#[test]
fn a_proxy_counts_the_packets_of_quiche_s_own_client() {
    let program = program(&QUICHE);
    enclosed("a_proxy_counts_the_packets_of_quiche_s_own_client", || {
        let lab = Lab::new(&["near.loss_percent=4"]);
        let _proxy = lab.proxy(NEAR, PROXY_NEAR);
        let root = lab.directory().join("root");
        std::fs::create_dir(&root).unwrap();
        // The client prints the answer as text.
        let text = (0..100_000).fold(String::new(), |mut text, number| {
            writeln!(text, "{number}").unwrap();
            text
        });
        std::fs::write(root.join("numbers"), &text).unwrap();
        let mut command = lab.ours("interop-server");
        command.args(["--listen", &server().to_string()]).arg("--root").arg(&root);
        command.arg("--cert").arg(lab.certificate()).arg("--key").arg(lab.key());
        let mut serving = lab.start("the server", command, &lab.hosts().receiver);
        serving.wait_until_ready().unwrap();

        let mut command = Command::new(&program);
        command.arg(format!("https://{}/numbers", server()));
        let printed = lab.finish("the client", command, &lab.hosts().sender);
        assert!(printed == text, "{} bytes came of {}", printed.len(), text.len());

        let status = lab.proxy_status();
        // The client does not end its session with the proxy, so the session remains.
        let session = &status["sessions"][0];
        assert_eq!(session["destination"], server().to_string(), "{status}");
        assert!(
            session["counted"].as_u64().unwrap() > 0 && session["quacks"].as_u64().unwrap() > 0,
            "{status}"
        );
    });
}

#[test]
fn a_proxy_helps_our_example_of_tokio_quiche() {
    enclosed("a_proxy_helps_our_example_of_tokio_quiche", || {
        let lab = Lab::new(&["near.loss_percent=4"]);
        let _proxy = lab.proxy(NEAR, PROXY_NEAR);
        let root = lab.directory().join("root");
        std::fs::create_dir(&root).unwrap();
        let content: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_be_bytes).collect();
        std::fs::write(root.join("numbers"), &content).unwrap();
        let mut command = lab.ours("interop-server");
        command.args(["--listen", &server().to_string()]).arg("--root").arg(&root);
        command.arg("--cert").arg(lab.certificate()).arg("--key").arg(lab.key());
        let mut serving = lab.start("the server", command, &lab.hosts().receiver);
        serving.wait_until_ready().unwrap();

        for sidekick in ["plugin", "socket"] {
            let mut command = lab.ours("tokio-quiche-client");
            command.env("SSL_CERT_FILE", lab.certificate());
            command.args(["--server", &server().to_string(), "--name", NAME, "/numbers"]);
            command.args(["--sidekick", sidekick]);
            let printed = lab.finish("the client", command, &lab.hosts().sender);
            println!("{sidekick}: {}", printed.trim());
            let report: Value = serde_json::from_str(&printed).unwrap();
            assert_eq!(report["sha256"], hexadecimal(&Sha256::digest(&content)));
            // About 30 of its packets are lost between the proxy and the client.
            assert_eq!(report["assisted"], true);
            assert!(report["repeats_received"].as_u64().unwrap() > 0);
        }
    });
}
