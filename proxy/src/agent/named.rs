//! Which of the proxies that answer markers the agent asks for help, without I/O.
//!
//! A flow's [`Sender`] asks no address that cannot be a proxy's, and few that do not answer. An
//! agent has a sender for each flow, and therefore also limits what all of them ask together.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sidekick_protocol::sender::HandleError;
use sidekick_protocol::{Sender, SenderConfig};
use tracing::debug;

use super::flow::HelpedFlow;

/// Sessions that all flows together request from an address that has not answered, at whatever
/// ports. A session sends at most seven messages before it gives up.
const MOST_REQUESTS: u32 = 4;
/// After this time, the agent may request as many more.
const REQUEST_PERIOD: Duration = Duration::from_secs(60);
/// Most addresses that the agent remembers.
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
    /// The agent requested this many sessions from it since this time, without an answer. The last
    /// address is the destination whose answers named it first.
    Silent(u32, Instant, IpAddr),
}

/// The addresses that answers have named.
#[derive(Debug, Default)]
pub(super) struct Named(HashMap<IpAddr, Standing>);

impl Named {
    /// Whether the agent may request another session from an address that this destination named.
    pub(super) fn has_room(&mut self, proxy: IpAddr, destination: IpAddr, now: Instant) -> bool {
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
    pub(super) fn on_asked(&mut self, proxy: IpAddr, destination: IpAddr, now: Instant) {
        self.make_room(proxy);
        match self.0.entry(proxy).or_insert(Standing::Silent(0, now, destination)) {
            Standing::Proxy(_) => {}
            Standing::Silent(asked, since, _) if now < *since + REQUEST_PERIOD => *asked += 1,
            silent @ Standing::Silent(..) => *silent = Standing::Silent(1, now, destination),
        }
    }

    /// Notes that a proxy answered from an address.
    pub(super) fn on_answer(&mut self, proxy: IpAddr, now: Instant) {
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

/// Asks the proxy that an answer names for help, if the address is plausible.
pub(super) fn on_answer(
    (named, local): (&mut Named, &HashSet<IpAddr>),
    chosen: &SenderConfig,
    helped: &mut HelpedFlow,
    answer: &[u8],
    now: Instant,
) {
    // The answer contains the address under which the proxy sees this machine.
    if helped.sender.handle_proof(answer, now) {
        return;
    }
    let Some(proxy) = Sender::answering_proxy(answer) else {
        // An error changes only the sender's counters.
        let _ = helped.sender.handle_on_path(answer, now);
        return;
    };
    let is_chosen = chosen.proxy.is_some() || chosen.key.is_some();
    let is_other = chosen.proxy.is_some_and(|chosen| chosen != proxy);
    let is_own = local.contains(&proxy.ip()) && !is_chosen;
    if is_chosen && !is_other {
        helped.sender.expect_proxy(proxy);
    }
    let latest = helped.sender.session_numbers().last();
    let destination = helped.flow.destination.ip();
    let outcome = if is_own || is_other || !named.has_room(proxy.ip(), destination, now) {
        Err(HandleError::NotAsked)
    } else {
        helped.sender.handle_on_path(answer, now)
    };
    if outcome == Err(HandleError::NotAsked) {
        debug!("an answer on the path to {destination} names {proxy}: the agent does not ask it");
    }
    if helped.sender.session_numbers().last() != latest {
        helped.log_answer(proxy);
        named.on_asked(proxy.ip(), destination, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::clock;

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
