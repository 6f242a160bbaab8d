//! What is to be seen of the work: the metrics registry that every room registers its own metrics with, the latest
//! decisions, and what is logged.

mod decisions;
mod log;

pub use log::{LogFilter, LogFilterError};

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, core::Collector};

pub use decisions::{Decisions, Kept};

/// Where metrics are registered and rendered. Cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a collector and hands it back. Registering a name twice is a fault of ours: it is logged,
    /// and the second collector counts without being rendered.
    pub fn register<C: Collector + Clone + 'static>(&self, collector: C) -> C {
        if let Err(error) = self.registry.register(Box::new(collector.clone())) {
            tracing::error!(%error, "a metric is registered twice");
        }
        collector
    }

    /// A counter family with those labels.
    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.family(name, IntCounterVec::new(Opts::new(name, help), labels))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_registered_is_rendered() {
        let metrics = Metrics::new();
        metrics.counters("kinference_test_total", "A test.", &["kind"]).with_label_values(&["a"]).inc();
        assert!(metrics.render().contains("kinference_test_total{kind=\"a\"} 1"));
    }
}
