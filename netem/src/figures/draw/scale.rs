//! Where values lie along an axis, and which values have a label.

use std::ops::Range;

use plotters::coord::ranged1d::{
    KeyPointHint, KeyPointWeight, NoDefaultFormatting, Ranged, ValueFormatter,
};

use crate::figures::model::{Axis, Scale};

/// The most labels along a linear axis.
const MOST_TICKS: f64 = 6.0;
/// The margin beyond the first and the last value of an axis that is not linear, as a share of its
/// length.
const ROOM: f64 = 0.04;

/// An axis with its layout.
#[derive(Clone, Debug)]
pub(super) struct Ruler {
    scale: Scale,
    /// The places of its ends.
    ends: (f64, f64),
    /// Values that have a label.
    ticks: Vec<(f64, String)>,
}

impl Ruler {
    /// Lays the axis out for those of these values that have a place on it.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        let shown = values.filter(|value| axis.shows(*value));
        let (least, most) = shown
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
                (least.min(value), most.max(value))
            });
        // An axis without values also needs ends.
        let (least, most) = if least > most { (1.0, 10.0) } else { (least, most) };
        let (ends, ticks) = match axis.scale {
            Scale::Linear => even(axis.from, most),
            Scale::Logarithmic => by_logarithm(least, most),
            Scale::Nines => by_nines(least, most),
        };
        let named = |value| (value, short(value));
        Self { scale: axis.scale, ends, ticks: ticks.into_iter().map(named).collect() }
    }

    /// Labels beside each other, one unit apart.
    pub(super) fn names(names: &[String]) -> Self {
        let ticks: Vec<_> =
            names.iter().enumerate().map(|(place, name)| (place as f64, name.clone())).collect();
        Self { scale: Scale::Linear, ends: (-0.5, ticks.len() as f64 - 0.5), ticks }
    }

    /// Where a value lies, from 0 at the beginning to 1 at the end.
    fn share(&self, value: f64) -> f64 {
        let (low, high) = self.ends;
        ((place(self.scale, value) - low) / (high - low)).clamp(0.0, 1.0)
    }
}

impl Ranged for Ruler {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    #[allow(clippy::cast_possible_truncation, reason = "a share of a drawing's size")]
    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        from + (f64::from(to - from) * self.share(*value)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight() {
            KeyPointWeight::Bold => self.ticks.iter().map(|(value, _)| *value).collect(),
            KeyPointWeight::Any => Vec::new(),
        }
    }

    fn range(&self) -> Range<f64> {
        let value = |place: f64| match self.scale {
            Scale::Linear => place,
            Scale::Logarithmic => 10_f64.powf(place),
            Scale::Nines => 100.0 * (1.0 - 10_f64.powf(-place)),
        };
        value(self.ends.0)..value(self.ends.1)
    }
}

impl ValueFormatter<f64> for Ruler {
    fn format_ext(&self, value: &f64) -> String {
        let named = self.ticks.iter().find(|(tick, _)| tick.total_cmp(value).is_eq());
        named.map_or_else(String::new, |(_, name)| name.clone())
    }
}

/// The ends of an axis, and its ticks.
type Layout = ((f64, f64), Vec<f64>);

fn even(from: f64, most: f64) -> Layout {
    let span = if most > from { most - from } else { 1.0 };
    let magnitude = 10_f64.powf((span / MOST_TICKS).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * magnitude);
    let step = steps.into_iter().find(|step| span / step <= MOST_TICKS).unwrap_or(span);
    // A sum of steps misses round numbers by a rounding error.
    let last = (span / step - 1e-9).ceil();
    let ticks = (0..).map(f64::from).take_while(|number| *number <= last);
    ((from, from + last * step), ticks.map(|number| from + number * step).collect())
}

