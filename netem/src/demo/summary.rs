//! The picture of the demonstration: the goodput of each sender as a bar, table by table.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Comparison, Row};
use crate::figures::draw::{Area, DrawError, Drawing, svg};
use crate::figures::sender::{BLUE, Colour, GREY, INK};

/// All lengths are in units of the drawing.
const WIDTH: u32 = 960;
const MARGIN: i32 = 24;
const BAR: i32 = 26;
/// The distance from one bar to the next, and from one table to the next.
const BAR_STEP: i32 = 36;
const TABLE_STEP: i32 = 62;
/// Where the bars begin, and the length of the longest bar.
const LEFT: i32 = 400;
const LONGEST: f64 = 420.0;
const WORDS: u32 = 22;

/// All tables as an SVG. The bars of senders with help are blue.
pub(crate) fn draw(comparisons: &[Comparison]) -> Result<String, DrawError> {
    let bars: i32 = comparisons.iter().flat_map(|it| &it.rows).map(|_| BAR_STEP).sum();
    let tables: i32 = comparisons.iter().map(|_| TABLE_STEP).sum();
    let height = u32::try_from(2 * MARGIN + bars + tables).unwrap_or(WIDTH);
    svg("the summary of the demo", (WIDTH, height), |area| drawing(area, comparisons))
}

fn drawing(area: &Area<'_>, comparisons: &[Comparison]) -> Drawing {
    area.fill(&WHITE)?;
    let ink = RGBColor::from(INK);
    let style = |words, horizontal| {
        let middle = Pos::new(horizontal, VPos::Center);
        TextStyle::from(("sans-serif", words)).color(&ink).pos(middle)
    };
    let rows = || comparisons.iter().flat_map(|it| &it.rows);
    let most = rows().map(|row| row.record.goodput_mbit_s).fold(f64::MIN_POSITIVE, f64::max);
    let mut top = MARGIN;
    for comparison in comparisons {
        let title = comparison.title();
        area.draw(&Text::new(title, (MARGIN, top + BAR / 2), style(WORDS + 2, HPos::Left)))?;
        top += BAR_STEP;
        for row in &comparison.rows {
            let middle = top + BAR / 2;
            #[allow(clippy::cast_possible_truncation, reason = "at most the longest bar")]
            let right = LEFT + (row.record.goodput_mbit_s / most * LONGEST).round() as i32;
            let corners = [(LEFT, top), (right, top + BAR)];
            area.draw(&Rectangle::new(corners, RGBColor::from(colour(row)).filled()))?;
            let name = row.sender.to_owned();
            area.draw(&Text::new(name, (LEFT - 12, middle), style(WORDS, HPos::Right)))?;
            let goodput = format!("{:.2} Mbit/s", row.record.goodput_mbit_s);
            area.draw(&Text::new(goodput, (right + 10, middle), style(WORDS, HPos::Left)))?;
            top += BAR_STEP;
        }
        top += TABLE_STEP - BAR_STEP;
    }
    Ok(())
}

fn colour(row: &Row) -> Colour {
    if row.record.mode == "off" { GREY } else { BLUE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::FIRST;
    use crate::demo::tests::{file, first};

    #[test]
    fn each_sender_has_a_bar_by_its_goodput() {
        let comparison = Comparison::of(&FIRST, first(9.0, 4.5), &file());
        let svg = draw(&[comparison]).unwrap();
        for word in ["Upload", "1 % near loss", "Sidekick, PACUBIC", "9.00 Mbit/s"] {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        let bars: Vec<_> = svg.lines().filter(|line| line.starts_with("<rect")).skip(1).collect();
        assert_eq!(bars.len(), 4, "{svg}");
        let blue: Vec<_> = bars.iter().map(|bar| bar.contains(&BLUE.hex())).collect();
        assert_eq!(blue, [false, false, false, true], "only one is helped");
        for (bar, width) in bars.iter().zip([140, 93, 210, 420]) {
            assert!(bar.contains(&format!("width=\"{width}\"")), "{bar}");
        }
    }
}
