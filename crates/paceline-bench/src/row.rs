//! One row of the table, and what it has to reach.

use crate::race::Outcome;
use serde::Serialize;

/// One figure of ours, beside the peer's where there is one.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    row: String,
    ours: f64,
    peer: Option<f64>,
    peer_name: Option<&'static str>,
    unit: &'static str,
    /// Ours / the peer's.
    ratio: Option<f64>,
    goal: Option<String>,
    ok: bool,
    /// The curve that it is a point of, and where: the report shows a curve in one line.
    curve: Option<&'static str>,
    at: Option<usize>,
}

/// How much more the largest may cost than the smallest on a curve that is to be flat; constant
/// cost would be 1, and what is measured with half the caches gone is not worth an alarm.
const FLAT: f64 = 2.0;

impl Row {
    /// Nanoseconds of ours and of the peer, measured in turn.
    pub(crate) fn versus(row: impl Into<String>, peer_name: &'static str, race: Outcome) -> Self {
        Self::figure(row, race.ours, "ns").beside(peer_name, race.peer)
    }

    /// A figure without a peer.
    pub(crate) fn figure(row: impl Into<String>, ours: f64, unit: &'static str) -> Self {
        Self {
            row: row.into(),
            ours,
            peer: None,
            peer_name: None,
            unit,
            ratio: None,
            goal: None,
            ok: true,
            curve: None,
            at: None,
        }
    }

    /// The same figure of a peer.
    pub(crate) fn beside(mut self, peer_name: &'static str, peer: f64) -> Self {
        (self.peer, self.peer_name) = (Some(peer), Some(peer_name));
        self.ratio = (peer > 0.0).then(|| self.ours / peer);
        self
    }

    /// At most `most` times the peer's figure.
    pub(crate) fn at_most_times(mut self, most: f64) -> Self {
        self.ok = self.ratio.is_some_and(|ratio| ratio <= most);
        self.goal = Some(format!("≤ {most} ×"));
        self
    }

    /// At most `most`, whatever the peer does.
    pub(crate) fn at_most(mut self, most: f64) -> Self {
        self.ok = self.ours <= most;
        self.goal = Some(format!("≤ {most} {}", self.unit));
        self
    }

    /// A point of a curve: the same figure `at` another size.
    pub(crate) const fn on(mut self, curve: &'static str, at: usize) -> Self {
        (self.curve, self.at) = (Some(curve), Some(at));
        self
    }

    /// The goal of points of one curve whose cost must not grow.
    pub(crate) fn flat(mut points: Vec<Self>) -> Vec<Self> {
        let most = points.first().map_or(0.0, |first| first.ours) * FLAT;
        for point in &mut points {
            point.ok = point.ours <= most;
            point.goal = Some(format!("≤ {FLAT} × the first"));
        }
        points
    }
}
