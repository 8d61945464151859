//! Whether the backends agree.

use crate::figures::agreement::Agreement;
use crate::figures::model::{Experiment, Part};
use crate::record::RunRecord;

pub(super) fn experiment(others: &[RunRecord]) -> Experiment {
    let agreement = Agreement::of(others);
    let mut shows = vec![
        "The same runs in virtual time (sim), through real sockets and links of the lab's own (user), and through the \
         kernel's queueing disciplines (tc). They agree when goodput is within 10 % and the 99th percentile of the \
         de-jitter delay within 5 ms. What cannot be trusted is said: user loses packets of its own when the machine is \
         too slow, and tc draws losses that no seed repeats.",
        "PACUBIC's runs differ by a fifth under loss: compare medians of several. Senders of CUBIC's kind \
         send more short packets in sim, about 10 % more packets in all.",
    ];
    if agreement.cases().next().is_none() {
        shows.push(
            "No records of other backends were given. Make them with `sidekick-lab run SCENARIO --backend user --runs 3 \
             --json >> records.jsonl`, and give the file with `--compare records.jsonl`.",
        );
    }
    Experiment {
        id: "backends",
        title: "Do the backends agree?",
        shows,
        parts: vec![Part::Agreement(agreement)],
    }
}
