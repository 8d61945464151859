//! A plain stack over a socket that gets help, and the plugin in the stack. `docs/integrate.md` has
//! the figures.

use crate::support::jobs::{goodput, runs};

/// The plugin knows the connection, and the socket its datagrams alone. That makes little
/// difference where these arrive in order.
#[test]
fn a_socket_helps_about_as_much_as_the_plugin() {
    const SEEDS: u64 = 2;
    for (scenario, cc, mode) in [
        ("upload-paper", "flow.cc=bbr2", "sidekick.mode=auto"),
        ("upload-paper", "flow.cc=cubic", "sidekick.mode=reinject"),
        ("download-paper", "flow.cc=cubic", "sidekick.mode=receive"),
    ] {
        for loss in ["near.loss_percent=0", "near.loss_percent=4"] {
            let of = |mode| {
                let found = "sidekick.proxy=found";
                goodput(&runs(scenario, SEEDS, &[&[mode, cc, loss, found, "flow.bytes=4194304"]]))
            };
            let (socket, plugin) = (of("sidekick.mode=socket"), of(mode));
            println!("{scenario}, {loss}: {socket:.2} by the socket, {plugin:.2} by the plugin");
            assert!(socket > 0.95 * plugin, "{scenario}, {loss}: {socket} and {plugin}");
        }
    }
}
