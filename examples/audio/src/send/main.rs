//! `audio-send`: the sending end of a call, with or without a Sidekick proxy's help.
//!
//! The example to copy for a transport other than QUIC. [`audio::Talker`] holds a
//! `sidekick_protocol::Sender`, records every datagram with it, and re-injects lost ones. This
//! program adds two sockets and a clock.

mod cli;

use std::fs::{File, Metadata};
use std::io::BufReader;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use audio::edge::{self, Interrupts, Socket, Status, clock};
use audio::session::{Encoding, MasterKey};
use audio::source::{OpusSource, RandomBytes, Source, Tone, WavSource};
use audio::{Reinject, Talker, TalkerConfig, TalkerReport};
use clap::Parser as _;
use sidekick_protocol::{Flow, MAX_DATAGRAM_LEN};

use cli::{Cli, Plan};

fn main() -> ExitCode {
    edge::exit("audio-send", run(&Cli::parse()))
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let plan = cli.plan(MasterKey::new(edge::random()?))?;
    let interrupts = Interrupts::catch().context("cannot catch Ctrl-C")?;
    let mut call = Call::new(cli, &plan)?;
    let report = call.talk(&interrupts)?;
    let text = if cli.json { serde_json::to_string(&report)? + "\n" } else { summary(&report) };
    edge::print(&text)?;
    let dest = plan.description.destination;
    match report.ending.as_str() {
        "silent" => {
            bail!("{dest} stopped sending reports; check whether audio-receive still runs there")
        }
        "unanswered" | "talking" if !cli.one_way => {
            let errors = match call.media.errors() {
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

/// The source of the call's content.
fn source(cli: &Cli, plan: &Plan) -> anyhow::Result<Box<dyn Source>> {
    if plan.description.session.encoding == Encoding::Random {
        return Ok(Box::new(RandomBytes::new(cli.seed, plan.bytes)));
    }
    let opus = match &cli.wav {
        Some(path) => {
            let name = path.display();
            let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
            let bytes = file.metadata().ok().filter(Metadata::is_file).map(|about| about.len());
            let wav = WavSource::new(BufReader::new(file))
                .with_context(|| format!("cannot play {name}"))?;
            if bytes.is_some_and(|bytes| bytes < wav.promised_bytes() + WAV_HEADER) {
                eprintln!("audio-send: {name} is truncated; the call ends with its last sample");
            }
            OpusSource::new(Box::new(wav), plan.description.interval)
        }
        None => OpusSource::new(Box::new(Tone::new()), plan.description.interval),
    };
    Ok(Box::new(opus?))
}

/// A talker with its sockets.
struct Call {
    talker: Talker,
    media: Socket,
    /// The socket to the proxy; `None` if there is no route to it.
    adjacent: Option<Socket>,
}

impl Call {
    fn new(cli: &Cli, plan: &Plan) -> anyhow::Result<Self> {
        let mut description = plan.description.clone();
        let dest = description.destination;
        let media = Socket::connected(SocketAddr::new(edge::unspecified(dest), 0), dest)?;
        let own = media.udp.local_addr().context("cannot read the socket's local address")?;
        let mut config = TalkerConfig {
            interval: description.interval,
            // A file has its own end.
            packets: if plan.length_given { plan.packets } else { u32::MAX },
            identity: edge::random()?,
            ..TalkerConfig::new(description.session.clone())
        };
        let mut adjacent = None;
        if let Some(sender) = &plan.sender
            && let Some(proxy) = sender.proxy
        {
            // The proxy assumes that the stream has the address of the adjacent socket.
            match Socket::connected(SocketAddr::new(own.ip(), 0), proxy) {
                Ok(socket) => adjacent = Some(socket),
                Err(error) => {
                    eprintln!("audio-send: {error:#}; the call continues without the proxy");
                }
            }
            let flow = Flow { source: own, destination: dest };
            config.reinject =
                Some(Reinject { sender: sender.clone(), flow, seed: edge::random()? });
        }
        let talker = Talker::new(config, source(cli, plan)?, clock())?;
        if let Some(path) = &cli.write_sdp {
            description.sources = Some(talker.sources());
            edge::write_description(path, &description)?;
        }
        Ok(Self { talker, media, adjacent })
    }

    fn talk(&mut self, interrupts: &Interrupts) -> anyhow::Result<TalkerReport> {
        let mut status = Status::new();
        let mut interrupted = false;
        loop {
            self.receive()?;
            let now = clock();
            if interrupts.pending().context("cannot wait for Ctrl-C")? {
                if std::mem::replace(&mut interrupted, true) {
                    break;
                }
                self.talker.stop(now);
            }
            if self.talker.poll_timeout().is_some_and(|deadline| deadline <= now) {
                self.talker.on_timeout(now);
            }
            self.transmit()?;
            if self.talker.is_finished() {
                break;
            }
            status.show(now, || status_line(&self.talker.report(now)));
            let mut sources = vec![interrupts.as_fd(), self.media.as_fd()];
            sources.extend(self.adjacent.as_ref().map(|adjacent| adjacent.as_fd()));
            edge::wait(&sources, self.talker.poll_timeout())
                .context("cannot wait for datagrams")?;
        }
        status.clear();
        let mut report = self.talker.report(clock());
        report.socket_errors =
            self.media.errors() + self.adjacent.as_ref().map_or(0, Socket::errors);
        Ok(report)
    }

    fn receive(&mut self) -> anyhow::Result<()> {
        let talker = &mut self.talker;
        // No error requires an action.
        let media = self.media.receive(|datagram, _| {
            let _ = talker.handle_input(datagram, clock());
        });
        media.context("cannot receive from the listener")?;
        if let Some(adjacent) = &mut self.adjacent {
            let messages = adjacent.receive(|datagram, from| {
                let _ = talker.handle_proxy(from, datagram, clock());
            });
            messages.context("cannot receive from the proxy")?;
        }
        Ok(())
    }

    fn transmit(&mut self) -> anyhow::Result<()> {
        let mut datagram = Vec::new();
        while self.talker.poll_transmit(&mut datagram, clock()) {
            self.media.send(&datagram).context("cannot send to the listener")?;
        }
        let mut datagram = [0; MAX_DATAGRAM_LEN];
        while let Some((_, len)) = self.talker.transmit_to_proxy(&mut datagram) {
            // It is connected to the proxy.
            if let Some(adjacent) = &mut self.adjacent {
                adjacent
                    .send(datagram.get(..len).unwrap_or_default())
                    .context("cannot send to the proxy")?;
            }
        }
        Ok(())
    }
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
    if report.ending == "hung up" {
        text += "the receiver hung up\n";
    }
    if report.socket_errors > 0 {
        text += &format!("{} errors reported by the network, and ignored\n", report.socket_errors);
    }
    text
}
