//! The memory that a sender holds for a connection with help, next to that of stock quiche. A
//! program of its own: an allocator that counts would add to the instructions of the other one.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

virtual_time::in_force!();

#[path = "."]
mod hooked {
    use quic_sidekick::quiche as engine;

    #[path = "transfer.rs"]
    pub(crate) mod transfer;
}

#[path = "."]
#[allow(clippy::duplicate_mod, reason = "the same transfer, once for each crate")]
mod stock {
    use pristine as engine;

    #[path = "transfer.rs"]
    pub(crate) mod transfer;
}

#[path = "../../quack/tests/support/allocator.rs"]
mod allocator;
#[path = "../../quack/benches/quack/figures.rs"]
mod figures;
mod held;
mod help;

use allocator::{unwatched, watched};
use figures::Figures;
use help::{Direction, Fault, Link, ProxyOutput};

#[allow(clippy::cast_precision_loss, reason = "a few megabytes")]
fn main() {
    let mut figures = Figures::begin();
    for (rate, link) in held::LINKS {
        let ours = held::with_help(link, Fault::None) as f64;
        let stock = held::by_stock_quiche(link) as f64;
        figures.add(&format!("sender/memory/{rate}-mbit"), "bytes", (ours, stock), stock / ours);
    }
    figures.write();
}
