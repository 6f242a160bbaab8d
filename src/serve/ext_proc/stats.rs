//! What the ext_proc front door counts.

use prometheus::{IntCounter, IntCounterVec, IntGauge};

use super::{effect::Unrenamed, inbound::Message};
use crate::{observe::Metrics, types::ErrorKind};

/// How a stream ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The proxy or its client went away before the response was over.
    #[default]
    Cancelled,
    /// The response was seen to its end.
    Completed,
    /// We answered the client ourselves.
    Rejected,
    /// The stream broke the protocol: a message too large or not decodable.
    Broken,
}

impl End {
    const ALL: [Self; 4] = [Self::Cancelled, Self::Completed, Self::Rejected, Self::Broken];

    const fn label(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Completed => "completed",
            Self::Rejected => "rejected",
            Self::Broken => "broken",
        }
    }
}

const MESSAGES: [&str; 6] = [
    "request_headers",
    "request_body",
    "request_trailers",
    "response_headers",
    "response_body",
    "response_trailers",
];

/// The counters, each label's looked up once.
pub struct Stats {
    ends: [IntCounter; End::ALL.len()],
    rejections: IntCounterVec,
    messages: [IntCounter; MESSAGES.len()],
    unrenamed: [IntCounter; Unrenamed::ALL.len()],
    open: IntGauge,
}

impl Stats {
    /// Registers them.
    pub fn new(metrics: &Metrics) -> Self {
        let ends =
            metrics.counters("kinference_ext_proc_streams_total", "Streams by how they ended.", &["end"]);
        let rejections = metrics.counters(
            "kinference_ext_proc_rejections_total",
            "Requests answered with an error instead of a destination.",
            &["kind"],
        );
        let messages = metrics.counters(
            "kinference_ext_proc_messages_total",
            "Messages received from proxies.",
            &["message"],
        );
        let unrenamed = metrics.counters(
            "kinference_ext_proc_unrenamed_total",
            "Bodies that went on with another name of the model than they should have.",
            &["reason"],
        );
        let open = metrics.gauges("kinference_ext_proc_open_streams", "Streams open now.", &[]);
        // All are shown from the start.
        ErrorKind::ALL.iter().for_each(|kind| drop(rejections.with_label_values(&[kind.label()])));
        Self {
            ends: End::ALL.map(|end| ends.with_label_values(&[end.label()])),
            rejections,
            messages: MESSAGES.map(|name| messages.with_label_values(&[name])),
            unrenamed: Unrenamed::ALL.map(|reason| unrenamed.with_label_values(&[reason.label()])),
            open: open.with_label_values::<&str>(&[]),
        }
    }

    /// A stream began.
    pub fn began(&self) {
        self.open.inc();
    }

    /// A stream ended.
    pub fn ended(&self, end: End) {
        self.open.dec();
        self.ends[end as usize].inc();
    }

    /// A request was turned away.
    pub fn rejected(&self, kind: ErrorKind) {
        self.rejections.with_label_values(&[kind.label()]).inc();
    }

    /// A body kept its name of the model.
    pub fn unrenamed(&self, reason: Unrenamed) {
        self.unrenamed[reason as usize].inc();
    }

    /// A message came.
    pub fn received(&self, message: &Message) {
        let at = match message {
            Message::RequestHeaders { .. } => 0,
            Message::RequestBody(_) => 1,
            Message::RequestTrailers => 2,
            Message::ResponseHeaders(_) => 3,
            Message::ResponseBody(_) => 4,
            Message::ResponseTrailers => 5,
        };
        self.messages[at].inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_sit_where_they_are_counted() {
        assert!(End::ALL.iter().enumerate().all(|(i, end)| *end as usize == i));
        assert!(Unrenamed::ALL.iter().enumerate().all(|(i, reason)| *reason as usize == i));
        let metrics = Metrics::new();
        let stats = Stats::new(&metrics);
        stats.began();
        stats.ended(End::Rejected);
        stats.rejected(ErrorKind::NoWorker);
        let text = metrics.render();
        assert!(text.contains("kinference_ext_proc_streams_total{end=\"rejected\"} 1"), "{text}");
        assert!(text.contains("kinference_ext_proc_rejections_total{kind=\"no_worker\"} 1"), "{text}");
        assert!(text.contains("kinference_ext_proc_open_streams 0"), "{text}");
    }
}
