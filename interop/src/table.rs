//! The results of all tries, as Markdown.

mod cells;

use std::fmt::Write as _;

use crate::case::{AUTO, Case, PLAIN, RECEIVE, SENDERS};
use crate::cell::{Measured, Outcome};
use crate::matrix::{Results, Tried};
use crate::peer::Peer;
use crate::served::{Place, ServedResult};
use cells::{Notes, capital, find, losses, passed, rate, ratio, reason};

/// The tables, with a reason for every cell that did not pass.
pub(crate) fn markdown(peers: &[Peer], results: &Results, seed: u64, command: &str) -> String {
    let tried = results.tries.as_slice();
    let mut text = String::new();
    let mut notes = Notes::default();
    let _ = writeln!(
        text,
        "# Against other people's HTTP/3 servers\n\n`{command}` wrote this (seed {}, quic-sidekick {} on \
         quiche 0.30.0).\n[Interoperability](interop.md) describes the path, the cases and the \
         senders.\n\nA try passed if all of this held:\n\n\
         - All bytes and their SHA-256 were right.\n\
         - The client closed the connection, and no error had been reported to it.\n\
         - The connection did what its case is about.\n\
         - In transfers of 1 MiB and more, the proxy, if there was one, helped to the end.\n\
         - In a download of 4 MiB with the mode `auto` or `receive`, the proxy kept copies. If \
         the near\n  segment lost packets, copies closed gaps.\n",
        seed,
        env!("CARGO_PKG_VERSION"),
    );
    late(&mut text, peers, results);
    uploads(&mut text, peers, tried, &mut notes);
    downloads(&mut text, peers, tried, &mut notes);
    cases(&mut text, peers, tried, &mut notes);
    served(&mut text, &results.served, &mut notes);
    if !notes.0.is_empty() {
        text += "## Reasons\n\n";
        for (index, note) in notes.0.iter().enumerate() {
            let _ = writeln!(text, "{}. {note}", index + 1);
        }
        text.push('\n');
    }
    if !peers.is_empty() {
        text += "## Where the peers come from\n\n";
    }
    for peer in peers {
        let note = peer.note().map(|note| format!("; {note}")).unwrap_or_default();
        let _ = writeln!(text, "- {}: <{}>{note}", peer.title(), peer.source());
    }
    text
}

/// Reports how much the machine itself, which also runs the peers, delayed and lost frames.
fn late(text: &mut String, peers: &[Peer], results: &Results) {
    let shares_of = |title: &str, outcomes: Vec<&Outcome>| {
        let measured: Vec<&Measured> = outcomes.into_iter().filter_map(passed).collect();
        let mut shares: Vec<f64> = measured.iter().map(|measured| measured.late_percent).collect();
        shares.sort_by(f64::total_cmp);
        let (median, most) = (shares.get(shares.len() / 2)?, shares.last()?);
        let overruns: u64 = measured.iter().map(|measured| measured.overruns).sum();
        let lost = match overruns {
            0 => String::new(),
            _ => format!(" ({overruns} frames lost by the machine itself)"),
        };
        Some(format!("{title} {median:.1} and {most:.1}{lost}"))
    };
    let of_peer = |peer: &Peer| {
        let tried = results.tries.iter().filter(|tried| tried.peer == peer.folder);
        shares_of(&peer.title(), tried.map(|tried| &tried.outcome).collect())
    };
    let served =
        shares_of("our server", results.served.iter().map(|served| &served.outcome).collect());
    let shares: Vec<String> = peers.iter().filter_map(of_peer).chain(served).collect();
    if !shares.is_empty() {
        let _ = writeln!(
            text,
            "The machine that ran the tries sent some frames more than a millisecond late. Their \
             share of a\npassed try's frames, in percent (median and most):\n{}.\n",
            shares.join(", ")
        );
    }
}

/// The goodput of uploads by peer and sender, a table for each loss rate.
fn uploads(text: &mut String, peers: &[Peer], tried: &[Tried], notes: &mut Notes) {
    let senders: Vec<_> = SENDERS.into_iter().filter(|sender| sender.takes(Case::Upload)).collect();
    for loss in losses(tried, Case::Upload) {
        let _ =
            writeln!(text, "## {}, {loss} % near loss: Mbit/s\n", capital(Case::Upload.about()));
        let _ = write!(text, "| peer |");
        for sender in &senders {
            let _ = write!(text, " {} |", sender.name);
        }
        let _ = writeln!(text, " auto : {} |\n|{}", PLAIN.name, "---|".repeat(senders.len() + 2));
        for peer in peers {
            let _ = write!(text, "| {} |", peer.title());
            let found = |sender| find(tried, peer, Case::Upload, sender, loss);
            for sender in &senders {
                let _ = write!(text, " {} |", rate(found(sender.name), notes));
            }
            let _ = writeln!(text, " {} |", ratio(found("auto"), found(PLAIN.name)));
        }
        text.push('\n');
    }
}

