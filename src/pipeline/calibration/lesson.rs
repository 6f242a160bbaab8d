//! What one request teaches, from its pick to its first token: or why it teaches nothing.
//!
//! Invariant: a lesson is counted once, when the first token is seen or when the request has ended. Milliseconds.

use std::{sync::Arc, time::Duration};

use super::{Calibrations, OfSet, instruments::Outcome};
use crate::{
    load::LoadView,
    route::calibrate::{Features, Observation, coefficients},
    types::{Candidate, Degradation},
};

/// A request that is to teach something.
pub(in crate::pipeline) struct Lesson {
    calibrations: Arc<Calibrations>,
    of: Arc<OfSet>,
    /// What is known at the pick.
    predicted: Result<Predicted, Outcome>,
}

struct Predicted {
    features: Features,
    configured_ms: f64,
    calibrated_ms: f64,
}

/// What has to be known of a request besides its prediction.
pub(in crate::pipeline) struct About<'a> {
    /// Its first token will be seen.
    pub token_is_seen: bool,
    /// Its prompt is known in tokens.
    pub with_prompt: bool,
    /// The decision as a whole lacked something.
    pub degraded: bool,
    /// Load of its worker before it came.
    pub load: &'a LoadView,
}

impl Lesson {
    /// Of a request that goes to this candidate.
    pub(in crate::pipeline) fn new(
        (calibrations, of): (&Arc<Calibrations>, Arc<OfSet>),
        chosen: &Candidate,
        about: &About<'_>,
    ) -> Self {
        // Without scrapes our own requests are still known.
        let lacks = |lack: &Degradation| *lack != Degradation::NoMetrics;
        let predicted = if !about.token_is_seen {
            Err(Outcome::Whole)
        } else if !about.with_prompt {
            Err(Outcome::LoadOnly)
        } else if about.degraded || chosen.degraded.iter().any(lacks) {
            Err(Outcome::Degraded)
        } else {
            Ok(predicted(&of, chosen, about.load))
        };
        Self { calibrations: calibrations.clone(), of, predicted }
    }

    /// The first token was seen, of the worker that was picked or of another one.
    pub(in crate::pipeline) fn first_token(self, after: Duration, as_picked: bool) {
        let predicted = if as_picked { self.predicted } else { Err(Outcome::Moved) };
        match predicted {
            Ok(Predicted { features, configured_ms, calibrated_ms }) => {
                let observed_ms = after.as_secs_f64() * 1e3;
                let observation = Observation { features, configured_ms, calibrated_ms, observed_ms };
                self.calibrations.observe(&self.of, &observation);
            }
            Err(outcome) => self.calibrations.instruments.observed(&self.of.name, outcome),
        }
    }

    /// It ended, and no first token was seen.
    pub(in crate::pipeline) fn ended(self) {
        let outcome = self.predicted.err().unwrap_or(Outcome::NoToken);
        self.calibrations.instruments.observed(&self.of.name, outcome);
    }
}

fn predicted(of: &OfSet, chosen: &Candidate, load: &LoadView) -> Predicted {
    let fitted = of.fitted.load();
    let in_terms = |predictor| Features::of(&chosen.prediction, predictor, &load.ahead);
    let features = in_terms(&fitted.predictor);
    let prediction = &chosen.prediction;
    let configured_ms = match prediction.calibrated {
        true => in_terms(&of.configured).predict(&coefficients(&of.configured)),
        false => prediction.ttft_ms - prediction.assumed_ms,
    };
    Predicted { features, configured_ms, calibrated_ms: features.predict(&fitted.theta) }
}
