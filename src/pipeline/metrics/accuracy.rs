//! How true predictions of the time to first token are, by model and worker set. Seconds.
//!
//! The error is kept without its sign in a histogram, and the sign as a label: its sums give both the mean error and the
//! bias. Its share of what was observed is another histogram: sum over count is the mean absolute percentage error.

use std::{sync::Arc, time::Duration};

use prometheus::HistogramVec;

use super::series::TTFT_BUCKETS;
use crate::observe::Metrics;

const ERROR_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
const RATIO_BUCKETS: &[f64] = &[0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 100.0];
/// What is observed counts as at least this much, or nothing could be a share of it.
const SHORTEST: f64 = 0.001;

/// A prediction that came to be measured.
#[derive(Clone, Copy, Debug)]
pub(in crate::pipeline) struct Prediction {
    /// Seconds.
    pub predicted: f64,
    /// What was seen.
    pub observed: Duration,
}

pub(super) struct Accuracy {
    predicted: HistogramVec,
    error: HistogramVec,
    ratio: HistogramVec,
}

impl Accuracy {
    pub fn new(m: &Metrics) -> Self {
        let histograms = |name, help, labels, buckets| m.histograms(name, help, (labels, buckets));
        Self {
            predicted: histograms(
                "kinference_ttft_predicted_seconds",
                "Time to first token as it was predicted, of streamed answers to picks made on the prompt.",
                &["model", "workerset"],
                TTFT_BUCKETS,
            ),
            error: histograms(
                "kinference_ttft_error_seconds",
                "How far the predicted time to first token is over or under what was observed.",
                &["model", "workerset", "sign"],
                ERROR_BUCKETS,
            ),
            ratio: histograms(
                "kinference_ttft_error_ratio",
                "The same, whatever its sign, as a share of what was observed.",
                &["model", "workerset"],
                RATIO_BUCKETS,
            ),
        }
    }

    /// Of that model and worker set.
    pub fn observe(&self, (model, workerset): (&Arc<str>, &Arc<str>), prediction: Prediction) {
        let observed = prediction.observed.as_secs_f64();
        let error = prediction.predicted - observed;
        let sign = if error < 0.0 { "under" } else { "over" };
        self.predicted.with_label_values(&[model, workerset]).observe(prediction.predicted);
        self.error.with_label_values(&[&**model, &**workerset, sign]).observe(error.abs());
        self.ratio.with_label_values(&[model, workerset]).observe(error.abs() / observed.max(SHORTEST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_tell_the_bias_and_the_mean_error() {
        let metrics = Metrics::new();
        let accuracy = Accuracy::new(&metrics);
        let of = (&"m".into(), &"s".into());
        for (predicted, observed_ms) in [(0.5, 1000), (0.75, 1000), (3.0, 2000), (0.001, 0)] {
            accuracy.observe(of, Prediction { predicted, observed: Duration::from_millis(observed_ms) });
        }
        let text = metrics.render();
        for line in [
            r#"kinference_ttft_error_seconds_sum{model="m",sign="under",workerset="s"} 0.75"#,
            r#"kinference_ttft_error_seconds_count{model="m",sign="over",workerset="s"} 2"#,
            r#"kinference_ttft_error_seconds_sum{model="m",sign="over",workerset="s"} 1.001"#,
            r#"kinference_ttft_error_ratio_sum{model="m",workerset="s"} 2.25"#,
            r#"kinference_ttft_predicted_seconds_count{model="m",workerset="s"} 4"#,
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
    }
}
