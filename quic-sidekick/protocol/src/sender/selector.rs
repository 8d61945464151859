//! Selection among several proxies on one path (SPEC.md, section 7.8).
//!
//! A proxy detects every loss between the sender and itself, so a farther one detects at least the
//! losses that a nearer one does. The nearer one reports sooner. The best proxy is the nearest that
//! detects almost all losses that any detects.

use super::session::ProxySession;
use crate::loss_floor::Lost;
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Losses that are necessary to compare proxies.
const EVIDENCE: u64 = 16;
/// How long to wait, after the last proxy began to report, before comparing.
const SETTLING: Duration = Duration::from_millis(300);
/// How long to wait for enough losses before selecting without them.
const PATIENCE: Duration = Duration::from_secs(10);
/// A selected proxy must see this share of the losses that the best proxy sees, in percent.
const COVERAGE_PERCENT: u64 = 80;
/// The number of recent losses that the selector remembers, to report each only once.
const REMEMBERED: usize = 1024;

/// The selected proxy, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The proxy's address.
    pub proxy: SocketAddr,
    /// The number of proxies that reported.
    pub candidates: usize,
    /// Why it was selected.
    pub reason: SelectionReason,
}

/// Why a proxy was selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionReason {
    /// It is the nearest proxy that saw enough of the losses.
    Nearest {
        /// Losses that it saw.
        saw: u64,
        /// The most losses that any proxy saw.
        most: u64,
    },
    /// There were too few losses to compare, and it covers the longest part of the path.
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

/// The selection among several proxies.
#[derive(Debug, Default)]
pub(super) struct ProxySelector {
    since: Option<Instant>,
    /// The losses that each proxy had reported at that time.
    before: Vec<(SocketAddr, u64)>,
    reported: VecDeque<u64>,
    pub(super) made: Option<Selection>,
}

/// The sessions whose proxies report, with their indices.
fn reporting(sessions: &[ProxySession]) -> impl Iterator<Item = (usize, &ProxySession)> {
    sessions.iter().enumerate().filter(|(_, session)| session.is_assisted())
}

impl ProxySelector {
    /// Removes losses that another proxy reported before. The first `settled` of them passed
    /// earlier, and stay.
    pub(super) fn deduplicate(&mut self, lost: &mut Vec<Lost>, settled: usize, sessions: usize) {
        if sessions < 2 {
            self.reported.clear();
            return;
        }
        let mut place = 0;
        lost.retain(|Lost { tag, .. }| {
            place += 1;
            if place <= settled {
                return true;
            }
            let new = !self.reported.contains(tag);
            if new {
                if self.reported.len() >= REMEMBERED {
                    self.reported.pop_front();
                }
                self.reported.push_back(*tag);
            }
            new
        });
    }

    /// Selects the proxy to keep, once it is time. Returns its index.
    pub(super) fn select(&mut self, sessions: &[ProxySession], now: Instant) -> Option<usize> {
        let candidates = reporting(sessions).count();
        if candidates < 2 {
            self.since = None;
            return None;
        }
        let known =
            |session: &ProxySession| self.before.iter().any(|(proxy, _)| *proxy == session.proxy);
        if self.since.is_none() || !reporting(sessions).all(|(_, session)| known(session)) {
            // Another proxy began to report: compare from here on.
            self.since = Some(now);
            self.before = reporting(sessions).map(|(_, c)| (c.proxy, c.stats.early_lost)).collect();
        }
        let since = self.since.unwrap_or(now);
        if now.saturating_duration_since(since) < SETTLING {
            // Reports of earlier losses still arrive.
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
