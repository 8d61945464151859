//! Finds the server's addresses: those in the HTTPS records of the URL's host (RFC 9460), and the
//! host's own. Sections in this file are those of RFC 9460.

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::svcb::{
    IpHint, Mandatory, SVCB, SvcParamKey, SvcParamValue,
};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::{Hosts, TokioResolver};
use tokio::net::lookup_host;
use tokio::time::timeout;
use tracing::debug;
use url::Host;

use crate::options::{DNS_PORT, Plan};

/// The longest wait for HTTPS records, and what they lead to, after the host's own addresses are
/// known. The program queries both at the same time, so most name servers have answered by then.
/// Some never answer queries for unknown record types, and these must not cost much.
const GRACE: Duration = Duration::from_millis(200);
/// The longest wait for one of the two if the other yielded no address, so that no upload can begin
/// meanwhile.
const LAST_HOPE: Duration = Duration::from_secs(2);
/// Such a wait takes at most the connection's timeout divided by this.
const ALLOWANCE: u32 = 4;

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The C library queries as many.
const MAX_NAME_SERVERS: usize = 3;
/// The longest chain of AliasMode records.
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

/// All addresses of the plan's server, in the order in which to try them.
///
/// # Errors
/// There is no address, or the host's owner declares that there is no such service.
pub(crate) async fn find(plan: &Plan) -> anyhow::Result<Vec<Route>> {
    let port = plan.target.port;
    let host = match &plan.target.host {
        Host::Ipv4(ip) => return Ok(routes(&[], &[(*ip, port).into()])),
        Host::Ipv6(ip) => return Ok(routes(&[], &[(*ip, port).into()])),
        Host::Domain(host) => host,
    };
    let names = Names::new(plan.resolver)?;
    let recorded = names.endpoints(host, port);
    let found = both(recorded, names.addresses(host, port), plan.timeout / ALLOWANCE).await;
    let (endpoints, own) = found?;
    let routes = routes(&endpoints, &own);
    debug!(%host, port, ?routes, "addresses to try");
    Ok(routes)
}

/// The addresses of each endpoint in the records, and the host's own. Neither delays the program
/// for long, nor at all longer than `allowance`, if it can do without.
async fn both(
    recorded: impl Future<Output = anyhow::Result<Vec<Vec<SocketAddr>>>>,
    own: impl Future<Output = anyhow::Result<Vec<SocketAddr>>>,
    allowance: Duration,
) -> anyhow::Result<(Vec<Vec<SocketAddr>>, Vec<SocketAddr>)> {
    let (mut recorded, mut own) = (pin!(recorded), pin!(own));
    let (endpoints, own) = tokio::select! {
        biased;
        endpoints = &mut recorded => {
            let endpoints = endpoints?;
            let own = match endpoints.is_empty() {
                true => own.await,
                false => timeout(LAST_HOPE.min(allowance), own).await.unwrap_or(Ok(Vec::new())),
            };
            (endpoints, own)
        }
        own = &mut own => {
            let patience = if own.is_ok() { GRACE } else { LAST_HOPE };
            let endpoints = timeout(patience.min(allowance), recorded).await;
            (endpoints.unwrap_or(Ok(Vec::new()))?, own)
        }
    };
    match own {
        Err(error) if endpoints.is_empty() => Err(error),
        own => Ok((endpoints, own.unwrap_or_default())),
    }
}

/// All addresses to try, in order: first those of each endpoint in the records, then the host's
/// `own` (section 3: HTTP is "SVCB-optional").
fn routes(endpoints: &[Vec<SocketAddr>], own: &[SocketAddr]) -> Vec<Route> {
    let recorded = endpoints.iter().enumerate().flat_map(|(endpoint, addresses)| {
        let addresses = addresses.iter().filter(|address| is_one_host(address.ip()));
        addresses.map(move |&address| Route { address, found: Found::HttpsRecord, endpoint })
    });
    let own = own.iter().map(|&address| Route {
        address,
        found: Found::Address,
        endpoint: endpoints.len(),
    });
    let mut routes = Vec::<Route>::new();
    for route in recorded.chain(own) {
        let alike = routes.iter().filter(|other| other.found == route.found).count();
        if alike < MAX_ADDRESSES && routes.iter().all(|other| other.address != route.address) {
            routes.push(route);
        }
    }
    routes
}

/// Whether an address can be a server's. A record may contain any address.
fn is_one_host(ip: IpAddr) -> bool {
    !(ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST))
}

