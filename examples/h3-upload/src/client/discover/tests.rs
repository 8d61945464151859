use std::collections::BTreeSet;
use std::future::{pending, ready};

use anyhow::anyhow;
use hickory_resolver::proto::rr::rdata::svcb::{Alpn, EchConfigList, Unknown};
use hickory_resolver::proto::rr::rdata::{A, AAAA, HTTPS};

use super::*;

const HOST: &str = "upload.test.";

type Param = (SvcParamKey, SvcParamValue);

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn https(priority: u16, target: &str, params: &[Param]) -> Record {
    let data = RData::HTTPS(HTTPS(SVCB::new(priority, name(target), params.to_vec())));
    Record::from_rdata(name(HOST), 300, data)
}

fn alpn(ids: &[&str]) -> Param {
    let ids = ids.iter().map(|id| (*id).to_owned()).collect();
    (SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(ids)))
}

fn port(port: u16) -> Param {
    (SvcParamKey::Port, SvcParamValue::Port(port))
}

fn ipv4hint(hints: &[[u8; 4]]) -> Param {
    let hints = hints.iter().map(|octets| A((*octets).into())).collect();
    (SvcParamKey::Ipv4Hint, SvcParamValue::Ipv4Hint(IpHint(hints)))
}

/// A usable record, identified by its port.
fn service(priority: u16, at: u16) -> Record {
    https(priority, ".", &[alpn(&["h3"]), port(at)])
}

fn services(answers: &[Record]) -> Vec<Endpoint> {
    match read(answers, 443) {
        Records::Services(services) => services,
        alias @ Records::Alias(_) => panic!("{alias:?}"),
    }
}

fn ports(answers: &[Record]) -> Vec<u16> {
    services(answers).iter().map(|endpoint| endpoint.port).collect()
}

#[test]
fn other_ports_have_records_of_their_own() {
    assert_eq!(question(&name(HOST), 443), Some(name(HOST)));
    assert_eq!(question(&name(HOST), 8443), Some(name("_8443._https.upload.test.")));
    // A name has at most 255 octets.
    let long = name(&format!("{0}.{0}.{0}.{1}.", "x".repeat(63), "x".repeat(58)));
    assert!(question(&long, 443).is_some() && question(&long, 8443).is_none());
}

#[test]
fn a_record_names_target_port_and_hints_or_leaves_them() {
    let v6 = "2001:db8::1".parse().unwrap();
    let ipv6hint = (SvcParamKey::Ipv6Hint, SvcParamValue::Ipv6Hint(IpHint(vec![AAAA(v6)])));
    let params = [alpn(&["h2", "h3"]), port(8443), ipv4hint(&[[192, 0, 2, 1]]), ipv6hint];
    let hints = vec![IpAddr::V6(v6), IpAddr::from([192, 0, 2, 1])];
    let expected = Endpoint { target: name("svc.test."), port: 8443, hints };
    assert_eq!(services(&[https(1, "svc.test.", &params)]), [expected]);
    let unchanged = Endpoint { target: name(HOST), port: 443, hints: Vec::new() };
    assert_eq!(services(&[https(1, ".", &[alpn(&["h3"])])]), [unchanged]);
    let many = https(1, ".", &[alpn(&["h3"]), ipv4hint(&[[192, 0, 2, 1]; 1000])]);
    assert_eq!(services(&[many])[0].hints.len(), MAX_ADDRESSES);
}

#[test]
fn only_compatible_records_are_used() {
    use SvcParamKey::{EchConfigList as EchKey, Mandatory as MandatoryKey, Unknown as Other};
    let no_default = (SvcParamKey::NoDefaultAlpn, SvcParamValue::NoDefaultAlpn);
    let unknown = (Other(4711), SvcParamValue::Unknown(Unknown(vec![1])));
    let ech = (EchKey, SvcParamValue::EchConfigList(EchConfigList(vec![1])));
    let mandatory =
        |keys: &[SvcParamKey]| (MandatoryKey, SvcParamValue::Mandatory(Mandatory(keys.to_vec())));
    let with = |more: &[Param]| [&[alpn(&["h3"]), ech.clone(), unknown.clone()], more].concat();
    for (params, usable) in [
        (vec![], false),
        (vec![alpn(&["h2"])], false),
        (vec![alpn(&["h3-29", "H3", ""])], false),
        (vec![no_default.clone()], false),
        (vec![alpn(&["h2"]), no_default.clone()], false),
        (vec![alpn(&["h3"]), no_default], true),
        (vec![alpn(&["h3"]), port(0)], false),
        // Unknown keys are ignored unless they are mandatory.
        (with(&[]), true),
        (with(&[mandatory(&[SvcParamKey::Alpn, SvcParamKey::Port]), port(8443)]), true),
        (with(&[mandatory(&[Other(4711)])]), false),
        (with(&[mandatory(&[SvcParamKey::Alpn, EchKey])]), false),
        (with(&[mandatory(&[MandatoryKey])]), false),
        (with(&[mandatory(&[SvcParamKey::Ipv4Hint])]), false),
    ] {
        // An unusable record does not hide others.
        let answers = [https(1, ".", &params), service(2, 2)];
        assert_eq!(services(&answers).len(), 1 + usize::from(usable), "{params:?}");
    }
}

