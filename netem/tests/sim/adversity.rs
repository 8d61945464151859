//! A thousand uploads in virtual time, or some of them. Each has its own mixture of faults. Each is
//! compared with the same sender without a Sidekick under the same faults.

use sidekick_netem::record::RunRecord;

use crate::support::adversity::{Draws, Groups, Mixture};
use crate::support::jobs::many;
use crate::support::seeds::{few_or_all, seeds};

const FEW_SEEDS: u64 = 120;
const ALL_SEEDS: u64 = 1000;
/// The modes, each with the controller below it. Early loss uses CUBIC of RFC 9438. quiche's own
/// CUBIC undoes most reactions to losses that it detects end to end, so a few percent of loss
/// hardly affect it.
const MODES: [(&str, &str); 3] =
    [("early-loss", "cubic-rfc9438"), ("pacubic", "cubic-rfc9438"), ("path-aware-bbr", "bbr2")];
const FAULTS: [(&str, u32); 4] =
    [("quack-loss", 31), ("quack-duplicate", 31), ("quack-reorder", 31), ("quack-corrupt", 11)];

fn mixture(seed: u64) -> Mixture {
    let mut draws = Draws::new(seed);
    let sender = draws.index(MODES.len());
    let loss_percent = draws.loss_percent();
    let mut events = draws.events(&FAULTS);
    let lie = draws.lie(&["too-much", "too-little", "garbage"]);
    let lies = lie.is_some();
    events.extend(lie);
    let mut settings = draws.settings(loss_percent, &events);
    settings.extend(draws.discovery());
    Mixture { sender, loss_percent, lies, settings }
}

fn upload(mixture: &Mixture, assisted: bool, seed: u64) -> Result<RunRecord, String> {
    let (mode, cc) = MODES[mixture.sender];
    let mode = if assisted { mode } else { "off" };
    let sender = [format!("sidekick.mode={mode}"), format!("flow.cc={cc}")];
    mixture.run("upload-paper", &sender, seed)
}

#[test]
fn a_thousand_uploads_arrive_and_lose_nothing_by_their_help() {
    let mut groups = Groups::default();
    let (mut early, mut alone) = (0, 0);
    let mut failures = Vec::new();
    let seeds = seeds(FEW_SEEDS, ALL_SEEDS);
    // Of a few seeds, chance decides the ratio of a smaller group, which then has no bound.
    let enough = few_or_all(10, 1);
    let runs = many((0..seeds).collect(), |&seed| {
        let mixture = mixture(seed);
        (upload(&mixture, true, seed), upload(&mixture, false, seed))
    });
    for (seed, (assisted, plain)) in (0..).zip(runs) {
        let mixture = mixture(seed);
        match (assisted, plain) {
            (Err(error), _) => failures.push(error),
            // Without help, the upload has not arrived, so there is no time to compare with.
            (Ok(_), Err(_)) => alone += 1,
            (Ok(assisted), Ok(plain)) => {
                early += assisted.packets.lost_early;
                // A lying proxy may cost two seconds.
                let grace = if mixture.lies { 2.0 } else { 0.0 };
                groups.add(&mixture, seed, (&assisted, &plain), grace);
            }
        }
    }
    let names = MODES.map(|(mode, _)| mode);
    let mut table = groups.table(&names);
    for ((sender, honest, band), group) in &groups.0 {
        // A band has few runs, so chance affects its ratio.
        if group.runs >= enough && group.ratio() < 0.9 {
            let ratio = group.ratio();
            failures.push(format!("{}, {honest}, {band} %: {ratio:.3}", names[*sender]));
        }
    }
    for (sender, name) in names.iter().enumerate() {
        for honest in ["honest", "lies"] {
            let all = groups.sum(|key| (key.0, key.1) == (sender, honest));
            let line = format!("{name}, {honest}, all: {:.3}", all.ratio());
            if all.runs >= enough && all.ratio() < 0.95 {
                failures.push(line.clone());
            }
            table += &(line + "\n");
        }
    }
    println!(
        "{table}{early} packets were declared lost early; {alone} uploads arrived only with help"
    );
    assert!(early > 10 * seeds, "{early} packets were declared lost early");
    assert!(failures.is_empty(), "{}\n{table}", failures.join("\n"));
}
