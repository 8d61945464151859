//! Datagrams that the network has doubled (SPEC.md, section 6.3).

/// Places in the table; a later identifier takes the place of an earlier one that shares it.
const PLACES: usize = 256;

/// Identifiers of a session's latest packets, each in the place that its last bits name.
#[derive(Debug)]
pub(super) struct Duplicates(Box<[u32; PLACES]>);

impl Default for Duplicates {
    fn default() -> Self {
        let mut duplicates = Self(Box::new([0; PLACES]));
        duplicates.clear();
        duplicates
    }
}

fn place(identifier: u32) -> usize {
    usize::try_from(identifier).unwrap_or(0) % PLACES
}

impl Duplicates {
    pub(super) fn clear(&mut self) {
        self.0.fill(0);
        // An identifier that belongs elsewhere is none.
        if let Some(first) = self.0.first_mut() {
            *first = 1;
        }
    }

    /// What stands where an identifier will be looked for.
    #[inline]
    pub(super) fn peek(&self, identifier: u32) -> u32 {
        self.0.get(place(identifier)).copied().unwrap_or(0)
    }

    /// Takes note of an identifier; true if it is one that was noted and has kept its place.
    #[inline]
    pub(super) fn record(&mut self, identifier: u32) -> bool {
        let Some(place) = self.0.get_mut(place(identifier)) else { return false };
        std::mem::replace(place, identifier) == identifier
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_identifier_is_known_until_another_takes_its_place() {
        let mut duplicates = Duplicates::default();
        let known: Vec<bool> = [0, 7, 0, 256, 7, 0].map(|id| duplicates.record(id)).to_vec();
        // 0 and 256 share a place: the later one is known, and 0 is new again.
        assert_eq!(known, [false, false, true, false, true, false]);
        assert!(!duplicates.record(9));
        assert!(!(1000..2000).any(|id| duplicates.record(id * 256 + 11)));
        assert!(duplicates.record(9), "many packets ago");
        duplicates.clear();
        assert!(!(0..1024).any(|id| duplicates.record(id)));
    }
}
