//! The clients whose sessions keep copies, by address.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// The addresses of clients, and the number of sessions of each.
#[derive(Debug, Default)]
pub(super) struct Clients {
    by_address: BTreeMap<IpAddr, usize>,
    sessions: usize,
    version: u64,
}

impl Clients {
    /// The number of sessions of all clients.
    pub(super) fn sessions(&self) -> usize {
        self.sessions
    }

    /// A number that grows with every change of the addresses.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn addresses(&self) -> impl ExactSizeIterator<Item = IpAddr> + '_ {
        self.by_address.keys().copied()
    }

    /// Adds a session of a client.
    pub(super) fn add(&mut self, client: IpAddr) {
        let of_client = self.by_address.entry(client).or_insert(0);
        self.version += u64::from(*of_client == 0);
        *of_client += 1;
        self.sessions += 1;
    }

    /// Removes a session of a client that was added.
    pub(super) fn remove(&mut self, client: IpAddr) {
        let Some(of_client) = self.by_address.get_mut(&client) else { return };
        *of_client -= 1;
        self.sessions -= 1;
        if *of_client == 0 {
            self.by_address.remove(&client);
            self.version += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stays_while_it_has_sessions() {
        let mut clients = Clients::default();
        let [one, two] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        clients.add(two);
        clients.add(one);
        assert_eq!(clients.addresses().collect::<Vec<_>>(), [one, two]);
        let version = clients.version();
        clients.add(one);
        clients.remove(one);
        assert_eq!((clients.version(), clients.sessions()), (version, 2));
        clients.remove(one);
        assert!(clients.version() != version, "the addresses have changed");
        assert_eq!(clients.addresses().collect::<Vec<_>>(), [two]);
        clients.remove(one);
        assert_eq!(clients.sessions(), 1, "it was not there");
    }
}
