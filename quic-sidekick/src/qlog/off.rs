//! Stands in for the log where it was not built in.

use crate::Config;
use quiche::sidekick::Reaction;
use quiche::{BufFactory, Connection};
use sidekick_protocol::{Assistance, Flow, Selection, Sender, SenderStats};
use std::net::SocketAddr;
use std::time::Instant;

/// No log.
#[derive(Debug, Default)]
pub(crate) struct Log {}

impl Log {
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
        _: (&SenderStats, SocketAddr),
        _: Instant,
    ) {
    }

    pub(crate) fn early_loss<F: BufFactory>(
        &self,
        _: &mut Connection<F>,
        _: (usize, Flow),
        _: &[u64],
        _: Option<Reaction>,
        _: usize,
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
        _: (Assistance, Assistance),
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
}
