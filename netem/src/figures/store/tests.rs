//! Shards that are written, damaged, and merged.

use super::*;
use crate::figures::job::Case;
use crate::figures::plan::tests::plan as plan_of;

fn plan(seeds: u64) -> Plan {
    plan_of(&[Case::of("a").seeds(seeds)])
}

fn outcome(seed: u64) -> Outcome {
    if seed == 4 {
        Err("no progress".into())
    } else {
        Ok(RunRecord { seed, time_s: 0.1, ..RunRecord::default() })
    }
}

fn write_shard(plan: &Plan, text: &str, directory: &Path) -> PathBuf {
    let shard: Shard = text.parse().unwrap();
    let outcomes: Vec<_> = plan.shard(shard).map(|(_, job)| outcome(job.seed())).collect();
    write(plan, shard, &outcomes, directory).unwrap()
}

#[test]
fn merged_shards_have_the_outcomes_of_all_runs() {
    let (plan, directory) = (plan(10), tempfile::tempdir().unwrap());
    let paths: Vec<_> =
        ["1/3", "2/3", "3/3"].map(|text| write_shard(&plan, text, directory.path())).into();
    let expected: Results =
        plan.jobs().iter().map(|job| (job.clone(), outcome(job.seed()))).collect();
    assert_eq!(merge(&plan, &[directory.path().to_owned()]).unwrap(), expected);
    assert_eq!(merge(&plan, &paths).unwrap(), expected);
    // The directory has only the three files.
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
}

#[test]
fn more_shards_than_runs_can_be_merged() {
    let (plan, directory) = (plan(2), tempfile::tempdir().unwrap());
    for text in ["1/4", "2/4", "3/4", "4/4"] {
        write_shard(&plan, text, directory.path());
    }
    assert_eq!(merge(&plan, &[directory.path().to_owned()]).unwrap().len(), 2);
}

fn refused(plan: &Plan, directory: &Path) -> String {
    merge(plan, &[directory.to_owned()]).unwrap_err().to_string()
}

#[test]
fn missing_shards_are_named() {
    let (plan, directory) = (plan(10), tempfile::tempdir().unwrap());
    assert!(refused(&plan, directory.path()).starts_with("there is no shard file in "));
    let whole = write_shard(&plan, "2/4", directory.path());
    assert!(
        refused(&plan, directory.path())
            .starts_with("these shards are missing or incomplete: 1/4, 3/4, 4/4;")
    );
    for text in ["1/4", "3/4", "4/4"] {
        write_shard(&plan, text, directory.path());
    }
    let text = fs::read_to_string(&whole).unwrap();
    let cut: Vec<_> = text.lines().take(2).collect();
    fs::write(&whole, cut.join("\n")).unwrap();
    assert!(
        refused(&plan, directory.path())
            .starts_with("these shards are missing or incomplete: 2/4;")
    );
}

#[test]
fn shards_of_another_list_or_cut_are_refused() {
    let (plan, other) = (plan(10), plan(9));
    let directory = tempfile::tempdir().unwrap();
    write_shard(&other, "1/2", directory.path());
    write_shard(&plan, "2/2", directory.path());
    let sentence = refused(&plan, directory.path());
    assert!(sentence.contains("shard-1-of-2.jsonl has runs of another list (9 of"), "{sentence}");
    write_shard(&plan, "1/2", directory.path());
    write_shard(&plan, "1/3", directory.path());
    let sentence = refused(&plan, directory.path());
    assert!(sentence.contains("shard-1-of-3.jsonl is shard 1/3, but "), "{sentence}");
}

#[test]
fn an_invalid_shard_file_is_refused_with_its_line() {
    let (plan, directory) = (plan(3), tempfile::tempdir().unwrap());
    let path = write_shard(&plan, "1/1", directory.path());
    let good = fs::read_to_string(&path).unwrap();
    let (header, _) = good.split_once('\n').unwrap();
    for (text, line) in [
        (String::new(), 1),
        ("{}\n".to_owned(), 1),
        (good.replacen("1/1", "7/1", 1), 1),
        (format!("{header}\n{{\"index\":0,\"run\":\"\"}}\n"), 2),
        (format!("{good}nonsense\n"), 5),
    ] {
        fs::write(&path, &text).unwrap();
        let sentence = refused(&plan, directory.path());
        assert!(sentence.contains(&format!("shard-1-of-1.jsonl, line {line}: ")), "{sentence}");
    }
}
