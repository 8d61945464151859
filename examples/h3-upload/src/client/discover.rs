//! From HTTPS records (RFC 9460) to the endpoints where a server may be reached. No I/O:
//! [`Discovery`] says what to ask a name server for, and is told what it answered.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use hickory_resolver::proto::rr::rdata::CNAME;
use hickory_resolver::proto::rr::rdata::svcb::{
    IpHint, Mandatory, SVCB, SvcParamKey, SvcParamValue,
};
use hickory_resolver::proto::rr::{Name, RData, Record};

/// How long a chain of AliasMode records may be, and one of CNAME records within an answer.
const MAX_CHAIN: usize = 8;
/// How many of a name's ServiceMode records are used, the preferred ones first.
const MAX_ENDPOINTS: usize = 8;
/// How many addresses are tried because of HTTPS records, and how many of the host's own besides.
const MAX_ADDRESSES: usize = 16;

/// The port whose records are at the host's name itself (section 9.1).
const HTTPS_PORT: u16 = 443;
/// The only protocol that this program speaks.
const H3: &str = "h3";
/// What may be in a record's `mandatory` list. Encrypted Client Hello may not: a server that
/// insists on it is not for this program.
const UNDERSTOOD: [SvcParamKey; 5] = [
    SvcParamKey::Alpn,
    SvcParamKey::NoDefaultAlpn,
    SvcParamKey::Port,
    SvcParamKey::Ipv4Hint,
    SvcParamKey::Ipv6Hint,
];

/// Chooses one of so many, below that number. Records of equal standing share the load by it.
pub(crate) type Pick<'a> = &'a mut dyn FnMut(usize) -> usize;

/// An alternative endpoint (section 2.4.3), whose addresses are not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Whose addresses to look up.
    pub(crate) target: Name,
    pub(crate) port: u16,
    /// Where it is if the target's addresses cannot be had (section 7.3).
    pub(crate) hints: Vec<IpAddr>,
}

/// What an answer amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The name stands for another: ask for the HTTPS records of [`Discovery::question`], which has
    /// changed.
    Ask,
    /// These endpoints, in this order, before the host's own addresses.
    Try(Vec<Endpoint>),
    /// The name's owner says that there is no such service (section 2.5.1).
    Unavailable,
}

/// The client's procedure (section 3).
#[derive(Clone, Debug)]
pub(crate) struct Discovery {
    port: u16,
    question: Name,
    /// The names that AliasMode records led away from.
    left: Vec<Name>,
}

impl Discovery {
    /// For `https://HOST:PORT`. `None` if the host's name leaves no room for the port before it.
    pub(crate) fn new(host: &Name, port: u16) -> Option<Self> {
        let question = match port {
            HTTPS_PORT => host.clone(),
            // Port Prefix Naming (section 2.3).
            port => {
                let https = host.prepend_label("_https".as_bytes()).ok()?;
                https.prepend_label(format!("_{port}").as_bytes()).ok()?
            }
        };
        Some(Self { port, question, left: Vec::new() })
    }

    /// The name whose HTTPS records are wanted.
    pub(crate) fn question(&self) -> &Name {
        &self.question
    }

    /// Takes the answer section for [`Discovery::question`]; an empty one also stands for no
    /// answer, and for one that was malformed.
    pub(crate) fn answered(&mut self, answers: &[Record], pick: Pick<'_>) -> Step {
        let owner = canonical(&self.question, answers);
        let (aliases, services): (Vec<&SVCB>, Vec<&SVCB>) = answers
            .iter()
            .filter(|record| record.name == *owner)
            .filter_map(|record| match &record.data {
                RData::HTTPS(https) => Some(&https.0),
                _ => None,
            })
            .partition(|record| record.svc_priority == 0);

        // Beside a record in AliasMode those in ServiceMode do not count (section 2.4.1).
        if !aliases.is_empty() {
            return match aliases.get(pick(aliases.len())).or(aliases.first()) {
                Some(alias) => self.follow(&alias.target_name),
                None => Step::Try(Vec::new()),
            };
        }
        let mut services: Vec<_> = services
            .into_iter()
            .filter_map(|record| Some((record.svc_priority, endpoint(record, owner, self.port)?)))
            .collect();
        shuffle(&mut services, pick);
        services.sort_by_key(|(priority, _)| *priority);
        services.truncate(MAX_ENDPOINTS);
        let mut endpoints: Vec<_> = services.into_iter().map(|(_, endpoint)| endpoint).collect();
        if !self.left.is_empty() {
            // What an alias leads to may have addresses and no records.
            let target = self.question.clone();
            endpoints.push(Endpoint { target, port: self.port, hints: Vec::new() });
        }
        Step::Try(endpoints)
    }

    fn follow(&mut self, target: &Name) -> Step {
        if target.is_root() {
            return Step::Unavailable;
        }
        let left = std::mem::replace(&mut self.question, target.clone());
        self.left.push(left);
        // As if the host had no record at all (section 3.1).
        if self.left.len() > MAX_CHAIN || self.left.contains(target) {
            return Step::Try(Vec::new());
        }
        Step::Ask
    }
}

