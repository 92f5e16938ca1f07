//! SVG plots: medians of every library over size or window, with the range of the samples.

use crate::bench::report::{Entry, Report, Tool};
use crate::disk;
use crate::run::Outcome;
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// A point of a series: the median with the lowest and highest sample.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Measured {
    x: f64,
    y: f64,
    low: f64,
    high: f64,
}

#[derive(Debug)]
struct Plot<'a> {
    title: String,
    x_label: &'static str,
    entries: Vec<&'a Entry>,
}

const COLOURS: [(Tool, RGBColor); 5] = [
    (Tool::Ours, RGBColor(0, 90, 200)),
    (Tool::Rival, RGBColor(210, 90, 0)),
    (Tool::Bare, RGBColor(90, 90, 90)),
    (Tool::UcxTagged, RGBColor(0, 140, 80)),
    (Tool::UcxPut, RGBColor(150, 60, 160)),
];

/// Writes the plots of a report; returns their file names and titles.
pub(crate) fn write(report: &Report, folder: &Path) -> Result<Vec<(String, String)>, String> {
    let mut plots: BTreeMap<String, Plot> = BTreeMap::new();
    for entry in &report.entries {
        let Some(point) = entry.case.point() else { continue };
        let plot = || Plot { title: point.title, x_label: point.x_label, entries: Vec::new() };
        plots.entry(point.plot).or_insert_with(plot).entries.push(entry);
    }
    // A single point makes no curve.
    plots.retain(|_, plot| plot.entries.len() > 1);
    disk::make(folder)?;
    let mut written = Vec::new();
    for (name, plot) in plots {
        let file = format!("{name}.svg");
        let mut text = String::new();
        draw(report, &plot, &mut text).map_err(|error| format!("{file}: {error}"))?;
        disk::write(folder.join(&file), text)?;
        written.push((file, plot.title));
    }
    Ok(written)
}

fn measured(plot: &Plot<'_>, tool: Tool) -> Vec<Measured> {
    let of = |entry: &&Entry| {
        let x = entry.case.point()?.x;
        let values = || entry.samples(tool).iter().map(|sample| sample.value);
        let (low, high) = (values().min_by(f64::total_cmp)?, values().max_by(f64::total_cmp)?);
        Some(Measured { x, y: entry.median(tool)?, low, high })
    };
    let mut points: Vec<Measured> = plot.entries.iter().filter_map(of).collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

/// The range of a logarithmic axis: all positive values with a margin.
fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values
        .filter(|value| *value > 0.0)
        .fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), value| (low.min(value), high.max(value)));
    if low > high { 1.0..2.0 } else { low / 1.5..high * 1.5 }
}

fn draw(report: &Report, plot: &Plot<'_>, text: &mut String) -> Outcome {
    let all: Vec<(Tool, RGBColor, Vec<Measured>)> =
        COLOURS.iter().map(|(tool, colour)| (*tool, *colour, measured(plot, *tool))).collect();
    let points = || all.iter().flat_map(|(.., points)| points);
    let (xs, ys) = (range(points().map(|point| point.x)), range(points().flat_map(|point| [point.low, point.high])));
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let root = SVGBackend::with_string(text, (760, 460)).into_drawing_area();
    root.fill(&WHITE).map_err(|error| failed(&error))?;
    let mut chart = ChartBuilder::on(&root)
        .caption(&plot.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(xs.log_scale(), ys.log_scale())
        .map_err(|error| failed(&error))?;
    let number = |value: &f64| crate::bench::report::number(*value);
    let whole = |value: &f64| format!("{value:.0}");
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(plot.x_label).x_label_formatter(&whole).y_label_formatter(&number);
    mesh.draw().map_err(|error| failed(&error))?;
    for (tool, colour, points) in all.iter().filter(|(.., points)| !points.is_empty()) {
        let line = LineSeries::new(points.iter().map(|point| (point.x, point.y)), colour.stroke_width(2));
        let drawn = chart.draw_series(line).map_err(|error| failed(&error))?;
        let sign = *colour;
        drawn
            .label(report.name_of(*tool))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], sign.stroke_width(2)));
        let bars = points
            .iter()
            .map(|point| ErrorBar::new_vertical(point.x, point.low, point.y, point.high, colour.filled(), 6));
        chart.draw_series(bars).map_err(|error| failed(&error))?;
    }
    let mut labels = chart.configure_series_labels();
    labels.background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).position(SeriesLabelPosition::UpperLeft);
    labels.draw().map_err(|error| failed(&error))?;
    root.present().map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::report;

    #[test]
    fn a_plot_shows_every_series_that_was_measured() {
        let report = report();
        let entries: Vec<&Entry> = report.entries.iter().filter(|entry| entry.case.point().is_some()).collect();
        let plot = Plot { title: "tcp: half round trip, us".into(), x_label: "bytes", entries };
        let mut text = String::new();
        draw(&report, &plot, &mut text).expect("it is drawn");
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
        for shown in ["tcp: half round trip, us", "ours", "reference 2.5.1", "bytes"] {
            assert!(text.contains(shown), "no {shown:?}");
        }
        assert!(!text.contains("UCX put"), "nothing of that was measured");
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn points_are_in_order_and_have_their_range() {
        let report = report();
        let mut entries: Vec<&Entry> = report.entries.iter().filter(|entry| entry.case.point().is_some()).collect();
        entries.reverse();
        let plot = Plot { title: String::new(), x_label: "bytes", entries };
        let points = measured(&plot, Tool::Ours);
        assert_eq!(points.iter().map(|point| point.x).collect::<Vec<_>>(), [8.0, 64.0]);
        assert_eq!(points.first(), Some(&Measured { x: 8.0, y: 2.0, low: 1.0, high: 3.0 }));
    }

    #[test]
    fn a_range_holds_its_values() {
        assert_eq!(range([3.0, 6.0, 0.0].into_iter()), 2.0..9.0);
        assert_eq!(range(std::iter::empty()), 1.0..2.0);
    }
}
