//! An upload by an unmodified program, by `sidekick-lab exec`.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sidekick_netem::source::SourceFile;

/// The seed of the path, and of the contents.
pub(crate) const SEED: u64 = 5;
/// The length of the file.
pub(crate) const BYTES: u64 = 2 * 1024 * 1024;

/// Uploads a file by `quinn-client` over the paper's path at 4 % loss, and checks that it arrived.
/// `options` are further options of `exec`. Returns the client's report and the lab's record.
pub(crate) fn upload(options: &[&str]) -> (Value, Value) {
    let lab = Path::new(env!("CARGO_BIN_EXE_sidekick-lab"));
    let programs = lab.parent().unwrap().display();
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().display();
    let file = SourceFile::generate(&directory.path().join("file"), BYTES, SEED).unwrap();
    let [store, record, ready] =
        ["store", "record", "ready"].map(|name| directory.path().join(name));
    fs::create_dir(&store).unwrap();
    assert!(Command::new("mkfifo").arg(ready).status().unwrap().success());
    // The client waits for the server's line `ready`, and keeps the pipe open.
    let server = format!(
        "exec {programs}/h3-upload-server --dir {here}/store --listen $SIDEKICK_RECEIVER_IP:4433 \
         --self-signed $SIDEKICK_RECEIVER_IP --write-ca {here}/ca.pem > {here}/ready"
    );
    let client = format!(
        "exec 3< {here}/ready; read -r _ <&3
        exec {programs}/quinn-client --cafile {here}/ca.pem --upload {here}/file \
         https://$SIDEKICK_RECEIVER_IP:4433/upload"
    );
    let output = Command::new(lab)
        .args(["exec", "upload-paper", "--seed", &SEED.to_string()])
        .args(["--set", "near.loss_percent=4"])
        .args(options)
        .args(["--peer", &server, "--json-file", record.to_str().unwrap()])
        .args(["--", "sh", "-c", &client])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "seed {SEED}: {error}");
    // The lab reports a peer, a proxy or an agent that ended before the client.
    assert!(!error.contains("ended during the run"), "seed {SEED}: {error}");
    let arrived = SourceFile::open(&store.join("upload")).unwrap();
    assert_eq!((arrived.bytes, arrived.sha256), (BYTES, file.sha256), "seed {SEED}");
    let record = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    (serde_json::from_slice(&output.stdout).unwrap(), record)
}
