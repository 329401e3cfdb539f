//! What happened when, in lines of small bars.

use crate::times::took;
use paceline::simulate::{Outcome, Slot};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Sparkline, Widget as _};

/// The narrowest chart, and the space before it.
const LEAST: u16 = 20;
const MARGIN: u16 = 14;

/// A line each for what was sent, what waited and what was rejected, where anything was.
pub(super) fn sparklines(outcome: &Outcome, width: u16) -> String {
    let width = width.saturating_sub(MARGIN).max(LEAST);
    let mut lines = Vec::new();
    type Count = fn(&Slot) -> u64;
    let rows: [(&str, Count, bool); 4] = [
        ("sent", |slot| slot.sent, true),
        ("waiting", |slot| slot.waiting, false),
        ("refused", |slot| slot.refused, true),
        ("429s", |slot| slot.rejected, true),
    ];
    for (name, count, adds_up) in rows {
        let counts: Vec<u64> = outcome.timeline.slots.iter().map(count).collect();
        if counts.iter().any(|count| *count > 0) {
            let line = bars(&columns(&counts, width.into(), adds_up));
            lines.push(format!("{name:<width$}{line}", width = usize::from(MARGIN)));
        }
    }
    let end = took(outcome.finished);
    lines.push(format!(
        "{:<margin$}0{end:>rest$}",
        "",
        margin = usize::from(MARGIN),
        rest = usize::from(width) - 1
    ));
    lines.join("\n")
}

/// So many numbers: the sums of those that fall together, or the most of them.
fn columns(counts: &[u64], width: usize, adds_up: bool) -> Vec<u64> {
    let column = |column: usize| {
        let (from, to) = (column * counts.len() / width, (column + 1) * counts.len() / width);
        let together = counts[from..to.max(from + 1)].iter().copied();
        if adds_up { together.sum() } else { together.max().unwrap_or(0) }
    };
    (0..width).map(column).collect()
}

fn bars(columns: &[u64]) -> String {
    let area = Rect::new(0, 0, u16::try_from(columns.len()).unwrap_or(u16::MAX), 1);
    let mut buffer = Buffer::empty(area);
    Sparkline::default().data(columns).render(area, &mut buffer);
    let line: String = buffer.content().iter().map(|cell| cell.symbol()).collect();
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_as_wide_as_it_may_be_and_as_high_as_what_it_shows() {
        assert_eq!(columns(&[1, 2, 3, 4], 2, true), [3, 7]);
        assert_eq!(columns(&[1, 2, 3, 4], 2, false), [2, 4]);
        assert_eq!(columns(&[5], 3, false), [5, 5, 5]);
        assert_eq!(bars(&[0, 4, 8]), " ▄█");
    }
}
