//! The memory that sessions use in an observer.

use crate::allocator::held;
use sidekick_protocol::{Flow, Observed, Observer, ObserverConfig, Payload, Terms};
use std::time::Instant;

const SESSIONS: usize = 10_000;

fn flow(session: usize) -> Flow {
    let [.., high, low] = session.to_be_bytes();
    Flow { source: ([10, 1, high, low], 4000).into(), destination: ([198, 51, 100, 7], 443).into() }
}

fn packet(number: usize) -> [u8; 40] {
    let mut payload = [0x40; 40];
    let identifier = u32::try_from(number).unwrap().wrapping_mul(0x9e37_79b1);
    payload[21..25].copy_from_slice(&identifier.to_be_bytes());
    payload
}

/// The operators' notes, whose lines end anywhere in a sentence.
fn notes() -> String {
    let notes = include_str!("../../../../docs/operate-reference.md");
    notes.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Ten thousand sessions with the default number of kept sums. Each uses as much as the first, and
/// as much as the notes say.
#[test]
#[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
fn sessions_need_the_memory_that_the_notes_state() {
    let now = Instant::now();
    let config = ObserverConfig { max_sessions: SESSIONS, ..ObserverConfig::default() };
    let (mut observer, tables) = held(|| Observer::new(config, [3; 32]).unwrap());
    let mut each = Vec::with_capacity(SESSIONS);
    for session in 0..SESSIONS {
        let (outcome, bytes) = held(|| observer.adopt(flow(session), Terms::default(), now));
        assert_eq!(outcome, Ok(()));
        each.push(bytes);
    }
    assert!(
        each.iter().all(|bytes| *bytes == each[0]),
        "{:?} to {:?}",
        each.iter().min(),
        each.iter().max()
    );
    let ((), counting) = held(|| {
        for number in 0..3 * SESSIONS {
            let flow = flow(number % SESSIONS);
            let seen = observer.observe(&flow, 0, Payload::whole(&packet(number)), now);
            assert_eq!(seen, Observed::Counted);
        }
    });
    assert_eq!((counting, observer.sessions()), (0, SESSIONS));
    let all = tables + each.iter().sum::<isize>();
    println!("tables {tables} bytes, a session {} more, together {all}", each[0]);
    let kib = |bytes: isize| bytes as f64 / SESSIONS as f64 / 1024.0;
    let figures = format!(
        "needs {:.1} KiB, {:.1} KiB of these from the start. 10,000 sessions need {:.0} MiB.",
        kib(all),
        kib(tables),
        all as f64 / f64::from(1 << 20),
    );
    assert!(notes().contains(&figures), "docs/operate-reference.md lacks: {figures}");
}
