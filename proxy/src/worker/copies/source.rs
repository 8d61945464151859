//! When a worker asks for a capture for copies, asks again, uses it, and returns it.

use std::mem;
use std::time::{Duration, Instant};

/// How long the captures stay open after the last session that kept copies.
const LINGER: Duration = Duration::from_secs(30);
/// How long the worker waits for an answer before it asks again. The answer is lost if the worker's
/// command queue is full.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause after a failure. It doubles with each, up to 64 times as much.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_DOUBLINGS: u32 = 6;
const MAX_PAUSE: Duration = PAUSE.saturating_mul(1 << MAX_DOUBLINGS);

/// The capture for copies on an interface: `S` while it is spare, `T` while it is open.
#[derive(Debug)]
pub(in crate::worker) struct CopySource<S, T> {
    state: State<S, T>,
    /// Failures one after another.
    failures: u32,
    /// The kernel left a ring stuck, so the next capture has none.
    pub(super) is_stuck: bool,
}

#[derive(Debug)]
enum State<S, T> {
    /// The worker has no capture, and requests none.
    Closed,
    /// The daemon is opening one. The worker asks again at this time.
    Requested(Instant),
    Spare(S),
    /// It is open, since this time.
    Open(T, Instant),
    /// There can be none at present. The worker asks again at this time.
    Failed(Instant),
}

impl<S, T> Default for CopySource<S, T> {
    fn default() -> Self {
        Self { state: State::Closed, failures: 0, is_stuck: false }
    }
}

impl<S, T> CopySource<S, T> {
    /// The capture, if it is open.
    pub(in crate::worker) fn capture(&self) -> Option<&T> {
        match &self.state {
            State::Open(capture, _) => Some(capture),
            _ => None,
        }
    }

    /// The capture to read, if it is open.
    pub(super) fn capture_mut(&mut self) -> Option<&mut T> {
        match &mut self.state {
            State::Open(capture, _) => Some(capture),
            _ => None,
        }
    }

    /// Whether the daemon is opening one.
    pub(super) fn is_requested(&self) -> bool {
        matches!(self.state, State::Requested(_))
    }

    /// Whether the worker must ask the daemon for a capture now. It does so then.
    pub(super) fn request(&mut self, now: Instant) -> bool {
        let wanted = match self.state {
            State::Closed => true,
            State::Requested(again) | State::Failed(again) => again <= now,
            State::Spare(_) | State::Open(..) => false,
        };
        if wanted {
            self.state = State::Requested(now + PATIENCE);
        }
        wanted
    }

    /// Keeps a spare capture that the daemon has opened. Returns it if it is not needed: the daemon
    /// may answer twice when the worker has asked twice.
    pub(super) fn provide(&mut self, spare: S) -> Option<S> {
        if self.is_there() {
            return Some(spare);
        }
        self.state = State::Spare(spare);
        None
    }

    /// Notes that the daemon cannot open one.
    pub(super) fn refuse(&mut self, now: Instant) {
        if !self.is_there() {
            self.pause(now);
        }
    }

    /// Whether there is one, spare or open.
    fn is_there(&self) -> bool {
        matches!(self.state, State::Spare(_) | State::Open(..))
    }

    /// Takes the spare capture, if there is one. The caller uses or closes it.
    pub(in crate::worker) fn take_spare(&mut self) -> Option<S> {
        match mem::replace(&mut self.state, State::Closed) {
            State::Spare(spare) => Some(spare),
            other => {
                self.state = other;
                None
            }
        }
    }

    pub(super) fn open(&mut self, capture: T, now: Instant) {
        self.state = State::Open(capture, now);
    }

    /// Ends the use of the open capture, which has failed. Returns it.
    pub(super) fn fail(&mut self, now: Instant) -> Option<T> {
        if let State::Open(_, since) = self.state
            && now.saturating_duration_since(since) > MAX_PAUSE
        {
            self.failures = 0;
        }
        taken(self.pause(now))
    }

    fn pause(&mut self, now: Instant) -> State<S, T> {
        let again = now + PAUSE * (1 << self.failures.min(MAX_DOUBLINGS));
        self.failures = self.failures.saturating_add(1);
        mem::replace(&mut self.state, State::Failed(again))
    }

    /// Ends the use of the open capture, which is no longer needed. Returns it.
    pub(in crate::worker) fn close(&mut self) -> Option<T> {
        self.capture()?;
        self.failures = 0;
        taken(mem::replace(&mut self.state, State::Closed))
    }
}

fn taken<S, T>(state: State<S, T>) -> Option<T> {
    match state {
        State::Open(capture, _) => Some(capture),
        _ => None,
    }
}

/// Since when no session keeps copies.
#[derive(Debug, Default)]
pub(super) struct Idleness(Option<Instant>);

impl Idleness {
    /// A session keeps copies.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }

    /// No session keeps copies. Returns whether that has lasted long enough to close the captures.
    pub(super) fn is_long(&mut self, now: Instant) -> bool {
        now.saturating_duration_since(*self.0.get_or_insert(now)) >= LINGER
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::clock;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_capture_is_asked_for_once_and_again_without_an_answer() {
        let (mut source, mut now) = (CopySource::<_, u64>::default(), clock());
        assert!(source.request(now) && source.is_requested());
        assert!(!source.request(now + PATIENCE - SECOND), "the daemon is opening one");
        now += PATIENCE;
        assert!(source.request(now), "the answer is lost");
        assert_eq!(source.provide("first"), None);
        assert!(!source.request(now + 1000 * SECOND) && !source.is_requested());
        // Both requests are answered in the end. The second socket goes back.
        assert_eq!(source.provide("second"), Some("second"));
        source.refuse(now);
        assert_eq!((source.take_spare(), source.take_spare()), (Some("first"), None));
        source.open(1, now);
        assert_eq!(source.provide("third"), Some("third"));
        source.refuse(now);
        assert_eq!(source.capture(), Some(&1), "a late refusal changes nothing");
        assert_eq!((source.close(), source.close(), source.capture()), (Some(1), None, None));
        assert!(source.request(now), "for the next session");
    }

    #[test]
    fn the_pauses_between_failures_double() {
        let (mut source, mut now) = (CopySource::default(), clock());
        let mut pauses = Vec::new();
        for number in 0..9 {
            assert!(source.request(now));
            // The capture does not open, does not begin, or fails soon.
            if number % 3 == 0 {
                source.refuse(now);
            } else {
                assert_eq!(source.provide(number), None);
                assert_eq!(source.take_spare(), Some(number));
                let begins = number % 3 == 1;
                if begins {
                    source.open(number, now);
                }
                assert_eq!(source.fail(now), begins.then_some(number));
            }
            let begun = now;
            while !source.request(now) {
                now += SECOND / 2;
            }
            pauses.push((now - begun).as_secs());
            now += PATIENCE;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        // After a long use, a failure counts as the first.
        source.open(9, now);
        now += MAX_PAUSE + SECOND;
        assert_eq!(source.fail(now), Some(9));
        assert!(!source.request(now) && source.request(now + PAUSE));
    }

    #[test]
    fn captures_outlast_a_short_time_without_sessions() {
        let (mut idleness, now) = (Idleness::default(), clock());
        assert!(!idleness.is_long(now));
        assert!(!idleness.is_long(now + LINGER - SECOND));
        idleness.end();
        assert!(!idleness.is_long(now + LINGER), "a session kept copies in between");
        assert!(idleness.is_long(now + 2 * LINGER));
    }
}
