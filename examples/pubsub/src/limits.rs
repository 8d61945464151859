//! Limits on what clients may use.

use anyhow::ensure;
use clap::Args;

/// The bytes that each message counts in a topic's history beside its payload. It takes about as
/// many: `measure --instructions` measures that.
pub(crate) const OVERHEAD: usize = 96;
/// The smallest window of a connection, in bytes.
const SMALLEST_WINDOW: u32 = 256 * 1024;

/// The limits of the command line.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Limits (a client is an IPv4 address or an IPv6 /64)")]
pub(crate) struct Limits {
    /// The longest message
    #[arg(long, value_name = "BYTES", default_value_t = 64 * 1024, value_parser = clap::value_parser!(u32).range(1..=16 << 20))]
    pub(crate) max_message: u32,
    /// Topics; further ones are refused
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_topics: u32,
    /// Messages that a topic keeps for subscribers that reconnect or are slow
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) history_messages: u32,
    /// Bytes of messages that a topic keeps, with 96 more for each
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) history_bytes: u32,
    /// Publishers with a name that a topic may have at once, and recognises if they repeat messages
    /// after a reconnection
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) known_publishers: u32,
    /// Simultaneous connections; the broker refuses further ones in the handshake
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: u32,
    /// Simultaneous publishers: one for each topic to which a connection publishes
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_publishers: u32,
    /// Simultaneous subscriptions
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_subscribers: u32,
    /// Simultaneous connections, publishers, and subscriptions of one client, and its names in a
    /// topic: below --known-publishers, or one client could keep all others from publishing to a
    /// topic
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_per_client: u32,
    /// Simultaneous requests of a connection of HTTP/3, and topics of one of MQTT
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_requests: u32,
}

impl Limits {
    /// Checks the combination.
    ///
    /// # Errors
    /// A topic could not keep one message.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let needed = self.max_message as usize + OVERHEAD;
        ensure!(
            self.history_bytes as usize >= needed,
            "a message of --max-message {} needs --history-bytes {needed} at least",
            self.max_message
        );
        Ok(())
    }

    /// Bytes that a connection may have under way in each direction. The broker keeps as many for a
    /// slow subscriber. All other messages are in the topic's history, once for all subscribers.
    pub(crate) fn window(&self) -> u32 {
        SMALLEST_WINDOW.max(2 * self.max_message)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        limits: Limits,
    }

    pub(crate) fn limits(options: &[&str]) -> Limits {
        Only::parse_from(["broker"].iter().chain(options)).limits
    }
}
