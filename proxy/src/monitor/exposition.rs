//! The metrics in the text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};

use super::subject::{InterfaceReport, Origin};
use crate::counters::Counter;

/// The media type of the format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A counter of an interface of a program, since its capture began: name, help and number.
pub(crate) type InterfaceCounter<I> = (&'static str, &'static str, fn(&I) -> u64);

/// A page that grows line by line.
#[derive(Default)]
pub(crate) struct Page(String);

impl Page {
    /// A gauge of one sample.
    pub(crate) fn gauge(&mut self, name: &str, help: &str, number: impl Display) {
        self.one(name, "gauge", help, number);
    }

    /// A summary: these quantiles, where there are any, and the sum and the number of what was
    /// observed.
    pub(crate) fn summary(
        &mut self,
        name: &str,
        help: &str,
        quantiles: [(&str, Option<f64>); 2],
        (sum, count): (f64, u64),
    ) {
        self.family(name, "summary", help);
        for (share, value) in quantiles {
            // The format's word for no observation.
            let value = value.map_or_else(|| "NaN".to_owned(), |value| value.to_string());
            self.sample(name, &[("quantile", share)], value);
        }
        self.sample(&format!("{name}_sum"), &[], sum);
        self.sample(&format!("{name}_count"), &[], count);
    }

    /// A family of one sample.
    fn one(&mut self, name: &str, kind: &str, help: &str, number: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], number);
    }

    /// A family for each of the totals.
    pub(crate) fn counters<T>(&mut self, counters: &[Counter<T>], totals: &T) {
        for Counter { metric, help, of, .. } in counters {
            self.one(metric, "counter", help, of(totals));
        }
    }

    /// The page, with what every program says of itself: its version, under the name `info`, and
    /// its process. `resident`: the resident memory of the process in bytes, if known.
    pub(crate) fn finish(mut self, info: &str, origin: &Origin, resident: Option<u64>) -> String {
        self.family(info, "gauge", "The version of the program; always 1.");
        self.sample(info, &[("version", &origin.version)], 1);
        let help = "When the program started, in seconds since 1970.";
        self.gauge("process_start_time_seconds", help, origin.started);
        if let Some(resident) = resident {
            let help = "Resident memory of the program, in bytes.";
            self.gauge("process_resident_memory_bytes", help, resident);
        }
        self.0
    }

    /// Begins a family, whose samples follow.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
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
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], number: impl Display) {
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

    /// The samples of a page.
    pub(crate) struct Series(BTreeMap<(String, Vec<(String, String)>), f64>);

    impl Series {
        /// The number of a sample, if there is one.
        pub(crate) fn number(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            self.0.get(&(name.to_owned(), labels.iter().map(owned).collect())).copied()
        }
    }

    /// Checks that every line has the format, and returns the samples.
    pub(crate) fn parse(page: &str) -> Series {
        assert!(page.ends_with('\n'));
        let (mut series, mut families) = (BTreeMap::new(), BTreeSet::new());
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
                assert!(matches!(kind, "counter" | "gauge" | "summary"), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                typed = name.to_owned();
            } else {
                let end = line.find(['{', ' ']).unwrap();
                let (name, rest) = line.split_at(end);
                let of = ["_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
                let behind = name == typed || of == Some(&typed);
                assert!(behind, "{line}: a sample is behind its HELP and TYPE");
                let (labels, number) = match rest.strip_prefix('{') {
                    Some(rest) => labels(rest),
                    None => (Vec::new(), rest),
                };
                let number = number.strip_prefix(' ').unwrap().parse().unwrap();
                assert_eq!(series.insert((name.to_owned(), labels), number), None, "{line} twice");
            }
        }
        Series(series)
    }
}
