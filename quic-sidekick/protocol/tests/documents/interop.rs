//! What the page about interoperability says of its tables.

use std::fs;
use std::path::Path;

/// The figures in docs/interop.md are those of the tables.
#[test]
fn the_summary_has_the_figures_of_the_tables() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let results = fs::read_to_string(docs.join("interop-results.md")).unwrap();
    let summary = fs::read_to_string(docs.join("interop.md")).unwrap();
    let summary = summary.split_whitespace().collect::<Vec<_>>().join(" ");
    // The cells of a table, row by row; its titles are the first.
    let table = |title: &str| -> Vec<Vec<String>> {
        let (_, rest) = results.split_once(title).unwrap();
        let rows = rest
            .lines()
            .skip_while(|line| !line.starts_with('|'))
            .take_while(|line| !line.is_empty());
        rows.map(|row| {
            row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
        })
        .collect()
    };
    // The least and the greatest figure of a column, of the peers that `of` selects.
    let range_of = |table: &[Vec<String>], column: &str, of: &dyn Fn(&str) -> bool| {
        let at = table[0].iter().position(|name| name == column).unwrap();
        let rows = table[2..].iter().filter(|row| of(&row[0]));
        let figures: Vec<f64> = rows.map(|row| row[at].parse().unwrap()).collect();
        let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
        format!("{least:.1} to {:.1}", figures.iter().copied().fold(0.0, f64::max))
    };
    let uploads = table("## 10 MiB up, h3-upload, 2 % near loss");
    let range = |column: &str| range_of(&uploads, column, &|_| true);
    let (auto, gain, bbr2) = (range("auto"), range("auto : cubic-rfc9438"), range("bbr2"));
    let [two, ten] = ["2", "10"].map(|loss| table(&format!("## 4 MiB down, {loss} % near loss")));
    // The peer whose controller undoes its reactions.
    let other = |peer: &str| !peer.starts_with("quiche ");
    let served = table("## 10 MiB down from our own server");
    let first_hop = |sender: &str| {
        let row = served.iter().find(|row| row[0] == sender).unwrap();
        row[1].split(' ').next().unwrap().to_owned()
    };
    let whole = table("## All cases");
    let tries = whole[2..].iter().flat_map(|row| &row[1..]).filter_map(|cell| cell.split_once('/'));
    let passed: u32 = tries.map(|(passed, _)| passed.parse::<u32>().unwrap()).sum();
    let downloads = served[2..].iter().map(|row| row.len() - 1).sum::<usize>();
    for sentence in [
        format!("In {passed} tries against six HTTP/3 servers, every byte arrived."),
        format!("({downloads} downloads, at 2 % on one segment of that path or of its reverse)"),
        format!(
            "At 2 % near loss `auto` uploads at {auto} Mbit/s, {gain} times as fast as RFC 9438's CUBIC,"
        ),
        format!("plain BBR2 without a proxy reaches {bbr2}."),
        format!(
            "At 2 % `receive` downloads at {} Mbit/s, {} times as fast as without help,",
            range_of(&two, "receive", &|_| true),
            range_of(&two, "receive : without help", &other)
        ),
        format!(
            "and at 10 % at {} Mbit/s, {} times as fast.",
            range_of(&ten, "receive", &|_| true),
            range_of(&ten, "receive : without help", &|_| true)
        ),
        format!(
            "The exception is quiche at 2 %, with a factor of {},",
            range_of(&two, "receive : without help", &|peer| !other(peer))
                .split_once(' ')
                .unwrap()
                .0
        ),
        format!(
            "(`auto` {} Mbit/s, BBR2 {}, RFC 9438's CUBIC {})",
            first_hop("auto"),
            first_hop("bbr2"),
            first_hop("cubic-rfc9438")
        ),
    ] {
        assert!(summary.contains(&sentence), "docs/interop.md lacks: {sentence}");
    }
}
