//! Compares drawings with their data.

use super::*;
use crate::figures::data;
use crate::figures::job::Case;
use crate::figures::model::{Axis, Part};
use crate::figures::quantity::{Quantity, measures};
use crate::figures::sender::{BLUE, GREY};
use crate::record::RunRecord;

fn case(loss: u32) -> Case {
    Case::of("a").set("near.loss_percent", loss).seeds(3)
}

/// The goodput of a run is its seed times a hundred. The second case has failed.
fn results() -> Results {
    let outcome = |loss, seed: u64| match loss {
        2 => Err("no".to_owned()),
        _ => Ok(RunRecord { goodput_mbit_s: seed as f64 * 100.0, ..RunRecord::default() }),
    };
    let jobs = [1, 2, 3]
        .map(|loss| case(loss).jobs().map(move |job| (job.clone(), outcome(loss, job.seed()))));
    jobs.into_iter().flatten().collect()
}

fn count(svg: &str, tag: &str) -> usize {
    svg.matches(&format!("<{tag} ")).count()
}

#[test]
fn a_plot_has_a_mark_for_each_point_and_a_bar_for_each_range() {
    let points =
        [1, 2, 3].map(|loss| (f64::from(loss), Quantity::Of(case(loss), measures::GOODPUT)));
    let plot = Plot {
        id: "p".into(),
        title: "P".into(),
        x: Axis::linear("loss <%>", 0),
        y: Axis::linear("Mbit/s", 1),
        curves: vec![
            Curve::measured("ours", BLUE, points),
            Curve::published(
                "theirs",
                GREY,
                vec![(1.0, 50.0), (2.0, 40.0), (3.0, 30.0), (4.0, -1.0)],
            ),
        ],
    };
    let svg = super::plot(&plot, &results()).unwrap();
    // Two points are ours, since one case has failed. Three are published, since one has no place
    // on the axis.
    assert_eq!((count(&svg, "circle"), count(&svg, "rect")), (5, 0), "{svg}");
    assert_eq!(svg.matches(&BLUE.hex()).count(), 1 + 2 + 2, "a line, two ranges, two marks");
    assert!(svg.contains("loss &lt;%&gt;") && svg.contains("Mbit/s"));
}

#[test]
fn a_plot_of_nothing_is_empty_axes() {
    let plot = Plot {
        id: "p".into(),
        title: String::new(),
        x: Axis::logarithmic("x", 0),
        y: Axis::linear("y", 0),
        curves: vec![Curve::measured(
            "ours",
            BLUE,
            [(1.0, Quantity::Of(case(2), measures::GOODPUT))],
        )],
    };
    assert_eq!(count(&super::plot(&plot, &results()).unwrap(), "circle"), 0);
}

#[test]
fn a_heat_map_has_a_cell_for_each_ratio() {
    let ratio = |of, to| Quantity::Ratio { of: case(of), to: case(to), measure: measures::GOODPUT };
    let heat = HeatMap {
        id: "h".into(),
        title: String::new(),
        x: ("size", vec!["1 MB".into(), "2 MB".into()]),
        y: ("loss", vec!["0 %".into()]),
        kind: Cells::Ratios("a to b".into()),
        cells: vec![vec![ratio(1, 3), ratio(1, 2)]],
    };
    let svg = heat_map(&heat, &results()).unwrap();
    assert_eq!((count(&svg, "rect"), count(&svg, "circle")), (1, 0), "{svg}");
    assert!(svg.contains("1.00"), "{svg}");
}

#[test]
fn equal_is_white_and_eight_times_is_full_colour() {
    let ratios = Cells::Ratios("a to b".into());
    let colours = [1.0, 8.0, 0.125, 100.0].map(|ratio| cell_colour(&ratios, ratio));
    assert_eq!(colours, [EVEN, ABOVE, BELOW, ABOVE]);
    let texts = [0.123, 9.949, 17.3].map(|ratio| ratios.text(ratio));
    assert_eq!(texts, ["0.12", "9.95", "17"]);
}

#[test]
fn nothing_is_white_and_the_full_amount_is_full_colour() {
    let amounts = Cells::Amounts { name: "Mbit/s", full: 20.0 };
    let colours = [0.0, 10.0, 20.0, 30.0].map(|amount| cell_colour(&amounts, amount));
    assert_eq!(colours, [EVEN, EVEN.mixed(ABOVE, 0.5), ABOVE, ABOVE]);
    let texts = [0.041, 9.994, 9.996, 16.83].map(|amount| amounts.text(amount));
    assert_eq!(texts, ["0.04", "9.99", "10.0", "16.8"]);
}

#[test]
fn a_heat_map_of_amounts_shows_them_in_the_colours_of_amounts() {
    let goodput = |loss| Quantity::Of(case(loss), measures::GOODPUT);
    let kind = Cells::Amounts { name: "Mbit/s", full: 400.0 };
    let heat = HeatMap {
        id: "h".into(),
        title: String::new(),
        x: ("delay", vec!["2 ms".into(), "5 ms".into()]),
        y: ("loss", vec!["0 %".into()]),
        kind,
        cells: vec![vec![goodput(1), goodput(2)]],
    };
    let svg = heat_map(&heat, &results()).unwrap();
    // The second case has failed.
    assert_eq!((count(&svg, "rect"), svg.matches("200.0").count()), (1, 1), "{svg}");
    assert!(svg.contains(&EVEN.mixed(ABOVE, 0.5).hex()), "{svg}");
    let part = Part::Heat(heat);
    let row = ["2 ms", "0 %", "200", "100", "300", "3"].map(str::to_owned);
    let sheet = data::for_programs(&part, &results());
    assert_eq!(sheet.columns[2], "Mbit/s");
    assert_eq!(sheet.rows, [row]);
    let row = ["0 %", "200.0 (100.0 to 300.0)", "–"].map(str::to_owned);
    assert_eq!(data::for_reading(&part, &results()).rows, [row]);
}
