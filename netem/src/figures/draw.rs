//! Plots and heat maps as SVG.
//!
//! Every point is a `circle`, and every cell of a heat map is a `rect`; no other shape has these
//! names, so tests can count them. Sizes are in units of the drawing, which the page scales to its
//! width.

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::model::{Cells, Curve, HeatMap, Plot};
use super::quantity::{Results, Summary};
use super::sender::{ABOVE, BELOW, CELL_INK, Colour, EVEN, GRID, INK};

mod scale;

use scale::Ruler;

const PLOT: (u32, u32) = (960, 600);
/// Width of a heat map, and height of one of its rows.
const HEAT: (u32, u32) = (960, 76);
/// Size of the text, before plotters divides it by 1.24.
const WORDS: u32 = 31;
const BELOW_X: u32 = 84;
const LEFT_OF_Y: u32 = 112;
const MARGIN: u32 = 18;
/// Half of the last name along an axis lies beyond the end of the axis.
const RIGHT: u32 = 44;
/// The largest number of points with marks and ranges. More points become a thin line.
const MANY: usize = 60;
/// The ratio whose cell has the full colour, as a power of two.
const FULL_COLOUR: f64 = 3.0;

/// A drawing failed because the lab has a fault.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw {id}: {message}")]
pub struct DrawError {
    id: String,
    message: String,
}

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Ruler, Ruler>>;

impl From<Colour> for RGBColor {
    fn from(Colour(red, green, blue): Colour) -> Self {
        Self(red, green, blue)
    }
}

/// A plot as an SVG element of a page, which has the legend.
pub(super) fn plot(plot: &Plot, results: &Results) -> Result<String, DrawError> {
    draw_plot(plot, results, false)
}

/// A plot as an SVG file: on white, with a legend.
pub(crate) fn standalone(plot: &Plot, results: &Results) -> Result<String, DrawError> {
    draw_plot(plot, results, true)
}

fn draw_plot(plot: &Plot, results: &Results, alone: bool) -> Result<String, DrawError> {
    let drawn = plot.drawn(results);
    let points = || drawn.iter().flat_map(|(_, points)| points);
    let x = Ruler::new(&plot.x, points().map(|(x, _)| *x));
    let y = Ruler::new(&plot.y, points().flat_map(|(_, summary)| [summary.least, summary.most]));
    svg(&plot.id, PLOT, |area| {
        if alone {
            area.fill(&WHITE)?;
        }
        let mut chart = axes(area, (x, plot.x.name), (y, plot.y.name))?;
        // The curves that others published lie behind ours.
        for (curve, points) in drawn.iter().filter(|(curve, _)| curve.is_published()) {
            published(&mut chart, curve, points)?;
        }
        for (curve, points) in drawn.iter().filter(|(curve, _)| !curve.is_published()) {
            measured(&mut chart, curve, points)?;
        }
        if alone {
            let place = SeriesLabelPosition::UpperLeft;
            let style = ("sans-serif", WORDS).into_text_style(area);
            let mut legend = chart.configure_series_labels();
            legend.position(place).label_font(style).legend_area_size(40).draw()?;
        }
        Ok(())
    })
}

pub(crate) type Drawing = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// The drawing that `draw` makes, as an SVG element.
pub(crate) fn svg(
    id: &str,
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Drawing,
) -> Result<String, DrawError> {
    let mut text = String::new();
    let drawing = {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&area).and_then(|()| Ok(area.present()?))
    };
    drawing.map_err(|error| DrawError { id: id.to_owned(), message: error.to_string() })?;
    Ok(text)
}

fn axes<'a, 'b>(
    area: &'a Area<'b>,
    (x, x_name): (Ruler, &str),
    (y, y_name): (Ruler, &str),
) -> Result<Chart<'a, 'b>, Box<dyn std::error::Error + Send + Sync>> {
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .margin_right(RIGHT)
        .x_label_area_size(BELOW_X)
        .y_label_area_size(LEFT_OF_Y)
        .build_cartesian_2d(x, y)?;
    let ink = RGBColor::from(INK);
    let style = TextStyle::from(("sans-serif", WORDS)).color(&ink);
    chart
        .configure_mesh()
        .bold_line_style(RGBColor::from(GRID).stroke_width(1))
        .light_line_style(TRANSPARENT)
        .axis_style(RGBColor::from(INK).stroke_width(2))
        .label_style(style.clone())
        .axis_desc_style(style)
        .x_desc(x_name)
        .y_desc(y_name)
        .draw()?;
    Ok(chart)
}