#[test]
fn a_lower_priority_comes_first_and_equals_are_shuffled() {
    let answers = [service(7, 70), service(3, 31), service(1, 10), service(3, 32), service(3, 33)];
    let mut seen = BTreeSet::new();
    while seen.len() < 6 {
        let order = ports(&answers);
        assert_eq!((order[0], order[4]), (10, 70));
        seen.insert(order);
    }
    let many: Vec<_> = (1..=1000).rev().map(|i| service(i, i)).collect();
    assert_eq!(ports(&many), (1..=8).collect::<Vec<_>>());
    assert_eq!(ports(&[]), [0; 0]);
}

#[test]
fn one_of_several_aliases_overrides_services() {
    let answers = [service(1, 1), https(0, "a.test.", &[]), https(0, "b.test.", &[])];
    let mut seen = BTreeSet::new();
    while seen.len() < 2 {
        let Records::Alias(target) = read(&answers, 443) else { panic!("no alias") };
        seen.insert(target.to_ascii());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["a.test.", "b.test."]);
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn the_endpoints_come_first_and_then_the_host_itself() {
    let of = |endpoints: &[&[&str]], own: &[&str]| {
        let parse = |texts: &[&str]| texts.iter().map(|text| address(text)).collect::<Vec<_>>();
        let endpoints: Vec<_> = endpoints.iter().map(|texts| parse(texts)).collect();
        let routes = routes(&endpoints, &parse(own));
        let line = |r: &Route| format!("{} {} {}", r.address, r.found.name(), r.endpoint);
        routes.iter().map(line).collect::<Vec<_>>()
    };
    let (one, two, other) = ("192.0.2.1:443", "192.0.2.2:443", "192.0.2.1:2");
    assert_eq!(of(&[], &[one]), ["192.0.2.1:443 address 0"]);
    // No address is tried twice.
    let expected =
        ["192.0.2.1:443 https-record 0", "192.0.2.1:2 https-record 1", "192.0.2.2:443 address 2"];
    assert_eq!(of(&[&[one, one], &[other, one]], &[one, two]), expected);
    // Nothing is sent where no server can be.
    let nowhere = ["0.0.0.0:1", "[::]:1", "224.0.0.1:1", "[ff02::1]:1", "255.255.255.255:1"];
    assert_eq!(of(&[&nowhere], &[]), [""; 0]);
}

#[test]
fn records_leave_room_for_the_host_itself() {
    let many = |port| (0..=255).map(|n| SocketAddr::from(([192, 0, 2, n], port))).collect();
    let routes = routes(&[many(1)], &Vec::from_iter(many(2)));
    let count = |found| routes.iter().filter(|route| route.found == found).count();
    assert_eq!(count(Found::HttpsRecord), MAX_ADDRESSES);
    assert_eq!(count(Found::Address), MAX_ADDRESSES);
}

/// Each lookup ends at once or never.
#[tokio::test]
async fn neither_lookup_delays_a_program_that_can_do_without() {
    let allowed = Duration::from_millis(1);
    let (one, other) = (vec![address("192.0.2.1:1")], vec![address("192.0.2.2:2")]);
    let recorded = || Ok(vec![one.clone()]);
    let unknown = || Err(anyhow!("unknown"));
    let found = both(pending(), ready(Ok(other.clone())), allowed).await;
    assert_eq!(found.unwrap(), (vec![], other.clone()));
    let found = both(ready(recorded()), pending(), allowed).await;
    assert_eq!(found.unwrap(), (vec![one.clone()], vec![]));
    let found = both(ready(recorded()), ready(unknown()), allowed).await;
    assert_eq!(found.unwrap(), (vec![one.clone()], vec![]));
    let found = both(ready(recorded()), ready(Ok(other.clone())), allowed).await;
    assert_eq!(found.unwrap(), (vec![one.clone()], other));
    assert!(both(ready(Ok(vec![])), ready(unknown()), allowed).await.is_err());
    assert!(both(pending(), ready(unknown()), allowed).await.is_err());
    assert!(both(ready(Err(anyhow!("no such service"))), pending(), allowed).await.is_err());
}

#[test]
fn the_hosts_file_has_the_machine_itself() {
    assert!(in_hosts_file(&absolute("localhost").unwrap()));
    assert!(!in_hosts_file(&absolute("nowhere.invalid").unwrap()));
}
