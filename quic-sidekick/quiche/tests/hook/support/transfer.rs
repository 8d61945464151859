//! An upload from a client to a server over an emulated path, in virtual time.
//!
//! This file is a module twice: once for the hooked crate and once for the pristine one. The parent
//! module imports either as `engine`.

#[path = "ends.rs"]
mod ends;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::engine::{self, self as quiche, Connection, RecvInfo};
use virtual_time::{next_random, World};

pub use ends::{addresses, ends};

const MILLISECOND: u64 = 1_000_000;
/// The upload's stream, the first that a client opens.
const STREAM: u64 = 0;
/// A transfer that takes longer than this hangs.
const LIMIT: u64 = 600_000 * MILLISECOND;

/// A path and the amount of data to send. Times are in nanoseconds, probabilities in 1/1000.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub controller: &'static str,
    pub bytes: usize,
    pub seed: u64,
    pub near_loss: u64,
    pub far_loss: u64,
    pub ack_loss: u64,
    pub near_delay: u64,
    pub far_delay: u64,
    /// The largest extra delay of a datagram, which reorders datagrams.
    pub jitter: u64,
    /// The bottleneck's rate in bytes per millisecond, and its queue.
    pub rate: u64,
    pub queue: u64,
}

impl Scenario {
    /// 10 Mbit/s, a round trip of 60 ms (10 ms of it near), no loss, no reordering.
    pub fn new(controller: &'static str, seed: u64) -> Self {
        Self {
            controller,
            seed,
            bytes: 1_000_000,
            near_loss: 0,
            far_loss: 0,
            ack_loss: 0,
            near_delay: 5 * MILLISECOND,
            far_delay: 25 * MILLISECOND,
            jitter: 0,
            rate: 1250,
            queue: 75_000,
        }
    }
}

/// Assistance from the path. The methods are called in virtual time, with the client's connection.
pub trait Assist {
    /// Called before anything is sent.
    fn begin(&mut self, _client: &mut Connection) {}
    /// Called when the handshake is complete.
    fn attach(&mut self, _client: &mut Connection) {}
    /// Called when the client sends a datagram, which reaches the proxy at the given time, or
    /// never.
    fn sent(
        &mut self,
        _client: &mut Connection,
        _datagram: &[u8],
        _now: u64,
        _at_proxy: Option<u64>,
    ) {
    }
    /// When `act` is due.
    fn due(&self) -> Option<u64> {
        None
    }
    fn act(&mut self, _client: &mut Connection, _now: u64) {}
}

/// No proxy on the path.
pub struct Unassisted;

impl Assist for Unassisted {}

/// The outcome of a transfer.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When the server had all data, in nanoseconds.
    pub finished: u64,
    /// Time, sender (true: the client) and size of each datagram until then.
    pub datagrams: Vec<(u64, bool, usize)>,
    pub received: Vec<u8>,
    /// Losses that the client detected end to end.
    pub lost: usize,
}

/// The uploaded data.
pub fn payload(bytes: usize) -> Vec<u8> {
    let mut state = 7;
    (0..bytes).map(|_| next_random(&mut state).to_le_bytes()[0]).collect()
}

/// Uploads, and returns the outcome and the client's final connection.
pub fn upload(scenario: &Scenario, assist: &mut dyn Assist) -> (Outcome, Connection) {
    let mut transfer = Transfer::new(scenario, World::enter(scenario.seed).unwrap());
    transfer.run(assist);
    let outcome = Outcome {
        finished: transfer.now,
        lost: transfer.client.stats().lost,
        datagrams: transfer.datagrams,
        received: transfer.received,
    };
    (outcome, transfer.client)
}

struct Transfer<'a> {
    world: World,
    scenario: &'a Scenario,
    client: Connection,
    server: Connection,
    now: u64,
    random: u64,
    /// Datagrams in flight, by time of arrival and a sequence number; true: to the server.
    flying: BTreeMap<(u64, u64), (bool, Vec<u8>)>,
    launched: u64,
    link_free: u64,
    /// When the client's pacer releases the next datagram.
    release: Option<u64>,
    to_send: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
    complete: bool,
    attached: bool,
    datagrams: Vec<(u64, bool, usize)>,
}

impl<'a> Transfer<'a> {
    fn new(scenario: &'a Scenario, world: World) -> Self {
        let (client, server) = ends(scenario.controller);
        Self {
            world,
            scenario,
            client,
            server,
            now: 0,
            random: scenario.seed,
            flying: BTreeMap::new(),
            launched: 0,
            link_free: 0,
            release: None,
            to_send: payload(scenario.bytes),
            sent: 0,
            received: Vec::new(),
            complete: false,
            attached: false,
            datagrams: Vec::new(),
        }
    }

    fn run(&mut self, assist: &mut dyn Assist) {
        assist.begin(&mut self.client);
        while !self.complete {
            if self.client.is_established() && !self.attached {
                self.attached = true;
                assist.attach(&mut self.client);
            }
            self.write();
            self.flush(true, assist);
            self.flush(false, assist);
            self.advance(assist);
        }
    }

