//! Places that clients occupy, in total and each.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error;

/// A client, for the limits per client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client(IpAddr);

impl Client {
    /// The client with this address. An IPv6 host can use any address of its /64.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
            v4 => v4,
        })
    }
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Full {
    /// One client has as many of these as it may have.
    #[error("your address already has {0} {1}: wait until one of them ends")]
    Client(u32, &'static str),
    /// All clients together have as many of these as there may be.
    #[error("the server already has {0} {1}: try again later")]
    Total(u32, &'static str),
}

/// Counts the places that clients occupy, in total and each.
#[derive(Debug)]
pub struct Quota {
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
    #[must_use]
    pub fn new(what: &'static str, total: u32, each: u32) -> Arc<Self> {
        Arc::new(Self { what, total, each, taken: Mutex::default() })
    }

    /// Occupies a place, until it is dropped.
    ///
    /// # Errors
    /// All of them are occupied, or as many as one client may have.
    pub fn take(self: &Arc<Self>, client: Client) -> Result<Place, Full> {
        let mut taken = self.taken.lock();
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
    #[must_use]
    pub fn is_busy(&self, client: Client) -> bool {
        let taken = self.taken.lock();
        let own = taken.by.get(&client).copied().unwrap_or(0);
        taken.total >= self.total.div_ceil(2) || own >= self.each.div_ceil(2)
    }
}

/// An occupied place.
#[derive(Debug)]
pub struct Place {
    quota: Arc<Quota>,
    client: Client,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.quota.taken.lock();
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
        assert_eq!(quota.taken.lock().by.len(), 1, "only clients with a place have an entry");
        assert_eq!(quota.taken.lock().total, 1);
    }
}
