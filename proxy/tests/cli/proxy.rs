//! The proxy's command line and its file.

use std::process::Command;

use crate::programs::{assert_sentence, fails, proxy};

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
    for (line, complaint) in [
        ("-i lo --bogus", "--bogus"),
        ("", "--interface"),
        ("-i lo --listen here", "write an address and port like [::]:5252"),
        ("-i lo --listen 5253", "write an address before the port, like [::]:5253"),
        (
            "-i lo --listen 0.0.0.0:1 --max-sessions 3 --buffer 9 --threads 2 --idle-timeout 5 \
             --max-threshold 9 --capture ring --promiscuous --metrics off --bogus",
            "--bogus",
        ),
        ("-i lo, --listen 0.0.0.0:5252", "the name is empty"),
    ] {
        let (status, stdout, stderr) = fails(&mut proxy(line));
        assert_eq!((status.code(), stdout.as_str()), (Some(2), ""), "{line}");
        assert!(stderr.contains(complaint), "{stderr}");
        assert!(stderr.lines().count() <= 6, "a long usage hides the error: {stderr}");
    }
}

#[test]
fn check_reads_a_file_and_starts_nothing() {
    let check = |file: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_sidekick-proxy"))
            .args(["check", file])
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, out, remarks) = check(concat!(env!("CARGO_MANIFEST_DIR"), "/sidekick-proxy.toml"));
    assert_eq!(code, Some(0));
    assert!(out.starts_with("interfaces = [\"eth0\"]\nlisten = \"[::]:5252\"\n"), "{out}");
    assert!(remarks.is_empty() || remarks.contains("there is no interface eth0"), "{remarks}");
    let (code, out, error) = check(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(
        error.contains("Cargo.toml:")
            && error.contains("this is not a key")
            && error.lines().count() == 1,
        "{error}"
    );
    // With an interface that may come later it can start, and without any it cannot.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("proxy.toml").display().to_string();
    for (text, code, said) in [
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
    ] {
        std::fs::write(&path, text).unwrap();
        let (checked, out, error) = check(&path);
        assert_eq!(checked, Some(code), "{text}{error}");
        assert!(out.contains("listen = \"[::]:5252\"\n"), "{out}");
        assert!(error.contains(said) && error.contains(&path), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
