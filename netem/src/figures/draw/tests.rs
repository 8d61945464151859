//! Drawings against the data that they are made from.

use super::*;
use crate::figures::job::Case;
use crate::figures::model::Axis;
use crate::figures::palette::{BLUE, GREY};
use crate::figures::quantity::{Quantity, measures};
use crate::record::RunRecord;

fn case(loss: u32) -> Case {
    Case::of("a").set("near.loss_percent", loss).seeds(3)
}

/// Goodput is the seed times a hundred, and the second case has failed.
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
    // Two of ours, since one case has failed; three of theirs, since one has no place on the axis.
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
        ratio: "a to b".into(),
        cells: vec![vec![ratio(1, 3), ratio(1, 2)]],
    };
    let svg = heat_map(&heat, &results()).unwrap();
    assert_eq!((count(&svg, "rect"), count(&svg, "circle")), (1, 0), "{svg}");
    assert!(svg.contains("1.00"), "{svg}");
}

#[test]
fn equal_is_white_and_eight_times_is_full_colour() {
    assert_eq!((heat_colour(1.0), heat_colour(8.0), heat_colour(0.125)), (EVEN, ABOVE, BELOW));
    assert_eq!(heat_colour(100.0), ABOVE);
    assert_eq!(
        (ratio(0.123), ratio(9.949), ratio(17.3)),
        ("0.12".into(), "9.95".into(), "17".into())
    );
}
