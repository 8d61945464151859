//! Which certificates the client accepts.

use tempfile::tempdir;

use crate::programs::{Server, assert_complains, client, file};

#[test]
fn a_foreign_root_is_refused_except_with_insecure() {
    let server = Server::start(&[]);
    let other = Server::start(&[]);
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 100);

    let wrong = client(&path, &server.url("/")).arg("--cafile").arg(other.ca()).output().unwrap();
    assert_complains(&wrong, "certificate");
    let system_roots_only = client(&path, &server.url("/")).output().unwrap();
    assert_complains(&system_roots_only, "--cafile");
    assert!(server.stored().is_empty());

    assert!(client(&path, &server.url("/")).arg("--insecure").output().unwrap().status.success());
    assert_eq!(server.stored(), ["x"]);
}

#[test]
fn an_address_must_be_in_the_certificate_as_an_address() {
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 100);
    let with = Server::for_names(&["127.0.0.1"], &[]);
    assert!(with.client(&path, "/").output().unwrap().status.success());
    for names in [["localhost"], ["127.0.0.2"]] {
        let without = Server::for_names(&names, &[]);
        assert_complains(&without.client(&path, "/").output().unwrap(), "IP address mismatch");
        assert!(without.stored().is_empty());
    }
}

#[test]
fn a_name_must_be_in_the_certificate_as_a_name() {
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 100);
    for (names, good) in [(["localhost"], true), (["127.0.0.1"], false), (["example.org"], false)] {
        let server = Server::for_names(&names, &[]);
        let url = format!("https://localhost:{}/", server.port);
        let output = client(&path, &url).arg("--cafile").arg(server.ca()).output().unwrap();
        if good {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        } else {
            assert_complains(&output, "ostname mismatch");
        }
        assert_eq!(server.stored().len(), usize::from(good));
    }
}

#[test]
fn a_cafile_must_hold_certificates() {
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 100);
    let junk = file(&scratch, "junk.pem", 100);
    let with = |ca: &std::path::Path| {
        client(&path, "https://127.0.0.1:1/").arg("--cafile").arg(ca).output().unwrap()
    };
    assert_complains(&with(&junk), "holds no certificate");
    assert_complains(&with(&scratch.path().join("none.pem")), "cannot read the root certificates");
}

#[test]
fn the_server_uses_a_certificate_from_files() {
    let scratch = tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (cert, key) = (scratch.path().join("cert.pem"), scratch.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let server = Server::with_files(&cert, &key);
    let path = file(&scratch, "x", 100);
    let output = client(&path, &server.url("/")).arg("--cafile").arg(&cert).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(server.stored(), ["x"]);
}
