//! The publishers of a topic: to whom each name belongs, and which messages the topic has of it.
//! Its memory is bounded.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher as _;

use h3_server::quota::Client;
use thiserror::Error;

use crate::limits::Limits;
use crate::name::PublisherName;

/// The most messages of a publisher of which the topic recognises a repetition. A client has no
/// more without an acknowledgement.
pub(crate) const MOST_REPEATED: usize = 1000;
/// As many a publisher has whatever others do.
const REPEATED: usize = 16;
/// The greatest distance between the numbers of two messages. A publisher that skips to the
/// greatest number could not go on.
const LONGEST_STEP: u32 = 1_000_000;

/// Who uses a name: whoever brings the same secret, or without one, whoever has the same address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) client: Client,
    /// A keyed hash of the secret.
    pub(crate) secret: Option<u64>,
}

impl Owner {
    fn is(self, other: Self) -> bool {
        self.secret == other.secret && (self.secret.is_some() || self.client == other.client)
    }
}

/// Why a topic does not accept a publisher.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum JoinError {
    /// The topic remembers as many as it may, and all that could be forgotten are connected.
    #[error("the topic already has {0} publishers: try again later")]
    Full(usize),
    #[error(
        "this publisher's name belongs to another client, with another secret or address: use \
         another name"
    )]
    Taken,
}

/// Why a topic does not accept a message.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum NumberError {
    #[error(
        "message {0} is neither new (the latest was {1}) nor a repetition that the broker knows: \
         number upwards, or use another name"
    )]
    NotNew(u64, u64),
    #[error("message {0} is more than {LONGEST_STEP} above {1}, the latest: number without gaps")]
    TooFar(u64, u64),
}

/// A message that the topic had.
#[derive(Clone, Copy, Debug)]
struct Had {
    /// The distance from the number of the one before.
    step: u32,
    /// A keyed hash of the content.
    print: u32,
}

#[derive(Debug)]
struct Publisher {
    owner: Owner,
    /// The greatest of the publisher's own numbers that the topic has; 0 before the first.
    latest: u64,
    /// Its latest messages. The last one has the number `latest`.
    had: VecDeque<Had>,
    /// Its connections.
    present: u32,
    /// When it last came or left, by a counter.
    seen: u64,
}

impl Publisher {
    /// Whether the message of this number is one that the topic had.
    fn repeats(&self, own: u64, print: u32) -> bool {
        let mut number = self.latest;
        for had in self.had.iter().rev() {
            if number <= own {
                return number == own && had.print == print;
            }
            number = number.saturating_sub(had.step.into());
        }
        false
    }

    /// Forgets its oldest message.
    fn forget(&mut self) {
        self.had.pop_front();
        if self.had.capacity() / 4 > self.had.len() {
            self.had.shrink_to(2 * self.had.len());
        }
    }
}

/// The publishers with a name.
#[derive(Debug)]
pub(crate) struct Publishers {
    limits: Limits,
    table: HashMap<PublisherName, Publisher>,
    /// The messages that all of them had and that the topic recognises.
    had: usize,
    turn: u64,
    key: RandomState,
}

