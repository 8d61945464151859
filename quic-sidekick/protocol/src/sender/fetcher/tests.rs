//! Which ranges the fetcher requests, and when it repeats them.
#![allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]

use super::*;
use crate::wire::SessionNumber;

const RETRY: Duration = Duration::from_millis(10);

fn range(after: u32, before: u32) -> Range {
    Range::new(Some(after), Some(before))
}

fn asked(fetcher: &mut Fetcher, now: Instant) -> Vec<Range> {
    let mut all = Vec::new();
    while let Some(asked) = fetcher.poll_request(RETRY, now) {
        all.extend_from_slice(asked.ranges());
    }
    all
}

/// A copy whose identifier is `identifier`, in answer to the latest request.
fn repeat(fetcher: &mut Fetcher, place: (u8, u8, u8), identifier: u32, now: Instant) -> bool {
    let (range, index, total) = place;
    let number = fetcher.number;
    let datagram = identifier.to_be_bytes();
    let session = SessionNumber(0);
    let part = Part::Whole;
    let copy = Repeat { session, number, range, index, total, part, datagram: &datagram };
    fetcher.on_repeat(&copy, Some(identifier), MAX_KEPT_LEN, RETRY, now)
}

#[test]
fn a_range_is_requested_until_its_copies_arrive() {
    let (mut fetcher, now) = (Fetcher::default(), Instant::now());
    fetcher.want(7, range(10, 13), now, now + 4 * RETRY);
    assert_eq!(asked(&mut fetcher, now), [range(10, 13)]);
    assert_eq!(asked(&mut fetcher, now), [], "the fetcher waits for the copies");
    let later = now + RETRY;
    assert_eq!(fetcher.poll_timeout(), Some(later));
    assert_eq!(asked(&mut fetcher, later), [range(10, 13)], "the request or the copies were lost");
    assert!(repeat(&mut fetcher, (0, 0, 2), 11, later));
    assert!(fetcher.unfilled.is_empty());
    assert_eq!(asked(&mut fetcher, later + RETRY), [range(11, 13)], "only what is missing");
    assert!(repeat(&mut fetcher, (0, 0, 1), 12, later));
    assert_eq!((fetcher.poll_timeout(), &fetcher.unfilled[..]), (None, &[7][..]));
}

#[test]
fn the_last_requests_in_time_go_twice() {
    let (mut fetcher, now) = (Fetcher::default(), Instant::now());
    fetcher.want(7, range(10, 13), now, now + 3 * RETRY);
    let mut twice = |at: Instant| fetcher.poll_request(RETRY, at).unwrap().again().is_some();
    assert_eq!([now, now + RETRY].map(&mut twice), [false, false]);
    assert!(twice(now + 2 * RETRY));
    // The receiver gives up the rest of the gap as soon.
    assert!(repeat(&mut fetcher, (0, 1, 2), 12, now + 2 * RETRY));
    let rest = fetcher.poll_request(RETRY, now + 2 * RETRY).expect("a copy was skipped");
    assert_eq!((rest.ranges()[0], rest.again().is_some()), (range(10, 12), true));
}

/// The copies of both requests have the same places.
#[test]
fn only_what_the_receiver_gives_up_soon_is_requested_twice() {
    let (mut fetcher, now) = (Fetcher::default(), Instant::now());
    let later = now + 2 * RETRY;
    for gap in 0..20 {
        // The receiver gives up every fifth gap soon.
        let until = later + if gap % 5 == 4 { RETRY } else { 2 * RETRY };
        let after = u32::try_from(gap).unwrap() * 10;
        fetcher.want(gap, range(after, after + 3), later, until);
    }
    let first = fetcher.poll_request(RETRY, later).unwrap();
    let again = first.again().unwrap();
    let late = [4, 9, 14, 19].map(|gap| range(gap * 10, gap * 10 + 3));
    assert_eq!((again.number, again.ranges()), (first.number, &late[..]));
    assert_eq!((first.ranges().len(), &first.ranges()[..4]), (MAX_RANGES, &late[..]));
    assert!(repeat(&mut fetcher, (1, 1, 2), 92, later));
    let rest = fetcher.poll_request(RETRY, later).unwrap();
    assert_eq!(rest.ranges()[0], range(90, 92), "the skipped copy of the second range");
    assert_eq!(rest.ranges().len(), 1 + 20 - MAX_RANGES);
    assert_eq!(fetcher.poll_request(RETRY, later).map(|asked| asked.number), None);
}

