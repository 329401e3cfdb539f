//! What happened when, as a picture: the level of each limit, and each request as a mark.

use super::report::units;
use crate::Failure;
use paceline::simulate::{Fate, Outcome, Simulation};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::element::{DashedPathElement, Drawable, PointCollection};
use plotters::prelude::*;
use plotters_backend::{BackendCoord, DrawingErrorKind};
use std::time::Duration;

/// Colours that hold their own on the ground that they stand on.
struct Ink {
    ground: RGBColor,
    text: RGBColor,
    faint: RGBColor,
    limits: [RGBColor; 4],
    sent: RGBColor,
    waited: RGBColor,
    bad: RGBColor,
}

const LIGHT: Ink = Ink {
    ground: RGBColor(255, 255, 255),
    text: RGBColor(32, 36, 44),
    faint: RGBColor(222, 225, 231),
    limits: [
        RGBColor(31, 99, 184),
        RGBColor(150, 80, 170),
        RGBColor(20, 128, 110),
        RGBColor(170, 110, 20),
    ],
    sent: RGBColor(24, 128, 72),
    waited: RGBColor(190, 110, 0),
    bad: RGBColor(200, 40, 50),
};

const DARK: Ink = Ink {
    ground: RGBColor(20, 24, 31),
    text: RGBColor(226, 230, 238),
    faint: RGBColor(52, 58, 70),
    limits: [
        RGBColor(104, 166, 255),
        RGBColor(212, 150, 232),
        RGBColor(94, 204, 182),
        RGBColor(232, 186, 98),
    ],
    sent: RGBColor(88, 204, 138),
    waited: RGBColor(245, 176, 65),
    bad: RGBColor(255, 110, 110),
};

/// The height of the lower part in percent.
const MARKS: u32 = 45;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plane = Cartesian2d<RangedCoordf64, RangedCoordf64>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Plane>;

/// An SVG of that many pixels.
pub(super) fn draw(
    simulation: &Simulation,
    outcome: &Outcome,
    (width, height): (u32, u32),
    dark: bool,
) -> Result<String, Failure> {
    let ink: &'static Ink = if dark { &DARK } else { &LIGHT };
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        root.fill(&ink.ground)?;
        let (upper, lower) = root.split_vertically(height * (100 - MARKS) / 100);
        let (scale, unit) = scale(outcome.finished);
        levels(&upper, simulation, outcome, ink, scale)?;
        marks(&lower, outcome, ink, scale, unit)?;
        root.present()?;
    }
    Ok(svg)
}

/// What a second is in the unit that fits, and its name.
const fn scale(finished: Duration) -> (f64, &'static str) {
    match finished.as_secs() {
        0..=180 => (1.0, "seconds"),
        181..=10_800 => (1.0 / 60.0, "minutes"),
        _ => (1.0 / 3_600.0, "hours"),
    }
}

fn end(outcome: &Outcome, scale: f64) -> f64 {
    (outcome.finished.as_secs_f64() * scale).max(0.001)
}