/// How many tries of each case passed, all senders and loss rates together.
fn cases(text: &mut String, peers: &[Peer], tried: &[Tried], notes: &mut Notes) {
    if tried.is_empty() {
        return;
    }
    *text += "## All cases: how many tries passed, of all senders and loss rates\n\n| case |";
    for peer in peers {
        let _ = write!(text, " {} |", peer.title());
    }
    let _ = writeln!(text, "\n|{}", "---|".repeat(peers.len() + 1));
    for case in Case::ALL {
        if !tried.iter().any(|tried| tried.case == case) {
            continue;
        }
        let _ = write!(text, "| {} |", case.about());
        for peer in peers {
            let cells: Vec<&Tried> = tried
                .iter()
                .filter(|tried| tried.peer == peer.folder && tried.case == case)
                .collect();
            let good = cells.iter().filter(|tried| passed(&tried.outcome).is_some()).count();
            let mut reasons: Vec<String> = Vec::new();
            for tried in cells.iter().filter(|tried| passed(&tried.outcome).is_none()) {
                let reason = reason(&tried.outcome, notes);
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
            let count = if good > 0 || reasons.is_empty() {
                format!("{good}/{} ", cells.len())
            } else {
                String::new()
            };
            let _ = write!(text, " {} |", format!("{count}{}", reasons.join(", ")).trim());
        }
        text.push('\n');
    }
    text.push('\n');
}

/// Downloads from our own server, by sender and place of the loss.
fn served(text: &mut String, served: &[ServedResult], notes: &mut Notes) {
    let Some(first) = served.first() else { return };
    let _ = writeln!(
        text,
        "## 10 MiB down from our own server: Mbit/s\n\nThe server is on [the hooked \
         quiche](integrate.md). It has help in all rows but the first two. The\nclient is that of \
         the downloads above, without help. The loss is {} % on the segment that the\ncolumn \
         names. In parentheses: losses that the server detected by\n\
         [quACKs](protocol/README.md#what-a-quack-is).\n",
        first.loss_percent
    );
    let _ = write!(text, "| sender |");
    for place in Place::ALL {
        let _ = write!(text, " {} |", place.about());
    }
    let _ = writeln!(text, "\n|{}", "---|".repeat(Place::ALL.len() + 1));
    for sender in SENDERS {
        let mut cells = Vec::new();
        for place in Place::ALL {
            let found =
                served.iter().find(|served| served.sender == sender.name && served.place == place);
            cells.extend(
                found.map(|found| rate(Some(&found.outcome), notes) + &early(&found.outcome)),
            );
        }
        if !cells.is_empty() {
            let _ = writeln!(text, "| {} | {} |", sender.name, cells.join(" | "));
        }
    }
    text.push('\n');
}

/// The number of losses that a helped sender detected early, in parentheses.
fn early(outcome: &Outcome) -> String {
    let helped = passed(outcome).filter(|measured| measured.assisted);
    helped.map(|measured| format!(" ({})", measured.packets.lost_early)).unwrap_or_default()
}

/// What the columns of the tables count.
const COLUMNS: &str = "\
The last three columns are of the download with `receive`. *Lost near* counts packets towards the
client that the near segment lost, also packets that the proxy sent. A *gap* is a run of missing
packet numbers. A copy closes none if its packet arrives after all, or if the copy is too late.
";

/// Goodput by peer without and with help, and what copies repaired; a table for each loss rate.
fn downloads(text: &mut String, peers: &[Peer], tried: &[Tried], notes: &mut Notes) {
    for (index, loss) in losses(tried, Case::Download).into_iter().enumerate() {
        let title = capital(Case::Download.about());
        let (auto, help) = (AUTO.name, RECEIVE.name);
        let columns = if index == 0 { format!("{COLUMNS}\n") } else { String::new() };
        let _ = writeln!(
            text,
            "## {title}, {loss} % near loss: Mbit/s\n\n{columns}\
             | peer | its controller | without help | {auto} | {help} | {help} : without help | lost near \
             | gaps repaired | copies received |\n|{}",
            "---|".repeat(9)
        );
        for peer in peers {
            let [plain, auto, helped] = [PLAIN, AUTO, RECEIVE]
                .map(|sender| find(tried, peer, Case::Download, sender.name, loss));
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} |",
                peer.title(),
                peer.controller().unwrap_or("-"),
                rate(plain, notes),
                rate(auto, notes),
                rate(helped, notes),
                ratio(helped, plain),
                repaired(helped),
            );
        }
        text.push('\n');
    }
}