#[test]
fn a_copy_that_is_skipped_is_requested_at_once() {
    let (mut fetcher, now) = (Fetcher::default(), Instant::now());
    fetcher.want(7, range(10, 20), now, now + 4 * RETRY);
    let _ = asked(&mut fetcher, now);
    assert!(repeat(&mut fetcher, (0, 0, 5), 11, now));
    assert!(repeat(&mut fetcher, (0, 3, 5), 14, now));
    assert_eq!(asked(&mut fetcher, now), [range(11, 14)]);
    // The rest of the first request arrives under its own number.
    fetcher.number -= 1;
    assert!(repeat(&mut fetcher, (0, 4, 5), 15, now));
    assert!(repeat(&mut fetcher, (0, 2, 5), 13, now), "late, but accepted");
    fetcher.number += 1;
    assert!(fetcher.unfilled.is_empty(), "one range is left");
    assert!(repeat(&mut fetcher, (0, 0, 2), 12, now));
    assert!(repeat(&mut fetcher, (0, 1, 2), 13, now));
    assert_eq!(fetcher.unfilled, [7]);
}

/// Newer copies are requested, too, while one among others is missing.
#[test]
fn a_copy_that_is_lost_among_the_newest_is_known() {
    let (mut fetcher, now) = (Fetcher::default(), Instant::now());
    let newer = |after| Range::new(Some(after), None);
    fetcher.want_newer(Some(10), now);
    fetcher.want_newer(Some(10), now);
    assert_eq!(asked(&mut fetcher, now), [newer(10)], "once");
    assert!(repeat(&mut fetcher, (0, 0, 3), 11, now) && !fetcher.has_holes());
    assert!(repeat(&mut fetcher, (0, 2, 3), 13, now) && fetcher.has_holes());
    assert_eq!(fetcher.fills_before, None);
    fetcher.want_newer(Some(13), now);
    assert_eq!(asked(&mut fetcher, now), [range(11, 13), newer(13)]);
    assert!(repeat(&mut fetcher, (0, 0, 1), 12, now) && !fetcher.has_holes());
    assert_eq!(fetcher.fills_before, Some(13));
    assert!(repeat(&mut fetcher, (1, 0, 1), 14, now));
    assert_eq!((fetcher.fills_before, fetcher.poll_timeout()), (None, None));
}

#[test]
fn nothing_in_between_ends_a_range() {
    let (mut fetcher, now) = (Fetcher::default(), Instant::now());
    for gap in 0..20 {
        let after = u32::try_from(gap).unwrap() * 10;
        fetcher.want(gap, range(after, after + 2), now, now + 4 * RETRY);
    }
    assert_eq!(asked(&mut fetcher, now).len(), 20, "in two requests");
    fetcher.on_nothing(1, 0b101);
    assert_eq!(fetcher.unfilled, [0, 2]);
    fetcher.on_nothing(9, 0xffff);
    assert_eq!(fetcher.unfilled.len(), 2, "no such request");
    fetcher.on_nothing(2, 0xffff);
    assert_eq!(fetcher.unfilled.len(), 6);
    fetcher.close(1);
    fetcher.on_nothing(1, 0xffff);
    assert_eq!(fetcher.unfilled.len(), 19, "all but the closed one");
    assert_eq!(fetcher.poll_timeout(), None);
}

#[test]
fn a_proxy_that_does_not_answer_is_given_up() {
    let (mut fetcher, mut now) = (Fetcher::default(), Instant::now());
    fetcher.want(7, range(1, 3), now, now + 4 * RETRY);
    let mut requests = 0;
    while let Some(at) = fetcher.poll_timeout() {
        now = at;
        requests += asked(&mut fetcher, now).len();
    }
    assert_eq!((requests, &fetcher.unfilled[..]), (MAX_TRIES as usize, &[7][..]));
}

#[test]
fn more_copies_than_a_proxy_sends_at_once_are_requested_in_turn() {
    let (mut fetcher, now) = (Fetcher::default(), Instant::now());
    fetcher.want_tail(Some(5), now);
    fetcher.want_tail(Some(5), now);
    assert_eq!(asked(&mut fetcher, now), [Range::new(Some(5), None)], "once");
    for index in 0..MOST {
        assert!(repeat(&mut fetcher, (0, index, MOST), 6 + u32::from(index), now));
    }
    let last = 5 + u32::from(MOST);
    assert_eq!(asked(&mut fetcher, now), [Range::new(Some(last), None)]);
    assert!(fetcher.unfilled.is_empty(), "a tail is no gap");
}

#[test]
fn lost_copies_are_counted_as_others_show_them() {
    let (mut fetcher, now) = (Fetcher::default(), Instant::now());
    fetcher.want(7, range(10, 30), now, now + 4 * RETRY);
    asked(&mut fetcher, now);
    for index in [1, 3] {
        assert!(repeat(&mut fetcher, (0, index, 8), 11 + u32::from(index), now));
    }
    assert_eq!(fetcher.copies, [(1, 1), (1, 1)]);
    asked(&mut fetcher, now + RETRY);
    assert_eq!(fetcher.copies.last(), Some(&(4, 0)), "those after the latest, too");
    asked(&mut fetcher, now + 2 * RETRY);
    assert_eq!(fetcher.copies.len(), 3, "once");
}

