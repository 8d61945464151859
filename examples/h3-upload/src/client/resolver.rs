//! Queries name servers for the HTTPS records of the URL's host, and for addresses.

use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, Record, RecordType};
use hickory_resolver::{Hosts, TokioResolver};
use tokio::net::lookup_host;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::debug;
use url::Host;

use crate::clock::now;
use crate::discover::{Discovery, Endpoint, Route, Step, routes};
use crate::options::{DNS_PORT, Plan};

/// The longest wait for answers about HTTPS records after the host's own addresses are known. The
/// program queries both at the same time, so most name servers have answered by then. Some never
/// answer queries for unknown record types, and these must not cost much.
const GRACE: Duration = Duration::from_millis(200);
/// The longest wait for one of the two if the other yielded no address, so that no upload can begin
/// meanwhile.
const LAST_HOPE: Duration = Duration::from_secs(2);
/// All such waits together take at most the connection's timeout divided by this.
const ALLOWANCE: u32 = 4;

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The C library queries as many.
const MAX_NAME_SERVERS: usize = 3;

/// All addresses of the plan's server, in the order in which to try them.
///
/// # Errors
/// There is no address, or the host's owner declares that there is no such service.
pub(crate) async fn find(plan: &Plan) -> anyhow::Result<Vec<Route>> {
    let port = plan.target.port;
    match &plan.target.host {
        Host::Ipv4(ip) => Ok(routes(&[], &[(*ip, port).into()], port)),
        Host::Ipv6(ip) => Ok(routes(&[], &[(*ip, port).into()], port)),
        Host::Domain(host) => {
            discover(host, port, &Names::new(plan.resolver)?, plan.timeout / ALLOWANCE).await
        }
    }
}

async fn discover(
    host: &str,
    port: u16,
    names: &Names,
    allowance: Duration,
) -> anyhow::Result<Vec<Route>> {
    let mut own = Own { lookup: Box::pin(names.addresses(host)), found: None, allowance };
    let name = absolute(host);
    let endpoints = match &name {
        Some(name) => names.endpoints(name, port, &mut own).await?,
        None => Vec::new(),
    };
    let looked_up = names.targets(name.as_ref(), &endpoints, &mut own).await;
    let elsewhere = endpoints.iter().any(|endpoint| {
        looked_up.get(&endpoint.target).is_some_and(|found| !found.is_empty())
            || !endpoint.hints.is_empty()
    });
    let own = match own.finish(elsewhere).await {
        Err(error) if !elsewhere => return Err(error),
        found => found.unwrap_or_default(),
    };

    let endpoints: Vec<_> = endpoints
        .into_iter()
        .map(|endpoint| {
            let addresses = match looked_up.get(&endpoint.target) {
                _ if name.as_ref() == Some(&endpoint.target) => own.clone(),
                found => found.cloned().unwrap_or_default(),
            };
            (endpoint, addresses)
        })
        .collect();
    let routes = routes(&endpoints, &own, port);
    debug!(%host, port, ?routes, "addresses to try");
    Ok(routes)
}

/// The lookup of the host's own addresses, which runs beside others.
struct Own<'a> {
    lookup: Pin<Box<dyn Future<Output = anyhow::Result<Vec<SocketAddr>>> + 'a>>,
    found: Option<anyhow::Result<Vec<SocketAddr>>>,
    /// The rest of the time for waiting for other lookups after this one has ended.
    allowance: Duration,
}

impl Own<'_> {
    /// Awaits `other`. `None` if it takes too long while the upload could begin.
    async fn meanwhile<T>(&mut self, other: impl Future<Output = T>) -> Option<T> {
        let mut other = pin!(other);
        if self.found.is_none() {
            tokio::select! {
                biased;
                done = &mut other => return Some(done),
                found = &mut self.lookup => self.found = Some(found),
            }
        }
        let patience = if matches!(self.found, Some(Ok(_))) { GRACE } else { LAST_HOPE };
        let began = now();
        let done = timeout(patience.min(self.allowance), other).await;
        self.allowance = self.allowance.saturating_sub(now().saturating_duration_since(began));
        done.ok()
    }

    /// Awaits the host's own addresses. With `elsewhere`, there are others to try, and the wait is
    /// short.
    async fn finish(self, elsewhere: bool) -> anyhow::Result<Vec<SocketAddr>> {
        match self.found {
            Some(found) => found,
            None if elsewhere => timeout(LAST_HOPE.min(self.allowance), self.lookup).await?,
            None => self.lookup.await,
        }
    }
}