    /// The application's side of the client.
    fn write(&mut self) {
        while self.client.is_established() && self.sent < self.to_send.len() {
            match self.client.stream_send(STREAM, &self.to_send[self.sent..], true) {
                Ok(written) => self.sent += written,
                Err(quiche::Error::Done) => break,
                Err(error) => panic!("{error} in {:?}", self.scenario),
            }
        }
    }

    fn flush(&mut self, from_client: bool, assist: &mut dyn Assist) {
        let mut buffer = [0; 1500];
        loop {
            if from_client {
                self.release = self.paced_until();
                if self.release.is_some() {
                    break;
                }
            }
            let sender = if from_client { &mut self.client } else { &mut self.server };
            let (size, _) = match sender.send(&mut buffer) {
                Ok(sent) => sent,
                Err(quiche::Error::Done) => break,
                Err(error) => panic!("{error} in {:?}", self.scenario),
            };
            self.datagrams.push((self.now, from_client, size));
            if from_client {
                let (at_proxy, at_server) = self.fate(size as u64);
                assist.sent(&mut self.client, &buffer[..size], self.now, at_proxy);
                self.launch(at_server, true, &buffer[..size]);
            } else {
                let lost = self.happens(self.scenario.ack_loss);
                let arrives = self.now + self.scenario.near_delay + self.scenario.far_delay;
                self.launch((!lost).then_some(arrives), false, &buffer[..size]);
            }
        }
    }

    /// Until when the client must wait, if it paces. BBR2 assumes that a datagram is sent when it
    /// is made.
    fn paced_until(&self) -> Option<u64> {
        let release = self.client.get_next_release_time()?.time(instant())?;
        let wait = release.saturating_duration_since(instant());
        Some(self.now + u64::try_from(wait.as_nanos()).unwrap())
    }

    /// When a datagram of the client reaches the proxy, and when the server.
    fn fate(&mut self, size: u64) -> (Option<u64>, Option<u64>) {
        let starts = self.now.max(self.link_free);
        let backlog = (starts - self.now) * self.scenario.rate / MILLISECOND;
        let lost_near =
            self.happens(self.scenario.near_loss) || backlog + size > self.scenario.queue;
        let lost_far = self.happens(self.scenario.far_loss);
        let jitter = next_random(&mut self.random) % (self.scenario.jitter + 1);
        if lost_near {
            return (None, None);
        }
        self.link_free = starts + size * MILLISECOND / self.scenario.rate;
        let at_proxy = self.link_free + self.scenario.near_delay;
        (Some(at_proxy), (!lost_far).then_some(at_proxy + self.scenario.far_delay + jitter))
    }

    fn happens(&mut self, per_mille: u64) -> bool {
        next_random(&mut self.random) % 1000 < per_mille
    }

    fn launch(&mut self, arrives: Option<u64>, to_server: bool, datagram: &[u8]) {
        if let Some(arrives) = arrives {
            self.launched += 1;
            self.flying.insert((arrives, self.launched), (to_server, datagram.to_vec()));
        }
    }

    /// Advances to the next event, and handles it.
    fn advance(&mut self, assist: &mut dyn Assist) {
        let after = |wait: Duration| self.now + u64::try_from(wait.as_nanos()).unwrap();
        let client = self.client.timeout().map(after);
        let server = self.server.timeout().map(after);
        let arrival = self.flying.keys().next().map(|(time, _)| *time);
        let next =
            [client, server, arrival, assist.due(), self.release].into_iter().flatten().min();
        let next =
            next.unwrap_or_else(|| panic!("nothing more will happen in {:?}", self.scenario));
        assert!(
            next < LIMIT && !self.client.is_closed(),
            "the upload hangs in {:?}",
            self.scenario
        );
        self.now = self.now.max(next);
        self.world.set(Duration::from_nanos(self.now));

        if arrival == Some(next) {
            if let Some((_, (to_server, mut datagram))) = self.flying.pop_first() {
                self.receive(to_server, &mut datagram);
            }
        } else if assist.due() == Some(next) {
            assist.act(&mut self.client, self.now);
        } else if client == Some(next) {
            self.client.on_timeout();
        } else if server == Some(next) {
            self.server.on_timeout();
        }
    }

    fn receive(&mut self, to_server: bool, datagram: &mut [u8]) {
        let info = RecvInfo { from: addresses(to_server), to: addresses(!to_server) };
        let receiver = if to_server { &mut self.server } else { &mut self.client };
        receiver
            .recv(datagram, info)
            .unwrap_or_else(|error| panic!("{error} in {:?}", self.scenario));
        let mut buffer = [0; 65536];
        while let Ok((size, end)) = self.server.stream_recv(STREAM, &mut buffer) {
            self.received.extend_from_slice(&buffer[..size]);
            self.complete |= end;
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the virtual clock answers")]
pub fn instant() -> Instant {
    Instant::now()
}
