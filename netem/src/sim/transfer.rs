//! Flows over HTTP/3: uploads, downloads and requests, one flow or two beside each other.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quic_sidekick::quiche::Connection;
use quic_sidekick::{
    Assistance, Carry, Config as SidekickConfig, Driver, Mode as PluginMode, ReceiveState,
};

use super::chain::Side;
use super::client::Client;
use super::faults::Schedule;
use super::host::{Endpoint, Host, Sample};
use super::migration::{CONNECTION_IDS, Migration};
use super::quic::{AckPolicy, App, Help, Quic};
use super::server::Server;
use super::split::{Half, Spliced, SplitProxy};
use super::tls::{self, Role};
use super::{Path, Run, SimError, seed_bytes};
use crate::record::{CompetitorRecord, HeldMs, Quacks, Repeats, RunRecord, WindowSample};
use crate::scenario::{CongestionControl, Fault, Flow, FlowKind, Mode, ProxyFate, Scenario, Split};
use crate::topology::{RECEIVER, SENDER, SENDER_SECOND, SERVER_PORT};
use crate::units::mbit_s;

const CLIENT_PORT: u16 = 40_000;
const ADJACENT_PORT: u16 = 50_000;

/// Runs the flow or flows of a scenario once.
pub(super) fn run(run: &mut Run<'_>) -> Result<RunRecord, SimError> {
    let Run { scenario, seed, .. } = *run;
    let start = run.world.start();
    let (flow, competitor) = (&scenario.flow, &scenario.competitor);
    let [lead, later] = competitor.starts;
    let second = competitor.cc.map(|cc| (cc, later));
    // Without a second flow, the first one begins the run.
    let lead = second.map_or(Duration::ZERO, |_| lead);
    let first = (scenario.congestion_control(), lead);
    let migrations: Vec<_> = Schedule::new(start, scenario.faults.clone())
        .times(Fault::Migration)
        .into_iter()
        .map(|(at, _)| at)
        .collect();
    let ids = (!migrations.is_empty()).then_some(CONNECTION_IDS);
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    let mut spliced: Vec<_> = splices(flow, first.0).map(|_| Vec::new()).collect();
    for (number, (cc, delay)) in (0_u16..).zip([Some(first), second].into_iter().flatten()) {
        let begin = start + delay;
        let cc = match scenario.sidekick.mode {
            // A client uses the controller of its mode, whatever its server's controller is.
            Mode::Auto if number == 0 => [CongestionControl::Bbr2, cc],
            _ => [cc; 2],
        };
        let (mut client, mut server) =
            ends(flow, seed, number, cc, begin, ids).map_err(SimError::SetUp)?;
        if number == 0 && !migrations.is_empty() {
            client = client.migrate(Migration::new(migrations.iter().copied()));
            server = server.migrate(Migration::new([]));
        }
        if number == 0 && scenario.sidekick.mode == Mode::AckReduction {
            // In this mode, the receiver also delays acknowledgements of gaps.
            server.conn.sidekick_acknowledge(flow.ack_packets.into(), flow.ack_delay);
            server = server.acknowledge(AckPolicy::AT_ONCE);
        }
        client.conn.sidekick_whole_packets(flow.whole_packets);
        server.conn.sidekick_whole_packets(flow.whole_packets);
        client.conn.sidekick_repeat_handshake(number == 0 && scenario.sidekick.repeat_handshake);
        // The second flow is a plain one.
        if number == 0
            && let Some(help) = help(scenario, seed).map_err(SimError::SetUp)?
        {
            let second = scenario.second.as_ref().map(|_| (SENDER_SECOND, ADJACENT_PORT).into());
            client = client.assist(help, (SENDER, ADJACENT_PORT).into(), second);
        }
        clients.push(client);
        servers.push(server);
        let splices = splices(flow, cc[1]);
        for (flows, controllers) in spliced.iter_mut().zip(splices) {
            flows.push(splice(flow, number, controllers, begin).map_err(SimError::SetUp)?);
        }
    }
    let every = flow.sample;
    // Both flows last from then on.
    let both = second.map(|(_, later)| lead.max(later));
    let first = every.map(|_| Duration::ZERO).or(both);
    let mut sender = Host::new(Side::Right, start, clients, first, every);
    let mut receiver = Host::new(Side::Left, start, servers, first, every);
    let mut path = Path::new(run, spliced.into_iter().map(SplitProxy::new).collect())?;
    // Messages end by themselves.
    let limit = flow.limit.filter(|_| flow.kind != FlowKind::Messages).map(|limit| lead + limit);
    let end = path.drive(run, &mut sender, &mut receiver, limit)?;

    if end.is_zero() && flow.limit.is_none() {
        let what = "this path takes no time; set a delay or a rate of a segment";
        return Err(SimError::SetUp(what.to_owned()));
    }
    if second.is_some() && sender.endpoints.iter().any(|client| client.app.is_done()) {
        let what = "a flow ended before flow.seconds; set flow.bytes higher".to_owned();
        return Err(SimError::SetUp(what));
    }
    let of_clients = sender.endpoints.iter().find_map(Quic::failure);
    let of_servers = receiver.endpoints.iter().find_map(Quic::failure);
    if let Some(what) = of_clients.or(of_servers) {
        return Err(SimError::Failed { what: what.to_owned(), at: end, seed });
    }
    let mut record = path.record(scenario, seed);
    if let Some((client, server)) = sender.endpoints.first().zip(receiver.endpoints.first()) {
        describe(&mut record, scenario, client, server, end - lead);
        path.agent.iter_mut().for_each(|agent| agent.describe(&mut record));
        path.socket.iter().for_each(|socket| socket.describe(&mut record, start + end));
        if let Some(what) = over_acknowledged(scenario, client, server) {
            return Err(SimError::Failed { what, at: end, seed });
        }
    }
    let (windows, had) = match flow.kind {
        FlowKind::Upload | FlowKind::Messages => (&sender.samples, &receiver.samples),
        _ => (&receiver.samples, &sender.samples),
    };
    if let (Some((cc, _)), Some(begin)) = (second, both) {
        let at_end: Vec<_> = match flow.kind {
            FlowKind::Upload => receiver.endpoints.iter().map(Endpoint::delivered).collect(),
            _ => sender.endpoints.iter().map(Endpoint::delivered).collect(),
        };
        let at_begin = had.iter().find(|sample| sample.at >= begin);
        record.competitor = at_begin.and_then(|sample| fairness(cc, sample, &at_end, end));
    }
    if every.is_some() {
        record.window = window_samples(windows, had);
    }
    Ok(record)
}