/// The resolver for names.
#[derive(Clone)]
enum Names {
    /// The system's, which also reads its hosts file. The program itself queries the system's name
    /// servers for HTTPS records, because the C library does not.
    System { https: Option<TokioResolver> },
    /// The name server of `--resolver`.
    At { server: SocketAddr, resolver: TokioResolver },
}

impl Names {
    fn new(server: Option<SocketAddr>) -> anyhow::Result<Self> {
        match server {
            Some(server) => {
                let resolver = resolver(&[server]).with_context(|| {
                    format!("cannot query the name server {server}: check --resolver")
                })?;
                Ok(Self::At { server, resolver })
            }
            None => {
                let https = resolver(&system_name_servers()).inspect_err(
                    |error| debug!(%error, "no name server to query for HTTPS records"),
                );
                Ok(Self::System { https: https.ok() })
            }
        }
    }

    /// Looks up the addresses of `name`, without a port: at least one.
    async fn addresses(&self, name: &str) -> anyhow::Result<Vec<SocketAddr>> {
        match self {
            Self::System { .. } => system_addresses(name, 0).await,
            Self::At { server, resolver } => {
                let absolute =
                    absolute(name).with_context(|| format!("{name} is not a domain name"))?;
                match resolver.lookup_ip(absolute).await {
                    Ok(answer) => {
                        let found: Vec<_> =
                            answer.iter().map(|ip| SocketAddr::new(ip, 0)).collect();
                        if found.is_empty() { Err(unknown(*server, name)) } else { Ok(found) }
                    }
                    Err(error) => Err(complaint(*server, name, &error)),
                }
            }
        }
    }

    /// Looks up the endpoints in the HTTPS records for `https://HOST:PORT`. A missing record is no
    /// error, whatever the reason.
    async fn endpoints(
        &self,
        host: &Name,
        port: u16,
        own: &mut Own<'_>,
    ) -> anyhow::Result<Vec<Endpoint>> {
        let (Some(mut discovery), Some(resolver)) = (Discovery::new(host, port), self.https(host))
        else {
            return Ok(Vec::new());
        };
        loop {
            let answers = own.meanwhile(https_records(resolver, discovery.question())).await;
            if answers.is_none() {
                debug!("continuing without the HTTPS records of {}", discovery.question());
            }
            match discovery.answered(&answers.unwrap_or_default(), &mut any_of) {
                Step::Ask => {}
                Step::Try(endpoints) => return Ok(endpoints),
                Step::Unavailable => bail!(
                    "an HTTPS record of {} declares that there is no such service: check the URL, \
                     above all its port",
                    discovery.question()
                ),
            }
        }
    }

    /// The resolver for the HTTPS records of `host`; `None` if the program ignores them.
    fn https(&self, host: &Name) -> Option<&TokioResolver> {
        match self {
            Self::At { resolver, .. } => Some(resolver),
            // A record must not override an address in the hosts file.
            Self::System { .. } if in_hosts_file(host) => None,
            Self::System { https } => https.as_ref(),
        }
    }

