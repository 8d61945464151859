//! What the log says about the help for a flow: when it begins and ends, and why (`-v`).

use std::mem;
use std::net::SocketAddr;
use std::time::Duration;

use sidekick_protocol::{Assistance, Flow, PublicKey};
use tracing::info;

use super::flow::Withheld;

/// Why a flow whose help pauses has none.
pub(super) const RESTS: &str = "a queue grew before the proxy for long: without help for a while";

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
}

/// A flow's proxy and its key, and the near RTT.
pub(super) type Proxy = (Option<(SocketAddr, PublicKey)>, Option<Duration>);

impl Journal {
    /// Notes that the agent searches for a proxy, or asks one, for a flow of this kind.
    pub(super) fn begin(flow: Flow, kind: impl std::fmt::Display) -> Self {
        info!("{} to {} ({kind}): the agent asks for help", flow.source, flow.destination);
        Self { flow, stage: Stage::Proxy(Assistance::Seeking), withheld: Vec::new() }
    }

    /// Notes the state of the help. `proxy` is called only if it has changed.
    pub(super) fn note(
        &mut self,
        assistance: Assistance,
        rests: bool,
        proxy: impl FnOnce() -> Proxy,
    ) {
        let stage = if rests { Stage::Resting } else { Stage::Proxy(assistance) };
        if mem::replace(&mut self.stage, stage) == stage {
            return;
        }
        let Flow { source, destination } = self.flow;
        match (stage, proxy()) {
            (Stage::Resting, _) => info!("{source} to {destination}: {RESTS}"),
            (Stage::Proxy(Assistance::Assisted), (Some((address, key)), near)) => {
                let near = near.unwrap_or_default().as_secs_f64() * 1e3;
                info!(
                    "{source} to {destination}: assisted by the proxy {address} with the key \
                     {key}, near RTT {near:.1} ms"
                );
            }
            (Stage::Proxy(assistance), _) => info!("{source} to {destination}: {assistance}"),
        }
    }

    /// Notes why lost packets are not sent again. The log says each reason once, because it comes
    /// and goes within milliseconds.
    pub(super) fn note_withheld(&mut self, why: Withheld) {
        if !self.withheld.contains(&why) {
            self.withheld.push(why);
            let Flow { source, destination } = self.flow;
            info!("{source} to {destination}: a lost packet is not sent again: {why}");
        }
    }

    /// Notes that the help ends, and what it did.
    pub(super) fn end(&self, why: &str, [sent, lost, resent]: [u64; 3]) {
        let Flow { source, destination } = self.flow;
        info!(
            "{source} to {destination}: the help ends: {why}; sent {sent}, lost {lost}, resent \
             {resent}"
        );
    }
}
