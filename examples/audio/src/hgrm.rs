//! A percentile distribution as text (`.hgrm`), which HdrHistogram's plotter reads.

use hdrhistogram::Histogram;
use std::io::{self, Write};

/// The lines per half of the distance to 100 %.
const TICKS_PER_HALF: u32 = 5;

/// Writes the distribution of values in microseconds as milliseconds.
///
/// # Errors
/// Those of `out`.
pub fn write(waits_us: &Histogram<u64>, mut out: impl Write) -> io::Result<()> {
    let ms = |us: f64| us / 1000.0;
    writeln!(
        out,
        "{:>12} {:>14} {:>10} {:>14}\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    )?;
    let mut total = 0_u64;
    for step in waits_us.iter_quantiles(TICKS_PER_HALF) {
        total += step.count_since_last_iteration();
        let quantile = step.quantile_iterated_to();
        write!(out, "{:12.3} {quantile:14.12} {total:10}", ms(step.value_iterated_to() as f64))?;
        match quantile < 1.0 {
            true => writeln!(out, " {:14.2}", 1.0 / (1.0 - quantile))?,
            false => writeln!(out)?,
        }
    }
    let (mean, deviation) = (ms(waits_us.mean()), ms(waits_us.stdev()));
    writeln!(out, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]")?;
    writeln!(
        out,
        "#[Max     = {:12.3}, Total count    = {:12}]",
        ms(waits_us.max() as f64),
        waits_us.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_those_of_a_percentile_distribution() {
        let mut histogram = Histogram::new_with_bounds(1, 2_000_000, 3).unwrap();
        histogram.record_n(0, 947).unwrap();
        histogram.record_n(22_000, 53).unwrap();
        let mut text = Vec::new();
        write(&histogram, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let rows: Vec<Vec<f64>> = text
            .lines()
            .skip(2)
            .take_while(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().map(|word| word.parse().unwrap()).collect())
            .collect();
        assert!(
            rows.windows(2).all(|pair| pair[0][0] <= pair[1][0] && pair[0][1] <= pair[1][1]),
            "{text}"
        );
        for row in &rows {
            let [value, quantile, count] = row[..3] else { panic!("{text}") };
            assert_eq!(
                (value == 0.0, count),
                (quantile < 0.947, if value == 0.0 { 947.0 } else { 1000.0 }),
                "{text}"
            );
            assert!((value == 0.0) || (value - 22.0).abs() < 0.05);
            if let Some(inverse) = row.get(3) {
                assert!((inverse * (1.0 - quantile) - 1.0).abs() < 0.01);
            }
        }
        assert_eq!(rows.last().unwrap()[1], 1.0);
        assert!(
            text.contains("#[Max     =") && text.contains("Total count    =         1000]"),
            "{text}"
        );
    }
}
