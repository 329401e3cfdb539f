//! How the rows are shown.

use super::watch::{Row, Watch};
use crate::limits::{text, titled};
use crate::times;
use comfy_table::CellAlignment;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Table, TableState};
use std::time::Duration;

const TITLES: [&str; 9] =
    ["scope", "limit", "left", "", "used", "rate", "waiting", "429s", "refused"];
/// How wide the bar is.
const BAR: usize = 10;

/// What rows are sorted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Scope,
    Left,
    Rate,
    Waiting,
    Rejected,
}

impl Order {
    pub(super) const fn after(self) -> Self {
        match self {
            Self::Scope => Self::Left,
            Self::Left => Self::Rate,
            Self::Rate => Self::Waiting,
            Self::Waiting => Self::Rejected,
            Self::Rejected => Self::Scope,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Scope => "scope",
            Self::Left => "what is left",
            Self::Rate => "rate",
            Self::Waiting => "waiting",
            Self::Rejected => "429s",
        }
    }

    fn sort(self, rows: &mut [Row]) {
        let key = |row: &Row| match self {
            Self::Scope => 0.0,
            Self::Left => row.share_left.unwrap_or(2.0),
            Self::Rate => -row.rate,
            Self::Waiting => -row.waiting,
            Self::Rejected => -row.rejected,
        };
        rows.sort_by(|a, b| key(a).total_cmp(&key(b)));
        if self != Self::Scope {
            // Rows of one scope need not follow each other any more.
            rows.iter_mut().for_each(|row| row.is_first = true);
        }
    }
}

/// What the terminal shows.
#[derive(Debug)]
pub(super) struct Screen {
    storage: String,
    pub(super) order: Order,
    pub(super) stands_still: bool,
    /// Why there is nothing new.
    pub(super) trouble: Option<String>,
    table: TableState,
    rows: usize,
}

impl Screen {
    pub(super) fn new(storage: String) -> Self {
        Self {
            storage,
            order: Order::default(),
            stands_still: false,
            trouble: None,
            table: TableState::default(),
            rows: 0,
        }
    }

    pub(super) fn scroll(&mut self, by: isize) {
        let most = self.rows.saturating_sub(1);
        let at = self.table.offset().saturating_add_signed(by.max(-1_000_000)).min(most);
        *self.table.offset_mut() = at;
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, watch: &Watch) {
        let mut rows = watch.rows();
        self.rows = rows.len();
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(2), Constraint::Min(1), Constraint::Length(1)])
                .areas(frame.area());
        frame.render_widget(self.head(&rows), head);
        self.order.sort(&mut rows);
        if rows.is_empty() {
            let nothing = "nothing is known yet: no limit was set, and no worker has called";
            frame.render_widget(Paragraph::new(nothing).dim(), body);
        } else {
            let scopes = rows.iter().map(|row| row.scope.len()).max().unwrap_or(5).clamp(5, 60);
            let others = [22, 9, BAR as u16, 6, 9, 8, 7, 8];
            let fits =
                scopes as u16 + others.iter().map(|width| width + 1).sum::<u16>() <= body.width;
            // Where there is no room for everything, the last columns go, and not the names.
            let scope = if fits { Constraint::Length(scopes as u16) } else { Constraint::Min(20) };
            let widths = [scope].into_iter().chain(others.map(Constraint::Length));
            let titles = TITLES.iter().enumerate().map(|(i, title)| aligned(i, Line::from(*title)));
            let titles = ratatui::widgets::Row::new(titles)
                .style(Style::new().add_modifier(Modifier::REVERSED));
            let table = Table::new(rows.iter().map(row), widths).header(titles).column_spacing(1);
            frame.render_stateful_widget(table, body, &mut self.table);
        }
        frame.render_widget(self.foot(), foot);
    }

    fn head(&self, rows: &[Row]) -> Paragraph<'static> {
        let of_scopes = rows.iter().filter(|row| row.is_first);
        let (mut rate, mut waiting, mut rejected, mut held) = (0.0, 0.0, 0.0, 0);
        let mut scopes = 0;
        for row in of_scopes {
            (rate, waiting, rejected) =
                (rate + row.rate, waiting + row.waiting, rejected + row.rejected);
            held += usize::from(row.hold.is_some());
            scopes += 1;
        }
        let first = format!("paceline  {}", self.storage);
        let second = format!(
            "{scopes} scopes, {held} held   {rate:.1}/s   {waiting:.1} waiting   {rejected:.0} × 429 a minute"
        );
        Paragraph::new(vec![Line::from(first).bold(), Line::from(second)])
    }

    fn foot(&self) -> Paragraph<'static> {
        if let Some(trouble) = &self.trouble {
            return Paragraph::new(trouble.clone()).red();
        }
        let still = if self.stands_still { "   stands still" } else { "" };
        let by = self.order.name();
        Paragraph::new(format!("q quit   s sort (by {by})   space stand still   ↑↓ scroll{still}"))
            .dim()
    }
}

