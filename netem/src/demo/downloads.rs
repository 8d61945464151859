//! The tables of downloads from an unmodified server, by a client without help and by one with it.

use super::{COPIES, GOODPUT, HASH, LOST_NEAR, PACKETS, Plan, Row, TIME, goodput, ratio};
use crate::figures::sender::{GREY, Sender, VERMILION};
use crate::record::Repeats;
use crate::report::Column;

const PLAIN: Sender = Sender::new("CUBIC, stock quinn", GREY, &["sidekick.mode=off"]);
const HELPED: Sender = Sender::new("Sidekick, receive", VERMILION, &["sidekick.mode=receive"]);

/// The third table: over the paper's path, reversed.
pub(super) const THIRD: Plan = Plan {
    scenario: "download-paper",
    loss: "4",
    runs: 1,
    senders: &[PLAIN, HELPED],
    slow: PLAIN,
    fast: HELPED,
    wanted: 3.0,
    sentence: of_copies,
    columns: &[
        SERVER,
        TIME,
        GOODPUT,
        PACKETS,
        LOST_NEAR,
        ("gaps repaired near", |row| repeats(row).repaired_near.to_string()),
        COPIES,
        HASH,
    ],
};
/// Over a satellite, where a copy takes a long near round trip, and parity needs none.
pub(super) const SATELLITE: Plan = Plan {
    scenario: "packrat-satellite",
    wanted: 5.0,
    sentence: of_parity,
    columns: &[
        SERVER,
        TIME,
        GOODPUT,
        LOST_NEAR,
        COPIES,
        ("rebuilt by parity", |row| repeats(row).parity_rebuilt.to_string()),
        ("extra bytes near, %", |row| format!("{:.1}", repeats(row).near_overhead_percent)),
        HASH,
    ],
    ..THIRD
};
const SERVER: Column<Row> = ("server, client", |row| row.sender.to_owned());

pub(super) fn repeats(row: &Row) -> Repeats {
    row.record.repeats.unwrap_or_default()
}

/// What the other client does, and how it does with it. Then what its help did follows.
fn sentence(rows: &[Row], what: &str, then: impl FnOnce(Repeats) -> String) -> String {
    let (plain, helped) = (goodput(rows, PLAIN), goodput(rows, HELPED));
    let of_help = rows.iter().find(|row| row.sender == HELPED.name).map(repeats);
    format!(
        "The server is the same, and unmodified. It sends {plain:.2} Mbit/s to a client without \
         help. The other client {what}. It receives {helped:.2} Mbit/s, {:.1} times as much. {}",
        ratio(rows, HELPED, PLAIN),
        then(of_help.unwrap_or_default()),
    )
}

fn of_copies(rows: &[Row]) -> String {
    sentence(rows, "requests from the proxy what its last hop lost", |repeats| {
        let Repeats { repaired_near, held_ms, .. } = repeats;
        format!(
            "Copies closed {repaired_near} gaps before the server detected them. For the copies, \
             the client held acknowledgements for {:.0} ms in the median, and {:.0} ms at most.",
            held_ms.p50, held_ms.max
        )
    })
}

fn of_parity(rows: &[Row]) -> String {
    sentence(rows, "receives parity from the proxy", |repeats| {
        let Repeats { parity_rebuilt, near_overhead_percent, .. } = repeats;
        format!(
            "A request would take a round trip to the proxy, 60 ms. The client rebuilt \
             {parity_rebuilt} datagrams at once from parity, for {near_overhead_percent:.0} % more \
             bytes on the near segment."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::tests::{file, record_of};
    use crate::demo::{Comparison, print};
    use crate::record::HeldMs;

    fn comparison(plan: &Plan, plain: f64, helped: f64) -> Comparison {
        let row = |sender: Sender, goodput| {
            let mut record = record_of(plan.scenario, sender, goodput, "ab");
            record.repeats = (sender == HELPED).then_some(Repeats {
                repaired_near: 340,
                held_ms: HeldMs { p50: 3.1, p99: 9.0, max: 17.2 },
                parity_rebuilt: 41,
                near_overhead_percent: 19.6,
                ..Repeats::default()
            });
            Row::of(sender, vec![record], &file()).unwrap()
        };
        Comparison::of(plan, vec![row(PLAIN, plain), row(HELPED, helped)], &file())
    }

    #[test]
    fn the_words_follow_the_figures_and_the_check_has_a_bound() {
        let third = ["6.0 times as much. Copies closed 340 gaps", "3 ms in the median, and 17 ms"];
        let satellite =
            ["parity from the proxy", "rebuilt 41 datagrams at once from parity, for 20"];
        for (plan, goodputs, words, column) in [
            (THIRD, [1.5, 9.0], third, "gaps repaired near"),
            (SATELLITE, [1.0, 5.0], satellite, "rebuilt by parity"),
        ] {
            let [plain, helped] = goodputs;
            let compared = comparison(&plan, plain, helped);
            let sent = format!("sends {plain:.2} Mbit/s to a client without help");
            let received = format!("receives {helped:.2} Mbit/s");
            for words in words.into_iter().chain([sent.as_str(), &received]) {
                assert!(compared.says.contains(words), "{words}: {}", compared.says);
            }
            assert!(compared.check.passed, "{:?}", compared.check);
            let text = print(&compared, &file());
            assert!(text.contains("1000 bytes downloaded") && text.contains(column), "{text}");
            assert!(!text.contains("losses detected early"), "{text}");
            assert!(!comparison(&plan, 1.0, plan.wanted - 0.1).check.passed);
        }
    }
}