fn medians(points: &[(f64, Summary)]) -> Vec<(f64, f64)> {
    points.iter().map(|(x, summary)| (*x, summary.median)).collect()
}

fn published(chart: &mut Chart<'_, '_>, curve: &Curve, points: &[(f64, Summary)]) -> Drawing {
    let (colour, points) = (RGBColor::from(curve.colour), medians(points));
    if points.len() > 1 {
        let line = DashedPathElement::new(points.clone(), 12, 10, colour.stroke_width(3));
        chart.draw_series([line])?;
    }
    chart.draw_series(
        points.into_iter().map(|point| Circle::new(point, 5, colour.stroke_width(2))),
    )?;
    Ok(())
}

fn measured(chart: &mut Chart<'_, '_>, curve: &Curve, points: &[(f64, Summary)]) -> Drawing {
    let (colour, medians) = (RGBColor::from(curve.colour), medians(points));
    if medians.len() > 1 {
        chart.draw_series([PathElement::new(medians.clone(), colour.stroke_width(4))])?;
    }
    let many = points.len() > MANY;
    if !many {
        let ranges = points.iter().filter(|(_, summary)| summary.least < summary.most);
        chart.draw_series(ranges.map(|(x, summary)| {
            PathElement::new(vec![(*x, summary.least), (*x, summary.most)], colour.stroke_width(2))
        }))?;
    }
    let radius = if many { 2 } else { 7 };
    chart
        .draw_series(medians.into_iter().map(|point| Circle::new(point, radius, colour.filled())))?
        .label(&curve.name)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 28, y)], colour.stroke_width(4)));
    Ok(())
}

pub(super) fn heat_map(heat: &HeatMap, results: &Results) -> Result<String, DrawError> {
    let rows = u32::try_from(heat.y.1.len()).unwrap_or(1);
    let size = (HEAT.0, HEAT.1 * rows + BELOW_X + 2 * MARGIN);
    let (x, y) = (Ruler::names(&heat.x.1), Ruler::names(&heat.y.1));
    svg(&heat.id, size, |area| {
        let mut chart = axes(area, (x, heat.x.0), (y, heat.y.0))?;
        let centred = Pos::new(HPos::Center, VPos::Center);
        let ink = RGBColor::from(CELL_INK);
        let style = TextStyle::from(("sans-serif", WORDS)).color(&ink).pos(centred);
        for (row, cells) in heat.cells.iter().enumerate() {
            for (column, cell) in cells.iter().enumerate() {
                let Some(summary) = cell.summary(results) else { continue };
                let (left, bottom) = (column as f64, row as f64);
                let text = heat.kind.text(summary.median);
                let colour = RGBColor::from(cell_colour(&heat.kind, summary.median));
                let corners = [(left - 0.5, bottom - 0.5), (left + 0.5, bottom + 0.5)];
                chart.draw_series([Rectangle::new(corners, colour.filled())])?;
                chart.draw_series([Text::new(text, (left, bottom), style.clone())])?;
            }
        }
        Ok(())
    })
}

/// The colour of a cell. A ratio above one is blue, and one below is orange, by its logarithm. An
/// amount is blue, by its share of the full amount.
fn cell_colour(kind: &Cells, value: f64) -> Colour {
    match kind {
        Cells::Ratios(_) => {
            let powers = value.log2() / FULL_COLOUR;
            EVEN.mixed(if powers > 0.0 { ABOVE } else { BELOW }, powers.abs())
        }
        Cells::Amounts { full, .. } => EVEN.mixed(ABOVE, value / full),
    }
}

#[cfg(test)]
mod tests;
