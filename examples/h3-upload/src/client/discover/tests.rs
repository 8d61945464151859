use std::net::SocketAddrV6;

use hickory_resolver::proto::rr::rdata::svcb::{Alpn, EchConfigList, Unknown};
use hickory_resolver::proto::rr::rdata::{A, AAAA, HTTPS};

use super::*;

const HOST: &str = "upload.test.";

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn https(
    owner: &str,
    priority: u16,
    target: &str,
    params: Vec<(SvcParamKey, SvcParamValue)>,
) -> Record {
    let data = RData::HTTPS(HTTPS(SVCB::new(priority, name(target), params)));
    Record::from_rdata(name(owner), 300, data)
}

fn alias(owner: &str, target: &str) -> Record {
    https(owner, 0, target, Vec::new())
}

fn cname(owner: &str, target: &str) -> Record {
    Record::from_rdata(name(owner), 300, RData::CNAME(CNAME(name(target))))
}

fn alpn(ids: &[&str]) -> (SvcParamKey, SvcParamValue) {
    (SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(ids.iter().map(|id| (*id).to_owned()).collect())))
}

fn port(port: u16) -> (SvcParamKey, SvcParamValue) {
    (SvcParamKey::Port, SvcParamValue::Port(port))
}

fn mandatory(keys: &[SvcParamKey]) -> (SvcParamKey, SvcParamValue) {
    (SvcParamKey::Mandatory, SvcParamValue::Mandatory(Mandatory(keys.to_vec())))
}

fn ipv4hint(hints: &[[u8; 4]]) -> (SvcParamKey, SvcParamValue) {
    let hints = hints.iter().map(|octets| A((*octets).into())).collect();
    (SvcParamKey::Ipv4Hint, SvcParamValue::Ipv4Hint(IpHint(hints)))
}

/// A usable record at [`HOST`], identified by its port.
fn service(priority: u16, at: u16) -> Record {
    https(HOST, priority, ".", vec![alpn(&["h3"]), port(at)])
}

fn ep(target: &str, port: u16) -> Endpoint {
    Endpoint { target: name(target), port, hints: Vec::new() }
}

fn discovery() -> Discovery {
    Discovery::new(&name(HOST), 443).unwrap()
}

/// The step after one answer about [`HOST`], if the shuffle changes no order.
fn step(answers: &[Record]) -> Step {
    discovery().answered(answers, &mut |count| count - 1)
}

