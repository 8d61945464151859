//! Finds a server's endpoints in HTTPS records (RFC 9460), without I/O. [`Discovery`] names the
//! records to query, and handles the answers. Sections in this file are those of RFC 9460.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use hickory_resolver::proto::rr::rdata::CNAME;
use hickory_resolver::proto::rr::rdata::svcb::{
    IpHint, Mandatory, SVCB, SvcParamKey, SvcParamValue,
};
use hickory_resolver::proto::rr::{Name, RData, Record};

/// The longest chain of AliasMode records, and of CNAME records within an answer.
const MAX_CHAIN: usize = 8;
/// The most ServiceMode records of a name that are used, the preferred ones first.
const MAX_ENDPOINTS: usize = 8;
/// The most addresses to try from HTTPS records, and the most of the host's own.
const MAX_ADDRESSES: usize = 16;

/// The port whose records have the host's name itself as owner (section 9.1).
const HTTPS_PORT: u16 = 443;
/// The only protocol of this program.
const H3: &str = "h3";
/// The keys that a record's `mandatory` list may contain. Encrypted Client Hello is not one of
/// them, because this program does not support it.
const UNDERSTOOD: [SvcParamKey; 5] = [
    SvcParamKey::Alpn,
    SvcParamKey::NoDefaultAlpn,
    SvcParamKey::Port,
    SvcParamKey::Ipv4Hint,
    SvcParamKey::Ipv6Hint,
];

/// Returns a number below the given one. Its randomness spreads the load over records of equal
/// priority.
pub(crate) type Pick<'a> = &'a mut dyn FnMut(usize) -> usize;

/// An alternative endpoint (section 2.4.3), before its addresses are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The name whose addresses to look up.
    pub(crate) target: Name,
    pub(crate) port: u16,
    /// Addresses to use if the lookup of the target's fails (section 7.3).
    pub(crate) hints: Vec<IpAddr>,
}

/// The next step after an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The name is an alias: query the HTTPS records of [`Discovery::question`], which has changed.
    Ask,
    /// Try these endpoints, in this order, before the host's own addresses.
    Try(Vec<Endpoint>),
    /// The name's owner declares that there is no such service (section 2.5.1).
    Unavailable,
}

/// The client's procedure (section 3).
#[derive(Clone, Debug)]
pub(crate) struct Discovery {
    port: u16,
    question: Name,
    /// The earlier questions, whose AliasMode records led to the present one.
    left: Vec<Name>,
}

impl Discovery {
    /// The procedure for `https://HOST:PORT`. `None` if the host's name is too long for a port
    /// before it.
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

    /// The name whose HTTPS records to query.
    pub(crate) fn question(&self) -> &Name {
        &self.question
    }

    /// Handles the answer section for [`Discovery::question`]. An empty one also stands for a
    /// missing or malformed answer.
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

        // A record in AliasMode overrides those in ServiceMode (section 2.4.1).
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
            // The target of an alias may have addresses, but no HTTPS records.
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
        // The client then proceeds as if the host had no record (section 3.1).
        if self.left.len() > MAX_CHAIN || self.left.contains(target) {
            return Step::Try(Vec::new());
        }
        Step::Ask
    }
}

/// The name that the CNAME records in an answer lead to from `name`.
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

/// The endpoint in a ServiceMode record, if a client of HTTP/3 alone can use it ("compatible",
/// section 8).
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
            // Without this list the endpoint does not support HTTP/3 (sections 7.1.2 and 9.1).
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

/// Shuffles by the algorithm of Fisher and Yates, with the randomness of `pick`.
fn shuffle<T>(items: &mut [T], pick: Pick<'_>) {
    for last in (1..items.len()).rev() {
        items.swap(last, pick(last + 1).min(last));
    }
}

/// The origin of an address, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    HttpsRecord,
    /// It is one of the host's own, or the URL has it.
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
    /// The endpoint's number. Addresses of one endpoint follow each other.
    pub(crate) endpoint: usize,
}

/// All addresses to try, in order: first the endpoints of the records, each with its target's
/// addresses, then the host's `own` addresses at the URL's `port` (section 3: HTTP is
/// "SVCB-optional"). The ports of the given addresses are ignored.
pub(crate) fn routes(
    endpoints: &[(Endpoint, Vec<SocketAddr>)],
    own: &[SocketAddr],
    port: u16,
) -> Vec<Route> {
    // Keeps the scope of a link-local address.
    let at = |address: &SocketAddr, port: u16| {
        let mut address = *address;
        address.set_port(port);
        address
    };
    let recorded = endpoints.iter().enumerate().flat_map(|(index, (endpoint, addresses))| {
        let hints =
            endpoint.hints.iter().map(|ip| SocketAddr::new(ip.to_canonical(), endpoint.port));
        // Addresses override hints (section 7.3).
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

/// Whether an address can be a server's. A record may contain any address.
fn is_one_host(ip: IpAddr) -> bool {
    !(ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST))
}

/// Adds the routes with new addresses, up to the limit.
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
