//! Counting packets from a capture file, by the code that counts captured packets.
//!
//! [`file`] reads what tcpdump, Wireshark and similar programs write. [`counter`] counts the
//! packets as a proxy would have if the sender of each flow had requested it. [`report`] is the
//! command that prints the result.

pub(crate) mod counter;
pub(crate) mod file;
pub(crate) mod report;
