//! Servers that are found through HTTPS records (RFC 9460), and uploads without a usable record.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output};

use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Record, RecordType};
use serde_json::Value;
use tempfile::tempdir;

use crate::child::ClosedPort;
use crate::name_server::{NameServer, Reply, alias, alpn, cname, here, hint, port, service};
use crate::programs::{Server, assert_complains, client, file};

use RecordType::{A, CNAME, HTTPS};

const HOST: &str = "upload.test.";

/// A server whose certificate is for [`HOST`].
fn server() -> Server {
    Server::for_names(&["upload.test"], &[])
}

/// The client's report on an upload to `url`.
fn upload(server: &Server, names: &NameServer, url: &str) -> Value {
    let output = run(names, url, |command| {
        command.arg("--cafile").arg(server.ca()).arg("--json");
    });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(server.stored(), ["x"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["server"], format!("127.0.0.1:{}", server.port));
    report
}

fn run(names: &NameServer, url: &str, options: impl FnOnce(&mut Command)) -> Output {
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 100_000);
    let mut command = client(&path, url);
    command.arg("--resolver").arg(names.address.to_string());
    options(&mut command);
    command.output().unwrap()
}

fn records(records: impl Into<Vec<Record>>) -> Reply {
    Reply::Records(records.into())
}

/// A URL with the port of `server`, and the name of the records for it.
fn with_port(server: &Server) -> (String, String) {
    (format!("https://upload.test:{}/", server.port), format!("_{}._https.{HOST}", server.port))
}

