//! Which of several proxies on one path to keep (SPEC.md, section 7.8).
//!
//! A proxy sees every loss between the sender and itself, so a farther one sees at least what a
//! nearer one does. The nearer one tells sooner. The best is the nearest of those that see (almost)
//! all that any sees.

use super::session::ProxySession;
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Losses that have to be known before proxies can be told apart by them.
const EVIDENCE: u64 = 16;
/// Proxies are compared from this time on after the latest of them has begun to report.
const SETTLING: Duration = Duration::from_millis(300);
/// Without as many losses the choice is made after this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of the losses that any proxy sees, a chosen one sees at least so many percent.
const COVERAGE_PERCENT: u64 = 80;
/// So many of the latest losses are not told again when another proxy reports them, too.
const REMEMBERED: usize = 1024;

/// The proxy that was chosen, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Its address.
    pub proxy: SocketAddr,
    /// How many proxies reported.
    pub candidates: usize,
    /// What spoke for it.
    pub reason: SelectionReason,
}

/// What spoke for a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionReason {
    /// It is the nearest that saw the losses.
    Nearest {
        /// Losses that it saw.
        saw: u64,
        /// Losses that the proxy saw which saw most.
        most: u64,
    },
    /// There were too few losses to tell, and it covers the longest part of the path.
    Farthest,
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} proxies: ", self.proxy, self.candidates)?;
        match self.reason {
            SelectionReason::Nearest { saw, most } => {
                write!(f, "the nearest that sees the losses ({saw} of {most})")
            }
            SelectionReason::Farthest => {
                f.write_str("the farthest, as there are hardly any losses")
            }
        }
    }
}

/// Several proxies at once, until one is chosen.
#[derive(Debug, Default)]
pub(super) struct ProxySelector {
    since: Option<Instant>,
    /// What each of them had reported by then.
    before: Vec<(SocketAddr, u64)>,
    told: VecDeque<u64>,
    pub(super) made: Option<Selection>,
}

/// The sessions whose proxies report, with their indices.
fn reporting(sessions: &[ProxySession]) -> impl Iterator<Item = (usize, &ProxySession)> {
    sessions.iter().enumerate().filter(|(_, session)| session.is_assisted())
}

impl ProxySelector {
    /// Takes out what was told before by another proxy.
    pub(super) fn deduplicate(&mut self, lost: &mut Vec<u64>, sessions: usize) {
        if sessions < 2 {
            self.told.clear();
            return;
        }
        lost.retain(|tag| {
            let new = !self.told.contains(tag);
            if new {
                if self.told.len() >= REMEMBERED {
                    self.told.pop_front();
                }
                self.told.push_back(*tag);
            }
            new
        });
    }

    /// The proxy to keep, if it is time to choose.
    pub(super) fn judge(&mut self, sessions: &[ProxySession], now: Instant) -> Option<usize> {
        let candidates = reporting(sessions).count();
        if candidates < 2 {
            self.since = None;
            return None;
        }
        let known =
            |session: &ProxySession| self.before.iter().any(|(proxy, _)| *proxy == session.proxy);
        if self.since.is_none() || !reporting(sessions).all(|(_, session)| known(session)) {
            // Another one has begun to report: from here on they can be compared.
            self.since = Some(now);
            self.before = reporting(sessions).map(|(_, c)| (c.proxy, c.stats.early_lost)).collect();
        }
        let since = self.since.unwrap_or(now);
        if now.saturating_duration_since(since) < SETTLING {
            // Losses from before the latest of them began are still being told.
            self.before = reporting(sessions).map(|(_, c)| (c.proxy, c.stats.early_lost)).collect();
            return None;
        }
        let before = &self.before;
        let saw = |session: &ProxySession| {
            let before = before.iter().find(|(proxy, _)| *proxy == session.proxy);
            session.stats.early_lost.saturating_sub(before.map_or(0, |(_, before)| *before))
        };
        let most = reporting(sessions).map(|(_, session)| saw(session)).max().unwrap_or(0);
        let near = |session: &ProxySession| session.smoothed_rtt().unwrap_or(Duration::MAX);
        let (chosen, reason) = if most >= EVIDENCE {
            let enough = |session: &ProxySession| saw(session) * 100 >= most * COVERAGE_PERCENT;
            let covering = reporting(sessions).filter(|(_, session)| enough(session));
            let (index, nearest) = covering.min_by_key(|(_, session)| near(session))?;
            (index, SelectionReason::Nearest { saw: saw(nearest), most })
        } else if now.saturating_duration_since(since) >= PATIENCE {
            let (index, _) = reporting(sessions).max_by_key(|(_, session)| near(session))?;
            (index, SelectionReason::Farthest)
        } else {
            return None;
        };
        let proxy = sessions.get(chosen)?.proxy;
        self.made = Some(Selection { proxy, candidates, reason });
        self.since = None;
        Some(chosen)
    }

    pub(super) fn poll_timeout(&self, sessions: &[ProxySession]) -> Option<Instant> {
        self.since.filter(|_| reporting(sessions).count() > 1).map(|since| since + PATIENCE)
    }
}
