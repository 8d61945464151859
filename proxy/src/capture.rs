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
mod counters;
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
pub(crate) use counters::Counters;
pub(crate) use deliver::{Batch, Captured, Whole};
pub(crate) use error::CaptureError;
pub(crate) use interface::Capture;
pub(crate) use open::open;
pub(crate) use passing::PassingCapture;
pub(crate) use settings::Direction;
pub use source::BATCH;
pub(crate) use source::Frames;