/// Whether a column holds numbers.
const fn is_number(column: usize) -> bool {
    column == 2 || column > 3
}

fn aligned(column: usize, line: Line<'_>) -> Cell<'_> {
    Cell::new(if is_number(column) { line.right_aligned() } else { line })
}

/// Red when nothing is left, or the server said stop.
fn row(row: &Row) -> ratatui::widgets::Row<'static> {
    let cells = cells(row);
    let is_empty = row.share_left.is_some_and(|left| left <= 0.0);
    let bar_style = match row.share_left {
        Some(left) if left < 0.1 => Style::new().fg(Color::Red),
        Some(left) if left < 0.4 => Style::new().fg(Color::Yellow),
        _ => Style::new().fg(Color::Green),
    };
    let cells = cells.into_iter().enumerate().map(|(i, cell)| {
        let style = match i {
            1 if row.binds => Style::new().add_modifier(Modifier::BOLD),
            3 => bar_style,
            6 if row.waiting >= 0.05 => Style::new().fg(Color::Yellow),
            7 if row.rejected > 0.0 => Style::new().fg(Color::Red),
            _ => Style::new(),
        };
        aligned(i, Line::from(Span::styled(cell, style)))
    });
    let style =
        if is_empty || row.hold.is_some() { Style::new().fg(Color::Red) } else { Style::new() };
    ratatui::widgets::Row::new(cells.collect::<Vec<_>>()).style(style)
}

/// What the columns say.
fn cells(row: &Row) -> [String; TITLES.len()] {
    let of_scope = |text: String| if row.is_first { text } else { String::new() };
    let binds = if row.binds { " ◂" } else { "" };
    let bar = match (row.hold, row.share_left) {
        (Some(hold), _) => format!("held {}", times::show(Duration::from_secs_f64(hold))),
        (None, Some(left)) => {
            // As many as fit: a cast of a share of ten.
            let full = (left * BAR as f64).round() as usize;
            "█".repeat(full) + &"░".repeat(BAR - full)
        }
        (None, None) => String::new(),
    };
    [
        of_scope(row.scope.clone()),
        row.limit
            .as_ref()
            .map_or_else(|| "none known".to_owned(), |limit| format!("{limit}{binds}")),
        row.left.map(|left| left.to_string()).unwrap_or_default(),
        bar,
        row.used.map(|used| format!("{:.0} %", used * 100.0)).unwrap_or_default(),
        of_scope(format!("{:.1}/s", row.rate)),
        of_scope(format!("{:.1}", row.waiting)),
        of_scope(format!("{:.0}/m", row.rejected)),
        of_scope(format!("{:.0}/m", row.refused)),
    ]
}

/// The rows where there is no terminal.
pub(super) fn table(rows: &[Row]) -> String {
    let mut table = titled(TITLES);
    for row in rows {
        table.add_row(cells(row));
    }
    for (_, column) in table.column_iter_mut().enumerate().filter(|(i, _)| is_number(*i)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    text(table)
}
