//! The metrics in the text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};

use super::interface::InterfaceReport;
use super::status::{Copies, Interface, Status};
use crate::counters::Counter;
use crate::summary::Summary;

/// The media type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A counter of an interface of a program, since its capture began: name, help and number.
pub(crate) type InterfaceCounter<I> = (&'static str, &'static str, fn(&I) -> u64);

const BY_INTERFACE: [InterfaceCounter<Interface>; 6] = [
    (
        "sidekick_interface_packets_captured_total",
        "UDP datagrams captured on the interface.",
        |of| of.report.captured,
    ),
    (
        "sidekick_interface_packets_dropped_total",
        "Packets of the interface that the kernel or the proxy dropped.",
        |of| of.report.dropped,
    ),
    (
        "sidekick_interface_frames_malformed_total",
        "Frames of the interface with headers that contradict themselves.",
        |of| of.malformed,
    ),
    (
        "sidekick_interface_fragments_captured_total",
        "IP fragments of UDP datagrams captured on the interface.",
        |of| of.fragments,
    ),
    (
        "sidekick_interface_merged_frames_split_total",
        "Merged frames of the interface that the proxy split into their datagrams.",
        |of| of.merged_split,
    ),
    (
        "sidekick_interface_merged_frames_uncounted_total",
        "Merged frames of the interface that the proxy could not split.",
        |of| of.merged_uncounted,
    ),
];

/// The metrics of a status. `resident`: the resident memory of the process in bytes, if known.
#[must_use]
pub fn text(status: &Status, resident: Option<u64>) -> String {
    let mut page = Page::default();
    page.counters(Summary::COUNTERS, &status.totals);
    page.interfaces(&status.interfaces, &BY_INTERFACE, "sidekick_interface_up", |of| &of.report);
    page.one("sidekick_sessions", "gauge", "Open sessions.", status.sessions_open);
    page.one("sidekick_sessions_max", "gauge", "Most sessions at once.", status.sessions_max);
    page.one(
        "sidekick_sessions_max_per_source",
        "gauge",
        "Most sessions at once for one source address.",
        status.sessions_max_per_source,
    );
    let Copies { sessions, bytes, max_bytes } = status.copies;
    page.one("sidekick_sessions_keeping", "gauge", "Sessions that keep copies.", sessions);
    page.one("sidekick_copies_bytes", "gauge", "Memory that holds copies, in bytes.", bytes);
    page.one("sidekick_copies_max_bytes", "gauge", "Most memory for copies.", max_bytes);
    page.one("sidekick_threads", "gauge", "Threads that count packets.", status.threads);
    page.one(
        "sidekick_threads_answering",
        "gauge",
        "Threads that answered the last request for a report.",
        status.threads_answering,
    );
    let name = "sidekick_build_info";
    page.family(name, "gauge", "The version of the program; always 1.");
    page.sample(name, &[("version", &status.version)], 1);
    page.finish(status.started, resident)
}

/// A page that grows line by line.
#[derive(Default)]
pub(crate) struct Page(String);

