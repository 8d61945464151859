//! `audio-send`: the sending end of a call, with or without a Sidekick proxy's help.
//!
//! The example to copy from for a transport that is not QUIC: [`audio::Talker`] holds a
//! `sidekick_protocol::Sender`, tells it of every datagram, and sends again what it finds lost;
//! this program adds two sockets and a clock.

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
            bail!("{dest} was heard, and then no more; see whether audio-receive still runs there")
        }
        "unanswered" | "talking" if !cli.one_way => {
            let errors = match call.media.errors() {
                0 => String::new(),
                count => format!(
                    " (the network reported {count} errors, as it does where nothing listens)"
                ),
            };
            bail!(
                "{dest} has not confirmed the end of the stream{errors}; see that audio-receive listens there with the \
                 same session description, and that the way is open"
            )
        }
        _ => Ok(()),
    }
}

/// A WAV file has as many bytes before its samples at least.
const WAV_HEADER: u64 = 44;

/// What is said.
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
                eprintln!("audio-send: {name} is cut short; the call ends with what there is");
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
    /// The socket for the proxy, which is no part of the stream; none if there is no way to it.
    adjacent: Option<Socket>,
}

impl Call {
    fn new(cli: &Cli, plan: &Plan) -> anyhow::Result<Self> {
        let mut description = plan.description.clone();
        let dest = description.destination;
        let media = socket(SocketAddr::new(edge::unspecified(dest), 0), dest)?;
        let own = media.udp.local_addr().context("cannot tell the socket's own address")?;
        let mut config = TalkerConfig {
            interval: description.interval,
            // A file ends by itself.
            packets: if plan.length_given { plan.packets } else { u32::MAX },
            identity: edge::random()?,
            ..TalkerConfig::new(description.session.clone())
        };
        let mut adjacent = None;
        if let Some(sender) = &plan.sender
            && let Some(proxy) = sender.proxy
        {
            // The proxy takes the address from which it is spoken to for that of the stream.
            match socket(SocketAddr::new(own.ip(), 0), proxy) {
                Ok(socket) => adjacent = Some(socket),
                Err(error) => {
                    eprintln!("audio-send: {error:#}; the call goes on without the proxy");
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
        // What is no datagram of the stream changes nothing, and there is nobody to tell.
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
            // It is connected to the only proxy there is.
            if let Some(adjacent) = &mut self.adjacent {
                adjacent
                    .send(datagram.get(..len).unwrap_or_default())
                    .context("cannot send to the proxy")?;
            }
        }
        Ok(())
    }
}

fn socket(own: SocketAddr, peer: SocketAddr) -> anyhow::Result<Socket> {
    let socket = Socket::bind(own).with_context(|| format!("cannot open a socket at {own}"))?;
    socket.udp.connect(peer).with_context(|| format!("there is no way from {own} to {peer}"))?;
    Ok(socket)
}

fn status_line(report: &TalkerReport) -> String {
    let packets = &report.packets;
    let rtt = report.rtt_ms.map(|ms| format!(", round trip {ms:.0} ms")).unwrap_or_default();
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
        "{} packets in {:.1} s; {again} of them sent again: {} for quACKs, {} for NACKs, {} for nothing\n",
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
        text += "the receiver has hung up\n";
    }
    if report.socket_errors > 0 {
        text +=
            &format!("{} errors reported by the network, and passed over\n", report.socket_errors);
    }
    text
}