fn by_logarithm(least: f64, most: f64) -> Layout {
    let (low, high) = with_room(least.log10(), most.log10());
    let factors: &[f64] = match high - low {
        span if span < 1.3 => &[1.0, 2.0, 3.0, 5.0],
        span if span < 2.3 => &[1.0, 2.0, 5.0],
        span if span < 3.3 => &[1.0, 3.0],
        _ => &[1.0],
    };
    #[allow(
        clippy::cast_possible_truncation,
        reason = "an exponent of ten of an f64 is a small number"
    )]
    let decades = low.floor() as i32..=high.ceil() as i32;
    let ticks =
        decades.flat_map(|decade| factors.iter().map(move |factor| factor * 10_f64.powi(decade)));
    ((low, high), ticks.filter(|value| (low..=high).contains(&value.log10())).collect())
}

fn by_nines(least: f64, most: f64) -> Layout {
    let (low, high) = with_room(nines(least), nines(most));
    let ticks = [0.0, 50.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99, 99.999];
    ((low, high), ticks.into_iter().filter(|value| (low..=high).contains(&nines(*value))).collect())
}

fn place(scale: Scale, value: f64) -> f64 {
    match scale {
        Scale::Linear => value,
        Scale::Logarithmic => value.log10(),
        Scale::Nines => nines(value),
    }
}

fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).log10()
}

fn with_room(low: f64, high: f64) -> (f64, f64) {
    let room = if high > low { (high - low) * ROOM } else { 0.5 };
    (low - room, high + room)
}

/// A number as short as it can be written.
fn short(number: f64) -> String {
    let (number, unit) = match number.abs() {
        size if size >= 1e9 => (number / 1e9, "G"),
        size if size >= 1e6 => (number / 1e6, "M"),
        size if size >= 1e4 => (number / 1e3, "k"),
        _ => (number, ""),
    };
    // Sums of steps such as 0.1 miss round numbers by a rounding error.
    format!("{}{unit}", (number * 1e9).round() / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis, values: &[f64]) -> Vec<String> {
        Ruler::new(axis, values.iter().copied()).ticks.into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn an_even_axis_has_round_numbers_from_its_beginning() {
        let axis = Axis::linear("", 0);
        assert_eq!(labels(&axis, &[1.0, 9.19]), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(labels(&axis, &[0.3]), ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"]);
        assert_eq!(labels(&axis, &[52_000.0]), ["0", "10k", "20k", "30k", "40k", "50k", "60k"]);
        let jain = Axis { from: 0.5, ..axis };
        assert_eq!(labels(&jain, &[0.7, 1.0]), ["0.5", "0.6", "0.7", "0.8", "0.9", "1"]);
    }

    #[test]
    fn other_axes_have_labels_at_expected_values() {
        let logarithmic = Axis::logarithmic("", 0);
        assert_eq!(
            labels(&logarithmic, &[100.0, 50_000.0]),
            ["100", "300", "1000", "3000", "10k", "30k"]
        );
        assert_eq!(
            labels(&logarithmic, &[1.0, 1e6]),
            ["1", "10", "100", "1000", "10k", "100k", "1M"]
        );
        let nines = Axis { scale: Scale::Nines, ..logarithmic };
        assert_eq!(labels(&nines, &[50.0, 99.9]), ["50", "80", "90", "95", "99", "99.5", "99.9"]);
    }

    proptest! {
        #[test]
        fn every_value_has_a_place_and_something_is_named(
            values in proptest::collection::vec(1e-3_f64..1e9, 0..8), scale in 0..3,
        ) {
            let scale = [Scale::Linear, Scale::Logarithmic, Scale::Nines][scale as usize];
            let axis = Axis { scale, ..Axis::linear("", 0) };
            let ruler = Ruler::new(&axis, values.iter().copied());
            let (low, high) = ruler.ends;
            prop_assert!(low < high && low.is_finite() && high.is_finite());
            prop_assert!(ruler.ticks.len() < 12);
            if scale == Scale::Linear {
                prop_assert!(ruler.ticks.len() >= 2);
                let mut sorted = values;
                sorted.sort_by(f64::total_cmp);
                let places: Vec<i32> = sorted.iter().map(|value| ruler.map(value, (900, 10))).collect();
                prop_assert!(places.is_sorted_by(|one, other| one >= other), "{places:?}");
                prop_assert!(places.iter().all(|place| (10..=900).contains(place)));
            }
        }
    }
}
