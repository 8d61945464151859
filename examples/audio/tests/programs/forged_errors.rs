//! An attacker who knows the ports of a call forges ICMP errors of every kind, for all its sockets,
//! while the call runs.

use crate::child::{Ends, PATIENCE, lines};
use crate::namespace::in_namespace;
use crate::{Receiver, ear, silence, talker_report};
use audio::{ListenerReport, TalkerReport};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// A program that forges errors until it is dropped. It has forged all of them once.
fn forger() -> Ends {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proxy/tests/common/forge.py");
    let mut python = Command::new("python3");
    python.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = Ends(python.spawn().unwrap());
    let rounds = lines(python.stdout.take().unwrap());
    assert_eq!(rounds.recv_timeout(PATIENCE).unwrap(), "round");
    // Its further lines must not fill the pipe.
    std::thread::spawn(move || rounds.iter().count());
    python
}

/// A call of two seconds over the loopback interface at this address. `meanwhile` runs after its
/// beginning and before its end.
fn call(host: &str, meanwhile: impl FnOnce()) -> (TalkerReport, ListenerReport) {
    let mut receiver = Receiver::start(host, &["--playout-limit-ms", "10000"]);
    // A proxy that does not answer.
    let (ear, proxy) = ear(host);
    let options = ["--wav", "/dev/stdin", "--sidekick", "reinject", "--proxy", &proxy];
    let mut sender = receiver.sender(&options).stdin(Stdio::piped()).spawn().unwrap();
    let mut said = sender.stdin.take().unwrap();
    let silence = silence();
    let (first, rest) = silence.split_at(silence.len() / 4);
    said.write_all(first).unwrap();
    // Its HELLO shows that the call has begun. It cannot end without the rest of the file.
    ear.recv(&mut [0; 1500]).unwrap();
    meanwhile();
    said.write_all(rest).unwrap();
    drop(said);
    let output = sender.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    (talker_report(&output), receiver.ends())
}

#[test]
fn forged_errors_end_no_call_and_cost_it_nothing() {
    in_namespace(|| {
        for host in ["127.0.0.1", "[::1]"] {
            let mut figures = Vec::new();
            for forged in [false, true] {
                let _forger = forged.then(forger);
                // Another one forges all errors while the call lasts.
                let (talker, listener) = call(host, || drop(forged.then(forger)));
                let errors = [talker.socket_errors, listener.socket_errors];
                println!("{host}: {errors:?} errors reported");
                assert_eq!(errors[0] > 1, forged, "{host}: {talker:?}");
                // A NACK of the last packets may be queued, so counted, and never sent.
                let first = talker.packets.sent - talker.packets.retransmitted_nack;
                assert!(first <= listener.played, "{host}: {talker:?} {listener:?}");
                figures.push((talker.ending, listener.played, listener.late, listener.complete));
            }
            assert_eq!(figures[0], figures[1], "{host}");
        }
    });
}
