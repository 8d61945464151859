//! Tests of the page's text. `tests/programs/figures_page.rs` tests its look in a browser.

use super::*;
use crate::figures::model::{Axis, Curve, Entry, Table};
use crate::figures::quantity::{Quantity, measures};
use crate::figures::sender::BLUE;
use crate::record::RunRecord;

fn plan() -> Plan {
    let case = |name: &str| Case::of(name).set("near.loss_percent", "<b>&").seeds(2);
    let quantity = |name| Quantity::Of(case(name), measures::GOODPUT);
    let plot = Plot {
        id: "e-plot".into(),
        title: "Goodput & <loss>".into(),
        x: Axis::linear("loss", 0),
        y: Axis::linear("Mbit/s", 1),
        curves: vec![
            Curve::measured("<script>", BLUE, [(1.0, quantity("good")), (2.0, quantity("bad"))]),
            Curve::published("theirs", BLUE, vec![(1.0, 2.0)]),
        ],
    };
    let row = vec![Entry::text("<i>"), Entry::Figure(quantity("good"), 1), Entry::text("\"&\"")];
    let columns = ["name", "Mbit/s", "published"].map(str::to_owned).into();
    let table = Table { id: "e-table".into(), title: "T".into(), columns, rows: vec![row] };
    let shows = vec!["It shows 1 < 2."];
    let parts = vec![Part::Plot(plot), Part::Table(table)];
    Plan::of(vec![Experiment { id: "e", title: "An <experiment>", shows, parts }])
}

fn rendered() -> String {
    let plan = plan();
    let outcome = |job: &Job| match job.identity().starts_with("bad") && job.seed() == 2 {
        true => Err("no progress for a minute <seed 2>".to_owned()),
        false => Ok(RunRecord { goodput_mbit_s: job.seed() as f64, ..RunRecord::default() }),
    };
    let results = plan.jobs().iter().map(|job| (job.clone(), outcome(job))).collect();
    let about = About {
        command: "sidekick-lab figures".into(),
        versions: vec![("quiche".into(), "0.30.0".into())],
    };
    page(&plan, &results, &about).unwrap()
}

#[test]
fn text_from_outside_is_escaped() {
    let page = rendered();
    for bad in ["<script", "<b>", "<i>", "An <experiment>", "<loss>", "<seed 2>"] {
        assert!(!page.contains(bad), "{bad} in {page}");
    }
    assert!(page.contains("An &lt;experiment&gt;") && page.contains("Goodput &amp; &lt;loss&gt;"));
}

#[test]
fn a_failed_run_is_listed_with_its_command_line() {
    let page = rendered();
    assert!(page.contains("1 runs failed"), "{page}");
    let line = "sidekick-lab run bad --backend sim --set near.loss_percent=&lt;b&gt;&amp; --seed 2\n    no progress";
    assert_eq!(page.matches(line).count(), 2, "at the top, and with the figure: {page}");
}

#[test]
fn a_figure_has_its_data_its_table_and_its_command_lines() {
    let page = rendered();
    assert!(
        page.contains(
            r#"<figure id="e-plot" data-kind="plot" data-points="2" data-csv="e-plot.csv">"#
        ),
        "{page}"
    );
    assert!(page.contains(
        r#"<figure id="e-table" data-kind="table" data-points="1" data-csv="e-table.csv">"#
    ));
    assert!(
        page.contains("<td>1.5 (1.0 to 2.0)</td>"),
        "the median of both seeds with its range: {page}"
    );
    assert!(page.contains(
        "sidekick-lab run good --backend sim --set near.loss_percent=&lt;b&gt;&amp; --seed 1 --runs 2"
    ));
    assert!(page.contains("quiche 0.30.0") && page.contains("sidekick-lab figures"));
}

#[test]
fn the_colours_of_a_heat_map_are_explained() {
    let text = |kind: &Cells| colours(kind).into_string();
    assert!(text(&Cells::Ratios("<ours>".into())).starts_with("Blue, above 1: &lt;ours&gt; is"));
    assert_eq!(
        text(&Cells::Amounts { name: "goodput, Mbit/s", full: 20.0 }),
        "Median goodput, Mbit/s: a stronger blue is more. The full colour is at 20."
    );
}
