//! Replaces the log in builds without the feature `qlog`.

use super::Losses;
use crate::Config;
use crate::sidekick::Direction;
use quiche::{BufFactory, Connection};
use sidekick_protocol::{Assistance, NearLoss, Selection, Sender, SenderStats};
use std::net::SocketAddr;
use std::time::Instant;

/// No log.
#[derive(Debug, Default)]
pub(crate) struct Log {}

impl Log {
    pub(crate) fn is_on<F: BufFactory>(&self, _: &Connection<F>) -> bool {
        false
    }

    pub(crate) fn mode_set<F: BufFactory>(
        &mut self,
        _: &mut Connection<F>,
        _: &Config,
        _: Instant,
    ) {
    }

    pub(crate) fn quack_received<F: BufFactory>(
        &self,
        _: &mut Connection<F>,
        _: &Sender,
        _: &SenderStats,
        _: SocketAddr,
        _: Instant,
    ) {
    }

    pub(crate) fn early_loss<F: BufFactory>(
        &self,
        _: &mut Connection<F>,
        _: Losses<'_>,
        _: Instant,
    ) {
    }

    pub(crate) fn early_loss_spurious<F: BufFactory>(
        &self,
        _: &mut Connection<F>,
        _: u64,
        _: u64,
        _: Instant,
    ) {
    }

    pub(crate) fn assistance_changed<F: BufFactory>(
        &self,
        _: &mut Connection<F>,
        _: Assistance,
        _: Assistance,
        _: Option<SocketAddr>,
        _: Instant,
    ) {
    }

    pub(crate) fn proxy_chosen<F: BufFactory>(
        &self,
        _: &mut Connection<F>,
        _: &Selection,
        _: Instant,
    ) {
    }

    pub(crate) fn near_loss_changed<F: BufFactory>(
        &self,
        _: &mut Connection<F>,
        _: Direction,
        _: NearLoss,
        _: Instant,
    ) {
    }
}
