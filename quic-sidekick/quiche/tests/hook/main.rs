//! The hook, compared with stock quiche and in virtual time.
#![cfg(target_os = "linux")]
#![allow(clippy::duplicate_mod, reason = "the same transfer, once for each crate")]

virtual_time::in_force!();

mod again;
mod assembled;
mod early_loss;
mod idle;
mod initial_rtt;
mod migration;
#[cfg(feature = "qlog")]
mod qlog;

// The build script's.
#[path = "../../build/assemble.rs"]
#[allow(dead_code, reason = "the build script uses the rest")]
mod assemble;
#[path = "../../build/insertions.rs"]
mod insertions;

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
