//! Datagrams that the network has doubled (SPEC.md, section 6.3).

/// So many of the latest identifiers are looked at.
const WINDOW: u32 = 128;
/// Places in the table; a later identifier takes the place of an earlier one that shares it.
const PLACES: usize = 256;

/// The latest identifiers of a session.
#[derive(Debug)]
pub(super) struct Repeats {
    /// Each an identifier, and the number of its packet, from 1; 0 for none.
    places: Box<[(u32, u32); PLACES]>,
    packets: u32,
}

impl Default for Repeats {
    fn default() -> Self {
        Self { places: Box::new([(0, 0); PLACES]), packets: 0 }
    }
}

impl Repeats {
    pub(super) fn clear(&mut self) {
        self.places.fill((0, 0));
        self.packets = 0;
    }

    /// Takes note of an identifier; true if it is that of one of the latest packets.
    pub(super) fn is_one(&mut self, identifier: u32) -> bool {
        let index = usize::try_from(identifier).unwrap_or(0) % PLACES;
        let Some(place) = self.places.get_mut(index) else { return false };
        let (known, number) = *place;
        if number != 0 && known == identifier && self.packets.wrapping_sub(number) < WINDOW {
            return true;
        }
        self.packets = self.packets.checked_add(1).unwrap_or(1);
        *place = (identifier, self.packets);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_identifier_is_known_for_a_while() {
        let mut repeats = Repeats::default();
        let known: Vec<bool> = [0, 7, 0, 256, 7, 0].map(|id| repeats.is_one(id)).to_vec();
        // 0 and 256 share a place: the later one is known, and 0 is new again.
        assert_eq!(known, [false, false, true, false, true, false]);
        assert!(!repeats.is_one(9));
        assert!(!(1000..1000 + WINDOW - 1).any(|id| repeats.is_one(id * 256 + 11)));
        assert!(repeats.is_one(9), "{WINDOW} packets ago");
        assert!(!repeats.is_one(12) && !repeats.is_one(9), "longer ago");
        repeats.clear();
        assert!(!repeats.is_one(9));
    }
}