/// The level of each limit in percent, ours and the server's.
fn levels(
    area: &Area<'_>,
    simulation: &Simulation,
    outcome: &Outcome,
    ink: &'static Ink,
    scale: f64,
) -> Result<(), Failure> {
    let mut chart = chart(area, ink, (end(outcome, scale), 104.0), "", &|it| format!("{it:.0} %"))?;
    let width = outcome.timeline.width.as_secs_f64() * scale;
    let keys = f64::from(simulation.keys);
    let at = |slot: usize| ((slot + 1) as f64 * width).min(end(outcome, scale));
    for (i, usage) in outcome.usage.iter().enumerate() {
        let colour = ink.limits[i % ink.limits.len()];
        let full = usage.limit.burst as f64 * keys;
        let left = outcome.timeline.slots.iter().enumerate();
        let left =
            left.filter_map(|(slot, it)| Some((at(slot), 100.0 * units(*it.left.get(i)?) / full)));
        let line =
            LineSeries::new(std::iter::once((0.0, 100.0)).chain(left), colour.stroke_width(2));
        chart
            .draw_series(line)?
            .label(usage.limit.to_string())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    for (i, (dimension, limit)) in simulation.server.iter().flat_map(|it| &it.limits).enumerate() {
        let colour = ink.limits[(i + 2) % ink.limits.len()];
        let full = limit.units() as f64 * keys;
        let left = outcome.timeline.slots.iter().enumerate();
        let left = left.filter_map(|(slot, it)| {
            Some((at(slot), 100.0 * *it.server_left.get(i)? as f64 / full))
        });
        let line = DashedLineSeries::new(left, 4, 3, colour.stroke_width(2));
        chart.draw_series(line)?.label(format!("server's {dimension}")).legend(move |(x, y)| {
            DashedPathElement::new([(x, y), (x + 16, y)], 4, 3, colour.stroke_width(2))
        });
    }
    if !outcome.usage.is_empty() || simulation.server.is_some() {
        legend(&mut chart, ink, SeriesLabelPosition::UpperRight)?;
    }
    Ok(())
}

/// Each request: when it came, faintly, and when it was sent, refused or rejected.
fn marks(
    area: &Area<'_>,
    outcome: &Outcome,
    ink: &'static Ink,
    scale: f64,
    unit: &str,
) -> Result<(), Failure> {
    let most = outcome.marks.len().max(1) as f64;
    let mut chart =
        chart(area, ink, (end(outcome, scale), most * 1.04), unit, &|it| format!("{it:.0}"))?;
    let seconds = |at: Duration| at.as_secs_f64() * scale;
    let points = |fate: Fate| {
        let marks = outcome.marks.iter().enumerate();
        let of = marks.filter(move |(_, mark)| mark.fate == fate);
        of.map(move |(i, mark)| (seconds(mark.at), (i + 1) as f64))
    };
    let came =
        outcome.marks.iter().enumerate().map(|(i, mark)| (seconds(mark.came), (i + 1) as f64));
    chart.draw_series(came.map(|at| Circle::new(at, 1, ink.faint.filled())))?;
    for (fate, name) in [
        (Fate::Waited, "waited"),
        (Fate::Sent, "sent at once"),
        (Fate::Refused, "refused"),
        (Fate::Rejected, "429"),
    ] {
        if outcome.marks.iter().all(|mark| mark.fate != fate) {
            continue;
        }
        chart
            .draw_series(points(fate).map(|at| Sign { ink, fate, at, size: 2 }))?
            .label(name)
            .legend(move |(x, y)| Sign { ink, fate, at: (x + 8, y), size: 3 });
    }
    legend(&mut chart, ink, SeriesLabelPosition::LowerRight)
}

/// An empty chart from zero to `most`.
fn chart<'a, 'b>(
    area: &'a Area<'b>,
    ink: &Ink,
    most: (f64, f64),
    unit: &str,
    shown: &dyn Fn(&f64) -> String,
) -> Result<Chart<'a, 'b>, Failure> {
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(16)
        .x_label_area_size(if unit.is_empty() { 22 } else { 38 })
        .y_label_area_size(46)
        .build_cartesian_2d(0.0..most.0, 0.0..most.1)?;
    chart
        .configure_mesh()
        .axis_style(ink.faint)
        .bold_line_style(ink.faint)
        .light_line_style(ink.ground)
        .label_style(("sans-serif", 12).into_font().color(&ink.text))
        .x_labels(8)
        .x_label_formatter(&|time| format!("{}", (time * 1_000.0).round() / 1_000.0))
        .y_labels(5)
        .y_label_formatter(shown)
        .x_desc(unit)
        .draw()?;
    Ok(chart)
}

fn legend<'a, 'b: 'a>(
    chart: &mut Chart<'a, 'b>,
    ink: &Ink,
    position: SeriesLabelPosition,
) -> Result<(), Failure> {
    chart
        .configure_series_labels()
        .position(position)
        .background_style(ink.ground.mix(0.85))
        .border_style(ink.faint)
        .label_font(("sans-serif", 12).into_font().color(&ink.text))
        .draw()?;
    Ok(())
}

/// What became of a request, as a sign: each fate has a shape of its own, too.
struct Sign<C> {
    ink: &'static Ink,
    fate: Fate,
    at: C,
    size: i32,
}

impl<'a, C> PointCollection<'a, C> for &'a Sign<C> {
    type Point = &'a C;
    type IntoIter = std::iter::Once<&'a C>;

    fn point_iter(self) -> Self::IntoIter {
        std::iter::once(&self.at)
    }
}

impl<C, B: DrawingBackend> Drawable<B> for Sign<C> {
    fn draw<I: Iterator<Item = BackendCoord>>(
        &self,
        at: I,
        backend: &mut B,
        size: (u32, u32),
    ) -> Result<(), DrawingErrorKind<B::ErrorType>> {
        let Self { ink, fate, size: radius, .. } = *self;
        let hollow = ink.bad.stroke_width(1);
        match fate {
            Fate::Waited => Circle::new((), radius, ink.waited.filled()).draw(at, backend, size),
            Fate::Sent => {
                TriangleMarker::new((), radius + 1, ink.sent.filled()).draw(at, backend, size)
            }
            Fate::Refused => Circle::new((), radius, hollow).draw(at, backend, size),
            Fate::Rejected => Cross::new((), radius + 1, hollow).draw(at, backend, size),
        }
    }
}