/// The addresses of a flow's client and server.
pub(super) fn addresses(number: u16) -> (SocketAddr, SocketAddr) {
    ((SENDER, CLIENT_PORT + number).into(), (RECEIVER, SERVER_PORT + number).into())
}

/// Both ends of one flow, with the client's controller first. `ids` is the number of connection IDs
/// that each end provides to the other, if it is more than the default.
fn ends(
    flow: &Flow,
    seed: u64,
    number: u16,
    [client_cc, server_cc]: [CongestionControl; 2],
    begin: Instant,
    ids: Option<u64>,
) -> Result<(Quic<Client>, Quic<Server>), String> {
    let (client, server) = addresses(number);
    let mut client_config = tls::config(flow, Role::Client, client_cc)?;
    let mut server_config = tls::config(flow, Role::Server, server_cc)?;
    for config in [&mut client_config, &mut server_config] {
        if let Some(ids) = ids {
            config.set_active_connection_id_limit(ids);
        }
    }
    let tuned = tls::tuned(flow, Role::Client, client_cc);
    let delay = tuned.map_or(flow.ack_delay, |tuned| tuned.ack_delay());
    let lazy = AckPolicy { packets: flow.ack_packets, delay };
    // The scenario's acknowledgement policy is that of the receiver of data.
    let (client_acks, server_acks) = match flow.kind {
        FlowKind::Upload | FlowKind::Messages => (AckPolicy::AT_ONCE, lazy),
        _ => (lazy, AckPolicy::AT_ONCE),
    };
    let app = Client::new(flow, seed, begin);
    let session = if flow.zero_rtt { Some(tls::session(flow, client_cc)?) } else { None };
    let client_end =
        Quic::connect(app, client, server, &mut client_config, session.as_deref(), begin)?;
    let server_end =
        Quic::accept(Server::new(flow, seed), server, client, &mut server_config, begin)?;
    Ok((client_end.acknowledge(client_acks), server_end.acknowledge(server_acks)))
}

/// The controllers of the two halves of each proxy that splits a flow, from the sender on. `cc` is
/// that of the data sender.
fn splices(flow: &Flow, cc: CongestionControl) -> impl Iterator<Item = [CongestionControl; 2]> {
    let between = flow.split_cc.unwrap_or(cc);
    let controllers = match flow.split {
        Split::Off => [None, None],
        Split::Near => [Some([cc, cc]), None],
        Split::Both => [Some([cc, between]), Some([between, cc])],
    };
    controllers.into_iter().flatten()
}

