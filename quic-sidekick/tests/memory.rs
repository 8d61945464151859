//! The memory that the plugin and the hook use for a connection is within the bounds that the notes
//! state.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

virtual_time::in_force!();

#[path = "../benches/sender"]
mod hooked {
    use quic_sidekick::quiche as engine;

    #[path = "transfer.rs"]
    pub(crate) mod transfer;
}

#[path = "../benches/sender"]
#[allow(clippy::duplicate_mod, reason = "the same transfer, once for each crate")]
mod stock {
    use pristine as engine;

    #[path = "transfer.rs"]
    pub(crate) mod transfer;
}

#[path = "../quack/tests/support/allocator.rs"]
mod allocator;
#[path = "../benches/sender/held.rs"]
mod held;
#[path = "../benches/sender/help.rs"]
mod help;

use allocator::{unwatched, watched};
use help::{Direction, Fault, Link, ProxyOutput};

/// The most KiB that help adds at 10 Mbit/s, and at 1,000.
const USUAL: [usize; 2] = [384, 1024];
/// The most MiB that it adds in any failure.
const MOST: usize = 3;

fn notes() -> String {
    let notes = include_str!("../../docs/plugin.md");
    notes.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn help_adds_no_more_memory_than_the_notes_state() {
    for ((rate, link), usual) in held::LINKS.into_iter().zip(USUAL) {
        let stock = held::by_stock_quiche(link);
        let (usual, most) = (usual << 10, MOST << 20);
        for (fault, bound) in
            [(Fault::None, usual), (Fault::BlindProxy, most), (Fault::IdlePlugin, most)]
        {
            let helped = held::with_help(link, fault);
            println!("{rate} Mbit/s, {fault:?}: {helped} bytes, stock quiche {stock}");
            assert!(helped > stock + (100 << 10), "the instrument works: help takes memory");
            assert!(helped - stock <= bound, "{rate} Mbit/s, {fault:?}: {helped}, {stock}");
        }
    }
    let [slow, fast] = USUAL;
    let figures = format!(
        "{slow} KiB of memory at 10 Mbit/s, and up to {fast} KiB at 1,000 Mbit/s. It never takes more than {MOST} MiB with one proxy"
    );
    assert!(notes().contains(&figures), "docs/plugin.md lacks: {figures}");
}
