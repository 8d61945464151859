//! Downloads in virtual time. Each has its own mixture of faults. Each is compared with the same
//! download without help under the same faults.
//!
//! `SIDEKICK_SEEDS=1000 cargo test --release -p sidekick-netem --test sim downloads_arrive` runs a
//! thousand, as `SIDEKICK_SEEDS=all` does.

use sidekick_netem::record::RunRecord;

use crate::support::adversity::{Draws, Group, Groups, Mixture};
use crate::support::jobs::many;
use crate::support::seeds::seeds;

const FEW_SEEDS: u64 = 40;
const ALL_SEEDS: u64 = 1000;
const HEAVY_LOSS: u32 = 16;
/// A run whose ratio to its twin without help is lower is printed with its settings.
const FAR_BELOW: f64 = 0.6;
/// The server's controllers.
const CONTROLLERS: [&str; 4] = ["cubic", "cubic-rfc9438", "reno", "bbr2"];
const FAULTS: [(&str, u32); 3] = [("message-loss", 31), ("repeat-loss", 31), ("quack-loss", 31)];
const LIES: [&str; 6] =
    ["too-much", "too-little", "garbage", "wrong-copies", "no-copies", "unasked-copies"];

fn mixture(seed: u64) -> Mixture {
    let mut draws = Draws::new(seed);
    let sender = draws.index(CONTROLLERS.len());
    let loss_percent = draws.loss_percent();
    let mut events = draws.events(&FAULTS);
    // If a NAT forgets a client that has nothing to send, the download ends, with help and without.
    if draws.below(6) == 0 {
        events.push(format!("migration at {}", 100 + draws.below(1000)));
    }
    let lie = draws.lie(&LIES);
    let lies = lie.is_some();
    events.extend(lie);
    let mut settings = draws.settings(loss_percent, &events);
    settings.push(format!("flow.cc={}", CONTROLLERS[sender]));
    if draws.below(4) == 0 {
        settings.push(format!("flow.window_bytes={}", 16_384 << (2 * draws.below(3))));
    }
    settings.extend(draws.discovery());
    Mixture { sender, loss_percent, lies, settings }
}

fn download(mixture: &Mixture, mode: &str, seed: u64) -> Result<RunRecord, String> {
    mixture.run("download-paper", &[format!("sidekick.mode={mode}")], seed)
}

/// Whether this is an error by which quiche ends a migrated connection (docs/findings.md). The
/// server may give up the new path, and then break the connection at the client's next packet. Or
/// it may never repeat the third of three packets that the old path lost last, nor the client the
/// credit in its last one, for which the server then asks for ever.
fn quiche_ends(error: &str) -> bool {
    ["timed out", "code 0xa", "no progress"].iter().any(|end| error.contains(end))
}

/// Migrated connections, and those that quiche ended.
#[derive(Debug, Default)]
struct Migrations {
    runs: u32,
    helped_ended: u32,
    plain_ended: u32,
}

#[test]
fn downloads_arrive_and_lose_nothing_by_their_help() {
    let seeds = seeds(FEW_SEEDS, ALL_SEEDS);
    let runs = many((0..seeds).collect(), |&seed| {
        let mixture = mixture(seed);
        (download(&mixture, "receive", seed), download(&mixture, "off", seed))
    });
    let mut groups = Groups::default();
    let (mut repeats, mut alone, mut without, mut failures) = (0, 0, 0, Vec::new());
    let mut migrations = Migrations::default();
    for (seed, (helped, plain)) in (0..).zip(runs) {
        let mixture = mixture(seed);
        let Mixture { loss_percent, settings, .. } = &mixture;
        let migrates = settings.iter().any(|setting| setting.contains("migration"));
        if migrates {
            migrations.runs += 1;
            migrations.plain_ended += u32::from(plain.is_err());
        }
        let helped = match helped {
            Ok(helped) => helped,
            Err(error) if migrates && quiche_ends(&error) => {
                println!("{error}");
                migrations.helped_ended += 1;
                continue;
            }
            // Under such loss, some connections end by chance, with help and without.
            Err(error) if *loss_percent >= HEAVY_LOSS && error.contains("timed out") => {
                println!("{error}");
                without += u32::from(plain.is_ok());
                continue;
            }
            Err(error) => {
                failures.push(error);
                continue;
            }
        };
        let Ok(plain) = plain else {
            // Without help, the download has not arrived, so there is no time to compare with.
            alone += 1;
            continue;
        };
        let ratio = plain.time_s / helped.time_s;
        if ratio < FAR_BELOW {
            println!("seed {seed}, {settings:?}: {ratio:.2}");
        }
        repeats += helped.repeats.unwrap().repeats_received;
        groups.add(&mixture, seed, (&helped, &plain), 0.0);
    }
    let mut table = groups.table(&CONTROLLERS);
    for ((controller, honest, band), group) in &groups.0 {
        // A band has few runs, so chance affects its ratio. quiche's server repeats a lost
        // PATH_CHALLENGE only after its probe timeout. So one migration in a hundred takes 10 s,
        // with help and without. In a band, such a run would decide a ratio of sums.
        if group.runs >= 10 && group.typical() < 0.9 {
            let (name, typical) = (CONTROLLERS[*controller], group.typical());
            failures.push(format!("{name}, {honest}, {band} %: {typical:.3}"));
        }
    }
    for honest in ["honest", "lies"] {
        let all = groups.sum(|key| key.1 == honest);
        let Group { plain_timeouts, helped_timeouts, .. } = all;
        let line =
            format!("{honest}, all: {:.3}, {plain_timeouts}, {helped_timeouts}", all.ratio());
        // If acknowledgements were held for longer than the server waits, there would be more probe
        // timeouts.
        if all.ratio() < 0.95 || helped_timeouts > plain_timeouts {
            failures.push(line.clone());
        }
        table += &(line + "\n");
    }
    println!(
        "{table}{repeats} copies arrived; {alone} downloads arrived only with help, {without} only \
         without; {migrations:?}"
    );
    assert!(without <= alone.max(1), "{without} downloads arrived only without help");
    let Migrations { runs, helped_ended, plain_ended } = migrations;
    assert!(helped_ended <= plain_ended + 1 + runs / 100, "{migrations:?}");
    assert!(repeats > 10 * seeds, "{repeats} copies arrived");
    assert!(failures.is_empty(), "{}\n{table}", failures.join("\n"));
}
