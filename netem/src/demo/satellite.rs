//! A download over a satellite, from an unmodified server. A copy takes a near round trip, which is
//! long here. Parity needs no round trip.

use super::download::{PLAIN, repeats};
use super::{Plan, Row, goodput, ratio};
use crate::figures::palette::VERMILION;
use crate::figures::sender::Sender;
use crate::report::{Column, seconds, short_hash};

const PARITY: Sender =
    Sender { name: "Sidekick, receive", colour: VERMILION, settings: &["sidekick.mode=receive"] };

/// The senders and the claim of the table.
pub(super) fn plan() -> Plan<'static> {
    Plan {
        scenario: "packrat-satellite",
        loss: "4",
        runs: 1,
        senders: &[PLAIN, PARITY],
        slow: PLAIN,
        fast: PARITY,
        wanted: 5.0,
        sentence,
        columns: &COLUMNS,
    }
}

fn sentence(rows: &[Row]) -> String {
    let (plain, parity) = (goodput(rows, PLAIN), goodput(rows, PARITY));
    let helped = rows.iter().find(|row| row.sender == PARITY.name);
    let rebuilt = helped.map_or(0, |row| repeats(row).parity_rebuilt);
    let extra = helped.map_or(0.0, |row| repeats(row).near_overhead_percent);
    format!(
        "The server is the same, and unmodified. It sends {plain:.2} Mbit/s to a client without \
         help. The other client receives parity from the proxy. It receives {parity:.2} Mbit/s, \
         {:.1} times as much. A request would take a round trip to the proxy, 60 ms. The client \
         rebuilt {rebuilt} datagrams at once from parity, for {extra:.0} % more bytes on the near \
         segment.",
        ratio(rows, PARITY, PLAIN),
    )
}

const COLUMNS: [Column<Row>; 8] = [
    ("server, client", |row| row.sender.to_owned()),
    ("time", |row| seconds(row.record.time_s)),
    ("Mbit/s", Row::goodput),
    ("lost near", |row| row.record.packets.lost_near.to_string()),
    ("copies", |row| repeats(row).repeats_received.to_string()),
    ("rebuilt by parity", |row| repeats(row).parity_rebuilt.to_string()),
    ("extra bytes near, %", |row| format!("{:.1}", repeats(row).near_overhead_percent)),
    ("SHA-256", |row| short_hash(&row.record.sha256)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::tests::{file, record_of};
    use crate::demo::{Comparison, check, print};
    use crate::record::Repeats;

    fn rows(plain: f64, helped: f64) -> Vec<Row> {
        let row = |sender: Sender, goodput| {
            let mut record = record_of("packrat-satellite", sender, goodput, "ab");
            if sender == PARITY {
                record.repeats = Some(Repeats {
                    parity_rebuilt: 41,
                    near_overhead_percent: 19.6,
                    ..Repeats::default()
                });
            }
            Row::of(sender, vec![record], &file()).unwrap()
        };
        vec![row(PLAIN, plain), row(PARITY, helped)]
    }

    #[test]
    fn the_words_follow_the_figures() {
        let said = sentence(&rows(0.5, 5.0));
        assert!(said.contains("It sends 0.50 Mbit/s"), "{said}");
        assert!(said.contains("receives 5.00 Mbit/s, 10.0 times as much"), "{said}");
        assert!(said.contains("rebuilt 41 datagrams at once from parity, for 20 % more"), "{said}");
    }

    #[test]
    fn the_print_has_columns_of_its_own_and_its_check_a_bound() {
        let Plan { slow, fast, wanted, columns, .. } = plan();
        for (helped, passes) in [(2.5, true), (2.4, false)] {
            let rows = rows(0.5, helped);
            let check = check(&rows, slow, fast, wanted, &file());
            assert_eq!(check.passed, passes, "{check:?}");
            let says = sentence(&rows);
            let text =
                print(&Comparison { near_loss_percent: 4.0, rows, columns, says, check }, &file());
            assert!(text.contains("rebuilt by parity") && text.contains("19.6"), "{text}");
        }
    }
}
