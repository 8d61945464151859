//! Writes the events, if the connection has a qlog file. quiche handles the errors of the file.

use super::Losses;
use super::events::{
    AssistanceChanged, EarlyLoss, EarlyLossSpurious, ModeSet, NearLossChanged, ProxyChosen,
    QuackReceived,
};
use crate::Config;
use crate::sidekick::Direction;
use crate::sidekick::repair::Repair;
use quiche::{BufFactory, Connection, QlogLevel};
use sidekick_protocol::{Assistance, NearLoss, Selection, Sender, SenderStats};
use std::net::SocketAddr;
use std::time::Instant;

/// Remembers which event is already written.
#[derive(Debug, Default)]
pub(crate) struct Log {
    mode_set: bool,
}

impl Log {
    /// Whether the connection has a qlog file.
    pub(crate) fn is_on<F: BufFactory>(&self, conn: &Connection<F>) -> bool {
        conn.sidekick_has_qlog()
    }

    /// Writes the mode and the requested terms, at the first call only.
    pub(crate) fn mode_set<F: BufFactory>(
        &mut self,
        conn: &mut Connection<F>,
        config: &Config,
        now: Instant,
    ) {
        if !std::mem::replace(&mut self.mode_set, true) {
            conn.sidekick_qlog(ModeSet::NAME, QlogLevel::Base, now, |conn| {
                ModeSet::new(config, conn.sidekick_congestion_control())
            });
        }
    }

    /// Writes the latest quACK, if the sender accepted one in the message `from` a proxy. `before`
    /// has the counters before that message.
    pub(crate) fn quack_received<F: BufFactory>(
        &self,
        conn: &mut Connection<F>,
        sender: &Sender,
        before: &SenderStats,
        from: SocketAddr,
        now: Instant,
    ) {
        let stats = sender.stats();
        if let Some(quack) =
            sender.last_quack().filter(|_| stats.quacks_received > before.quacks_received)
        {
            conn.sidekick_qlog(QuackReceived::NAME, QlogLevel::Base, now, |_| {
                QuackReceived::new(
                    quack,
                    from,
                    stats.early_lost - before.early_lost,
                    sender.near_rtt(),
                )
            });
        }
    }

    /// Writes which packets were declared lost or are re-injected.
    pub(crate) fn early_loss<F: BufFactory>(
        &self,
        conn: &mut Connection<F>,
        losses: Losses<'_>,
        now: Instant,
    ) {
        let Losses { path_id, flow, packets, repair, declared } = losses;
        if declared > 0 {
            conn.sidekick_qlog(EarlyLoss::NAME, QlogLevel::Core, now, |conn| {
                let known = |number: &u64| {
                    repair == Repair::Reinject || conn.sidekick_is_early_lost(path_id, *number)
                };
                let open = packets.iter().copied().filter(known);
                EarlyLoss::new(open.collect(), declared, path_id, flow, repair)
            });
        }
    }

    /// Writes that the receiver acknowledged `count` more packets that had been declared lost,
    /// `total` in all.
    pub(crate) fn early_loss_spurious<F: BufFactory>(
        &self,
        conn: &mut Connection<F>,
        count: u64,
        total: u64,
        now: Instant,
    ) {
        conn.sidekick_qlog(EarlyLossSpurious::NAME, QlogLevel::Core, now, |_| EarlyLossSpurious {
            count,
            total,
        });
    }

    pub(crate) fn assistance_changed<F: BufFactory>(
        &self,
        conn: &mut Connection<F>,
        old: Assistance,
        new: Assistance,
        proxy: Option<SocketAddr>,
        now: Instant,
    ) {
        conn.sidekick_qlog(AssistanceChanged::NAME, QlogLevel::Base, now, |_| {
            AssistanceChanged::new(old, new, proxy)
        });
    }

    pub(crate) fn proxy_chosen<F: BufFactory>(
        &self,
        conn: &mut Connection<F>,
        choice: &Selection,
        now: Instant,
    ) {
        conn.sidekick_qlog(ProxyChosen::NAME, QlogLevel::Base, now, |_| ProxyChosen::new(choice));
    }

    pub(crate) fn near_loss_changed<F: BufFactory>(
        &self,
        conn: &mut Connection<F>,
        direction: Direction,
        loss: NearLoss,
        now: Instant,
    ) {
        conn.sidekick_qlog(NearLossChanged::NAME, QlogLevel::Base, now, |_| {
            NearLossChanged::new(direction, loss)
        });
    }
}
