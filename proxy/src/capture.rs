//! Capturing on one interface.
//!
//! [`open`] performs all steps that can fail, so the daemon can report that it is ready. Then a
//! [`worker`](crate::worker) reads the captures batch by batch. A packet costs no allocation, and
//! with the ring no system call and no copy:
//!
//! 1. A [`Source`](source::Source) lends [`Frames`], which the ring keeps until the worker releases
//!    them.
//! 2. [`Datagrams`](deliver::Datagrams) parses these frames into a [`Batch`].

mod address;
mod bpf;
mod copies;
mod deliver;
mod error;
mod fanout;
mod interface;
mod open;
mod passing;
mod portable;
mod ring;
pub(crate) mod settings;
mod socket;
mod source;

pub(crate) use copies::{Clients, CopyCapture, SpareCapture};
pub(crate) use deliver::{Batch, Captured, Whole};
pub(crate) use error::CaptureError;
pub(crate) use interface::Capture;
pub(crate) use open::open;
pub(crate) use passing::PassingCapture;
pub(crate) use settings::Direction;
pub use source::BATCH;
pub(crate) use source::Frames;

/// The counters of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// UDP datagrams, including those inside merged frames.
    pub datagrams: u64,
    /// Merged frames that the capture split into their datagrams.
    pub split: u64,
    /// Merged frames that the capture could not split, and therefore did not count.
    pub unsplit: u64,
    /// Fragments, whose bytes at the identifier's place may be other data.
    pub fragments: u64,
    /// Frames with headers that contradict themselves.
    pub malformed: u64,
    /// Packets that the kernel had no room for, and packets that the capture discarded because
    /// others may be missing between them.
    pub dropped: u64,
}

impl Counters {
    /// Adds the counters of another capture.
    pub fn add(&mut self, other: &Self) {
        self.datagrams += other.datagrams;
        self.split += other.split;
        self.unsplit += other.unsplit;
        self.fragments += other.fragments;
        self.malformed += other.malformed;
        self.dropped += other.dropped;
    }
}