/// Both halves of a flow at a splitting proxy, each with its controller.
fn splice(
    flow: &Flow,
    number: u16,
    [near_cc, far_cc]: [CongestionControl; 2],
    begin: Instant,
) -> Result<Spliced, String> {
    let (client, server) = addresses(number);
    let mut config = tls::config(flow, Role::Server, near_cc)?;
    let mut near = Quic::accept(Half, server, client, &mut config, begin)?;
    let mut config = tls::config(flow, Role::Client, far_cc)?;
    let mut far = Quic::connect(Half, client, server, &mut config, None, begin)?;
    near.conn.sidekick_whole_packets(flow.whole_packets);
    far.conn.sidekick_whole_packets(flow.whole_packets);
    // Both halves receive data, and acknowledge as a receiver of data does.
    let lazy = AckPolicy { packets: flow.ack_packets, delay: flow.ack_delay };
    let window = flow.window_bytes.into();
    Ok(Spliced::new(near.acknowledge(lazy), far.acknowledge(lazy), window))
}

/// The plugin in the scenario's mode. `None` for a plain sender.
fn help(scenario: &Scenario, seed: u64) -> Result<Option<Help>, String> {
    let sidekick = &scenario.sidekick;
    if sidekick.mode.is_plain() {
        return Ok(None);
    }
    let name = sidekick.mode.name();
    let mode: PluginMode =
        name.parse().map_err(|error| format!("the plugin has no mode {name}: {error}"))?;
    let mut config = match sidekick.proxy {
        ProxyFate::Found => SidekickConfig::discover(mode),
        _ => SidekickConfig::new(sidekick.proxy_address(), mode),
    };
    config.every_packets = sidekick.every_packets();
    config.every = sidekick.every();
    config.threshold = sidekick.threshold;
    config.poll = sidekick.poll;
    config.repeat_handshake = sidekick.repeat_handshake;
    config.carry = Carry::new(sidekick.carry_mbit.into(), u64::MAX);
    let repair = sidekick.repair.name();
    config.receive_repair =
        repair.parse().map_err(|error| format!("the plugin has no repair {repair}: {error}"))?;
    Ok(Some(Driver::with_seed(config, seed_bytes(seed, "sidekick"))))
}

/// Adds the figures of the first flow's endpoints to the record.
fn describe(
    record: &mut RunRecord,
    scenario: &Scenario,
    client: &Quic<Client>,
    server: &Quic<Server>,
    end: Duration,
) {
    let upload = matches!(scenario.flow.kind, FlowKind::Upload | FlowKind::Messages);
    let data_sender: &Connection = if upload { &client.conn } else { &server.conn };
    record.bytes = if upload { server.delivered() } else { client.delivered() };
    record.time_s = end.as_secs_f64();
    record.goodput_mbit_s = mbit_s(record.bytes, record.time_s);
    record.sha256.clone_from(&client.app.sha256);
    if scenario.flow.kind == FlowKind::Requests {
        let times = client.app.first_bytes.iter();
        record.first_byte_ms = times.map(|time| time.as_secs_f64() * 1e3).collect();
    }
    if let (Some(pace), Some(arrivals)) = (&client.app.pace, &server.app.arrivals) {
        record.head_of_line_ms = pace.head_of_line(&arrivals.times);
    }
    let stats = data_sender.stats();
    record.packets.sent = stats.sent as u64;
    record.packets.retransmitted = Some(stats.retrans as u64);
    record.packets.lost_end_to_end = Some(stats.lost as u64);
    let timeouts = data_sender.path_stats().map(|path| path.total_pto_count as u64);
    record.packets.probe_timeouts = Some(timeouts.sum());
    let path = client.conn.path_stats().find(|path| path.active);
    record.rtt_ms = path.map(|path| path.rtt.as_secs_f64() * 1e3);
    if let Some(faults) = &mut record.faults {
        faults.migrations = client.migrations();
    }
    record.assistance = "not asked for".to_owned();
    if let Some(status) = client.status() {
        record.assisted = status.assistance == Assistance::Assisted;
        record.assistance = status.assistance.to_string();
        record.near_rtt_ms = status.near_rtt.map(|rtt| rtt.as_secs_f64() * 1e3);
        record.packets.lost_early = status.stats.early_lost;
        record.packets.spurious = status.stats.spurious;
        record.quacks = Quacks {
            received: status.stats.quacks_received,
            bytes: status.stats.quack_bytes,
            undecodable: status.stats.undecodable,
            epochs: status.stats.epochs,
            polls: status.stats.polls,
        };
        let received = status.received;
        record.repeats = (received.state != ReceiveState::Off).then(|| {
            let [p50, p99, max] = received.held.map(|held| held.as_secs_f64() * 1e3);
            Repeats {
                repeats_requested: status.stats.repeats_requested,
                repeats_received: status.stats.repeats_received,
                repaired_near: received.filled,
                held_ms: HeldMs { p50, p99, max },
                parity_received: status.stats.parity_received,
                parity_rebuilt: received.rebuilt,
                near_overhead_percent: 100.0 * status.stats.added_bytes as f64
                    / client.conn.stats().recv_bytes.max(1) as f64,
            }
        });
    }
}

