//! A talker's reports to the listener and to its caller.

use super::{Ending, Phase, Talker};
use crate::ntp::{low32, ticks, units};
use crate::report::{Quacks, TalkerReport};
use crate::rtcp::{self, Held, SenderInfo};
use crate::session::Sources;
use sidekick_protocol::{Assistance, Sender};
use std::time::{Duration, Instant};

impl Talker {
    /// A protected report, with a BYE if the talker leaves.
    pub(super) fn report_packet(&mut self, leaves: bool, now: Instant) -> Option<Vec<u8>> {
        let Sources { media, rtx } = self.identity.sources;
        let since = low32(ticks(now.saturating_duration_since(self.began)));
        let info = SenderInfo {
            ssrc: media,
            ntp: self.clock.at(now),
            timestamp: self.identity.first_timestamp.wrapping_add(since),
            // Each packet counts once, so the BYE states their number.
            packets: self.store.next(),
            octets: low32(self.octets),
        };
        let held = self.reference.take().map(|(ssrc, last, came)| Held {
            ssrc,
            last,
            delay: units(now.saturating_duration_since(came)),
        });
        let both = [media, rtx];
        self.protector.rtcp(&rtcp::sender_report(&info, held, if leaves { &both } else { &[] }))
    }

    /// The report until `now`.
    #[must_use]
    pub fn report(&self, now: Instant) -> TalkerReport {
        let (end, how) = match self.phase {
            Phase::Finished { at, how } => (at, Some(how)),
            Phase::Talking { .. } | Phase::Ending { .. } => (now, None),
        };
        let sidekick = self.sidekick.as_ref();
        let stats = sidekick.map(Sender::stats).unwrap_or_default();
        let ms = |rtt: Duration| rtt.as_secs_f64() * 1000.0;
        TalkerReport {
            mode: if sidekick.is_some() { "reinject" } else { "off" }.to_owned(),
            time_s: end.saturating_duration_since(self.began).as_secs_f64(),
            bytes: self.bytes,
            acknowledged: how == Some(Ending::Confirmed),
            ending: match how {
                None => "talking",
                Some(Ending::Confirmed) => "confirmed",
                Some(Ending::HungUp) => "hung up",
                Some(Ending::Silent) => "silent",
                Some(Ending::Unanswered) => "unanswered",
            }
            .to_owned(),
            assisted: sidekick
                .is_some_and(|sidekick| sidekick.assistance() == Assistance::Assisted),
            assistance: sidekick.map_or_else(|| "off".to_owned(), |s| s.assistance().to_string()),
            packets: self.packets,
            quacks: Quacks {
                received: stats.quacks_received,
                bytes: stats.quack_bytes,
                undecodable: stats.undecodable,
                epochs: stats.epochs,
                polls: stats.polls,
            },
            near_rtt_ms: sidekick.and_then(Sender::near_rtt).map(ms),
            rtt_ms: self.rtt.smoothed.map(ms),
            socket_errors: 0,
        }
    }
}
