//! Packets that were captured before, from a file.
//!
//! [`CaptureFile`] reads what tcpdump, Wireshark and their like have written, packet by packet.

mod file;

pub use file::{CaptureFile, FileError, Frame, LONGEST_PACKET};
