//! Limits on what clients may use, together and each.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;

/// Descriptors of the server itself: standard streams, the socket, the directory, the runtime's
/// own.
const OWN_DESCRIPTORS: u64 = 64;

/// The limits of the command line.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits (a client is an IPv4 address or an IPv6 /64)")]
pub(crate) struct Limits {
    /// Refuse longer files
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_bytes: Option<u64>,
    /// Simultaneous connections; the server refuses further ones in the handshake
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: u32,
    /// Simultaneous connections of one client
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections_per_client: u32,
    /// Simultaneous uploads and downloads, each with an open file; further ones receive status 503.
    /// At its start the server raises its limit of open files accordingly
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_uploads: u32,
    /// Simultaneous uploads and downloads of one client; further ones receive status 429
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_uploads_per_client: u32,
    /// Simultaneous requests of one connection; further ones wait at the client for a stream
    /// (MAX_STREAMS)
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_uploads_per_connection: u32,
    /// Bytes of all unfinished files together; uploads beyond receive status 507
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 30)]
    pub(crate) max_unfinished_bytes: u64,
    /// A body must gain --min-progress bytes within this time, or end; otherwise it receives status
    /// 408. Within the same time, the client must take 16 KiB of a download
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) stall_timeout: u16,
    /// See --stall-timeout
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) min_progress: u64,
    /// Close a connection without a request for this long, unless it still carries a file. Request
    /// headers must end, and the client must read its answer, within the same time
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) request_timeout: u16,
    /// Flow control window of a connection, and the most bytes of downloads that wait for
    /// acknowledgements. The default suffices for 100 Mbit/s at a round trip of 0.6 s. A hostile
    /// client can make the server keep 3.5 times as much for a connection, and 250 KiB for each of
    /// its requests. By default that is 36 MiB for a connection, 1.2 GiB for all of one client, and
    /// 4.5 GiB for all connections
    #[arg(long, value_name = "BYTES", default_value_t = 8 << 20, value_parser = clap::value_parser!(u32).range(65536..=1 << 30))]
    pub(crate) window: u32,
}

impl Limits {
    pub(crate) fn stall_timeout(&self) -> Duration {
        Duration::from_secs(self.stall_timeout.into())
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_secs(self.request_timeout.into())
    }

    /// Raises the limit of open files, if necessary, to suffice for all uploads.
    ///
    /// # Errors
    /// The limit is too low, and cannot be raised.
    pub(crate) fn provide_descriptors(&self) -> anyhow::Result<()> {
        let needed = u64::from(self.max_uploads) + OWN_DESCRIPTORS;
        // `None` is no limit.
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        if current.is_none_or(|current| current >= needed) {
            return Ok(());
        }
        let most = maximum.unwrap_or(u64::MAX);
        ensure!(
            most >= needed,
            "only {most} files can be open, but --max-uploads {} needs {needed}: raise the limit \
             (ulimit -Hn), or lower --max-uploads",
            self.max_uploads
        );
        setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).with_context(|| {
            format!("cannot raise the limit of open files to {needed}: lower --max-uploads")
        })
    }
}

/// A client, for the limits per client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client(IpAddr);

impl Client {
    /// The client with this address. An IPv6 host can use any address of its /64.
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
            v4 => v4,
        })
    }
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum Full {
    #[error("your address already has {0} {1}: wait until one of them ends")]
    Client(u32, &'static str),
    #[error("the server already has {0} {1}: try again later")]
    Total(u32, &'static str),
}

/// Counts the places that clients occupy, in total and each.
#[derive(Debug)]
pub(crate) struct Quota {
    what: &'static str,
    total: u32,
    each: u32,
    /// It has at most `total` clients, because each of them has a place.
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    total: u32,
    by: HashMap<Client, u32>,
}

impl Quota {
    /// Places for `what`, in the plural.
    pub(crate) fn new(what: &'static str, total: u32, each: u32) -> Arc<Self> {
        Arc::new(Self { what, total, each, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Counting does not panic.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Occupies a place, until it is dropped.
    pub(crate) fn take(self: &Arc<Self>, client: Client) -> Result<Place, Full> {
        let mut taken = self.taken();
        let own = taken.by.get(&client).copied().unwrap_or(0);
        if own >= self.each {
            return Err(Full::Client(self.each, self.what));
        }
        if taken.total >= self.total {
            return Err(Full::Total(self.total, self.what));
        }
        taken.total += 1;
        taken.by.insert(client, own + 1);
        Ok(Place { quota: Arc::clone(self), client })
    }

    /// Whether half the places are occupied, of all or of this client's.
    pub(crate) fn is_busy(&self, client: Client) -> bool {
        let taken = self.taken();
        let own = taken.by.get(&client).copied().unwrap_or(0);
        taken.total >= self.total.div_ceil(2) || own >= self.each.div_ceil(2)
    }
}

/// An occupied place.
#[derive(Debug)]
pub(crate) struct Place {
    quota: Arc<Quota>,
    client: Client,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.quota.taken();
        taken.total -= 1;
        match taken.by.get_mut(&self.client) {
            Some(own) if *own > 1 => *own -= 1,
            _ => {
                taken.by.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str) -> Client {
        Client::of(address.parse().unwrap())
    }

    #[test]
    fn an_ipv6_client_is_its_network() {
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:0:0:1"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
        assert_eq!(client("192.0.2.1"), client("::ffff:192.0.2.1"));
    }

    #[test]
    fn places_are_limited_and_return() {
        let (one, other, third) = (client("192.0.2.1"), client("192.0.2.2"), client("192.0.2.3"));
        let quota = Quota::new("uploads", 3, 2);
        let first = quota.take(one).unwrap();
        assert!(!quota.is_busy(other) && quota.is_busy(one));
        let second = quota.take(one).unwrap();
        assert_eq!(quota.take(one).unwrap_err(), Full::Client(2, "uploads"));
        let _third = quota.take(other).unwrap();
        assert_eq!(quota.take(third).unwrap_err(), Full::Total(3, "uploads"));
        assert!(quota.is_busy(third));
        drop(first);
        drop(quota.take(third).unwrap());
        drop(second);
        assert_eq!(quota.taken().by.len(), 1, "only clients with a place have an entry");
        assert_eq!(quota.taken().total, 1);
    }
}
