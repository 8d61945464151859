//! The figures behind the plots and heat maps: tables for the page, and CSV files.

use super::model::{Cells, Entry, HeatMap, Part, Plot, Table};
use super::quantity::{Results, Summary};
use super::sheet::{Sheet, or_nothing};

/// The table of a part for readers: medians with their ranges, a row for each x.
pub(crate) fn for_reading(part: &Part, results: &Results) -> Sheet {
    match part {
        Part::Plot(plot) => plot_for_reading(plot, results),
        Part::Heat(heat) => heat_for_reading(heat, results),
        Part::Table(table) => table_for_reading(table, results),
        Part::Agreement(agreement) => agreement.sheet(results),
    }
}

/// The table of a part for programs: one figure in each entry, and a row for each mark of a plot
/// and each cell of a heat map.
pub(crate) fn for_programs(part: &Part, results: &Results) -> Sheet {
    match part {
        Part::Plot(plot) => plot_for_programs(plot, results),
        Part::Heat(heat) => heat_for_programs(heat, results),
        Part::Table(table) => table_for_programs(table, results),
        Part::Agreement(agreement) => agreement.sheet(results),
    }
}

fn plot_for_reading(plot: &Plot, results: &Results) -> Sheet {
    let drawn = plot.drawn(results);
    let mut all: Vec<f64> =
        drawn.iter().flat_map(|(_, points)| points.iter().map(|(x, _)| *x)).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    let mut sheet = Sheet::new(&[plot.x.name]);
    sheet.columns.extend(drawn.iter().map(|(curve, _)| curve.name.clone()));
    for x in all {
        let mut row = vec![format!("{x:.*}", plot.x.decimals)];
        for (_, points) in &drawn {
            let point = points.iter().find(|(at, _)| at.total_cmp(&x).is_eq());
            row.push(point.map_or_else(String::new, |(_, summary)| summary.text(plot.y.decimals)));
        }
        sheet.rows.push(row);
    }
    sheet
}

fn plot_for_programs(plot: &Plot, results: &Results) -> Sheet {
    let (x, y) = (plot.x.name, plot.y.name);
    let mut sheet = Sheet::new(&["curve", "source", x, y, "least", "most", "runs"]);
    for (curve, points) in plot.drawn(results) {
        let source = if curve.is_published() { "published" } else { "measured" };
        for (x, summary) in points {
            let mut row = vec![curve.name.clone(), source.to_owned(), x.to_string()];
            row.extend(figures(&summary));
            sheet.rows.push(row);
        }
    }
    sheet
}

fn figures(summary: &Summary) -> [String; 4] {
    let Summary { median, least, most, runs } = summary;
    [median.to_string(), least.to_string(), most.to_string(), runs.to_string()]
}

fn heat_for_reading(heat: &HeatMap, results: &Results) -> Sheet {
    let mut sheet = Sheet::new(&[heat.y.0]);
    sheet.columns.extend(heat.x.1.iter().cloned());
    let figure = |value: &f64| heat.kind.text(*value);
    for (name, cells) in heat.y.1.iter().zip(&heat.cells) {
        let text = |Summary { median, least, most, .. }: &Summary| match least < most {
            true => format!("{} ({} to {})", figure(median), figure(least), figure(most)),
            false => figure(median),
        };
        let cells = cells.iter().map(|cell| or_nothing(cell.summary(results), text));
        sheet.rows.push(std::iter::once(name.clone()).chain(cells).collect());
    }
    sheet
}

fn heat_for_programs(heat: &HeatMap, results: &Results) -> Sheet {
    let of = match heat.kind {
        Cells::Ratios(_) => "ratio",
        Cells::Amounts { name, .. } => name,
    };
    let mut sheet = Sheet::new(&[heat.x.0, heat.y.0, of, "least", "most", "runs"]);
    for (y, cells) in heat.y.1.iter().zip(&heat.cells) {
        for (x, cell) in heat.x.1.iter().zip(cells) {
            let Some(summary) = cell.summary(results) else { continue };
            let mut row = vec![x.clone(), y.clone()];
            row.extend(figures(&summary));
            sheet.rows.push(row);
        }
    }
    sheet
}

fn table_for_reading(table: &Table, results: &Results) -> Sheet {
    let text = |entry: &Entry| match entry {
        Entry::Text(text) => text.clone(),
        Entry::Figure(quantity, decimals) => {
            or_nothing(quantity.summary(results), |summary| summary.text(*decimals))
        }
    };
    let rows = table.rows.iter().map(|row| row.iter().map(text).collect()).collect();
    Sheet { columns: table.columns.clone(), rows }
}

/// Replaces each column of figures by four: median, least, most, runs.
fn table_for_programs(table: &Table, results: &Results) -> Sheet {
    let is_figure = |column: usize| {
        table.rows.iter().any(|row| matches!(row.get(column), Some(Entry::Figure(..))))
    };
    let mut sheet = Sheet::default();
    for (column, name) in table.columns.iter().enumerate() {
        sheet.columns.push(name.clone());
        if is_figure(column) {
            sheet.columns.extend(["least", "most", "runs"].map(|which| format!("{name}: {which}")));
        }
    }
    for row in &table.rows {
        let entries = row.iter().enumerate().flat_map(|(column, entry)| match entry {
            Entry::Figure(quantity, _) => quantity
                .summary(results)
                .as_ref()
                .map_or_else(|| vec![String::new(); 4], |summary| figures(summary).into()),
            Entry::Text(text) => {
                let mut entries = vec![text.clone()];
                entries.resize(if is_figure(column) { 4 } else { 1 }, String::new());
                entries
            }
        });
        sheet.rows.push(entries.collect());
    }
    sheet
}