impl Page {
    /// A family of one sample.
    pub(crate) fn one(&mut self, name: &str, kind: &str, help: &str, number: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], number);
    }

    /// A family for each of the totals.
    pub(crate) fn counters<T>(&mut self, counters: &[Counter<T>], totals: &T) {
        for Counter { metric, help, of, .. } in counters {
            self.one(metric, "counter", help, of(totals));
        }
    }

    /// The page, with what every program says of its process.
    pub(crate) fn finish(mut self, started: f64, resident: Option<u64>) -> String {
        self.one(
            "process_start_time_seconds",
            "gauge",
            "When the program started, in seconds since 1970.",
            started,
        );
        if let Some(resident) = resident {
            self.one(
                "process_resident_memory_bytes",
                "gauge",
                "Resident memory of the program, in bytes.",
                resident,
            );
        }
        self.0
    }

    /// Begins a family, whose samples follow.
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// The counters of each interface, then whether it is up, under the name `up`. `report` returns
    /// the part of an interface that every program has.
    pub(crate) fn interfaces<I>(
        &mut self,
        interfaces: &[I],
        counters: &[InterfaceCounter<I>],
        up: &str,
        report: fn(&I) -> &InterfaceReport,
    ) {
        for (name, help, number) in counters {
            self.family(name, "counter", help);
            for of in interfaces {
                let InterfaceReport { name: interface, backend, .. } = report(of);
                // An interface that is gone has no counters.
                if let Some(backend) = backend {
                    let labels = [("interface", interface.as_str()), ("backend", backend)];
                    self.sample(name, &labels, number(of));
                }
            }
        }
        self.family(up, "gauge", "Whether the interface exists and is up.");
        for of in interfaces.iter().map(report) {
            self.sample(up, &[("interface", &of.name)], u8::from(of.up));
        }
    }

    /// A sample of the family that began last.
    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], number: impl Display) {
        self.0.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"", if index == 0 { '{' } else { ',' });
            for char in value.chars() {
                match char {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    other => self.0.push(other),
                }
            }
            self.0.push('"');
        }
        let _ = writeln!(self.0, "{} {number}", if labels.is_empty() { "" } else { "}" });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::monitor::status::tests::example;
    use std::collections::{BTreeMap, BTreeSet};

    fn is_name(name: &str) -> bool {
        let mut bytes = name.bytes();
        bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }

    /// Reads labels up to the closing brace, by the format's own escapes. Returns them and what
    /// follows.
    fn labels(text: &str) -> (Vec<(String, String)>, &str) {
        let (mut labels, mut rest) = (Vec::new(), text);
        loop {
            let (name, after) = rest.split_once("=\"").unwrap();
            let (mut value, mut chars) = (String::new(), after.char_indices());
            let end = loop {
                match chars.next().unwrap() {
                    (end, '"') => break end,
                    (_, '\\') => value.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        escaped @ ('\\' | '"') => escaped,
                        other => panic!("\\{other} is no escape"),
                    }),
                    (_, other) => value.push(other),
                }
            };
            assert!(is_name(name), "{name}");
            labels.push((name.to_owned(), value));
            match after[end + 1..].strip_prefix(',') {
                Some(more) => rest = more,
                None => return (labels, after[end + 1..].strip_prefix('}').unwrap()),
            }
        }
    }

    pub(crate) type Series = BTreeMap<(String, Vec<(String, String)>), f64>;

    /// Checks that every line has the format, and returns the samples.
    pub(crate) fn parse(page: &str) -> Series {
        assert!(page.ends_with('\n'));
        let (mut series, mut families) = (Series::new(), BTreeSet::new());
        let (mut helped, mut typed) = (String::new(), String::new());
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(is_name(name) && !help.is_empty() && !help.contains('\\'), "{line}");
                assert!(families.insert(name.to_owned()), "{name} twice");
                helped = name.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(name, helped);
                assert!(matches!(kind, "counter" | "gauge"), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                typed = name.to_owned();
            } else {
                let end = line.find(['{', ' ']).unwrap();
                let (name, rest) = line.split_at(end);
                assert_eq!(name, typed, "a sample is behind its HELP and TYPE");
                let (labels, number) = match rest.strip_prefix('{') {
                    Some(rest) => labels(rest),
                    None => (Vec::new(), rest),
                };
                let number = number.strip_prefix(' ').unwrap().parse().unwrap();
                assert_eq!(series.insert((name.to_owned(), labels), number), None, "{line} twice");
            }
        }
        series
    }

    #[test]
    fn every_line_is_of_the_format() {
        let mut status = example();
        let gone = InterfaceReport { name: "gone\n0".to_owned(), ..InterfaceReport::default() };
        status.interfaces.push(Interface { report: gone, ..Interface::default() });
        let series = parse(&text(&status, Some(4096)));
        let labelled = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<Vec<_>>()
        };
        let number = |name: &str, pairs| series.get(&(name.to_owned(), labelled(pairs))).copied();
        let captured = "sidekick_interface_packets_captured_total";
        assert_eq!(number(captured, &[("interface", "eth0"), ("backend", "ring")]), Some(7.0));
        assert_eq!(number(captured, &[("interface", "a\"b\\c"), ("backend", "ring")]), Some(2.0));
        assert_eq!(number("sidekick_interface_up", &[("interface", "a\"b\\c")]), Some(1.0));
        assert_eq!(number("sidekick_interface_up", &[("interface", "gone\n0")]), Some(0.0));
        assert_eq!(number("sidekick_packets_captured_total", &[]), Some(9.0));
        assert_eq!(number("sidekick_sessions", &[]), Some(1.0));
        assert_eq!(number("sidekick_sessions_max", &[]), Some(1024.0));
        assert_eq!(number("sidekick_sessions_max_per_source", &[]), Some(64.0));
        assert_eq!(number("sidekick_build_info", &[("version", "1.2.3")]), Some(1.0));
        assert_eq!(number("process_start_time_seconds", &[]), Some(1_700_000_000.25));
        assert_eq!(number("process_resident_memory_bytes", &[]), Some(4096.0));
    }
}
