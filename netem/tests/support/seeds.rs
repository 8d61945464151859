//! The number of seeds and of cases.
//!
//! A test that every change runs has few seeds, or few of its cases. `SIDEKICK_SEEDS=all` runs
//! all seeds and all cases, and more rows of the tables. `SIDEKICK_SEEDS=NUMBER` runs the seeds
//! below a number in those tests that compare mixtures of faults, and few in the others:
//!
//! ```text
//! SIDEKICK_SEEDS=all cargo test -p sidekick-netem --test sim
//! SIDEKICK_SEEDS=5000 cargo test --release -p sidekick-netem --test sim downloads_arrive
//! ```

/// What the environment asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Few,
    All,
    Number(u64),
}

fn asked() -> Asked {
    match std::env::var("SIDEKICK_SEEDS").as_deref() {
        Err(_) => Asked::Few,
        Ok("all") => Asked::All,
        Ok(number) => Asked::Number(
            number.parse().unwrap_or_else(|_| panic!("SIDEKICK_SEEDS is `all` or a number")),
        ),
    }
}

/// Whether all seeds and rows are to run.
pub(crate) fn is_all() -> bool {
    asked() == Asked::All
}

/// `all` if all seeds and rows are to run, and otherwise `few`.
pub(crate) fn few_or_all<T>(few: T, all: T) -> T {
    if is_all() { all } else { few }
}

/// All cases if all seeds and rows are to run, and otherwise one in `one_in` from the first.
pub(crate) fn some<T>(
    one_in: usize,
    cases: impl IntoIterator<Item = T>,
) -> impl Iterator<Item = T> {
    cases.into_iter().step_by(few_or_all(one_in, 1))
}

/// The number of seeds of a test in which any number makes sense.
pub(crate) fn seeds(few: u64, all: u64) -> u64 {
    match asked() {
        Asked::Few => few,
        Asked::All => all,
        Asked::Number(number) => number,
    }
}
