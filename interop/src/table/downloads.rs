//! The tables of downloads: with and without a client that requests copies.

use std::fmt::Write as _;

use super::cells::{Notes, capital, find, losses, passed, rate, ratio};
use crate::case::{AUTO, Case, PLAIN, RECEIVE};
use crate::cell::Outcome;
use crate::matrix::Tried;
use crate::peer::Peer;

/// What the columns of the tables count.
const COLUMNS: &str = "\
The last three columns are of the download with `receive`. *Lost near* counts packets towards the
client that the near segment lost, also packets that the proxy sent. A *gap* is a run of missing
packet numbers. A copy closes none if its packet arrives after all, or if the copy is too late.
";

/// Goodput by peer without and with help, and what copies repaired; a table for each loss rate.
pub(super) fn downloads(text: &mut String, peers: &[Peer], tried: &[Tried], notes: &mut Notes) {
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
