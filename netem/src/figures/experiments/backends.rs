//! Whether the backends agree.

use crate::figures::agreement::Agreement;
use crate::figures::model::{Experiment, Part};
use crate::record::RunRecord;

pub(super) fn experiment(others: &[RunRecord]) -> Experiment {
    let agreement = Agreement::of(others);
    let mut shows = vec![
        "The same runs in virtual time (sim), through real sockets and the lab's own links (user), \
         and through the kernel's queueing disciplines (tc). They agree if goodput is within 10 %, \
         and the 99th percentile of the de-jitter delay within 5 ms. The table marks runs that \
         cannot be trusted. On a slow machine, user loses additional packets. No seed repeats the \
         losses of tc.",
        "Under loss, PACUBIC's runs differ by a fifth. Compare medians of several runs. In sim, \
         senders with a controller like CUBIC send more short packets, and about 10 % more packets \
         in all.",
    ];
    if agreement.cases().next().is_none() {
        shows.push(
            "There are no records of other backends. Make some with `sidekick-lab run SCENARIO \
             --backend user --runs 3 --json >> records.jsonl`, and pass the file by `--compare \
             records.jsonl`.",
        );
    }
    Experiment {
        id: "backends",
        title: "Do the backends agree?",
        shows,
        parts: vec![Part::Agreement(agreement)],
    }
}