/// The resolver for names.
#[derive(Clone)]
struct Names {
    /// `--resolver`. Without it, the system looks up addresses, also in its hosts file.
    server: Option<SocketAddr>,
    /// Queries this name server, or the system's name servers for HTTPS records, because the C
    /// library does not.
    resolver: Option<TokioResolver>,
}

impl Names {
    fn new(server: Option<SocketAddr>) -> anyhow::Result<Self> {
        let resolver = match server {
            Some(server) => Some(resolver(&[server]).with_context(|| {
                format!("cannot query the name server {server}: check --resolver")
            })?),
            None => resolver(&system_name_servers())
                .inspect_err(|error| debug!(%error, "no name server to query for HTTPS records"))
                .ok(),
        };
        Ok(Self { server, resolver })
    }

    /// Looks up the addresses of `name`: at least one.
    async fn addresses(&self, name: &str, port: u16) -> anyhow::Result<Vec<SocketAddr>> {
        let (Some(server), Some(resolver)) = (self.server, &self.resolver) else {
            return system_addresses(name, port).await;
        };
        let absolute = absolute(name).with_context(|| format!("{name} is not a domain name"))?;
        let found: Vec<_> = match resolver.lookup_ip(absolute).await {
            Ok(found) => found.iter().map(|ip| SocketAddr::new(ip, port)).collect(),
            Err(NetError::Dns(DnsError::NoRecordsFound(none)))
                if matches!(none.response_code, ResponseCode::NoError | ResponseCode::NXDomain) =>
            {
                Vec::new()
            }
            Err(error) => bail!(
                "the name server {server} failed to look up {name} ({error}): try another \
                 --resolver"
            ),
        };
        ensure!(
            !found.is_empty(),
            "the name server {server} knows no address of {name}: check the name, or try another \
             --resolver"
        );
        Ok(found)
    }

    /// The addresses of the endpoints in the HTTPS records for `https://HOST:PORT`, preferred
    /// endpoints first, each with an address. A missing record is no error, whatever the reason.
    async fn endpoints(&self, host: &str, port: u16) -> anyhow::Result<Vec<Vec<SocketAddr>>> {
        let (Some(host), Some(resolver)) = (absolute(host), &self.resolver) else {
            return Ok(Vec::new());
        };
        // A record must not override an address in the hosts file.
        if self.server.is_none() && in_hosts_file(&host) {
            return Ok(Vec::new());
        }
        let lookups: Vec<_> = self
            .services(resolver, &host, port)
            .await?
            .into_iter()
            .map(|endpoint| {
                let names = self.clone();
                tokio::spawn(async move { names.endpoint(endpoint).await })
            })
            .collect();
        let mut endpoints = Vec::new();
        for lookup in lookups {
            endpoints.extend(lookup.await.ok().filter(|addresses| !addresses.is_empty()));
        }
        Ok(endpoints)
    }

    /// The client's procedure up to the endpoints (section 3).
    async fn services(
        &self,
        resolver: &TokioResolver,
        host: &Name,
        port: u16,
    ) -> anyhow::Result<Vec<Endpoint>> {
        // A name may be too long for a port before it.
        let Some(mut question) = question(host, port) else { return Ok(Vec::new()) };
        for aliases in 0..=MAX_CHAIN {
            let answers = match resolver.lookup(question.clone(), RecordType::HTTPS).await {
                Ok(lookup) => lookup.answers().to_vec(),
                Err(error) => {
                    debug!(name = %question, %error, "no HTTPS record");
                    Vec::new()
                }
            };
            match read(&answers, port) {
                Records::Alias(target) if target.is_root() => bail!(
                    "an HTTPS record of {question} declares that there is no such service: check \
                     the URL, above all its port"
                ),
                Records::Alias(target) => question = target,
                Records::Services(mut services) => {
                    if aliases > 0 {
                        // The target of an alias may have addresses, but no HTTPS records.
                        services.push(Endpoint { target: question, port, hints: Vec::new() });
                    }
                    return Ok(services);
                }
            }
        }
        // The client then proceeds as if the host had no record (section 3.1).
        Ok(Vec::new())
    }

