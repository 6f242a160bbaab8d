//! What the Picker counts.

use prometheus::{IntCounter, IntCounterVec, IntGauge};

use crate::{observe::Metrics, serve::status::Reason};

/// What became of a pick, or was told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was made.
    Picked,
    /// Its first token was told.
    FirstToken,
    /// Who serves it was told.
    Served,
    /// Its end was told.
    Ended,
    /// Something was told after its end.
    AfterEnd,
    /// Nobody told its end in time.
    Expired,
    /// It had to make room for another.
    Displaced,
}

impl Event {
    const ALL: [Self; 7] = [
        Self::Picked,
        Self::FirstToken,
        Self::Served,
        Self::Ended,
        Self::AfterEnd,
        Self::Expired,
        Self::Displaced,
    ];

    const fn label(self) -> &'static str {
        match self {
            Self::Picked => "picked",
            Self::FirstToken => "first_token",
            Self::Served => "served",
            Self::Ended => "ended",
            Self::AfterEnd => "after_end",
            Self::Expired => "expired",
            Self::Displaced => "displaced",
        }
    }
}

/// What became of a pushed body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// A pick took it.
    Claimed,
    /// Nobody took it in time.
    Expired,
}

/// The counters.
pub struct Stats {
    events: [IntCounter; Event::ALL.len()],
    bodies: [IntCounter; 2],
    refusals: IntCounterVec,
    /// Picks held now.
    pub picks_held: IntGauge,
    /// Bodies held now.
    pub bodies_held: IntGauge,
}

impl Stats {
    /// Registers them.
    pub fn new(metrics: &Metrics) -> Self {
        let events = metrics.counters(
            "kinference_picker_events_total",
            "Picks of the native API, and what was told of them.",
            &["event"],
        );
        let bodies = metrics.counters(
            "kinference_picker_bodies_total",
            "Pushed bodies that are not held any more, by what became of them.",
            &["end"],
        );
        let refusals = metrics.counters(
            "kinference_picker_refusals_total",
            "Calls of the native API's Picker that were turned away, by reason.",
            &["reason"],
        );
        let gauge = |name, help| metrics.gauges(name, help, &[]).with_label_values::<&str>(&[]);
        Self {
            events: Event::ALL.map(|event| events.with_label_values(&[event.label()])),
            bodies: ["claimed", "expired"].map(|end| bodies.with_label_values(&[end])),
            refusals,
            picks_held: gauge("kinference_picker_picks_held", "Picks whose end was not told yet."),
            bodies_held: gauge("kinference_picker_bodies_held", "Pushed bodies that no pick took yet."),
        }
    }

    /// Something became of that many picks.
    pub fn happened(&self, event: Event, picks: usize) {
        self.events[event as usize].inc_by(picks as u64);
    }

    /// That many bodies are not held any more.
    pub fn left(&self, end: BodyEnd, bodies: usize) {
        self.bodies[end as usize].inc_by(bodies as u64);
    }

    /// A call was turned away.
    pub fn refused(&self, reason: Reason) {
        self.refusals.with_label_values(&[reason.name()]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_sit_where_they_are_counted() {
        assert!(Event::ALL.iter().enumerate().all(|(i, event)| *event as usize == i));
        let metrics = Metrics::new();
        let stats = Stats::new(&metrics);
        stats.happened(Event::Displaced, 2);
        stats.left(BodyEnd::Expired, 1);
        stats.refused(Reason::WrongReplica);
        let text = metrics.render();
        assert!(text.contains("kinference_picker_events_total{event=\"displaced\"} 2"), "{text}");
        assert!(text.contains("kinference_picker_bodies_total{end=\"expired\"} 1"), "{text}");
        assert!(text.contains("kinference_picker_refusals_total{reason=\"WRONG_REPLICA\"} 1"), "{text}");
    }
}
