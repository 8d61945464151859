//! What the log says about the help for a flow: when it begins and ends, and why (`-v`).

use std::fmt;
use std::mem;
use std::net::SocketAddr;
use std::time::Duration;

use sidekick_protocol::policy::{RESTS, Withheld};
use sidekick_protocol::{Assistance, Flow, PublicKey};
use tracing::info;

/// Most changes of one flow's help that the log names. A proxy can grant and end sessions at will,
/// and answers can name proxies at will.
const MOST_CHANGES: u32 = 32;

/// A state of a flow's help that the log names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Resting,
    Proxy(Assistance),
}

/// What the log has said about a flow.
#[derive(Debug)]
pub(super) struct Journal {
    flow: Flow,
    stage: Stage,
    /// The reasons for which lost packets were not sent again.
    withheld: Vec<Withheld>,
    /// Changes of the help, with those that the log does not name.
    changes: u32,
}

/// A flow's proxy and its key, and the near RTT.
pub(super) type Proxy = (Option<(SocketAddr, PublicKey)>, Option<Duration>);

impl Journal {
    /// Notes that the agent searches for a proxy, or asks one, for a flow of this kind.
    pub(super) fn begin(flow: Flow, kind: impl fmt::Display) -> Self {
        info!("{} to {} ({kind}): the agent asks for help", flow.source, flow.destination);
        Self { flow, stage: Stage::Proxy(Assistance::Seeking), withheld: Vec::new(), changes: 0 }
    }

    fn say(&self, words: impl fmt::Display) {
        info!("{} to {}: {words}", self.flow.source, self.flow.destination);
    }

    /// Counts a change of the help. Returns whether the log names it.
    fn names_another(&mut self) -> bool {
        self.changes = self.changes.saturating_add(1);
        if self.changes == MOST_CHANGES + 1 {
            self.say("the log names no more changes of this help");
        }
        self.changes <= MOST_CHANGES
    }

    /// Notes the state of the help. `proxy` is called only if it has changed.
    pub(super) fn note(
        &mut self,
        assistance: Assistance,
        rests: bool,
        proxy: impl FnOnce() -> Proxy,
    ) {
        let stage = if rests { Stage::Resting } else { Stage::Proxy(assistance) };
        if mem::replace(&mut self.stage, stage) == stage || !self.names_another() {
            return;
        }
        match (stage, proxy()) {
            (Stage::Resting, _) => self.say(RESTS),
            (Stage::Proxy(Assistance::Assisted), (Some((address, key)), near)) => {
                let near = near.map_or_else(
                    || "not measured yet".to_owned(),
                    |near| format!("{:.1} ms", near.as_secs_f64() * 1e3),
                );
                self.say(format!(
                    "assisted by the proxy {address} with the key {key}, near RTT {near}"
                ));
            }
            (Stage::Proxy(assistance), _) => self.say(assistance),
        }
    }

    /// Notes that the agent asks a proxy that an answer names.
    pub(super) fn note_answer(&mut self, proxy: SocketAddr) {
        if self.names_another() {
            self.say(format!("an answer names the proxy {proxy}"));
        }
    }

    /// Notes why lost packets are not sent again. The log says each reason once, because it comes
    /// and goes within milliseconds.
    pub(super) fn note_withheld(&mut self, why: Withheld) {
        if !self.withheld.contains(&why) {
            self.withheld.push(why);
            self.say(format!("a lost packet is not sent again: {why}"));
        }
    }

    /// Notes that the help ends, and what it did.
    pub(super) fn end(&self, why: &str, [sent, lost, resent, missed, delivered]: [u64; 5]) {
        self.say(format!(
            "the help ends: {why}; sent {sent}, lost {lost}, resent {resent}, missed {missed}, \
             delivered {delivered}"
        ));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(super) mod tests {
    use std::io::{Read as _, Seek as _};
    use std::sync::Arc;

    use sidekick_protocol::Reason;
    use tracing::Level;
    use tracing::subscriber::with_default;

    use super::*;

    const PROXY: ([u8; 4], u16) = ([192, 0, 2, 254], 5252);

    /// What the log of a level says while `run` runs.
    pub(in crate::agent) fn log_of(level: Level, run: impl FnOnce()) -> String {
        let log = Arc::new(tempfile::tempfile().unwrap());
        let lines = tracing_subscriber::fmt().with_max_level(level).with_ansi(false);
        with_default(lines.with_writer(Arc::clone(&log)).finish(), run);
        let (mut log, mut text) = (&*log, String::new());
        log.rewind().unwrap();
        log.read_to_string(&mut text).unwrap();
        text
    }

    /// What the log of -v says of a flow, each line from its addresses on.
    fn logged(notes: impl FnOnce(&mut Journal)) -> Vec<String> {
        let (source, destination) =
            (([192, 0, 2, 1], 4000).into(), ([198, 51, 100, 7], 443).into());
        let text = log_of(Level::INFO, || {
            notes(&mut Journal::begin(Flow { source, destination }, "UDP"));
        });
        let flow = "192.0.2.1:4000 to 198.51.100.7:443";
        text.lines().map(|line| line.split_once(flow).unwrap().1.to_owned()).collect()
    }

    fn proxy(near: Option<Duration>) -> Proxy {
        (Some((PROXY.into(), PublicKey([1; 32]))), near)
    }

    #[test]
    fn a_near_rtt_that_nobody_measured_is_not_a_figure() {
        for (near, said) in [
            (Some(Duration::from_micros(2340)), ", near RTT 2.3 ms"),
            (None, ", near RTT not measured yet"),
        ] {
            let lines = logged(|journal| journal.note(Assistance::Assisted, false, || proxy(near)));
            let [_, line] = &lines[..] else { panic!("{lines:?}") };
            assert!(line.starts_with(": assisted by the proxy 192.0.2.254:5252"), "{line}");
            assert!(line.ends_with(said), "{line}");
        }
    }

    #[test]
    fn a_proxy_that_grants_and_ends_sessions_does_not_fill_the_log() {
        let lost = Assistance::Unassisted(Reason::ProxyLost);
        let lines = logged(|journal| {
            for _ in 0..1000 {
                journal.note_answer(PROXY.into());
                journal.note(Assistance::Assisted, false, || proxy(None));
                journal.note_withheld(Withheld::Far);
                journal.note(lost, false, || (None, None));
            }
            journal.end("it has no more packets", [5, 4, 3, 2, 1]);
        });
        let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
        assert_eq!(count("an answer names the proxy 192.0.2.254:5252"), 11, "{lines:?}");
        assert_eq!(count("assisted by the proxy 192.0.2.254:5252"), 11, "{lines:?}");
        assert_eq!(count(&lost.to_string()), 10, "{lines:?}");
        assert_eq!(count("the log names no more changes of this help"), 1, "{lines:?}");
        // Beside these, the log has the begin, the reason and the end.
        assert_eq!(lines.len(), 32 + 1 + 3, "{lines:?}");
        let end = ": the help ends: it has no more packets; sent 5, lost 4, resent 3, missed 2, \
                   delivered 1";
        assert_eq!(lines.last().unwrap(), end);
    }
}
