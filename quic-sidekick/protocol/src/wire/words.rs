//! Lists of words of 32 bits (SPEC.md, sections 4.2 and 4.3).

/// The most words of a list.
pub(super) const MAX_WORDS: usize = 255;

/// Words of 32 bits: to write, or as received. They are power sums, or identifiers.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a>(Repr<'a>);

#[derive(Clone, Copy, Debug)]
enum Repr<'a> {
    Values(&'a [u32]),
    Bytes(&'a [[u8; 4]]),
}

impl<'a> Words<'a> {
    /// Words as received, at most 255.
    pub(super) fn received(bytes: &'a [[u8; 4]]) -> Self {
        Self(Repr::Bytes(bytes)).first(MAX_WORDS)
    }

    /// Words to write. Those after the 255th do not fit and are ignored.
    #[must_use]
    pub fn new(words: &'a [u32]) -> Self {
        Self(Repr::Values(words)).first(MAX_WORDS)
    }

    /// The number of words, 0 to 255.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            Repr::Values(words) => words.len(),
            Repr::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether there is no word.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `most` words, or all if there are no more.
    #[must_use]
    pub fn first(self, most: usize) -> Self {
        Self(match self.0 {
            Repr::Values(words) => Repr::Values(words.get(..most).unwrap_or(words)),
            Repr::Bytes(bytes) => Repr::Bytes(bytes.get(..most).unwrap_or(bytes)),
        })
    }

    /// Appends the words to `out`, in order.
    pub fn append_to(&self, out: &mut Vec<u32>) {
        match self.0 {
            Repr::Values(words) => out.extend_from_slice(words),
            Repr::Bytes(bytes) => out.extend(bytes.iter().map(|bytes| u32::from_be_bytes(*bytes))),
        }
    }

    /// The words, in order. Of power sums, the lowest power is first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + 'a {
        let (words, bytes): (&[u32], &[[u8; 4]]) = match self.0 {
            Repr::Values(words) => (words, &[]),
            Repr::Bytes(bytes) => (&[], bytes),
        };
        words.iter().copied().chain(bytes.iter().map(|bytes| u32::from_be_bytes(*bytes)))
    }
}

impl PartialEq for Words<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Words<'_> {}