#[test]
fn copies_of_requests_that_were_never_sent_are_refused() {
    let (mut fetcher, now) = (Fetcher::default(), Instant::now());
    let copy = |number| Repeat {
        session: SessionNumber(0),
        number,
        range: 0,
        index: 0,
        total: 1,
        part: Part::Whole,
        datagram: &[0; 4],
    };
    for number in [1, u16::MAX] {
        assert!(
            !fetcher.on_repeat(&copy(number), None, MAX_KEPT_LEN, RETRY, now),
            "no request was sent"
        );
    }
    fetcher.want(7, range(10, 13), now, now + 4 * RETRY);
    let _ = asked(&mut fetcher, now);
    assert!(fetcher.on_repeat(&copy(1), None, MAX_KEPT_LEN, RETRY, now));
    for number in [2, u16::MAX] {
        assert!(
            !fetcher.on_repeat(&copy(number), None, MAX_KEPT_LEN, RETRY, now),
            "one request was sent"
        );
    }
    (fetcher.number, fetcher.recent) = (6000, RECENT);
    assert!(
        fetcher.on_repeat(&copy(5000), None, MAX_KEPT_LEN, RETRY, now),
        "recent, although no range waits for it"
    );
    assert!(!fetcher.on_repeat(&copy(6001), None, MAX_KEPT_LEN, RETRY, now));
    assert!(!fetcher.on_repeat(&copy(6000 - RECENT), None, MAX_KEPT_LEN, RETRY, now));
}

#[test]
fn an_answer_of_more_than_64_copies_is_refused() {
    let (mut fetcher, now) = (Fetcher::default(), Instant::now());
    fetcher.want(7, range(10, 200), now, now + 4 * RETRY);
    asked(&mut fetcher, now);
    assert!(!repeat(&mut fetcher, (0, 0, 65), 11, now));
    assert!(fetcher.fates.is_empty() && fetcher.copies.is_empty(), "it is no evidence");
    assert!(repeat(&mut fetcher, (0, 0, 64), 11, now));
}

#[test]
fn memory_is_bounded() {
    let (mut fetcher, now) = (Fetcher::default(), Instant::now());
    for gap in 0..10_000 {
        fetcher.want(gap, range(1, 3), now, now + 4 * RETRY);
    }
    assert_eq!(fetcher.wanted.len(), MAX_WANTED);
    assert_eq!(fetcher.unfilled.len(), 10_000 - MAX_WANTED);
}

/// A part of a copy in answer to the latest request.
fn part(fetcher: &mut Fetcher, part: Part, datagram: &[u8]) -> Result<Option<Vec<u8>>, NotAsked> {
    let (session, number, range, index, total) = (SessionNumber(0), fetcher.number, 0, 0, 1);
    fetcher.join(&Repeat { session, number, range, index, total, part, datagram })
}

#[test]
fn parts_join_in_any_order() {
    let (mut fetcher, now) = (Fetcher::default(), Instant::now());
    for parts in [[Part::First, Part::Second], [Part::Second, Part::First]] {
        fetcher.want(7, range(10, 13), now, now + 4 * RETRY);
        asked(&mut fetcher, now);
        let mut joined = None;
        for part_of in parts {
            let bytes: &[u8] = if part_of == Part::First { b"four" } else { b"fives" };
            assert_eq!(part(&mut fetcher, part_of, bytes).map(|all| joined = all), Ok(()));
            let again = part(&mut fetcher, part_of, bytes).unwrap();
            assert!(again.is_none() || joined.is_some(), "the same part again is no other");
            fetcher.parts.retain(|_| joined.is_none());
        }
        assert_eq!(joined.as_deref(), Some(&b"fourfives"[..]));
        fetcher.clear();
    }
}

#[test]
fn parts_that_nobody_asked_for_are_refused() {
    let (mut fetcher, now) = (Fetcher::default(), Instant::now());
    assert_eq!(part(&mut fetcher, Part::First, b"four"), Err(NotAsked), "no request was sent");
    for second in [&b"too long"[..], b"fo"] {
        fetcher.want(7, range(10, 13), now, now + 4 * RETRY);
        asked(&mut fetcher, now);
        assert_eq!(part(&mut fetcher, Part::First, b"four"), Ok(None));
        assert_eq!(part(&mut fetcher, Part::Second, second), Err(NotAsked), "no halves");
    }
    fetcher.want(7, range(10, 13), now, now + 4 * RETRY);
    for index in 0..=u8::MAX {
        asked(&mut fetcher, now + RETRY * u32::from(index));
        let _ = part(&mut fetcher, Part::First, &[index; 1472]);
        assert!(fetcher.parts.len() <= MAX_PARTS);
    }
}

#[test]
fn a_question_asks_twice_for_whole_copies() {
    let (mut fetcher, mut now) = (Fetcher::default(), Instant::now());
    fetcher.ask_about(7, range(10, 13), now);
    for _ in 0..TRIES_TO_LEARN {
        assert_eq!(asked(&mut fetcher, now), [range(10, 13)]);
        now += RETRY;
    }
    assert_eq!((asked(&mut fetcher, now), &fetcher.fates[..]), (vec![], &[(7, Fate::Unknown)][..]));
}