/// What `name` is called after the CNAME records in an answer.
fn canonical<'a>(name: &'a Name, answers: &'a [Record]) -> &'a Name {
    let mut name = name;
    for _ in 0..MAX_CHAIN {
        let next = answers.iter().find_map(|record| match &record.data {
            RData::CNAME(CNAME(target)) if record.name == *name => Some(target),
            _ => None,
        });
        let Some(next) = next else { break };
        name = next;
    }
    name
}

/// What a ServiceMode record says, if it is of use to a client that speaks HTTP/3 alone
/// ("compatible", section 8).
fn endpoint(record: &SVCB, owner: &Name, authority_port: u16) -> Option<Endpoint> {
    let has = |key| record.svc_params.iter().any(|(present, _)| *present == key);
    let mut port = authority_port;
    let mut http3 = false;
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for (_, value) in &record.svc_params {
        match value {
            SvcParamValue::Mandatory(Mandatory(keys)) => {
                if !keys.iter().all(|key| UNDERSTOOD.contains(key) && has(*key)) {
                    return None;
                }
            }
            // Without this list, or with `no-default-alpn` alone, there is no HTTP/3 there
            // (sections 7.1.2 and 9.1).
            SvcParamValue::Alpn(alpn) => http3 = alpn.0.iter().any(|id| id == H3),
            SvcParamValue::Port(given) => port = *given,
            SvcParamValue::Ipv4Hint(IpHint(hints)) => {
                v4.extend(hints.iter().map(|hint| IpAddr::V4(hint.0)));
            }
            SvcParamValue::Ipv6Hint(IpHint(hints)) => {
                v6.extend(hints.iter().map(|hint| IpAddr::V6(hint.0)));
            }
            SvcParamValue::NoDefaultAlpn
            | SvcParamValue::EchConfigList(_)
            | SvcParamValue::Unknown(_) => {}
        }
    }
    if !http3 || port == 0 {
        return None;
    }
    let target = if record.target_name.is_root() { owner } else { &record.target_name };
    let hints = v6.into_iter().chain(v4).take(MAX_ADDRESSES).collect();
    Some(Endpoint { target: target.clone(), port, hints })
}

/// Fisher and Yates, with the luck of `pick`.
fn shuffle<T>(items: &mut [T], pick: Pick<'_>) {
    for last in (1..items.len()).rev() {
        items.swap(last, pick(last + 1).min(last));
    }
}

/// How an address was found, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    HttpsRecord,
    /// It is one of the host's own, or the URL names it.
    Address,
}

impl Found {
    /// The name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HttpsRecord => "https-record",
            Self::Address => "address",
        }
    }
}

/// An address to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) address: SocketAddr,
    pub(crate) found: Found,
    /// Those of one endpoint have the same number, and follow each other.
    pub(crate) endpoint: usize,
}

/// All that is to be tried, in order: the endpoints of the records, each with what its target's
/// lookup came to, then the host's `own` addresses at the URL's `port` (section 3: HTTP is
/// "SVCB-optional"). The ports in what was looked up do not count.
pub(crate) fn routes(
    endpoints: &[(Endpoint, Vec<SocketAddr>)],
    own: &[SocketAddr],
    port: u16,
) -> Vec<Route> {
    // An address may have more to it than an IP address has, such as the scope of a link-local one.
    let at = |address: &SocketAddr, port: u16| {
        let mut address = *address;
        address.set_port(port);
        address
    };
    let recorded = endpoints.iter().enumerate().flat_map(|(index, (endpoint, addresses))| {
        let hints =
            endpoint.hints.iter().map(|ip| SocketAddr::new(ip.to_canonical(), endpoint.port));
        // Addresses make hints void (section 7.3).
        let hints = hints.take(if addresses.is_empty() { MAX_ADDRESSES } else { 0 });
        let addresses =
            addresses.iter().map(move |address| at(address, endpoint.port)).chain(hints);
        addresses.filter(|address| is_one_host(address.ip())).map(move |address| Route {
            address,
            found: Found::HttpsRecord,
            endpoint: index,
        })
    });
    let mut routes = Vec::new();
    add(&mut routes, recorded);
    let own = own.iter().map(|address| Route {
        address: at(address, port),
        found: Found::Address,
        endpoint: endpoints.len(),
    });
    add(&mut routes, own);
    routes
}

/// Whether an address can be that of a server: a record may hold any.
fn is_one_host(ip: IpAddr) -> bool {
    !(ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST))
}

/// Adds what is not there yet, up to the limit.
fn add(routes: &mut Vec<Route>, more: impl Iterator<Item = Route>) {
    let limit = routes.len() + MAX_ADDRESSES;
    for route in more {
        if routes.len() == limit {
            break;
        }
        if routes.iter().all(|known| known.address != route.address) {
            routes.push(route);
        }
    }
}

#[cfg(test)]
mod tests;
