//! Calibration as metrics, a worker set. Seconds, also for coefficients (which are configured in milliseconds), and shares.

use std::sync::Arc;

use prometheus::{GaugeVec, IntCounterVec, Opts};

use crate::{
    observe::Metrics,
    route::calibrate::{Accuracy, Taken},
};

/// What became of a request that might have taught something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pipeline) enum Outcome {
    /// Learnt from.
    Used,
    /// So far off that it counted for little.
    Outlier,
    /// Its numbers make no sense.
    Refused,
    /// It is answered as a whole: no first token is seen.
    Whole,
    /// Its prompt is not known.
    LoadOnly,
    /// Something was missing when it was predicted.
    Degraded,
    /// Another worker than the predicted one served it.
    Moved,
    /// It ended before its first token.
    NoToken,
}

impl Outcome {
    const ALL: [Self; 8] = [
        Self::Used,
        Self::Outlier,
        Self::Refused,
        Self::Whole,
        Self::LoadOnly,
        Self::Degraded,
        Self::Moved,
        Self::NoToken,
    ];

    const fn label(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Outlier => "outlier",
            Self::Refused => "refused",
            Self::Whole => "whole",
            Self::LoadOnly => "load_only",
            Self::Degraded => "degraded",
            Self::Moved => "moved",
            Self::NoToken => "no_token",
        }
    }
}

impl From<Taken> for Outcome {
    fn from(taken: Taken) -> Self {
        match taken {
            Taken::Used => Self::Used,
            Taken::Outlier => Self::Outlier,
            Taken::Refused => Self::Refused,
        }
    }
}

/// The two sets of coefficients that errors are told of.
const COEFFICIENTS: [&str; 2] = ["configured", "calibrated"];

pub(super) struct Instruments {
    observations: IntCounterVec,
    coefficient: GaugeVec,
    ratio: GaugeVec,
    p90: GaugeVec,
    bias: GaugeVec,
}

impl Instruments {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let gauges =
            |name: &str, help: &str, labels: &[&str]| match GaugeVec::new(Opts::new(name, help), labels) {
                Ok(family) => metrics.register(family),
                // Names and labels are constants of the code: a test renders every one of them.
                Err(error) => unreachable!("metric {name}: {error}"),
            };
        let labels = &["workerset", "coefficients"];
        Self {
            observations: metrics.counters(
                "kinference_calibration_requests_total",
                "What became of requests as observations of the time to first token.",
                &["workerset", "result"],
            ),
            coefficient: gauges(
                "kinference_calibration_coefficient_seconds",
                "Fitted coefficient of a term of the prediction, named by its key.",
                &["workerset", "term"],
            ),
            ratio: gauges(
                "kinference_calibration_error_ratio",
                "Mean absolute error of the latest predictions, as a share of what was observed.",
                labels,
            ),
            p90: gauges(
                "kinference_calibration_error_p90_seconds",
                "Absolute error that nine of ten of the latest predictions keep below.",
                labels,
            ),
            bias: gauges(
                "kinference_calibration_bias_seconds",
                "Mean error of the latest predictions; above 0: too much was predicted.",
                labels,
            ),
        }
    }

    pub(super) fn observed(&self, set: &Arc<str>, outcome: Outcome) {
        self.observations.with_label_values(&[set, outcome.label()]).inc();
    }

    pub(super) fn coefficients(&self, set: &Arc<str>, all: impl Iterator<Item = (&'static str, f64)>) {
        all.for_each(|(key, ms)| self.coefficient.with_label_values(&[&**set, key]).set(ms / 1e3));
    }

    /// Of the configured and of the fitted coefficients.
    pub(super) fn errors(&self, set: &Arc<str>, (before, after): (Accuracy, Accuracy)) {
        for (label, accuracy) in COEFFICIENTS.into_iter().zip([before, after]) {
            let labels = &[&**set, label];
            self.ratio.with_label_values(labels).set(accuracy.mape);
            self.p90.with_label_values(labels).set(accuracy.p90_ms / 1e3);
            self.bias.with_label_values(labels).set(accuracy.bias_ms / 1e3);
        }
    }

    /// Nothing is shown of that set any more. Series that are not there are no fault.
    pub(super) fn forget(&self, set: &str) {
        for outcome in Outcome::ALL {
            let _ = self.observations.remove_label_values(&[set, outcome.label()]);
        }
        for term in crate::route::calibrate::Term::ALL {
            let _ = self.coefficient.remove_label_values(&[set, term.key()]);
        }
        for label in COEFFICIENTS {
            for family in [&self.ratio, &self.p90, &self.bias] {
                let _ = family.remove_label_values(&[set, label]);
            }
        }
    }
}