#[test]
fn the_server_is_found_through_a_record() {
    let server = server();
    let h3 = || vec![alpn("h3"), port(server.port)];
    let closed = ClosedPort::new();
    let dead = service(HOST, 1, ".", vec![alpn("h3"), port(closed.number)]);
    let at_8443 = "_8443._https.upload.test.";
    let (with_port, at_port) = with_port(&server);
    type Records<'a> = &'a [(&'a str, RecordType, Reply)];
    let cases: [(&str, Records<'_>, &[&str]); 5] = [
        // There is no other record, so the host has no address of its own.
        (
            "https://upload.test/",
            &[(HOST, HTTPS, records([service(HOST, 1, ".", [h3(), vec![hint()]].concat())]))],
            &[HOST],
        ),
        (
            "https://upload.test:8443/",
            &[(at_8443, HTTPS, records([service(at_8443, 1, HOST, h3())])), (HOST, A, here(HOST))],
            &[at_8443],
        ),
        (
            "https://upload.test/",
            &[
                (HOST, HTTPS, records([alias(HOST, "svc.test.")])),
                ("svc.test.", CNAME, cname("svc.test.", "pool.test.")),
                ("pool.test.", HTTPS, records([service("pool.test.", 1, "host.test.", h3())])),
                ("host.test.", A, here("host.test.")),
            ],
            &[HOST, "svc.test."],
        ),
        // The target of an alias needs no record of its own.
        (
            &with_port,
            &[
                (&at_port, HTTPS, records([alias(&at_port, "svc.test.")])),
                ("svc.test.", A, here("svc.test.")),
            ],
            &[&at_port, "svc.test."],
        ),
        // The first endpoint is dead.
        (
            "https://upload.test/",
            &[(HOST, HTTPS, records([service(HOST, 2, ".", h3()), dead])), (HOST, A, here(HOST))],
            &[HOST],
        ),
    ];
    for (url, replies, asked) in cases {
        let names = NameServer::start(replies.iter().cloned());
        let report = upload(&server, &names, url);
        assert_eq!(report["found"], "https-record", "{url}");
        assert_eq!(names.asked_for_https(), asked);
    }
}

#[test]
fn without_a_usable_record_the_url_is_used_unchanged() {
    // An open socket that is never read is a black hole. The system refuses a closed port.
    let hole = UdpSocket::bind("127.0.0.1:0").unwrap();
    let hole = hole.local_addr().unwrap().port();
    let closed = ClosedPort::new();
    let server = server();
    let (url, at) = with_port(&server);
    let record = |protocol, to| service(&at, 1, HOST, vec![alpn(protocol), port(to)]);
    for (what, reply) in [
        ("silence", Reply::Silence),
        ("a server failure", Reply::Failure(ResponseCode::ServFail)),
        ("a refusal", Reply::Failure(ResponseCode::Refused)),
        ("no such name", Reply::Failure(ResponseCode::NXDomain)),
        ("an answer that is cut off", Reply::Malformed(vec![record("h3", 1)])),
        ("a record that is not for HTTP/3", records([record("h2", 1)])),
        ("an alias of itself", records([alias(&at, &at)])),
        ("an endpoint that does not answer", records([record("h3", hole)])),
        ("an endpoint at which no program listens", records([record("h3", closed.number)])),
    ] {
        let names = NameServer::start([(at.as_str(), HTTPS, reply), (HOST, A, here(HOST))]);
        let report = upload(&server, &names, &url);
        assert_eq!(report["found"], "address", "{what}");
        assert_eq!(report["url"], format!("{url}x"));
        assert!(names.asked_for_https().contains(&at), "{what}");
    }
}

/// The record selects the address, and never the certificate.
#[test]
fn a_record_does_not_change_which_certificate_is_accepted() {
    let right = server();
    let wrong = Server::for_names(&["svc.test"], &[]);
    let (url, at) = with_port(&right);
    let record = service(&at, 1, "svc.test.", vec![alpn("h3"), port(wrong.port)]);
    let replies = |address| {
        [
            (at.as_str(), HTTPS, records([record.clone()])),
            ("svc.test.", A, here("svc.test.")),
            (HOST, A, address),
        ]
    };
    let both = tempdir().unwrap();
    let roots = both.path().join("roots.pem");
    let pem = [std::fs::read(right.ca()).unwrap(), std::fs::read(wrong.ca()).unwrap()].concat();
    std::fs::write(&roots, pem).unwrap();
    let ask = |names: &NameServer, roots: &Path| {
        run(names, &url, |command| {
            command.arg("--cafile").arg(roots).arg("--json");
        })
    };

    let output = ask(&NameServer::start(replies(here(HOST))), &roots);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["found"], "address");
    let output = ask(&NameServer::start(replies(Reply::Failure(ResponseCode::NXDomain))), &roots);
    assert_complains(&output, "ostname mismatch");
    assert!(wrong.stored().is_empty());
}

#[test]
fn the_summary_has_the_origin_of_the_address() {
    let server = server();
    let record = service(HOST, 1, ".", vec![alpn("h3"), port(server.port)]);
    let names = NameServer::start([(HOST, HTTPS, records([record])), (HOST, A, here(HOST))]);
    let output = run(&names, "https://upload.test/", |command| {
        command.arg("--cafile").arg(server.ca());
    });
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains(&format!("server 127.0.0.1:{}, found through its HTTPS record", server.port)),
        "{said}"
    );
}

#[test]
fn without_a_server_the_error_has_the_reason() {
    let at = |url: &str, names: &NameServer, words: &str| {
        let output = run(names, url, |command| {
            command.args(["--insecure", "--timeout", "20"]);
        });
        assert_complains(&output, words);
    };
    let complains = |names: &NameServer, words: &str| at("https://upload.test/", names, words);
    let unavailable = records([alias(HOST, ".")]);
    complains(
        &NameServer::start([(HOST, HTTPS, unavailable), (HOST, A, here(HOST))]),
        "that there is no such service",
    );
    complains(&NameServer::start([]), "knows no address of upload.test");
    let failure = Reply::Failure(ResponseCode::ServFail);
    complains(&NameServer::start([(HOST, A, failure)]), "try another --resolver");
    let silent = NameServer::start([(HOST, A, Reply::Silence)]);
    let output = run(&silent, "https://upload.test/", |command| {
        command.args(["--timeout", "0.5"]);
    });
    assert_complains(&output, "in time: check --resolver");
    let closed = ClosedPort::new();
    let dead =
        |at: &str| records([service(at, 1, HOST, vec![alpn("h3"), port(closed.number), hint()])]);
    complains(
        &NameServer::start([(HOST, HTTPS, dead(HOST))]),
        "is unreachable at the address in its HTTPS record",
    );
    // The port of the record is another one.
    let own = ClosedPort::new();
    let port = own.number;
    let prefixed = format!("_{port}._https.{HOST}");
    let both = [(prefixed.as_str(), HTTPS, dead(&prefixed)), (HOST, A, here(HOST))];
    let url = format!("https://upload.test:{port}/");
    at(
        &url,
        &NameServer::start(both),
        "neither at the address in its HTTPS record nor at its own address",
    );
}
