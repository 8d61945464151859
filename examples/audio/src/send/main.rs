//! `audio-send`: the sending end of a call, with or without a Sidekick proxy's help.
//!
//! The example to copy for a transport other than QUIC. [`audio::Talker`] holds a
//! `sidekick_protocol::Sender`, records every datagram with it, and re-injects lost ones. This
//! program adds two sockets and a clock.

mod cli;

use std::fs::{File, Metadata};
use std::io::BufReader;
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use audio::edge::{self, Call, Interrupts, Socket, clock};
use audio::report::Ending;
use audio::session::{Encoding, MasterKey};
use audio::source::{WavSource, opus, random_bytes, tone};
use audio::{Reinject, Talker, TalkerConfig, TalkerReport};
use clap::Parser as _;

use cli::{Cli, Plan};

fn main() -> ExitCode {
    edge::exit("audio-send", run(&Cli::parse()))
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let plan = cli.plan(MasterKey::new(edge::random()?))?;
    let interrupts = Interrupts::catch().context("cannot catch Ctrl-C")?;
    let mut call = call(cli, &plan)?;
    call.run(&interrupts, |_| Ok(()), |talker| status_line(&talker.report(clock())))?;
    let mut report = call.end.report(clock());
    report.socket_errors = call.errors();
    let text = if cli.json { serde_json::to_string(&report)? + "\n" } else { summary(&report) };
    edge::print(&text)?;
    let dest = plan.description.destination;
    match report.ending {
        Ending::Silent => {
            bail!("{dest} stopped sending reports; check whether audio-receive still runs there")
        }
        Ending::Unanswered | Ending::Talking if !cli.one_way => {
            let errors = match report.socket_errors {
                0 => String::new(),
                count => {
                    format!(
                        " (the network reported {count} errors, as if no program listens there)"
                    )
                }
            };
            bail!(
                "{dest} did not confirm the end of the stream{errors}; check that audio-receive listens there with the \
                 same session description, and that no firewall drops the packets"
            )
        }
        _ => Ok(()),
    }
}

/// The least number of bytes before the samples of a WAV file.
const WAV_HEADER: u64 = 44;

/// The content of one packet after another.
type Source = Box<dyn Iterator<Item = Vec<u8>> + Send>;

fn source(cli: &Cli, plan: &Plan) -> anyhow::Result<Source> {
    let interval = plan.description.interval;
    if plan.description.session.encoding == Encoding::Random {
        return Ok(Box::new(random_bytes(cli.seed, cli.bytes)));
    }
    let Some(path) = &cli.wav else { return Ok(Box::new(opus(tone(), interval)?)) };
    let name = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    let bytes = file.metadata().ok().filter(Metadata::is_file).map(|about| about.len());
    let wav =
        WavSource::new(BufReader::new(file)).with_context(|| format!("cannot play {name}"))?;
    if bytes.is_some_and(|bytes| bytes < wav.promised_bytes() + WAV_HEADER) {
        eprintln!("audio-send: {name} is truncated; the call ends with its last sample");
    }
    Ok(Box::new(opus(wav, interval)?))
}

fn call(cli: &Cli, plan: &Plan) -> anyhow::Result<Call<Talker>> {
    let description = &plan.description;
    let dest = description.destination;
    let media = Socket::connected(SocketAddr::new(edge::unspecified(dest), 0), dest)?;
    let reinject = |sender| -> anyhow::Result<_> { Ok(Reinject { sender, seed: edge::random()? }) };
    let config = TalkerConfig {
        interval: description.interval,
        packets: plan.packets,
        identity: edge::random()?,
        reinject: plan.sender.clone().map(reinject).transpose()?,
        ..TalkerConfig::new(description.session.clone())
    };
    let talker = Talker::new(config, source(cli, plan)?, clock())?;
    if let Some(path) = &cli.write_sdp {
        edge::write_description(path, description, Some(talker.sources()))?;
    }
    let proxy = plan.sender.as_ref().and_then(|sender| sender.proxy);
    Call::new("audio-send", talker, media, Some(dest), proxy)
}

fn status_line(report: &TalkerReport) -> String {
    let packets = &report.packets;
    let rtt = match report.rtt_ms {
        None => String::new(),
        Some(ms) if ms < 1.0 => format!(", round trip {:.0} us", ms * 1e3),
        Some(ms) => format!(", round trip {ms:.0} ms"),
    };
    let help =
        if report.mode == "off" { String::new() } else { format!("; {}", report.assistance) };
    format!(
        "{} packets, again {} for quACKs and {} for NACKs{rtt}{help}",
        packets.sent, packets.retransmitted_quack, packets.retransmitted_nack
    )
}

fn summary(report: &TalkerReport) -> String {
    let packets = &report.packets;
    let again = packets.retransmitted_quack + packets.retransmitted_nack;
    let mut text = format!(
        "{} packets in {:.1} s; {again} of them sent again: {} for quACKs, {} for NACKs, {} spurious\n",
        packets.sent,
        report.time_s,
        packets.retransmitted_quack,
        packets.retransmitted_nack,
        packets.spurious
    );
    if report.mode != "off" {
        text += &format!(
            "{}; {} quACKs in {} bytes, {} polls\n",
            report.assistance, report.quacks.received, report.quacks.bytes, report.quacks.polls
        );
    }
    if report.ending == Ending::HungUp {
        text += "the receiver hung up\n";
    }
    if report.socket_errors > 0 {
        text += &format!("{} errors reported by the network, and ignored\n", report.socket_errors);
    }
    text
}
