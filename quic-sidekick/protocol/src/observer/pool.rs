//! The memory that all sessions share for their copies (SPEC.md, section 6.8).

use std::collections::BTreeMap;
use std::net::IpAddr;

/// The size of a block in bytes: some forty datagrams. A session with less memory keeps nothing.
pub(super) const BLOCK: usize = 64 << 10;
/// The sessions of one source prefix use this part of the pool at most, or the share of one session
/// if that is more.
const SOURCE_PART: usize = 4;

/// A part of the memory, which grows within its capacity of [`BLOCK`] bytes. It is never filled
/// with zeros first, which would take as long as filling it with datagrams.
pub(super) type Block = Vec<u8>;

/// The blocks that all sessions share. Those of one source prefix have a part of them.
#[derive(Debug)]
pub(super) struct Pool {
    free: Vec<Block>,
    /// The most blocks.
    max: usize,
    /// Blocks that hold copies.
    used: usize,
    /// Those of each source prefix that has any.
    of_source: BTreeMap<IpAddr, usize>,
}

impl Pool {
    /// A pool of at most `max_bytes`, in whole blocks. Nothing is allocated before it is needed.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { free: Vec::new(), max: max_bytes / BLOCK, used: 0, of_source: BTreeMap::new() }
    }

    /// Changes the limit. Blocks beyond it are freed as they are returned
    /// (`Copies::return_excess`).
    pub(super) fn resize(&mut self, max_bytes: usize) {
        self.max = max_bytes / BLOCK;
        self.free.truncate(self.max.saturating_sub(self.used));
    }

    /// Returns all free blocks to the system.
    pub(super) fn release(&mut self) {
        self.free = Vec::new();
    }

    /// The bytes of blocks that hold copies.
    pub(super) fn used_bytes(&self) -> usize {
        self.used * BLOCK
    }

    /// A block for a source prefix, which may have `at_least` of them in any case.
    pub(super) fn take(&mut self, source: IpAddr, at_least: usize) -> Option<Block> {
        let of_source = self.of_source.get(&source).copied().unwrap_or(0);
        if self.used >= self.max || of_source >= (self.max / SOURCE_PART).max(at_least) {
            return None;
        }
        let block = self.free.pop().unwrap_or_else(|| Block::with_capacity(BLOCK));
        self.used += 1;
        self.of_source.insert(source, of_source + 1);
        Some(block)
    }

    /// Whether all sessions, or those of a source prefix, have more blocks than [`Pool::take`]
    /// lends them: the limits were greater before.
    pub(super) fn exceeds(&self, source: IpAddr, at_least: usize) -> bool {
        let of_source = self.of_source.get(&source).copied().unwrap_or(0);
        self.used > self.max || of_source > (self.max / SOURCE_PART).max(at_least)
    }

    /// Returns a block of a source prefix.
    pub(super) fn give(&mut self, source: IpAddr, block: Block) {
        self.used -= 1;
        if let Some(of_source) = self.of_source.get_mut(&source) {
            *of_source -= 1;
            if *of_source == 0 {
                self.of_source.remove(&source);
            }
        }
        if self.used < self.max {
            self.free.push(block);
        }
    }

    /// The number of source prefixes that have a block.
    #[cfg(test)]
    pub(super) fn sources(&self) -> usize {
        self.of_source.len()
    }
}
