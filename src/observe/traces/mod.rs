//! Traces: a span for each sampled decision with its stages inside, and one for the response, sent to an OTLP receiver.
//!
//! Owner: the exporter's task. Invariant: a decision never waits for it, and what a client sent is in no span but for ids
//! and names, cut as the `Record` has them.

mod client;
mod export;
mod spans;
mod stats;

use std::{sync::Arc, time::Duration};

use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::types::{Ending, Record};

use super::{
    Metrics,
    queue::{Queue, queue},
};

pub use client::TraceError;
pub use export::SpanExporter;

use spans::{Place, response};
use stats::{Fate, TraceMetrics};

/// What is traced, and where it goes.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// `http://` or `https://` URL of the receiver, without a slash at its end.
    pub endpoint: String,
    /// How it is spoken to.
    pub protocol: TraceProtocol,
    /// Share of the requests, 0 to 1, that come without a trace of their own.
    pub sample: f64,
    /// `service.name`
    pub service: String,
    /// `service.instance.id`
    pub instance: Arc<str>,
    /// How long sending a batch may take.
    pub timeout: Duration,
    /// Of the ids of spans.
    pub seed: u64,
}

/// How a receiver is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceProtocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP over HTTP, in protobuf, at `/v1/traces`.
    Http,
}

/// What is to be sent.
#[derive(Debug)]
enum Traced {
    /// A decision at its place in a trace.
    Decision(Arc<Record>, Place),
    /// The span of a response that ended.
    Response(Box<Span>),
}

/// The near end.
pub struct Traces {
    sample: f64,
    rng: Mutex<StdRng>,
    queue: Queue<Traced>,
    metrics: TraceMetrics,
}

impl Traces {
    /// Traces, and what exports them: to be run. Within a runtime only.
    ///
    /// # Errors
    /// The endpoint can't be spoken to in any way.
    pub fn new(
        options: TraceOptions,
        http: reqwest::Client,
        metrics: &Metrics,
    ) -> Result<(Self, SpanExporter), TraceError> {
        let metrics = TraceMetrics::new(metrics);
        let (queue, waiting) = queue();
        let (sample, rng) = (options.sample, Mutex::new(StdRng::seed_from_u64(options.seed)));
        let exporter = SpanExporter::new((options, http), waiting, metrics.clone())?;
        Ok((Self { sample, rng, queue, metrics }, exporter))
    }

    /// Has a decision sent, if its trace is sampled: the span of the response, to be [ended](Self::ended).
    pub(super) fn decided(&self, record: &Arc<Record>) -> Option<Box<Span>> {
        let place = self.place(record)?;
        self.put(Traced::Decision(record.clone(), place), record.candidates());
        response(record, &place, self.rng.lock().random_range(1..=u64::MAX))
    }

    /// Has the span of a response sent.
    pub(super) fn ended(&self, mut response: Box<Span>, ending: &Ending) {
        spans::end(&mut response, ending);
        self.put(Traced::Response(response), 0);
    }

    /// Waits until what was decided so far is sent, but no longer than `most`; whether it is.
    pub(super) async fn flush(&self, most: Duration) -> bool {
        self.queue.flush(most).await
    }

    /// Where a decision is in a trace; `None`: the trace is not sampled. A caller that has a trace decides that.
    fn place(&self, record: &Record) -> Option<Place> {
        if record.traceparent.is_some_and(|parent| !parent.sampled) {
            return None;
        }
        let mut rng = self.rng.lock();
        let trace_id = match record.traceparent {
            Some(parent) => parent.trace_id,
            None if rng.random::<f64>() < self.sample => rng.random_range(1..=u128::MAX),
            None => return None,
        };
        let parent_id = record.traceparent.map(|parent| parent.span_id);
        Some(Place { trace_id, parent_id, span_id: rng.random_range(1..=u64::MAX) })
    }

    fn put(&self, traced: Traced, candidates: usize) {
        let spans = traced.spans();
        if !self.queue.put(traced, candidates) {
            self.metrics.count(Fate::Dropped, spans);
        }
    }
}

impl Traced {
    /// How many spans it is.
    fn spans(&self) -> u64 {
        match self {
            Self::Decision(record, _) => 1 + record.stages.iter().count() as u64,
            Self::Response(_) => 1,
        }
    }
}
