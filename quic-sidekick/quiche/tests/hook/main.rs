//! The hook, compared with stock quiche and in virtual time.
#![cfg(target_os = "linux")]
#![allow(clippy::duplicate_mod, reason = "the same transfer, once for each crate")]

virtual_time::in_force!();

mod again;
mod early_loss;
mod idle;
mod initial_rtt;
mod insertions;
mod migration;
#[cfg(feature = "qlog")]
mod qlog;

#[path = "support"]
mod hooked {
    use quiche as engine;

    #[path = "transfer.rs"]
    pub mod transfer;
}

#[path = "support"]
mod stock {
    use pristine as engine;

    #[path = "transfer.rs"]
    pub mod transfer;
}
