//! How true the latest predictions were, with the configured and with the fitted coefficients. Milliseconds.

use std::collections::VecDeque;

/// Requests that are judged by.
const WINDOW: usize = 500;

/// A request whose first token was seen, and what was predicted for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// What was seen.
    pub observed_ms: f64,
    /// With the configured coefficients.
    pub configured_ms: f64,
    /// With the fitted ones, as they were then.
    pub calibrated_ms: f64,
}

/// The latest requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors {
    latest: VecDeque<Judged>,
}

/// How true predictions were.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Accuracy {
    /// Mean absolute error as a share of what was observed.
    pub mape: f64,
    /// The absolute error that nine of ten keep below, milliseconds.
    pub p90_ms: f64,
    /// Mean error, milliseconds; above 0: too much was predicted.
    pub bias_ms: f64,
}

impl Errors {
    /// One more.
    pub fn add(&mut self, judged: Judged) {
        if self.latest.len() == WINDOW {
            self.latest.pop_front();
        }
        self.latest.push_back(judged);
    }

    /// Requests that are judged by.
    pub fn count(&self) -> usize {
        self.latest.len()
    }

    /// With the configured coefficients.
    pub fn configured(&self) -> Accuracy {
        self.of(|judged| judged.configured_ms)
    }

    /// With the fitted coefficients.
    pub fn calibrated(&self) -> Accuracy {
        self.of(|judged| judged.calibrated_ms)
    }

    fn of(&self, predicted: impl Fn(&Judged) -> f64) -> Accuracy {
        let count = self.latest.len();
        if count == 0 {
            return Accuracy::default();
        }
        let errors = || self.latest.iter().map(|judged| (predicted(judged) - judged.observed_ms, judged));
        let mut absolute: Vec<f64> = errors().map(|(error, _)| error.abs()).collect();
        absolute.sort_by(f64::total_cmp);
        Accuracy {
            mape: errors().map(|(error, judged)| error.abs() / judged.observed_ms).sum::<f64>()
                / count as f64,
            p90_ms: absolute[(count * 9).div_ceil(10) - 1],
            bias_ms: errors().map(|(error, _)| error).sum::<f64>() / count as f64,
        }
    }
}
