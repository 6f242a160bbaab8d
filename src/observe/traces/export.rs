//! The task that sends spans, in batches.
//!
//! Invariant: of a run of failures the first is logged, and its end. While a batch is on its way the queue fills, and what
//! does not fit there is dropped.

use std::{convert::Infallible, future::pending, mem, time::Duration};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::InstrumentationScope,
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::{
    super::queue::{Message, Waiting},
    TraceError, TraceOptions, Traced,
    client::Client,
    spans::{spans, text},
    stats::{Fate, TraceMetrics},
};

/// Spans that are sent at once, give or take a decision.
const AT_ONCE: usize = 512;
/// How long a span waits for others.
const WAIT: Duration = Duration::from_secs(1);

/// What sends spans.
pub struct SpanExporter {
    client: Client,
    resource: Resource,
    waiting: Waiting<Traced>,
    metrics: TraceMetrics,
    rng: StdRng,
    batch: Vec<Span>,
    /// The receiver took what was last sent to it.
    takes: bool,
}

/// What makes a batch go.
enum Due {
    /// It is full, or has waited.
    Time,
    /// Somebody waits for it.
    Asked(oneshot::Sender<()>),
    /// Nothing will come any more.
    Never,
}

impl SpanExporter {
    pub(super) fn new(
        (options, http): (TraceOptions, reqwest::Client),
        waiting: Waiting<Traced>,
        metrics: TraceMetrics,
    ) -> Result<Self, TraceError> {
        let attributes = vec![
            text("service.name", &options.service),
            text("service.instance.id", &options.instance),
            text("service.version", env!("CARGO_PKG_VERSION")),
        ];
        Ok(Self {
            client: Client::new(&options, http)?,
            resource: Resource { attributes, ..Resource::default() },
            waiting,
            metrics,
            // Another stream than that of the near end, of the same seed.
            rng: StdRng::seed_from_u64(!options.seed),
            batch: Vec::new(),
            takes: true,
        })
    }

    /// Sends for ever.
    pub async fn run(mut self) -> Infallible {
        loop {
            let due = self.fill().await;
            self.send().await;
            match due {
                Due::Time => {}
                // Who asked may have given up.
                Due::Asked(done) => drop(done.send(())),
                Due::Never => return pending().await,
            }
        }
    }

    /// Takes spans until the batch is due.
    async fn fill(&mut self) -> Due {
        let mut until = None;
        while self.batch.len() < AT_ONCE {
            let next = match until {
                None => self.waiting.recv().await,
                Some(until) => match timeout_at(until, self.waiting.recv()).await {
                    Ok(next) => next,
                    Err(_) => return Due::Time,
                },
            };
            match next {
                Some(Message::Item(Traced::Decision(record, place), _room)) => {
                    let rng = &mut self.rng;
                    self.batch.extend(spans(&record, &place, || rng.random_range(1..=u64::MAX)));
                }
                Some(Message::Item(Traced::Response(span), _room)) => self.batch.push(*span),
                Some(Message::Flush(done)) => return Due::Asked(done),
                None => return Due::Never,
            }
            until.get_or_insert_with(|| Instant::now() + WAIT);
        }
        Due::Time
    }

    async fn send(&mut self) {
        let spans = mem::take(&mut self.batch);
        if spans.is_empty() {
            return;
        }
        let all = spans.len() as u64;
        let scope = InstrumentationScope {
            name: env!("CARGO_PKG_NAME").into(),
            version: env!("CARGO_PKG_VERSION").into(),
            ..InstrumentationScope::default()
        };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, schema_url: String::new() }];
        let resource = Some(self.resource.clone());
        let resource_spans = vec![ResourceSpans { resource, scope_spans, schema_url: String::new() }];
        let sent = self.client.send(ExportTraceServiceRequest { resource_spans }).await;
        let failed = match &sent {
            Ok(()) => 0,
            Err(TraceError::Partial { spans, .. }) => all.min(*spans),
            Err(_) => all,
        };
        self.metrics.count(Fate::Failed, failed);
        self.metrics.count(Fate::Exported, all - failed);
        let took = mem::replace(&mut self.takes, sent.is_ok());
        match sent {
            Ok(()) if !took => tracing::info!("traces are taken again"),
            Err(error) if took => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "traces are not taken: they are lost until they are"
                );
            }
            _ => {}
        }
    }
}
