//! Servers that are found through HTTPS records (RFC 9460), and uploads without a usable record.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output};

use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Record, RecordType};
use serde_json::Value;
use tempfile::tempdir;

use crate::closed_port::ClosedPort;
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
fn a_record_names_the_port_and_the_address() {
    let server = server();
    let record = service(HOST, 1, ".", vec![alpn("h3"), port(server.port), hint()]);
    // There is no other record, so the host has no address of its own.
    let names = NameServer::start([(HOST, HTTPS, records([record]))]);
    let report = upload(&server, &names, "https://upload.test/");
    assert_eq!(report["found"], "https-record");
    assert_eq!(report["url"], "https://upload.test:443/x");
    assert_eq!(names.asked_for_https(), [HOST]);
}

#[test]
fn the_record_for_another_port_is_at_a_name_of_its_own() {
    let server = server();
    let at = "_8443._https.upload.test.";
    let record = service(at, 1, HOST, vec![alpn("h3"), port(server.port)]);
    let names = NameServer::start([(at, HTTPS, records([record])), (HOST, A, here(HOST))]);
    let report = upload(&server, &names, "https://upload.test:8443/");
    assert_eq!(report["found"], "https-record");
    assert_eq!(names.asked_for_https(), [at]);
}

#[test]
fn aliases_and_cnames_are_followed_to_the_record_and_to_the_target() {
    let server = server();
    let last = service("pool.test.", 1, "host.test.", vec![alpn("h3"), port(server.port)]);
    let names = NameServer::start([
        (HOST, HTTPS, records([alias(HOST, "svc.test.")])),
        ("svc.test.", CNAME, cname("svc.test.", "pool.test.")),
        ("pool.test.", HTTPS, records([last])),
        ("host.test.", A, here("host.test.")),
    ]);
    assert_eq!(upload(&server, &names, "https://upload.test/")["found"], "https-record");
    assert_eq!(names.asked_for_https(), [HOST, "svc.test."]);
}

#[test]
fn the_target_of_an_alias_needs_no_record_of_its_own() {
    let server = server();
    let (url, at) = with_port(&server);
    let names = NameServer::start_with([
        (at.clone(), HTTPS, records([alias(&at, "svc.test.")])),
        ("svc.test.".to_owned(), A, here("svc.test.")),
    ]);
    assert_eq!(upload(&server, &names, &url)["found"], "https-record");
}

#[test]
fn the_next_record_is_used_if_the_first_endpoint_is_dead() {
    let server = server();
    let closed = ClosedPort::new();
    let first = service(HOST, 1, ".", vec![alpn("h3"), port(closed.number)]);
    let second = service(HOST, 2, ".", vec![alpn("h3"), port(server.port)]);
    let names = NameServer::start([(HOST, HTTPS, records([second, first])), (HOST, A, here(HOST))]);
    assert_eq!(upload(&server, &names, "https://upload.test/")["found"], "https-record");
}

#[test]
fn without_a_usable_record_the_url_is_used_unchanged() {
    type AnswerAbout = fn(&str) -> Reply;
    let replies: [(&str, AnswerAbout); 7] = [
        ("silence", |_| Reply::Silence),
        ("a server failure", |_| Reply::Failure(ResponseCode::ServFail)),
        ("a refusal", |_| Reply::Failure(ResponseCode::Refused)),
        ("no such name", |_| Reply::Failure(ResponseCode::NXDomain)),
        ("an answer that is cut off", |at| {
            Reply::Malformed(vec![service(at, 1, ".", vec![alpn("h3"), port(1)])])
        }),
        ("a record that is not for HTTP/3", |at| {
            records([service(at, 1, ".", vec![alpn("h2"), port(1)])])
        }),
        ("an alias of itself", |at| records([alias(at, at)])),
    ];
    for (what, reply) in replies {
        let server = server();
        let (url, at) = with_port(&server);
        let names = NameServer::start_with([
            (at.clone(), HTTPS, reply(&at)),
            (HOST.to_owned(), A, here(HOST)),
        ]);
        assert_eq!(upload(&server, &names, &url)["found"], "address", "{what}");
        assert!(names.asked_for_https().contains(&at), "{what}");
    }
}

#[test]
fn an_endpoint_that_does_not_answer_costs_its_share_of_the_time_and_no_more() {
    let server = server();
    let (url, at) = with_port(&server);
    // An open socket that is never read is a black hole. The system refuses a closed port.
    let hole = UdpSocket::bind("127.0.0.1:0").unwrap();
    let closed = ClosedPort::new();
    for dead in [closed.number, hole.local_addr().unwrap().port()] {
        let record = service(&at, 1, HOST, vec![alpn("h3"), port(dead)]);
        let names = NameServer::start_with([
            (at.clone(), HTTPS, records([record])),
            (HOST.to_owned(), A, here(HOST)),
        ]);
        assert_eq!(upload(&server, &names, &url)["found"], "address");
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
            (at.clone(), HTTPS, records([record.clone()])),
            ("svc.test.".to_owned(), A, here("svc.test.")),
            (HOST.to_owned(), A, address),
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

    let output = ask(&NameServer::start_with(replies(here(HOST))), &roots);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["found"], "address");
    let output =
        ask(&NameServer::start_with(replies(Reply::Failure(ResponseCode::NXDomain))), &roots);
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
    let both = [(prefixed.clone(), HTTPS, dead(&prefixed)), (HOST.to_owned(), A, here(HOST))];
    let url = format!("https://upload.test:{port}/");
    at(
        &url,
        &NameServer::start_with(both),
        "neither at the address in its HTTPS record nor at its own address",
    );
}

#[test]
fn a_name_server_has_no_effect_for_an_address() {
    let names = NameServer::start([]);
    let output = run(&names, "https://127.0.0.1:1/", |_| {});
    assert_complains(&output, "--resolver has no effect");
    assert!(names.asked_for_https().is_empty());
}
