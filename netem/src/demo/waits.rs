//! The plot of a call's waits. The further to the right, the rarer the waits.

use plotters::prelude::*;

use crate::figures::draw::{Area, DrawError, Drawing, svg};
use crate::figures::palette::{BLUE, Colour, GRID, INK, VERMILION};

const SIZE: (u32, u32) = (960, 560);
const WORDS: u32 = 26;
/// The labels below the axis. Each belongs to one packet in so many.
const SHARES: [(f64, &str); 5] =
    [(1.0, "0 %"), (10.0, "90 %"), (100.0, "99 %"), (1000.0, "99.9 %"), (10_000.0, "99.99 %")];

/// The curve of one call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waits {
    name: &'static str,
    /// Each point has a number and a wait in milliseconds. One packet in that number waits so long,
    /// or longer.
    points: Vec<(f64, f64)>,
}

impl Waits {
    /// Reads a percentile distribution. It ignores other lines.
    pub(super) fn of(name: &'static str, hgrm: &str) -> Self {
        let point = |line: &str| {
            let columns: Vec<f64> =
                line.split_whitespace().map_while(|word| word.parse().ok()).collect();
            match columns[..] {
                [value, _, _, share] => Some((share, value)),
                // The longest wait belongs to one packet of all.
                [value, 1.0, count] => Some((count, value)),
                _ => None,
            }
        };
        let finite =
            |(share, wait): &(f64, f64)| share.is_finite() && wait.is_finite() && *share >= 1.0;
        Self { name, points: hgrm.lines().filter_map(point).filter(finite).collect() }
    }
}

/// The curves as an SVG.
pub(super) fn draw(curves: &[Waits]) -> Result<String, DrawError> {
    svg("the waits", SIZE, |area| drawing(area, curves))
}

fn drawing(area: &Area<'_>, curves: &[Waits]) -> Drawing {
    let longest =
        curves.iter().flat_map(|curve| &curve.points).map(|(_, wait)| *wait).fold(10.0, f64::max);
    let rarest = SHARES.last().map_or(1.0, |(share, _)| *share);
    area.fill(&WHITE)?;
    let ink = RGBColor::from(INK);
    let style = TextStyle::from(("sans-serif", WORDS)).color(&ink);
    let mut chart = ChartBuilder::on(area)
        .margin(18)
        .margin_right(60)
        .x_label_area_size(72)
        .y_label_area_size(84)
        .build_cartesian_2d((1.0..rarest).log_scale(), 0.0..longest * 1.1)?;
    let name = |share: &f64| {
        let named = SHARES.iter().find(|(known, _)| (share / known - 1.0).abs() < 0.01);
        named.map_or_else(String::new, |(_, name)| (*name).to_owned())
    };
    chart
        .configure_mesh()
        .bold_line_style(RGBColor::from(GRID).stroke_width(1))
        .light_line_style(TRANSPARENT)
        .axis_style(ink.stroke_width(2))
        .label_style(style.clone())
        .axis_desc_style(style.clone())
        .x_labels(SHARES.len())
        .x_label_formatter(&name)
        .y_label_formatter(&|wait| format!("{wait:.0}"))
        .x_desc("this share of the packets waited no longer than")
        .y_desc("milliseconds")
        .draw()?;
    let colours = [VERMILION, BLUE].into_iter().cycle();
    for (curve, Colour(red, green, blue)) in curves.iter().zip(colours) {
        let colour = RGBColor(red, green, blue);
        let points = curve.points.iter().copied().filter(|(share, _)| *share <= rarest);
        chart
            .draw_series([PathElement::new(points.collect::<Vec<_>>(), colour.stroke_width(4))])?
            .label(curve.name)
            .legend(move |(x, y)| {
                PathElement::new(vec![(x, y), (x + 28, y)], colour.stroke_width(4))
            });
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(style)
        .border_style(TRANSPARENT)
        .legend_area_size(40)
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_read_and_drawn() {
        let mut histogram = hdrhistogram::Histogram::new_with_bounds(1, 2_000_000, 3).unwrap();
        histogram.record_n(0, 947).unwrap();
        histogram.record_n(22_000, 53).unwrap();
        let mut hgrm = Vec::new();
        audio::hgrm::write(&histogram, &mut hgrm).unwrap();
        let waits = Waits::of("a call", &String::from_utf8(hgrm).unwrap());
        assert_eq!(waits.points.first(), Some(&(1.0, 0.0)));
        let (share, wait) = *waits.points.last().unwrap();
        assert!((share - 1000.0).abs() < 0.1 && (wait - 22.0).abs() < 0.1, "{waits:?}");
        assert!(
            waits.points.iter().all(|(share, wait)| (*wait > 0.0) == (*share > 1.0 / 0.053)),
            "{waits:?}"
        );
        let svg = draw(&[waits]).unwrap();
        for word in ["<polyline", "a call", "99.9 %", "milliseconds"] {
            assert!(svg.contains(word), "{word}");
        }
    }

    /// If no packet waits, the line lies on the axis. Its length follows from the number of
    /// packets.
    #[test]
    fn no_waits_are_a_line_too() {
        let mut histogram = hdrhistogram::Histogram::new_with_bounds(1, 2_000_000, 3).unwrap();
        histogram.record_n(0, 3000).unwrap();
        let mut hgrm = Vec::new();
        audio::hgrm::write(&histogram, &mut hgrm).unwrap();
        let waits = Waits::of("a call", &String::from_utf8(hgrm).unwrap());
        assert_eq!(
            (waits.points.first(), waits.points.last()),
            (Some(&(1.0, 0.0)), Some(&(3000.0, 0.0)))
        );
    }

    #[test]
    fn an_invalid_distribution_draws_no_curve() {
        let waits =
            Waits::of("none", "Value Percentile\n\n#[Mean = 1, StdDeviation = 2]\nnan 1 2 inf\n");
        assert_eq!(waits.points, []);
        assert!(draw(&[waits]).unwrap().contains("99 %"));
    }
}