/// Packets that the near segment lost, gaps that copies closed, and copies.
fn repaired(outcome: Option<&Outcome>) -> String {
    let Some(measured) = outcome.and_then(passed) else { return "- | - | -".to_owned() };
    let repeats = measured.repeats.unwrap_or_default();
    let copies = if measured.copies_kept {
        repeats.repeats_received.to_string()
    } else {
        "none kept".to_owned()
    };
    format!("{} | {} | {copies}", measured.near_lost_down, repeats.repaired_near)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Packets;
    use sidekick_netem::record::Repeats;

    fn measured(goodput_mbit_s: f64, lost_early: u64) -> Outcome {
        Outcome::Passed(Box::new(Measured {
            bytes: 1,
            sha256: String::new(),
            time_s: 1.0,
            goodput_mbit_s,
            assisted: true,
            assistance: String::new(),
            packets: Packets { sent: 1, lost_end_to_end: 0, lost_early, spurious: 0 },
            found: String::new(),
            longest_payload: 1350,
            cipher: String::new(),
            server_cid_length: 8,
            key_updates: 0,
            at_new_port: 0,
            at_old_port: 0,
            early_data_accepted: false,
            copies_kept: lost_early > 0,
            repeats: (lost_early > 0).then_some(Repeats {
                repeats_requested: lost_early + 20,
                repeats_received: lost_early + 10,
                repaired_near: lost_early,
                ..Repeats::default()
            }),
            near_lost_down: lost_early + 1,
            late_percent: goodput_mbit_s,
            overruns: lost_early,
        }))
    }

    fn tried(case: Case, sender: &'static str, outcome: Outcome) -> Tried {
        Tried { peer: "quinn".to_owned(), case, sender, near_loss_percent: 2.0, seed: 7, outcome }
    }

    #[test]
    fn every_cell_has_its_figure_or_its_reason() {
        let peers = Peer::all(
            concat!(env!("CARGO_MANIFEST_DIR"), "/peers").as_ref(),
            &["quinn".to_owned()],
        )
        .unwrap();
        let broken = || Outcome::Failed { why: "1. it <b>broke\n</b> off".to_owned() };
        let tries = vec![
            tried(Case::Upload, "cubic-rfc9438", measured(1.5, 0)),
            tried(Case::Upload, "auto", measured(9.0, 3)),
            tried(Case::Upload, "pacubic", broken()),
            tried(Case::Download, "cubic-rfc9438", measured(2.0, 0)),
            tried(Case::Download, "auto", measured(8.0, 50)),
            tried(Case::Download, "receive", measured(9.0, 60)),
            tried(Case::Cid0, "auto", Outcome::Unsupported { why: "it has none".to_owned() }),
            tried(Case::Small, "auto", measured(0.1, 0)),
            tried(Case::Small, "pacubic", broken()),
        ];
        let served = vec![ServedResult {
            sender: "auto",
            place: Place::FirstHop,
            loss_percent: 2.0,
            seed: 7,
            outcome: measured(9.16, 150),
        }];
        let text = markdown(&peers, &Results { tries, served }, 7, "make interop");
        let peer = peers.first().unwrap();
        let (title, controller) = (peer.title(), peer.controller().unwrap());
        for line in [
            "`make interop` wrote this (seed 7,",
            "## 10 MiB up, h3-upload, 2 % near loss: Mbit/s",
            &format!(
                "| {title} | 1.50 | not tried | **failed** [1] | not tried | not tried | 9.00 | 6.0 |"
            ),
            "## 4 MiB down, 2 % near loss: Mbit/s",
            &format!("| {title} | {controller} | 2.00 | 8.00 | 9.00 | 4.5 | 61 | 60 | 70 |"),
            "| 1 KiB up | 1/2 **failed** [1] |",
            "| 1 MiB up, connection IDs of no length at both ends | no [2] |",
            "| auto | 9.16 (150) |",
            "1. 1\\. it \\<b\\>broke \\</b\\> off\n2. it has none\n",
            &format!(
                "(median and most):\n{title} 8.0 and 9.0 (113 frames lost by the machine itself), \
                 our server 9.2 and 9.2 (150 frames lost by the machine itself).\n"
            ),
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(
            !text.contains("down, 0 % near loss"),
            "what was not tried has no table of rates: {text}"
        );
    }
}