    /// The addresses of an endpoint: its target's, or else its hints (section 7.3).
    async fn endpoint(&self, Endpoint { target, port, hints }: Endpoint) -> Vec<SocketAddr> {
        let name = target.to_ascii();
        let lookup = self.addresses(name.trim_end_matches('.'), port);
        let found = match hints.is_empty() {
            true => lookup.await,
            false => timeout(GRACE / 2, lookup).await.unwrap_or(Ok(Vec::new())),
        };
        let found = found.inspect_err(|error| debug!("{error:#}")).unwrap_or_default();
        match found.is_empty() {
            true => hints.into_iter().map(|ip| SocketAddr::new(ip.to_canonical(), port)).collect(),
            false => found,
        }
    }
}

/// Looks up the addresses of `name` by the system's means: at least one.
pub(crate) async fn system_addresses(name: &str, port: u16) -> anyhow::Result<Vec<SocketAddr>> {
    let found: Vec<_> = lookup_host((name, port))
        .await
        .with_context(|| format!("cannot find the address of {name}: check the name"))?
        .collect();
    ensure!(!found.is_empty(), "cannot find the address of {name}: check the name");
    Ok(found)
}

/// `host` as an absolute name, to which no search list applies.
fn absolute(host: &str) -> Option<Name> {
    let mut name = Name::from_ascii(host).ok()?;
    name.set_fqdn(true);
    Some(name)
}

/// The name whose HTTPS records to query for `https://HOST:PORT`: that of the host, or one with the
/// port before it (section 2.3).
fn question(host: &Name, port: u16) -> Option<Name> {
    match port {
        HTTPS_PORT => Some(host.clone()),
        port => {
            let https = host.prepend_label("_https".as_bytes()).ok()?;
            https.prepend_label(format!("_{port}").as_bytes()).ok()
        }
    }
}

/// Whether the hosts file has an address of `name`.
fn in_hosts_file(name: &Name) -> bool {
    let Ok(hosts) = Hosts::from_system() else { return false };
    let has = |kind| hosts.lookup_static_host(&Query::query(name.clone(), kind)).is_some();
    has(RecordType::A) || has(RecordType::AAAA)
}

fn resolver(servers: &[SocketAddr]) -> anyhow::Result<TokioResolver> {
    ensure!(!servers.is_empty(), "there is no name server in {RESOLV_CONF}");
    let servers = servers.iter().map(|server| {
        let mut config = NameServerConfig::udp_and_tcp(server.ip());
        for connection in &mut config.connections {
            connection.port = server.port();
        }
        config
    });
    let config = ResolverConfig::from_name_servers(servers.collect());
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    builder.options_mut().use_hosts_file = ResolveHosts::Never;
    Ok(builder.build()?)
}

fn system_name_servers() -> Vec<SocketAddr> {
    let file = std::fs::read(RESOLV_CONF).unwrap_or_default();
    let (config, _) = resolv_conf::Config::parse_with_errors(&file);
    let servers = config.nameservers.iter().take(MAX_NAME_SERVERS);
    servers.map(|server| SocketAddr::new(server.into(), DNS_PORT)).collect()
}

/// An alternative endpoint (section 2.4.3), before its addresses are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Endpoint {
    /// The name whose addresses to look up.
    target: Name,
    port: u16,
    hints: Vec<IpAddr>,
}

/// What the HTTPS records of a name say.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Records {
    /// The records of another name count. The root declares that there is no such service (section
    /// 2.5.1).
    Alias(Name),
    /// Try these endpoints, in this order, before the host's own addresses.
    Services(Vec<Endpoint>),
}

/// Reads the records for the URL's `port`. Records of equal priority come in a random order, which
/// spreads the load.
fn read(answers: &[Record], port: u16) -> Records {
    let random = RandomState::new();
    let mut records: Vec<(u64, &Name, &SVCB)> = answers
        .iter()
        .zip(0..)
        .filter_map(|(record, index)| match &record.data {
            RData::HTTPS(https) => Some((random.hash_one::<u64>(index), &record.name, &https.0)),
            _ => None,
        })
        .collect();
    records.sort_by_key(|(random, _, record)| (record.svc_priority, *random));
    // A record in AliasMode overrides those in ServiceMode (section 2.4.1).
    if let Some((_, _, alias)) = records.first()
        && alias.svc_priority == 0
    {
        return Records::Alias(alias.target_name.clone());
    }
    let endpoints = records.iter().filter_map(|(_, owner, record)| endpoint(record, owner, port));
    Records::Services(endpoints.take(MAX_ENDPOINTS).collect())
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

#[cfg(test)]
mod tests;
