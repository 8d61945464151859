//! The number of seeds.
//!
//! A test that every change runs has few. `SIDEKICK_SEEDS=all` runs as many as the bounds of the
//! tests were made for, and as many rows of the tables. `SIDEKICK_SEEDS=NUMBER` runs the seeds
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

/// The number of seeds of a test in which any number makes sense.
pub(crate) fn seeds(few: u64, all: u64) -> u64 {
    match asked() {
        Asked::Few => few,
        Asked::All => all,
        Asked::Number(number) => number,
    }
}
