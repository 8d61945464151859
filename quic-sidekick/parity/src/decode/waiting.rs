//! Repair symbols whose list has not come yet.

use crate::MAX_SYMBOL_LEN;

/// Symbols that wait.
pub(super) const SYMBOLS: usize = 4;

/// The encoding window of a repair symbol, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) number: u16,
    pub(super) first: u32,
    pub(super) count: u32,
}

pub(super) struct Waiting {
    pub(super) window: Window,
    bytes: [u8; MAX_SYMBOL_LEN],
    len: usize,
}

impl Waiting {
    pub(super) fn symbol(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn set(&mut self, window: Window, symbol: &[u8]) {
        self.window = window;
        self.len = symbol.len().min(MAX_SYMBOL_LEN);
        self.bytes.iter_mut().zip(symbol).for_each(|(place, byte)| *place = *byte);
    }
}

/// First in, first out.
pub(super) struct Queue {
    /// The oldest first. The first `len` of them wait.
    symbols: Vec<Waiting>,
    len: usize,
}

impl Queue {
    pub(super) const BYTES: usize = SYMBOLS * size_of::<Waiting>();

    pub(super) fn new() -> Self {
        let window = Window { number: 0, first: 0, count: 0 };
        let empty = || Waiting { window, bytes: [0; MAX_SYMBOL_LEN], len: 0 };
        Self { symbols: (0..SYMBOLS).map(|_| empty()).collect(), len: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn windows(&self) -> impl Iterator<Item = Window> {
        self.symbols.iter().take(self.len).map(|waiting| waiting.window)
    }

    /// The window of one of those that wait.
    pub(super) fn window(&self, index: usize) -> Option<Window> {
        self.windows().nth(index)
    }

    /// Keeps a symbol. Returns whether the oldest was dropped for it.
    pub(super) fn push(&mut self, window: Window, symbol: &[u8]) -> bool {
        let full = self.len == SYMBOLS;
        if full {
            self.remove(0);
        }
        if let Some(place) = self.symbols.get_mut(self.len) {
            place.set(window, symbol);
            self.len += 1;
        }
        full
    }

    /// Removes one of those that wait. Its bytes remain until the next [`Queue::push`].
    pub(super) fn remove(&mut self, index: usize) -> Option<&Waiting> {
        self.symbols.get_mut(index..self.len)?.rotate_left(1);
        self.len -= 1;
        self.symbols.get(self.len)
    }
}
