//! Limits on what clients may use, together and each.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors of the server itself: standard streams, the socket, the directory, the runtime's
/// own.
const OWN_DESCRIPTORS: u64 = 64;

/// The limits of the command line.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits (a client is an IPv4 address or an IPv6 /64)")]
pub(crate) struct Limits {
    /// Refuse longer files
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_bytes: Option<u64>,
    /// Simultaneous connections; the server refuses further ones in the handshake
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: u32,
    /// Simultaneous connections of one client
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections_per_client: u32,
    /// Simultaneous uploads and downloads, each with an open file; further ones receive status 503.
    /// At its start the server raises its limit of open files accordingly
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_uploads: u32,
    /// Simultaneous uploads and downloads of one client; further ones receive status 429
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_uploads_per_client: u32,
    /// Simultaneous requests of one connection; further ones wait at the client for a stream
    /// (MAX_STREAMS)
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_uploads_per_connection: u32,
    /// Bytes of all unfinished files together; uploads beyond receive status 507
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 30)]
    pub(crate) max_unfinished_bytes: u64,
    /// A body must gain --min-progress bytes within this time, or end; otherwise it receives status
    /// 408. Within the same time, the client must take 16 KiB of a download
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) stall_timeout: u16,
    /// See --stall-timeout
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) min_progress: u64,
    /// Close a connection without a request for this long, unless it still carries a file. Request
    /// headers must end, and the client must read its answer, within the same time
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) request_timeout: u16,
    /// Flow control window of a connection, and the most bytes of downloads that wait for
    /// acknowledgements. The default suffices for 100 Mbit/s at a round trip of 0.6 s. A hostile
    /// client can make the server keep 3.5 times as much for a connection, and 250 KiB for each of
    /// its requests. By default that is 36 MiB for a connection, 1.2 GiB for all of one client, and
    /// 4.5 GiB for all connections
    #[arg(long, value_name = "BYTES", default_value_t = 8 << 20, value_parser = clap::value_parser!(u32).range(65536..=1 << 30))]
    pub(crate) window: u32,
}

impl Limits {
    pub(crate) fn stall_timeout(&self) -> Duration {
        Duration::from_secs(self.stall_timeout.into())
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_secs(self.request_timeout.into())
    }

    /// Raises the limit of open files, if necessary, to suffice for all uploads.
    ///
    /// # Errors
    /// The limit is too low, and cannot be raised.
    pub(crate) fn provide_descriptors(&self) -> anyhow::Result<()> {
        let needed = u64::from(self.max_uploads) + OWN_DESCRIPTORS;
        // `None` is no limit.
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        if current.is_none_or(|current| current >= needed) {
            return Ok(());
        }
        let most = maximum.unwrap_or(u64::MAX);
        ensure!(
            most >= needed,
            "only {most} files can be open, but --max-uploads {} needs {needed}: raise the limit \
             (ulimit -Hn), or lower --max-uploads",
            self.max_uploads
        );
        setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).with_context(|| {
            format!("cannot raise the limit of open files to {needed}: lower --max-uploads")
        })
    }
}