/// An error if the client of a download has acknowledged more than it has received.
fn over_acknowledged(
    scenario: &Scenario,
    client: &Quic<Client>,
    server: &Quic<Server>,
) -> Option<String> {
    // A splitting proxy delivers the data that it acknowledges.
    if !scenario.flow.kind.is_download() || scenario.flow.split != Split::Off {
        return None;
    }
    let (acknowledged, received) =
        (server.conn.stats().acked_bytes, client.conn.stats().recv_bytes);
    (acknowledged > received)
        .then(|| format!("the client acknowledged {acknowledged} bytes and had {received}"))
}

/// The two flows' shares of the time from `from` to `end`.
fn fairness(
    cc: CongestionControl,
    from: &Sample,
    at_end: &[u64],
    end: Duration,
) -> Option<CompetitorRecord> {
    let time = end.checked_sub(from.at)?;
    let share = |number: usize| {
        let (before, after) = (from.delivered.get(number)?, at_end.get(number)?);
        Some(mbit_s(after.saturating_sub(*before), time.as_secs_f64()))
    };
    let (one, other) = (share(0)?, share(1)?);
    let squares = 2.0 * (one * one + other * other);
    // Jain, Chiu and Hawe 1984, for two flows.
    let jain = if squares > 0.0 { (one + other).powi(2) / squares } else { 1.0 };
    Some(CompetitorRecord {
        cc: cc.name().to_owned(),
        goodput_mbit_s: other,
        beside_mbit_s: one,
        jain,
    })
}

fn window_samples(windows: &[Sample], had: &[Sample]) -> Vec<WindowSample> {
    windows
        .iter()
        .zip(had)
        .map(|(window, had)| WindowSample {
            time_s: window.at.as_secs_f64(),
            window_bytes: window.windows.first().copied().flatten().unwrap_or(0),
            delivered_bytes: had.delivered.first().copied().unwrap_or(0),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(before: [u64; 2], after: [u64; 2]) -> CompetitorRecord {
        let from =
            Sample { at: Duration::from_secs(2), delivered: before.to_vec(), windows: Vec::new() };
        fairness(CongestionControl::Reno, &from, &after, Duration::from_secs(10)).unwrap()
    }

    #[test]
    fn every_mode_but_off_has_help() {
        let mut scenario = Scenario::load("upload-paper").unwrap();
        let modes = ["early-loss", "pacubic", "path-aware-bbr", "reinject", "ack-reduction"];
        for mode in [&modes[..], &["auto", "receive", "off"]].concat() {
            scenario.set("sidekick.mode", mode).unwrap();
            let helped = help(&scenario, 1).map(|help| help.is_some());
            assert_eq!(helped, Ok(mode != "off"), "{mode}");
        }
    }

    #[test]
    fn only_the_time_beside_each_other_counts() {
        // 8 s beside each other: 4 MB and 1 MB. The bytes that the first flow received before do
        // not count.
        let record = shares([9_000_000, 0], [13_000_000, 1_000_000]);
        assert_eq!((record.beside_mbit_s, record.goodput_mbit_s), (4.0, 1.0));
        // (4 + 1)^2 / (2 (16 + 1))
        assert!((record.jain - 25.0 / 34.0).abs() < 1e-12, "{record:?}");
    }

    #[test]
    fn equal_shares_are_fair_and_all_for_one_is_not() {
        assert_eq!(shares([0, 0], [5_000, 5_000]).jain, 1.0);
        assert_eq!(shares([0, 0], [5_000, 0]).jain, 0.5);
        assert_eq!(shares([7, 7], [7, 7]).jain, 1.0, "nothing, for both");
    }
}
