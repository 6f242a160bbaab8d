//! What is to be seen of the work: the metrics registry that every room registers its own metrics with, the latest
//! decisions, their log and their traces, and what is logged.

mod decision_log;
mod decisions;
mod log;
mod names;
mod process;
mod queue;
mod shown;
mod traces;

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, core::Collector,
    proto::MetricType,
};

pub use decision_log::{DecisionLog, LogOptions, LogStopped, LogTarget, LogWriter};
pub use decisions::{Decisions, Ended, Kept, Reach, Told};
pub use log::{DEFAULT_LOG, LogFilter, LogFilterError, may_be_logged};
pub use names::{NONE, Names, OTHER};
pub use process::{register as register_process, version};
pub use shown::{Shown, ShownEnding, ShownKept, shown_time};
pub use traces::{SpanExporter, TraceError, TraceOptions, TraceProtocol, Traces};

/// Where metrics are registered and rendered. Cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics {
    registry: Registry,
    families: Arc<Mutex<Vec<Family>>>,
}

/// A metric family that is registered, whether or not it has series yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    /// Its name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its labels, in their order.
    pub labels: Vec<String>,
}

impl Metrics {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a collector and hands it back. Registering a name twice is a fault of ours: it is logged,
    /// and the second collector counts without being rendered.
    pub fn register<C: Collector + Clone + 'static>(&self, collector: C) -> C {
        self.add(collector.clone());
        collector
    }

    /// Registers a collector that nobody else needs; a name that is taken as [`Metrics::register`] does.
    pub fn add(&self, collector: impl Collector + 'static) {
        self.families.lock().extend(families(&collector));
        if let Err(error) = self.registry.register(Box::new(collector)) {
            tracing::error!(%error, "a metric is registered twice");
        }
    }

    /// Every family that is registered, in the order in which they were: what `docs/metrics.md` is held to.
    pub fn families(&self) -> Vec<Family> {
        self.families.lock().clone()
    }

    /// A counter family with those labels.
    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.family(name, IntCounterVec::new(Opts::new(name, help), labels))
    }

    /// A counter family of one label, whose `values` are there from the start at zero: else the first event is no increase.
    pub fn counters_from_zero(
        &self,
        name: &str,
        help: &str,
        (label, values): (&str, &[&str]),
    ) -> IntCounterVec {
        let family = self.counters(name, help, &[label]);
        values.iter().for_each(|value| drop(family.with_label_values(&[value])));
        family
    }

    /// A gauge family with those labels.
    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.family(name, IntGaugeVec::new(Opts::new(name, help), labels))
    }

    /// A histogram family with those labels; `buckets` are upper bounds in the unit of the name.
    pub fn histograms(&self, name: &str, help: &str, (labels, buckets): (&[&str], &[f64])) -> HistogramVec {
        self.family(name, HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels))
    }

    /// The Prometheus text of everything registered.
    pub fn render(&self) -> String {
        prometheus::TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_else(|error| {
            tracing::error!(%error, "metrics do not encode");
            String::new()
        })
    }

    fn family<C: Collector + Clone + 'static>(&self, name: &str, made: prometheus::Result<C>) -> C {
        match made {
            Ok(family) => self.register(family),
            // Names and labels are constants of the code: a test renders every one of them.
            Err(error) => unreachable!("metric {name}: {error}"),
        }
    }
}

/// What a collector describes.
fn families(collector: &impl Collector) -> Vec<Family> {
    let collected = collector.collect();
    let kind =
        |name: &str| match collected.iter().find(|one| one.name() == name).map(|one| one.get_field_type()) {
            Some(MetricType::COUNTER) => "counter",
            Some(MetricType::HISTOGRAM) => "histogram",
            _ => "gauge",
        };
    let described = collector.desc().into_iter();
    described
        .map(|desc| Family {
            name: desc.fq_name.clone(),
            kind: kind(&desc.fq_name),
            labels: desc.variable_labels.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_registered_is_rendered() {
        let metrics = Metrics::new();
        metrics.counters("kinference_test_total", "A test.", &["kind"]).with_label_values(&["a"]).inc();
        assert!(metrics.render().contains("kinference_test_total{kind=\"a\"} 1"));
        metrics.histograms("kinference_test_seconds", "Another.", (&[], &[1.0]));
        metrics.counters_from_zero("kinference_zero_total", "One more.", ("kind", &["b"]));
        assert!(metrics.render().contains("kinference_zero_total{kind=\"b\"} 0"));
        let family = |name: &str, kind, labels: &[&str]| Family {
            name: name.into(),
            kind,
            labels: labels.iter().map(ToString::to_string).collect(),
        };
        let all = [
            family("kinference_test_total", "counter", &["kind"]),
            family("kinference_test_seconds", "histogram", &[]),
            family("kinference_zero_total", "counter", &["kind"]),
        ];
        assert_eq!(metrics.families(), all);
    }
}