    /// Looks up the addresses of the endpoints' targets other than the host itself, as far as there
    /// is time.
    async fn targets(
        &self,
        host: Option<&Name>,
        endpoints: &[Endpoint],
        own: &mut Own<'_>,
    ) -> HashMap<Name, Vec<SocketAddr>> {
        let mut found = HashMap::new();
        let mut lookups = JoinSet::new();
        for Endpoint { target, .. } in endpoints {
            if host == Some(target) || found.insert(target.clone(), Vec::new()).is_some() {
                continue;
            }
            let (names, target) = (self.clone(), target.clone());
            lookups.spawn(async move {
                // The final dot disables search lists. Names in the hosts file have none.
                let name = target.to_ascii();
                let name = if in_hosts_file(&target) { name.trim_end_matches('.') } else { &name };
                let addresses = names.addresses(name).await;
                (target, addresses)
            });
        }
        let all = async {
            while let Some(lookup) = lookups.join_next().await {
                match lookup {
                    Ok((target, Ok(addresses))) => drop(found.insert(target, addresses)),
                    Ok((_, Err(error))) => debug!("{error:#}"),
                    Err(error) => debug!(%error, "a lookup failed"),
                }
            }
        };
        if own.meanwhile(all).await.is_none() {
            debug!("continuing without the addresses of some targets");
        }
        found
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

/// Whether the hosts file has an address of `name`.
fn in_hosts_file(name: &Name) -> bool {
    let Ok(hosts) = Hosts::from_system() else { return false };
    let has = |kind| hosts.lookup_static_host(&Query::query(name.clone(), kind)).is_some();
    has(RecordType::A) || has(RecordType::AAAA)
}

/// The answer section; empty if there is no valid answer, because an upload does not depend on one
/// (RFC 9460, section 3).
async fn https_records(resolver: &TokioResolver, name: &Name) -> Vec<Record> {
    match resolver.lookup(name.clone(), RecordType::HTTPS).await {
        Ok(lookup) => lookup.answers().to_vec(),
        Err(error) => {
            debug!(%name, %error, "no HTTPS record");
            Vec::new()
        }
    }
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

fn complaint(server: SocketAddr, name: &str, error: &NetError) -> anyhow::Error {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NoError | ResponseCode::NXDomain => unknown(server, name),
            code => {
                anyhow!(
                    "the name server {server} failed to look up {name} ({code}): try another \
                     --resolver"
                )
            }
        },
        error => {
            anyhow!(
                "the name server {server} gave no valid answer about {name} ({error}): check \
                 --resolver"
            )
        }
    }
}

fn unknown(server: SocketAddr, name: &str) -> anyhow::Error {
    anyhow!(
        "the name server {server} knows no address of {name}: check the name, or try another \
         --resolver"
    )
}

/// A random number below `count`, which spreads clients over records of equal priority.
fn any_of(count: usize) -> usize {
    let random = RandomState::new().hash_one(count);
    usize::try_from(random % (count as u64).max(1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::runtime::Runtime;
    use tokio::sync::oneshot;

    use super::*;

    /// Short, so that the tests are fast, and more than zero.
    const ALLOWED: Duration = Duration::from_millis(1);

    fn own<'a>(lookup: impl Future<Output = anyhow::Result<Vec<SocketAddr>>> + 'a) -> Own<'a> {
        Own { lookup: Box::pin(lookup), found: None, allowance: ALLOWED }
    }

    fn addresses() -> Vec<SocketAddr> {
        vec![SocketAddr::from(([192, 0, 2, 1], 0))]
    }

    #[test]
    fn a_missing_answer_does_not_delay_an_upload() {
        Runtime::new().unwrap().block_on(async {
            let mut own = own(ready(Ok(addresses())));
            assert_eq!(own.meanwhile(pending::<()>()).await, None);
            assert_eq!(own.allowance, Duration::ZERO, "the wait used all of it");
            // An immediate answer needs no wait.
            assert_eq!(own.meanwhile(ready(7)).await, Some(7));
            assert_eq!(own.meanwhile(pending::<()>()).await, None);
            assert_eq!(own.finish(false).await.unwrap(), addresses());
        });
    }

    #[test]
    fn the_program_awaits_an_answer_while_it_has_no_address() {
        Runtime::new().unwrap().block_on(async {
            let (sender, receiver) = oneshot::channel();
            let mut own = own(pending());
            let answer = tokio::spawn(async move { receiver.await.unwrap() });
            let later = tokio::spawn(async move { sender.send(7).unwrap() });
            assert_eq!(own.meanwhile(answer).await.unwrap().unwrap(), 7);
            later.await.unwrap();
            assert_eq!(own.allowance, ALLOWED);
        });
    }

    #[test]
    fn own_addresses_are_optional_if_there_are_others() {
        Runtime::new().unwrap().block_on(async {
            assert!(own(pending()).finish(true).await.is_err());
            assert_eq!(own(ready(Ok(addresses()))).finish(true).await.unwrap(), addresses());
        });
    }

    #[test]
    fn a_random_number_is_below_its_bound() {
        let picked: std::collections::BTreeSet<_> = (0..1000).map(|_| any_of(3)).collect();
        assert_eq!(picked.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(any_of(1), 0);
        assert_eq!(any_of(0), 0);
    }

    #[test]
    fn the_hosts_file_has_the_machine_itself() {
        assert!(in_hosts_file(&absolute("localhost").unwrap()));
        assert!(!in_hosts_file(&absolute("nowhere.invalid").unwrap()));
    }
}
