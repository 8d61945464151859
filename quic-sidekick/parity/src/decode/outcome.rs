//! The inputs and reports of the decoder.

use crate::{MAX_SYMBOL_LEN, MAX_WINDOW, MIN_DATAGRAM_LEN};

/// How a datagram of the flow came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// By itself, on the flow's path.
    Original,
    /// As a copy that was requested from the proxy.
    Copy,
}

/// Why a list changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// It has more than [`MAX_WINDOW`] identifiers.
    #[error("a list has at most {MAX_WINDOW} identifiers")]
    TooLong,
    /// An earlier list has another identifier at a position.
    #[error("the identifier at position {position} differs from that of an earlier list")]
    Contradiction {
        /// The first such position.
        position: u32,
    },
    /// All its positions are 128 or more behind the newest one, or 2³¹ and more ahead of it.
    #[error("all positions of the list are forgotten")]
    Old,
}

/// Why bytes are not a repair symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairError {
    /// It covers no position, or more than [`MAX_WINDOW`].
    #[error("a repair symbol covers 1 to {MAX_WINDOW} positions, not {count}")]
    Count {
        /// The number of positions.
        count: u8,
    },
    /// It is shorter than the source symbol of the shortest datagram, or longer than
    /// [`MAX_SYMBOL_LEN`].
    #[error(
        "a repair symbol has {} to {MAX_SYMBOL_LEN} bytes, not {len}",
        MIN_DATAGRAM_LEN + crate::LENGTH_LEN
    )]
    Length {
        /// Its length in bytes.
        len: usize,
    },
}

/// The datagrams between two that arrived: [`Decoder::missing`](crate::Decoder::missing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// A list is needed: one of the two, or a position between them, is not listed, not yet or no
    /// longer.
    Unlisted,
    /// The client has every datagram that passed the proxy between them. Any other was lost before
    /// the proxy, and no copy or parity can help.
    Nothing,
    /// The client lacks datagrams that passed the proxy.
    Missing {
        /// How many.
        count: u32,
        /// No future parity rebuilds any of them: the newest repair symbol begins behind them all,
        /// and no repair symbol that is stored contains one. One of them may still arrive, or an
        /// earlier parity late.
        hopeless: bool,
    },
}

/// The losses after the proxy, since the decoder began.
///
/// A position is judged when it is no longer among the 64 newest. By then its datagram arrived as
/// an original, or it is lost. A datagram that was rebuilt, or came as a copy only, is lost here. A
/// position that is listed only after it left the 64 newest is never judged.
///
/// The rate of losses is `lost / judged`, and the mean length of a burst `lost / runs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Positions in lists.
    pub listed: u64,
    /// Of these, positions whose original had not arrived when they were listed. It may be late.
    pub absent: u64,
    /// Positions that were judged.
    pub judged: u64,
    /// Positions that were judged to be lost.
    pub lost: u64,
    /// Runs of lost positions that follow one another immediately.
    pub runs: u64,
    /// Repair symbols received.
    pub symbols: u64,
}

/// The outcome of the repair symbols, since the decoder began.
///
/// Those received and neither used nor useless wait for a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Repair symbols received. Those that [`RepairError`] names are not among them.
    pub repairs: u64,
    /// Repair symbols that became an equation.
    pub used: u64,
    /// Repair symbols that were dropped: they contain no missing datagram, follow from others or
    /// contradict them, their list came too late, or they contain a datagram that is no longer
    /// remembered.
    pub useless: u64,
    /// Datagrams rebuilt.
    pub rebuilt: u64,
    /// How often equations contradicted one another, or rebuilt something other than the listed
    /// datagram. Each time the decoder dropped all of them.
    pub false_parity: u64,
    /// Row operations: multiplications with addition of up to [`MAX_SYMBOL_LEN`] bytes.
    pub operations: u64,
}
