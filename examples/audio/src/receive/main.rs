//! `audio-receive`: the receiving end of a call, with or without parity from a Sidekick proxy.

mod cli;

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use audio::edge::{self, Call, Interrupts, Socket};
use audio::listener::{Protected, sender_config};
use audio::player::Player;
use audio::session::MasterKey;
use audio::{Listener, ListenerConfig, ListenerReport, hgrm};
use clap::Parser as _;

use cli::Cli;

fn main() -> ExitCode {
    edge::exit("audio-receive", run(&Cli::parse()))
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let plan = cli.plan(MasterKey::new(edge::random()?))?;
    let interval = plan.description.interval;
    let protect = |(proxy, share)| -> anyhow::Result<Protected> {
        let sender = sender_config(proxy);
        Ok(Protected { sender, share, interval, seed: edge::random()? })
    };
    let config = ListenerConfig {
        playout_limit: Duration::from_millis(cli.playout_limit_ms.into()),
        idle_timeout: Duration::from_secs(cli.idle_timeout.into()),
        plays: cli.wav.is_some(),
        identity: edge::random()?,
        protected: plan.parity.map(protect).transpose()?,
    };
    let mut description = plan.description;
    let listener = Listener::new(config, description.session.clone())?;
    let interrupts = Interrupts::catch().context("cannot catch Ctrl-C")?;
    let socket = Socket::bind(plan.listen).with_context(|| {
        format!("cannot listen on {}; choose another address with --listen", plan.listen)
    })?;
    if let Some(path) = &cli.hgrm {
        // The program writes the file at the end, but detects now whether it can.
        let opened = File::options().append(true).create(true).open(path);
        opened.with_context(|| format!("cannot write {}", path.display()))?;
    }
    // Only after the socket exists, so that a failure does not truncate an older file.
    let player = |path: &PathBuf| -> anyhow::Result<_> {
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Player::new(BufWriter::new(file), description.interval)
    };
    let mut player = cli.wav.as_ref().map(player).transpose()?;
    description.destination = socket.address()?;
    if let Some(path) = &cli.write_sdp {
        edge::write_description(path, &description, None)?;
    }
    edge::print(&format!("ready: listening on {}\n", description.destination))?;

    let proxy = plan.parity.map(|(proxy, _)| proxy);
    let mut call = Call::new("audio-receive", listener, socket, None, proxy)?;
    let play = |listener: &mut Listener| {
        let Some(player) = &mut player else { return Ok(()) };
        while let Some(frame) = listener.next_frame() {
            let was_full = player.is_full();
            player.play(&frame)?;
            if player.is_full() && !was_full {
                eprintln!(
                    "audio-receive: the WAV file is as long as such a file can be, 12 hours; \
                     the call continues, but the file does not record the rest"
                );
            }
        }
        Ok(())
    };
    let interrupted = call.run(&interrupts, play, |listener| status_line(&listener.report()))?;
    let mut report = call.end.report();
    report.socket_errors = call.errors();
    if let Some(player) = player {
        report.concealed = Some(player.concealed());
        player.finish()?;
    }
    if let Some(path) = &cli.hgrm {
        let write = || hgrm::write(call.end.waits(), BufWriter::new(File::create(path)?));
        write().with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(hint) = unreadable(&report) {
        eprintln!("audio-receive: {hint}");
    }
    edge::print(&if cli.json { serde_json::to_string(&report)? + "\n" } else { summary(&report) })?;
    ensure!(
        report.complete || interrupted,
        "the talker stopped sending before the end of the stream; check whether audio-send ended, \
         or whether a firewall drops its packets"
    );
    Ok(())
}

/// A hint if datagrams arrive, but none is authentic.
fn unreadable(report: &ListenerReport) -> Option<String> {
    let packets = &report.packets;
    (packets.received == 0 && packets.rejected > 0).then(|| {
        format!(
            "{} datagrams arrived, and none is authentic: the session description may be of another \
             call, or the call began more than 10 minutes ago (at 20 ms per packet)",
            packets.rejected
        )
    })
}

fn status_line(report: &ListenerReport) -> String {
    if let Some(hint) = unreadable(report) {
        return hint;
    }
    let mos = report.quality.map(|quality| format!(", MOS {:.1}", quality.mos)).unwrap_or_default();
    format!(
        "{} packets played, {} too late, {} NACKs; waited p99 {:.0} ms{mos}",
        report.played, report.late, report.nacks.packets, report.dejitter_ms.p99
    )
}

fn summary(report: &ListenerReport) -> String {
    let waits = &report.dejitter_ms;
    let mut text = format!(
        "{} packets played, {} too late; {} NACKs; {} datagrams rejected, {} of them forged\n\
         de-jitter delay: p50 {:.1} ms, p90 {:.1}, p95 {:.1}, p99 {:.1}, p99.9 {:.1}, at most {:.1} ms\n",
        report.played,
        report.late,
        report.nacks.packets,
        report.packets.rejected,
        report.packets.forged,
        waits.p50,
        waits.p90,
        waits.p95,
        waits.p99,
        waits.p999,
        waits.max
    );
    if let Some(quality) = &report.quality {
        text += &format!(
            "at best, with a player's delay of {:.0} ms: MOS {:.2} (R {:.0}), {:.2} % of packets too late for it\n",
            quality.buffer_ms, quality.mos, quality.r, quality.lost_percent
        );
    }
    if let Some(parity) = &report.parity {
        text += &format!(
            "{}; {} datagrams of parity in {} bytes, {} datagrams rebuilt\n",
            parity.assistance, parity.received, parity.bytes, parity.rebuilt
        );
    }
    if report.socket_errors > 0 {
        text += &format!("{} errors reported by the network, and ignored\n", report.socket_errors);
    }
    if let Some(concealed) = report.concealed {
        text += &format!("{concealed} packets concealed in the WAV file\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use audio::edge::clock;
    use audio::session::{Encoding, Session};
    use audio::source::random_bytes;
    use audio::{End as _, Talker, TalkerConfig};

    #[test]
    fn the_hint_about_another_key_ends_with_an_authentic_packet() {
        let now = clock();
        let ours = TalkerConfig::of_simulation(1);
        let session = Session::new(ours.session.key.clone(), Encoding::Random);
        let mut listener = Listener::new(ListenerConfig::default(), session).unwrap();
        assert_eq!(unreadable(&listener.report()), None);
        for (config, wanted) in [(TalkerConfig::of_simulation(2), true), (ours, false)] {
            let mut talker = Talker::new(config, random_bytes(1, 240), now).unwrap();
            talker.on_timeout(now);
            let mut datagram = Vec::new();
            while talker.poll_transmit(&mut datagram, now) {
                let _ = listener.handle_input(&datagram, now);
            }
            let text = status_line(&listener.report());
            assert_eq!(
                text.contains("2 datagrams arrived") && text.contains("another call"),
                wanted,
                "{text}"
            );
            assert_eq!(unreadable(&listener.report()).is_some(), wanted);
        }
    }
}