fn ports(step: &Step) -> Vec<u16> {
    match step {
        Step::Try(endpoints) => endpoints.iter().map(|endpoint| endpoint.port).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn other_ports_have_records_of_their_own() {
    assert_eq!(discovery().question(), &name(HOST));
    let other = Discovery::new(&name(HOST), 8443).unwrap();
    assert_eq!(other.question().to_ascii(), "_8443._https.upload.test.");
    // A name has at most 255 octets.
    let long = name(&format!("{0}.{0}.{0}.{1}.", "x".repeat(63), "x".repeat(58)));
    assert!(Discovery::new(&long, 443).is_some());
    assert!(Discovery::new(&long, 8443).is_none());
}

#[test]
fn no_answer_yields_no_endpoint() {
    assert_eq!(step(&[]), Step::Try(Vec::new()));
}

#[test]
fn a_record_names_target_port_and_hints() {
    let v6 = "2001:db8::1".parse().unwrap();
    let ipv6hint = (SvcParamKey::Ipv6Hint, SvcParamValue::Ipv6Hint(IpHint(vec![AAAA(v6)])));
    let params = vec![alpn(&["h2", "h3"]), port(8443), ipv4hint(&[[192, 0, 2, 1]]), ipv6hint];
    let hints = vec![IpAddr::V6(v6), IpAddr::from([192, 0, 2, 1])];
    let expected = Endpoint { target: name("svc.test."), port: 8443, hints };
    assert_eq!(step(&[https(HOST, 1, "svc.test.", params)]), Step::Try(vec![expected]));
}

#[test]
fn a_record_may_leave_the_host_and_the_port_as_they_are() {
    let record = |owner: &str| https(owner, 1, ".", vec![alpn(&["h3"])]);
    assert_eq!(step(&[record(HOST)]), Step::Try(vec![ep(HOST, 443)]));
    // The owner of a record for another port is not the host itself.
    let mut other = Discovery::new(&name(HOST), 8443).unwrap();
    let owner = "_8443._https.upload.test.";
    assert_eq!(other.answered(&[record(owner)], &mut |_| 0), Step::Try(vec![ep(owner, 8443)]));
}

#[test]
fn only_http3_endpoints_are_used() {
    let no_default = (SvcParamKey::NoDefaultAlpn, SvcParamValue::NoDefaultAlpn);
    for params in [
        vec![],
        vec![alpn(&["h2"])],
        vec![alpn(&["h3-29", "H3", ""])],
        vec![no_default.clone()],
        vec![alpn(&["h2"]), no_default.clone()],
        vec![alpn(&["h3"]), port(0)],
    ] {
        assert_eq!(
            step(&[https(HOST, 1, ".", params.clone())]),
            Step::Try(Vec::new()),
            "{params:?}"
        );
    }
    let only = https(HOST, 1, ".", vec![alpn(&["h3"]), no_default]);
    assert_eq!(step(&[only]), Step::Try(vec![ep(HOST, 443)]));
}

#[test]
fn mandatory_keys_must_be_present_and_known() {
    use SvcParamKey::{
        Alpn as AlpnKey, EchConfigList as EchKey, Mandatory as MandatoryKey, Port,
        Unknown as UnknownKey,
    };
    let unknown = (UnknownKey(4711), SvcParamValue::Unknown(Unknown(vec![1])));
    let ech = (EchKey, SvcParamValue::EchConfigList(EchConfigList(vec![1])));
    let usable = |keys: &[SvcParamKey]| {
        let params = vec![mandatory(keys), alpn(&["h3"]), port(8443), ech.clone(), unknown.clone()];
        !ports(&step(&[https(HOST, 1, ".", params)])).is_empty()
    };
    assert!(usable(&[AlpnKey, Port]));
    for keys in
        [&[UnknownKey(4711)][..], &[AlpnKey, EchKey], &[MandatoryKey], &[SvcParamKey::Ipv4Hint]]
    {
        assert!(!usable(keys), "{keys:?}");
    }
    // The client ignores unknown keys that are not mandatory.
    let optional = https(HOST, 1, ".", vec![alpn(&["h3"]), ech.clone(), unknown.clone()]);
    assert_eq!(ports(&step(&[optional])), [443]);
}

#[test]
fn unusable_records_do_not_hide_others() {
    let answers = [https(HOST, 1, ".", vec![alpn(&["h2"])]), service(2, 2)];
    assert_eq!(ports(&step(&answers)), [2]);
}

#[test]
fn a_lower_priority_comes_first_and_equals_are_shuffled() {
    let answers = [service(7, 70), service(3, 31), service(1, 10), service(3, 32), service(3, 33)];
    assert_eq!(ports(&step(&answers)), [10, 31, 32, 33, 70]);
    let mut seen = std::collections::BTreeSet::new();
    for permutation in 0..120_usize {
        // The digits of the number select each permutation once.
        let mut rest = permutation;
        let mut pick = |count: usize| {
            let digit = rest % count;
            rest /= count;
            digit
        };
        let order = ports(&discovery().answered(&answers, &mut pick));
        assert_eq!((order[0], order[4]), (10, 70));
        seen.insert(order);
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
}

#[test]
fn records_of_other_names_do_not_count() {
    let stranger = https("other.test.", 1, ".", vec![alpn(&["h3"])]);
    assert_eq!(step(&[stranger]), Step::Try(Vec::new()));
    assert_eq!(ports(&step(&[https("UPLOAD.Test.", 1, ".", vec![alpn(&["h3"])])])), [443]);
}

#[test]
fn the_owner_is_the_target_of_the_cname() {
    let record = https("b.test.", 1, ".", vec![alpn(&["h3"])]);
    let answers = [cname("a.test.", "b.test."), cname(HOST, "a.test."), record];
    assert_eq!(step(&answers), Step::Try(vec![ep("b.test.", 443)]));
    let round = [cname(HOST, "a.test."), cname("a.test.", HOST)];
    assert_eq!(step(&round), Step::Try(Vec::new()));
}

#[test]
fn an_alias_is_followed_without_a_prefix() {
    let mut discovery = Discovery::new(&name(HOST), 8443).unwrap();
    let mut pick = |_| 0;
    // It overrides the record in ServiceMode.
    let owner = "_8443._https.upload.test.";
    let first = [https(owner, 1, ".", vec![alpn(&["h3"])]), alias(owner, "svc.test.")];
    assert_eq!(discovery.answered(&first, &mut pick), Step::Ask);
    assert_eq!(discovery.question(), &name("svc.test."));
    let second = [https("svc.test.", 1, "x.test.", vec![alpn(&["h3"]), port(99)])];
    let expected = Step::Try(vec![ep("x.test.", 99), ep("svc.test.", 8443)]);
    assert_eq!(discovery.answered(&second, &mut pick), expected);
}

#[test]
fn an_alias_target_needs_no_record() {
    let mut discovery = discovery();
    assert_eq!(discovery.answered(&[alias(HOST, "svc.test.")], &mut |_| 0), Step::Ask);
    assert_eq!(discovery.answered(&[], &mut |_| 0), Step::Try(vec![ep("svc.test.", 443)]));
}

#[test]
fn one_of_several_aliases_is_picked() {
    let answers = [alias(HOST, "a.test."), alias(HOST, "b.test.")];
    for (luck, target) in [(0, "a.test."), (1, "b.test.")] {
        let mut discovery = discovery();
        assert_eq!(discovery.answered(&answers, &mut |_| luck), Step::Ask);
        assert_eq!(discovery.question(), &name(target));
    }
}

#[test]
fn an_alias_to_nowhere_says_that_there_is_no_service() {
    assert_eq!(step(&[alias(HOST, ".")]), Step::Unavailable);
    let mut discovery = discovery();
    assert_eq!(discovery.answered(&[alias(HOST, "svc.test.")], &mut |_| 0), Step::Ask);
    assert_eq!(discovery.answered(&[alias("svc.test.", ".")], &mut |_| 0), Step::Unavailable);
}

#[test]
fn aliases_end_sometime() {
    let mut discovery = discovery();
    let mut asked = 1;
    let mut follow = |number: usize| {
        let target = format!("x{number}.test.");
        let answers = [alias(&discovery.question().to_ascii(), &target)];
        discovery.answered(&answers, &mut |_| 0)
    };
    while follow(asked) == Step::Ask {
        asked += 1;
    }
    assert_eq!(asked, 1 + MAX_CHAIN);
    assert_eq!(follow(asked), Step::Try(Vec::new()), "as if there were no record");
}

#[test]
fn aliases_in_a_circle_lead_nowhere() {
    assert_eq!(step(&[alias(HOST, HOST)]), Step::Try(Vec::new()));
    let mut discovery = discovery();
    assert_eq!(discovery.answered(&[alias(HOST, "svc.test.")], &mut |_| 0), Step::Ask);
    let back = discovery.answered(&[alias("svc.test.", "Upload.test.")], &mut |_| 0);
    assert_eq!(back, Step::Try(Vec::new()));
}

#[test]
fn endpoints_are_bounded_and_the_preferred_ones_stay() {
    let answers: Vec<_> = (1..=1000).rev().map(|i| service(i, i)).collect();
    assert_eq!(ports(&step(&answers)), (1..=8).collect::<Vec<_>>());
    let many = ipv4hint(&[[192, 0, 2, 1]; 1000]);
    let Step::Try(endpoints) = step(&[https(HOST, 1, ".", vec![alpn(&["h3"]), many])]) else {
        panic!()
    };
    assert_eq!(endpoints[0].hints.len(), MAX_ADDRESSES);
}

fn ip(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 0))
}

fn at(routes: &[Route]) -> Vec<String> {
    routes
        .iter()
        .map(|route| format!("{} {} {}", route.address, route.found.name(), route.endpoint))
        .collect()
}

#[test]
fn the_endpoints_come_first_and_then_the_host_itself() {
    let own = [ip(9)];
    assert_eq!(at(&routes(&[], &own, 443)), ["192.0.2.9:443 address 0"]);
    let endpoints = [(ep("a.test.", 1), vec![ip(1), ip(2)]), (ep("b.test.", 2), vec![ip(1)])];
    let expected = [
        "192.0.2.1:1 https-record 0",
        "192.0.2.2:1 https-record 0",
        "192.0.2.1:2 https-record 1",
        "192.0.2.9:443 address 2",
    ];
    assert_eq!(at(&routes(&endpoints, &own, 443)), expected);
}

#[test]
fn a_link_local_address_keeps_its_scope() {
    let scoped = SocketAddr::from(SocketAddrV6::new("fe80::1".parse().unwrap(), 0, 0, 3));
    let routes = routes(&[(ep("a.test.", 1), vec![scoped])], &[scoped], 443);
    assert_eq!(at(&routes), ["[fe80::1%3]:1 https-record 0", "[fe80::1%3]:443 address 1"]);
}

#[test]
fn hints_replace_missing_addresses() {
    let endpoint = Endpoint { hints: vec![ip(7).ip()], ..ep("a.test.", 1) };
    let with = |found: &[SocketAddr]| at(&routes(&[(endpoint.clone(), found.to_vec())], &[], 443));
    assert_eq!(with(&[ip(1)]), ["192.0.2.1:1 https-record 0"]);
    assert_eq!(with(&[]), ["192.0.2.7:1 https-record 0"]);
}

#[test]
fn no_address_is_tried_twice() {
    let endpoints = [(ep("a.test.", 443), vec![ip(1), ip(1)]), (ep("b.test.", 443), vec![ip(1)])];
    let own = [ip(1), ip(2)];
    let expected = ["192.0.2.1:443 https-record 0", "192.0.2.2:443 address 2"];
    assert_eq!(at(&routes(&endpoints, &own, 443)), expected);
}

#[test]
fn records_leave_room_for_the_host_itself() {
    let many: Vec<_> = (0..=255).map(ip).collect();
    let routes = routes(&[(ep("a.test.", 1), many.clone())], &many, 443);
    let count = |found| routes.iter().filter(|route| route.found == found).count();
    assert_eq!((count(Found::HttpsRecord), count(Found::Address)), (MAX_ADDRESSES, MAX_ADDRESSES));
}

#[test]
fn nothing_is_sent_where_no_server_can_be() {
    let hints = [
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "::ffff:192.0.2.7",
        "192.0.2.8",
    ];
    let hints = hints.map(|hint| hint.parse().unwrap()).to_vec();
    let endpoint = Endpoint { hints, ..ep("a.test.", 4433) };
    let expected = ["192.0.2.7:4433 https-record 0", "192.0.2.8:4433 https-record 0"];
    assert_eq!(at(&routes(&[(endpoint, Vec::new())], &[], 443)), expected);
}