impl Publishers {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, table: HashMap::new(), had: 0, turn: 0, key: RandomState::new() }
    }

    /// Adds a publisher. It is remembered until it leaves, and then as long as there is room.
    pub(crate) fn join(&mut self, name: &PublisherName, owner: Owner) -> Result<(), JoinError> {
        if self.table.get(name).is_some_and(|known| !known.owner.is(owner)) {
            return Err(JoinError::Taken);
        }
        if !self.table.contains_key(name) {
            self.make_room(owner.client)?;
        }
        self.turn += 1;
        let new = Publisher { owner, latest: 0, had: VecDeque::new(), present: 0, seen: 0 };
        let publisher = self.table.entry(name.clone()).or_insert(new);
        publisher.owner = owner;
        publisher.present += 1;
        publisher.seen = self.turn;
        Ok(())
    }

    /// Forgets the publisher that left first, if there are too many. A client that has its share
    /// makes room with one of its own, so that it cannot make the topic forget all others.
    fn make_room(&mut self, client: Client) -> Result<(), JoinError> {
        let Limits { known_publishers, max_per_client, .. } = self.limits;
        let (all, of_client) = (known_publishers as usize, max_per_client as usize);
        if self.table.len() < all.min(of_client) {
            return Ok(());
        }
        let own = self.table.values().filter(|known| known.owner.client == client).count();
        let greedy = own >= of_client;
        if self.table.len() < all && !greedy {
            return Ok(());
        }
        let gone = self
            .table
            .iter()
            .filter(|(_, known)| known.present == 0 && (!greedy || known.owner.client == client));
        let oldest = gone.min_by_key(|(_, known)| known.seen).map(|(name, _)| name.clone());
        let forgotten = oldest.and_then(|name| self.table.remove(&name));
        let forgotten = forgotten.ok_or(JoinError::Full(self.table.len()))?;
        self.had -= forgotten.had.len();
        Ok(())
    }

    pub(crate) fn leave(&mut self, name: &PublisherName) {
        self.turn += 1;
        if let Some(publisher) = self.table.get_mut(name) {
            publisher.present = publisher.present.saturating_sub(1);
            publisher.seen = self.turn;
        }
    }

    /// Notes a message with the publisher's own number. Returns whether it is new. Otherwise it is
    /// the repetition of one that the topic had: same number, time and payload.
    pub(crate) fn note(
        &mut self,
        name: &PublisherName,
        own: u64,
        time: u64,
        payload: &[u8],
    ) -> Result<bool, NumberError> {
        // Only those that joined publish.
        let Some(publisher) = self.table.get_mut(name) else { return Ok(true) };
        let latest = publisher.latest;
        let print = (self.key.hash_one((time, payload)) >> 32) as u32;
        if own <= latest {
            let repeats = publisher.repeats(own, print);
            return if repeats { Ok(false) } else { Err(NumberError::NotNew(own, latest)) };
        }
        let step = match u32::try_from(own - latest) {
            Ok(step) if step <= LONGEST_STEP => step,
            // The broker does not know the messages before the first: it may have restarted.
            _ if latest == 0 => 0,
            _ => return Err(NumberError::TooFar(own, latest)),
        };
        publisher.latest = own;
        publisher.had.push_back(Had { step, print });
        self.had += 1;
        if publisher.had.len() > MOST_REPEATED {
            publisher.forget();
            self.had -= 1;
        } else if self.had > MOST_REPEATED + REPEATED * self.limits.known_publishers as usize {
            let longest = self.table.values_mut().max_by_key(|known| known.had.len());
            longest.into_iter().for_each(Publisher::forget);
            self.had -= 1;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::tests::limits;

    /// The publishers of a topic of so many, with two for each client.
    fn publishers(known: &str) -> Publishers {
        Publishers::new(limits(&["--known-publishers", known, "--max-per-client", "2"]))
    }

    fn name(text: &str) -> PublisherName {
        PublisherName::new(text).unwrap()
    }

    fn owner(client: u8, secret: Option<u64>) -> Owner {
        Owner { client: Client::of([192, 0, 2, client].into()), secret }
    }

    fn joined(names: &[&str]) -> Publishers {
        let mut publishers = publishers("4");
        for text in names {
            publishers.join(&name(text), owner(1, None)).unwrap();
        }
        publishers
    }

    #[test]
    fn a_name_belongs_to_its_first_secret_or_address() {
        let mut publishers = publishers("4");
        let (secret, address) = (name("secret"), name("address"));
        publishers.join(&secret, owner(1, Some(7))).unwrap();
        publishers.join(&address, owner(1, None)).unwrap();
        for (name, other) in [
            (&secret, owner(1, None)),
            (&secret, owner(1, Some(8))),
            (&address, owner(2, None)),
            (&address, owner(1, Some(7))),
        ] {
            assert_eq!(publishers.join(name, other), Err(JoinError::Taken), "{other:?}");
        }
        // A publisher with a secret may move.
        publishers.join(&secret, owner(2, Some(7))).unwrap();
        publishers.join(&address, owner(1, None)).unwrap();
        // The name stays its own after it has left.
        publishers.leave(&address);
        publishers.leave(&address);
        assert_eq!(publishers.join(&address, owner(2, None)), Err(JoinError::Taken));
    }

    #[test]
    fn only_a_true_repetition_is_one() {
        let mut publishers = joined(&["p"]);
        let p = name("p");
        for own in [3, 4, 9] {
            assert_eq!(publishers.note(&p, own, own, b"x"), Ok(true));
        }
        for own in [3, 4, 9] {
            assert_eq!(publishers.note(&p, own, own, b"x"), Ok(false));
        }
        let refused = |own| Err(NumberError::NotNew(own, 9));
        assert_eq!(publishers.note(&p, 9, 9, b"y"), refused(9), "another content");
        assert_eq!(publishers.note(&p, 9, 8, b"x"), refused(9), "another time");
        for own in [0, 1, 2, 5, 8] {
            assert_eq!(publishers.note(&p, own, own, b"x"), refused(own), "it was in a gap");
        }
        assert_eq!(publishers.note(&p, 10, 0, b"x"), Ok(true), "a refusal changes nothing");
    }

    #[test]
    fn numbers_do_not_jump() {
        let greatest = (1 << 62) - 1;
        let far = 1 + u64::from(LONGEST_STEP);
        let mut publishers = joined(&["p", "q"]);
        for (name_of, own, noted) in [
            ("p", 1, Ok(true)),
            ("p", greatest, Err(NumberError::TooFar(greatest, 1))),
            ("p", far, Ok(true)),
            ("p", 2 * far, Err(NumberError::TooFar(2 * far, far))),
            // The first may have any number.
            ("q", greatest, Ok(true)),
            ("q", greatest, Ok(false)),
        ] {
            assert_eq!(publishers.note(&name(name_of), own, 0, b""), noted, "{name_of} {own}");
        }
    }

    #[test]
    fn what_it_recognises_is_bounded_and_shared() {
        let mut publishers = joined(&["busy", "calm"]);
        let (busy, calm) = (name("busy"), name("calm"));
        let most = MOST_REPEATED as u64;
        for own in 1..=REPEATED as u64 {
            publishers.note(&calm, own, 0, b"").unwrap();
        }
        for own in 1..=2 * most {
            publishers.note(&busy, own, 0, b"").unwrap();
        }
        assert_eq!(publishers.note(&busy, most + 1, 0, b""), Ok(false));
        assert!(publishers.note(&busy, most, 0, b"").is_err());
        // Others come, and the busy ones make room.
        publishers.leave(&busy);
        for text in ["third", "fourth"] {
            publishers.join(&name(text), owner(2, None)).unwrap();
            for own in 1..=most {
                publishers.note(&name(text), own, 0, b"").unwrap();
            }
        }
        let all = publishers.table.values().map(|known| known.had.len()).sum();
        assert_eq!((publishers.had, all), (MOST_REPEATED + REPEATED * 4, publishers.had));
        assert_eq!(publishers.note(&calm, 1, 0, b""), Ok(false));
        for known in publishers.table.values() {
            assert!(known.had.capacity() <= 4 * known.had.len() + 4);
        }
    }

    #[test]
    fn a_connected_publisher_is_never_forgotten() {
        let [stays, leaves, comes] = ["stays", "leaves", "comes"].map(name);
        let mut publishers = publishers("2");
        for joins in [&stays, &leaves] {
            publishers.join(joins, owner(1, None)).unwrap();
        }
        publishers.note(&stays, 9, 0, b"").unwrap();
        assert_eq!(publishers.join(&comes, owner(1, None)), Err(JoinError::Full(2)));
        for (left, joins) in [(&leaves, &comes), (&comes, &leaves), (&leaves, &comes)] {
            publishers.leave(left);
            publishers.join(joins, owner(1, None)).unwrap();
        }
        assert_eq!(publishers.note(&stays, 9, 0, b""), Ok(false), "a repetition");
        // It leaves and comes while there is room.
        publishers.leave(&stays);
        publishers.join(&stays, owner(1, None)).unwrap();
        assert_eq!(publishers.note(&stays, 9, 0, b""), Ok(false));
    }

    #[test]
    fn a_client_beyond_its_share_makes_the_topic_forget_only_its_own() {
        let mut publishers = joined(&["victim"]);
        let victim = name("victim");
        publishers.note(&victim, 1, 0, b"").unwrap();
        publishers.leave(&victim);
        for n in 0..20 {
            let stranger = name(&format!("stranger {n}"));
            publishers.join(&stranger, owner(2, None)).unwrap();
            publishers.leave(&stranger);
        }
        assert_eq!(publishers.table.len(), 3);
        publishers.join(&victim, owner(1, None)).unwrap();
        assert_eq!(publishers.note(&victim, 1, 0, b""), Ok(false));
    }
}
