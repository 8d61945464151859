//! The round trip to assume until one is measured, for event loops that keep their
//! [`Config`](crate::Config) to themselves, such as tokio-quiche's.

use std::cell::Cell;
use std::time::Duration;

use crate::recovery::RecoveryConfig;

thread_local! {
    /// The initial round trip of a connection that this thread creates now.
    static INITIAL_RTT: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Calls `create`; the connections that it creates on this thread assume this round trip until they
/// measure one, as after [`Config::set_initial_rtt`](crate::Config::set_initial_rtt).
pub fn with_initial_rtt<R>(rtt: Duration, create: impl FnOnce() -> R) -> R {
    /// Restores the earlier value, also when `create` panics.
    struct Restore(Option<Duration>);

    impl Drop for Restore {
        fn drop(&mut self) {
            INITIAL_RTT.set(self.0);
        }
    }

    let _restore = Restore(INITIAL_RTT.replace(Some(rtt)));
    create()
}

/// The config of a new connection's recovery.
pub(crate) fn with_own_initial_rtt(mut config: RecoveryConfig) -> RecoveryConfig {
    if let Some(rtt) = INITIAL_RTT.get() {
        config.initial_rtt = rtt;
    }
    config
}
