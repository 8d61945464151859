//! The counters of a capture.

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
