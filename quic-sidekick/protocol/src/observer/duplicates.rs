//! Detection of datagrams that the network duplicated (SPEC.md, section 6.3).

/// Slots of the table. A later identifier replaces an earlier one in the same slot.
const SLOTS: usize = 256;

/// Identifiers of a session's latest packets, each in the slot of its last bits.
#[derive(Debug)]
pub(super) struct Duplicates(Box<[u32; SLOTS]>);

impl Default for Duplicates {
    fn default() -> Self {
        let mut duplicates = Self(Box::new([0; SLOTS]));
        duplicates.clear();
        duplicates
    }
}

fn slot(identifier: u32) -> usize {
    usize::try_from(identifier).unwrap_or(0) % SLOTS
}

impl Duplicates {
    pub(super) fn clear(&mut self) {
        self.0.fill(0);
        // An identifier in a slot not its own matches nothing.
        if let Some(first) = self.0.first_mut() {
            *first = 1;
        }
    }

    /// The contents of the identifier's slot.
    #[inline]
    pub(super) fn peek(&self, identifier: u32) -> u32 {
        self.0.get(slot(identifier)).copied().unwrap_or(0)
    }

    /// Records an identifier. Returns true if its slot held it already.
    #[inline]
    pub(super) fn record(&mut self, identifier: u32) -> bool {
        let Some(slot) = self.0.get_mut(slot(identifier)) else { return false };
        std::mem::replace(slot, identifier) == identifier
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_identifier_is_detected_until_another_replaces_it() {
        let mut duplicates = Duplicates::default();
        let known: Vec<bool> = [0, 7, 0, 256, 7, 0].map(|id| duplicates.record(id)).to_vec();
        // 0 and 256 share a slot: 256 replaces 0.
        assert_eq!(known, [false, false, true, false, true, false]);
        assert!(!duplicates.record(9));
        assert!(!(1000..2000).any(|id| duplicates.record(id * 256 + 11)));
        assert!(duplicates.record(9), "recorded many packets ago");
        duplicates.clear();
        assert!(!(0..1024).any(|id| duplicates.record(id)));
    }
}
