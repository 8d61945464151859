//! The example in C. The test builds and runs it as a user of the library does, with gcc and
//! pkg-config. The path loses packets, and the server is not quiche.

use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::time::Duration;

use sidekick_netem::path::{Backend, Path};
use sidekick_netem::programs::{Program, Programs};
use sidekick_netem::scenario::Scenario;
use sidekick_netem::source::{SourceFile, sha256};
use sidekick_netem::topology::{PROXY_NEAR, PROXY_PORT, RECEIVER, SERVER_PORT};

use crate::support::enclosed::in_enclosure;
use crate::support::example_in_c::build;
use crate::support::transfers::{NAME, Proxy, server};

/// The longest wait. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn the_example_in_c_transfers_with_help() {
    in_enclosure(|| {
        let scenario = Scenario::with("upload-paper", &["near.loss_percent=4"]).unwrap();
        let path = Path::build(Backend::User, &scenario, 7).unwrap();
        let hosts = path.topology();
        let directory = tempfile::tempdir().unwrap();
        let beside = FilePath::new(env!("CARGO_BIN_EXE_sidekick-lab")).parent().unwrap();
        build(beside, directory.path());
        let (ours, in_c) = (
            Programs::find(Some(beside)).unwrap(),
            Programs::find(Some(directory.path())).unwrap(),
        );
        let start = |programs, name, arguments: &[&str], host| {
            let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
            Program::start(programs, name, &arguments, host, directory.path()).unwrap()
        };
        let (_server, ca) = server(&ours, hosts, directory.path());
        let _proxy = Proxy::start(&ours, hosts, directory.path());
        let store = directory.path().join("store");
        let (host, known) =
            (RECEIVER.to_string(), SocketAddr::from((PROXY_NEAR, PROXY_PORT)).to_string());

        let file = SourceFile::generate(&directory.path().join("file"), 2_000_000, 7).unwrap();
        let (text, port) = (file.path.display().to_string(), SERVER_PORT.to_string());
        for (mode, proxy) in
            [("pacubic", &["-p", &*known][..]), ("path-aware-bbr", &[]), ("reinject", &[])]
        {
            let name = format!("/{mode}");
            let line = [&["-c", &ca, "-n", NAME, "-m", mode], proxy, &[&text, &host, &port, &name]]
                .concat();
            let mut upload = start(&in_c, "upload", &line, &hosts.sender);
            let ended = upload.wait(PATIENCE).unwrap().unwrap();
            println!("{mode}: {}", ended.last_words);
            assert!(ended.status.success(), "{mode}: {}", ended.last_words);
            assert_eq!(sha256(&store.join(mode)).unwrap(), file.sha256, "{mode}");
            assert!(
                ended.last_words.starts_with("status 201; assisted by the proxy; "),
                "{mode}: {}",
                ended.last_words
            );
            let early = ended.last_words.rsplit(", ").next().unwrap();
            assert!(!early.starts_with("0 "), "{mode}: {}", ended.last_words);
        }

        // The server is unmodified. The proxy repeats the packets that the near segment lost.
        std::fs::copy(&file.path, store.join("served")).unwrap();
        let got = directory.path().join("got").display().to_string();
        let line = ["-g", "-c", &ca, "-n", NAME, "-m", "receive", &got, &host, &port, "/served"];
        let mut download = start(&in_c, "upload", &line, &hosts.sender);
        let ended = download.wait(PATIENCE).unwrap().unwrap();
        println!("receive: {}", ended.last_words);
        assert!(ended.status.success(), "{}", ended.last_words);
        assert_eq!(sha256(FilePath::new(&got)).unwrap(), file.sha256);
        let repaired = ended
            .last_words
            .split("; ")
            .find_map(|part| part.strip_suffix(" gaps repaired near")?.parse::<u64>().ok());
        assert!(repaired.is_some_and(|repaired| repaired > 0), "{}", ended.last_words);

        for (options, port, sentence) in [
            (&["-c", &ca, "-n", NAME][..], "69969", "upload: 69969 is not a port: use 1 to 65535"),
            (
                &["-c", &ca, "-n", NAME, "-p", "fe80::1"],
                &port,
                "upload: fe80::1 is not an IPv4 address",
            ),
            (
                &["-n", NAME],
                &port,
                "upload: the server's certificate is not trusted (TLS alert 48): ",
            ),
            (
                &["-c", &ca, "-n", "elsewhere.example"],
                &port,
                "upload: the server's certificate is not trusted (TLS alert 42): ",
            ),
        ] {
            let line = [options, &[&text, &host, port, "/refused"]].concat();
            let mut upload = start(&in_c, "upload", &line, &hosts.sender);
            let ended = upload.wait(PATIENCE).unwrap().unwrap();
            assert_eq!(ended.status.code(), Some(1), "{}", ended.last_words);
            assert!(ended.last_words.starts_with(sentence), "{}", ended.last_words);
        }
    });
}
