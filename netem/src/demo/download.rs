//! The third table: a download from an unmodified server, by a client without help and by one with
//! it.

use super::{Plan, Row, goodput, ratio};
use crate::figures::palette::{GREY, VERMILION};
use crate::figures::sender::Sender;
use crate::record::Repeats;
use crate::report::{Column, seconds, short_hash};

pub(super) const PLAIN: Sender =
    Sender { name: "CUBIC, stock quinn", colour: GREY, settings: &["sidekick.mode=off"] };
const HELPED: Sender =
    Sender { name: "Sidekick, receive", colour: VERMILION, settings: &["sidekick.mode=receive"] };

/// The senders and the claim of the table.
pub(super) fn plan() -> Plan<'static> {
    Plan {
        scenario: "download-paper",
        loss: "4",
        runs: 1,
        senders: &[PLAIN, HELPED],
        slow: PLAIN,
        fast: HELPED,
        wanted: 3.0,
        sentence,
        columns: &COLUMNS,
    }
}

pub(super) fn repeats(row: &Row) -> Repeats {
    row.record.repeats.unwrap_or_default()
}

fn sentence(rows: &[Row]) -> String {
    let (plain, helped) = (goodput(rows, PLAIN), goodput(rows, HELPED));
    let repeats =
        rows.iter().find(|row| row.sender == HELPED.name).map(repeats).unwrap_or_default();
    format!(
        "The server is the same, and unmodified. It sends {plain:.2} Mbit/s to a client without \
         help. The other client requests from the proxy what its last hop lost. It receives \
         {helped:.2} Mbit/s, {:.1} times as much. Copies closed {} gaps before the server detected \
         them. For the copies, the client held acknowledgements for {:.0} ms in the median, and \
         {:.0} ms at most.",
        ratio(rows, HELPED, PLAIN),
        repeats.repaired_near,
        repeats.held_ms.p50,
        repeats.held_ms.max,
    )
}

const COLUMNS: [Column<Row>; 8] = [
    ("server, client", |row| row.sender.to_owned()),
    ("time", |row| seconds(row.record.time_s)),
    ("Mbit/s", Row::goodput),
    ("packets sent", |row| row.record.packets.sent.to_string()),
    ("lost near", |row| row.record.packets.lost_near.to_string()),
    ("gaps repaired near", |row| repeats(row).repaired_near.to_string()),
    ("copies", |row| repeats(row).repeats_received.to_string()),
    ("SHA-256", |row| short_hash(&row.record.sha256)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::tests::{file, record_of};
    use crate::demo::{Comparison, check, print};
    use crate::record::HeldMs;

    fn rows(plain: f64, helped: f64) -> Vec<Row> {
        let row = |sender: Sender, goodput| {
            let mut record = record_of("download-paper", sender, goodput, "ab");
            record.repeats = (sender == HELPED).then_some(Repeats {
                repeats_requested: 350,
                repeats_received: 345,
                repaired_near: 340,
                held_ms: HeldMs { p50: 3.1, p99: 9.0, max: 17.2 },
                ..Repeats::default()
            });
            Row::of(sender, vec![record], &file()).unwrap()
        };
        vec![row(PLAIN, plain), row(HELPED, helped)]
    }

    #[test]
    fn the_words_follow_the_figures() {
        let said = sentence(&rows(1.5, 9.0));
        assert!(
            said.contains("sends 1.50 Mbit/s") && said.contains("receives 9.00 Mbit/s"),
            "{said}"
        );
        assert!(said.contains("6.0 times as much. Copies closed 340 gaps"), "{said}");
        assert!(said.contains("for 3 ms in the median, and 17 ms at most."), "{said}");
    }

    #[test]
    fn the_print_has_columns_of_its_own() {
        let rows = rows(1.5, 9.0);
        let Plan { slow, fast, wanted, .. } = plan();
        let check = check(&rows, slow, fast, wanted, &file());
        assert!(check.passed, "{check:?}");
        let says = sentence(&rows);
        let text = print(
            &Comparison { near_loss_percent: 4.0, rows, columns: &COLUMNS, says, check },
            &file(),
        );
        assert!(text.contains("1000 bytes downloaded") && text.contains("gaps repaired near"));
        assert!(!text.contains("losses detected early"), "{text}");
    }
}
