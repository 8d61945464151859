//! The status of a proxy as text for people.

use std::fmt::Write as _;

use super::interface::interface_table;
use super::status::{Session, Status};
use super::subject::ProgramStatus;
use super::text::{duration, harmless, table};
use crate::size::Size;

/// The status as text for people.
#[must_use]
pub(super) fn show(status: &Status) -> String {
    let mut text = format!("sidekick-proxy {}, up {}\n", status.version, duration(status.uptime));
    let mut say = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12}{value}");
    };
    say("address", status.address.to_string());
    say("public key", status.public_key.clone());
    say("health", status.complaint().unwrap_or_else(|| "ok".to_owned()));
    say("totals", status.totals.to_string());
    let (open, most) = (status.sessions_open, status.sessions_max);
    let of_one = status.sessions_max_per_source;
    say("sessions", format!("{open} open, {most} at most, {of_one} of one source"));
    let copies = &status.copies;
    let (bytes, most) = (Size::bytes(copies.bytes), Size::bytes(copies.max_bytes));
    say(
        "copies",
        match copies.max_bytes {
            0 => "none".to_owned(),
            _ => format!("{bytes} for {} sessions, {most} at most", copies.sessions),
        },
    );
    text += "\n";
    text += &interface_table(status.interfaces.iter().map(|of| &of.report));
    if !status.sessions.is_empty() {
        let headings = [
            "source",
            "destination",
            "peer",
            "epoch",
            "counted",
            "quACKs",
            "kept",
            "packet",
            "heard",
        ];
        text += "\n";
        text += &table(&headings, "lllrrrrrr", status.sessions.iter().map(row));
        let more = status.sessions_open.saturating_sub(status.sessions.len());
        if more > 0 {
            let _ = writeln!(text, "and {more} more sessions (--all shows them)");
        }
    }
    harmless(&text)
}

fn row(session: &Session) -> Vec<String> {
    let ago = |seconds: f64| format!("{seconds:.1}s ago");
    let packet = match session.last_packet_ago {
        _ if !session.confirmed => "unproven".to_owned(),
        None => "none".to_owned(),
        Some(seconds) => ago(seconds),
    };
    vec![
        session.source.to_string(),
        session.destination.to_string(),
        session.peer.to_string(),
        session.epoch.to_string(),
        session.counted.to_string(),
        session.quacks.to_string(),
        session.kept.map_or_else(|| "-".to_owned(), |kept| kept.to_string()),
        packet,
        ago(session.last_heard_ago),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::status::tests::example;

    #[test]
    fn columns_are_aligned() {
        let mut status = example();
        status.interfaces[1].report.name = "tun0\x1b[2J".to_owned();
        status.sessions_open = 3;
        let shown = show(&status);
        let key = "ab".repeat(32);
        let expected = format!(
            "\
sidekick-proxy 1.2.3, up 1 d 2 h
address     192.0.2.1:5252
public key  {key}
health      ok
totals      captured 9, counted 5, quACKs 0, bytes sent 0, sessions 0, malformed 0
sessions    3 open, 1024 at most, 64 of one source
copies      64K for 1 sessions, 64M at most

interface  backend  state  captured  dropped
eth0       ring     up            7        0
tun0?[2J   ring     up            2        0

source         destination        peer           epoch  counted  quACKs  kept  packet     heard
10.0.0.2:4000  [2001:db8::1]:443  10.0.0.2:4001      1        5       2     3    none  0.2s ago
and 2 more sessions (--all shows them)
"
        );
        assert_eq!(shown, expected);
    }
}
