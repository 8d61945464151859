//! Which of the proxies that answer markers are asked for help.
//!
//! A flow's [`Sender`] asks no address that cannot be a proxy's, and few that do not answer. A
//! caller with a sender for each flow therefore also limits what all of them ask together.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::sender::{HandleError, Sender, SenderConfig};

/// Sessions that all flows together request from an address that has not answered, at whatever
/// ports. A session sends at most seven messages before it gives up.
const MOST_REQUESTS: u32 = 4;
/// After this time, they may request as many more.
const REQUEST_PERIOD: Duration = Duration::from_secs(60);
/// Most addresses that are remembered.
const MOST: usize = 64;
/// Most of them that have not answered, so that these displace no proxy for long; and those of them
/// that one destination named.
const MOST_STRANGERS: usize = 32;
const MOST_OF_DESTINATION: usize = 4;

/// The state of an address.
#[derive(Clone, Copy, Debug)]
enum Standing {
    /// It has answered as a proxy, most recently at this time.
    Proxy(Instant),
    /// So many sessions were requested from it since this time, without an answer. The last address
    /// is the destination whose answers named it first.
    Silent(u32, Instant, IpAddr),
}

/// The addresses that answers have named, to all flows of an agent or a socket.
#[derive(Debug, Default)]
pub struct Named(HashMap<IpAddr, Standing>);

impl Named {
    /// Passes an answer that arrived on a flow's path to its sender, unless the proxy that it names
    /// should not be asked. `chosen` has the proxy and the key that the user wants, `local` the
    /// machine's own addresses, and `destination` is the flow's. Returns the proxy if the sender
    /// asks it now.
    ///
    /// # Errors
    /// The proxy, if it is not asked.
    pub fn introduce(
        &mut self,
        sender: &mut Sender,
        chosen: &SenderConfig,
        local: impl Fn(IpAddr) -> bool,
        (destination, answer): (IpAddr, &[u8]),
        now: Instant,
    ) -> Result<Option<SocketAddr>, SocketAddr> {
        // The answer contains the address under which the proxy sees this machine.
        if sender.handle_proof(answer, now) {
            return Ok(None);
        }
        let Some(proxy) = Sender::answering_proxy(answer) else {
            // An error changes only the sender's counters.
            let _ = sender.handle_on_path(answer, now);
            return Ok(None);
        };
        let is_chosen = chosen.proxy.is_some() || chosen.key.is_some();
        let is_other = chosen.proxy.is_some_and(|chosen| chosen != proxy);
        let is_own = local(proxy.ip()) && !is_chosen;
        if is_chosen && !is_other {
            sender.expect_proxy(proxy);
        }
        let latest = sender.session_numbers().last();
        let outcome = if is_own || is_other || !self.has_room(proxy.ip(), destination, now) {
            Err(HandleError::NotAsked)
        } else {
            sender.handle_on_path(answer, now)
        };
        if outcome == Err(HandleError::NotAsked) {
            return Err(proxy);
        }
        let asks = sender.session_numbers().last() != latest;
        if asks {
            self.on_asked(proxy.ip(), destination, now);
        }
        Ok(asks.then_some(proxy))
    }

    /// Whether another session may be requested from an address that this destination named.
    fn has_room(&mut self, proxy: IpAddr, destination: IpAddr, now: Instant) -> bool {
        match self.0.get(&proxy) {
            Some(Standing::Proxy(_)) => true,
            Some(Standing::Silent(asked, since, _)) => {
                *asked < MOST_REQUESTS || now >= *since + REQUEST_PERIOD
            }
            None => {
                self.0.retain(|_, known| match known {
                    Standing::Proxy(_) => true,
                    Standing::Silent(_, since, _) => now < *since + REQUEST_PERIOD,
                });
                let by = self.0.values().filter_map(|known| match known {
                    Standing::Silent(_, _, by) => Some(*by),
                    Standing::Proxy(_) => None,
                });
                by.clone().count() < MOST_STRANGERS
                    && by.filter(|by| *by == destination).count() < MOST_OF_DESTINATION
            }
        }
    }

    /// Notes that a session was requested from an address that this destination named.
    fn on_asked(&mut self, proxy: IpAddr, destination: IpAddr, now: Instant) {
        self.make_room(proxy);
        match self.0.entry(proxy).or_insert(Standing::Silent(0, now, destination)) {
            Standing::Proxy(_) => {}
            Standing::Silent(asked, since, _) if now < *since + REQUEST_PERIOD => *asked += 1,
            silent @ Standing::Silent(..) => *silent = Standing::Silent(1, now, destination),
        }
    }

    /// Notes that a proxy answered from an address.
    pub fn on_answer(&mut self, proxy: IpAddr, now: Instant) {
        self.make_room(proxy);
        self.0.insert(proxy, Standing::Proxy(now));
    }

    /// Makes room for an address. If there are too many, it forgets the proxy whose last answer is
    /// the oldest.
    fn make_room(&mut self, address: IpAddr) {
        if self.0.len() < MOST || self.0.contains_key(&address) {
            return;
        }
        let proxies = self.0.iter().filter_map(|(address, known)| match known {
            Standing::Proxy(at) => Some((*at, *address)),
            Standing::Silent(..) => None,
        });
        if let Some((_, oldest)) = proxies.min() {
            self.0.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn clock() -> Instant {
        Instant::now()
    }

    #[test]
    fn an_address_that_never_answers_gets_few_messages() {
        let (mut named, mut now) = (Named::default(), clock());
        let proxy = |number: u8| IpAddr::from([198, 51, 100, number]);
        let mut asked = [0; 2];
        // A thousand answers a second for ten minutes, which name one address or many.
        for second in 0..600 {
            for number in 0..1000_u16 {
                for (many, asked) in asked.iter_mut().enumerate() {
                    let address = proxy(if many == 0 { 0 } else { 1 + (number % 250) as u8 });
                    let by = IpAddr::from([203, 0, 113, (number % 100) as u8]);
                    if named.has_room(address, by, now) {
                        named.on_asked(address, by, now);
                        *asked += 1;
                    }
                }
            }
            if second == 300 {
                assert_eq!(asked[0], 6 * MOST_REQUESTS);
                named.on_answer(proxy(0), now);
            }
            now += Duration::from_secs(1);
        }
        assert_eq!(asked[0], 6 * MOST_REQUESTS + 299 * 1000);
        let rounds = 600 / 60;
        assert!((1..=rounds * 32 * MOST_REQUESTS).contains(&asked[1]), "{asked:?}");
        assert!(named.0.len() <= MOST);
    }

    #[test]
    fn a_destination_names_few_addresses() {
        let (mut named, now) = (Named::default(), clock());
        let [one, other] = [[203, 0, 113, 1], [203, 0, 113, 2]].map(IpAddr::from);
        let proxies = (0..100).map(|number| IpAddr::from([198, 51, 100, number]));
        let asked = proxies.filter(|proxy| {
            let has_room = named.has_room(*proxy, one, now);
            if has_room {
                named.on_asked(*proxy, one, now);
            }
            has_room
        });
        assert_eq!(asked.count(), MOST_OF_DESTINATION);
        assert!(named.has_room([192, 0, 2, 1].into(), other, now));
    }

    #[test]
    fn proxies_are_remembered_up_to_a_limit() {
        let (mut named, now) = (Named::default(), clock());
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        for number in 0..1000 {
            let proxy = address(0x0909_0000 + number);
            assert!(named.has_room(proxy, address(9), now), "{number}");
            named.on_answer(proxy, now + Duration::from_millis(number.into()));
            assert!(named.0.len() <= MOST);
        }
    }
}
