//! Links as they are: fades that last for milliseconds, retransmission below, handovers.
//! `docs/results.md` has the table, which says where help does nothing.

use crate::support::jobs::{goodput, runs};
use crate::support::table::Table;

const LINKS: [&str; 6] = ["wifi-far-room", "lte-drive", "train", "leo", "geo", "microwave"];
const CUBIC: &str = "flow.cc=cubic-rfc9438";
const BBR2: &str = "flow.cc=bbr2";
const OFF: &str = "sidekick.mode=off";
/// The columns: a name, and the settings.
const COLUMNS: [(&str, &[&str]); 9] = [
    ("CUBIC", &[OFF, CUBIC]),
    ("receive", &["sidekick.mode=receive", CUBIC]),
    ("agent", &["sidekick.mode=agent-in-order", CUBIC]),
    ("BBR2", &[OFF, BBR2]),
    ("receive", &["sidekick.mode=receive", BBR2]),
    ("agent", &["sidekick.mode=agent-in-order", BBR2]),
    ("up CUBIC", &["flow.kind=upload", OFF, CUBIC]),
    ("up BBR2", &["flow.kind=upload", OFF, BBR2]),
    ("up auto", &["flow.kind=upload", "sidekick.mode=auto"]),
];
const SNAPSHOT: &str = include_str!("../snapshots/links__goodput_over_links_as_they_are.snap");

fn table() -> Table {
    Table {
        corner: "Mbit/s",
        columns: COLUMNS.map(|(name, _)| name.to_owned()).to_vec(),
        rows: LINKS.map(str::to_owned).to_vec(),
        name: 16,
        width: 10,
        slow: &[],
    }
}

#[test]
fn goodput_over_links_as_they_are() {
    const SEEDS: u64 = 21;
    assert_snapshot!(
        "links__goodput_over_links_as_they_are",
        table().text(SNAPSHOT, |row, column| {
            let (_, settings) = COLUMNS[column];
            format!("{:.2}", goodput(&runs(LINKS[row], SEEDS, &[settings])))
        })
    );
}

#[test]
fn the_document_shows_the_table_as_it_is() {
    table().assert_shown(SNAPSHOT, include_str!("../../../docs/results.md"), |_| true);
}
