//! What one worker set teaches: fits each observed time to first token, and keeps count of how well it predicts.
//!
//! Invariant: no single observation moves the coefficients by more than what `HUBER` typical errors would. Errors are
//! shares of what was observed, so that long prompts count no more than short ones. Milliseconds.

use super::{
    errors::{Errors, Judged},
    fit::{Equation, Fit, KEEP, KeptFit},
    terms::{Features, Vector},
};

/// What is observed counts as at least this much: below it, it is the network that is measured.
pub const SHORTEST_MS: f64 = 5.0;
/// Nothing takes longer to its first token.
const LONGEST_MS: f64 = 3_600_000.0;
/// Errors of more typical errors than this pull with the force of so many.
const HUBER: f64 = 1.0;
/// Errors of more typical errors than this are outliers.
const OUTLIER: f64 = 6.0;
/// Of what is predicted, the least that an error is a share of.
const LEAST_SHARE: f64 = 0.5;
/// What errors are put down to chance, as a share: what the prior is weighed against.
const NOISE: f64 = 0.1;
/// Where errors are typically larger than that, the engine has changed: it is forgotten so many times faster at most.
const FASTEST: f64 = 10.0;
/// How much an error changes what is typical.
const ADAPT: f64 = 0.05;
/// The typical error is in this range; it begins at its end.
const TYPICAL: (f64, f64) = (0.02, 1.0);

/// A request whose first token was seen.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// Its prediction, in terms.
    pub features: Features,
    /// What the configured coefficients predicted.
    pub configured_ms: f64,
    /// What the fitted ones predicted at that time.
    pub calibrated_ms: f64,
    /// What was seen.
    pub observed_ms: f64,
}

/// How an observation was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// As it is.
    Used,
    /// It is far from what is typical, and counted for little.
    Outlier,
    /// It is no number.
    Refused,
}

/// What is to be kept of a learner over a restart: all but the errors.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Kept {
    /// What observations say.
    pub fit: KeptFit,
    /// Typical size of the error, as a share of what is observed.
    pub typical: f64,
}

/// The learner.
#[derive(Clone, Debug, PartialEq)]
pub struct Learner {
    fit: Fit,
    /// Typical size of the error, as a share of what is observed.
    typical: f64,
    errors: Errors,
}

impl Learner {
    /// Knows the configured coefficients.
    pub fn new(prior: Vector) -> Self {
        Self { fit: Fit::new(prior), typical: TYPICAL.1, errors: Errors::default() }
    }

    /// What is to be kept.
    pub fn kept(&self) -> Kept {
        Kept { fit: self.fit.kept(), typical: self.typical }
    }

    /// Takes up what was kept; `None`: it is not what a learner comes to.
    pub fn restored(prior: Vector, kept: &Kept) -> Option<Self> {
        let known = (TYPICAL.0..=TYPICAL.1).contains(&kept.typical);
        let fit = Fit::restored(prior, &kept.fit).filter(|_| known)?;
        Some(Self { fit, typical: kept.typical, errors: Errors::default() })
    }

    /// The coefficients.
    pub fn theta(&self) -> &Vector {
        self.fit.theta()
    }

    /// How true predictions were.
    pub fn errors(&self) -> &Errors {
        &self.errors
    }

    /// Takes in an observation.
    pub fn observe(&mut self, seen: &Observation) -> Taken {
        let predicted_ms = seen.features.predict(self.theta());
        // An answer that comes at once, against all odds, would outweigh all others.
        let size = seen.observed_ms.max(LEAST_SHARE * predicted_ms).max(SHORTEST_MS);
        let share = (predicted_ms - seen.observed_ms).abs() / size;
        if !share.is_finite() || seen.observed_ms > LONGEST_MS {
            return Taken::Refused;
        }
        let far = share / self.typical;
        let weight = (HUBER / far).min(1.0) / (size * NOISE).powi(2);
        let faster = (self.typical / NOISE).clamp(1.0, FASTEST);
        let keep = (1.0 - (1.0 - KEEP) * faster).min(KEEP);
        let y = seen.observed_ms + seen.features.drained_ms;
        if !self.fit.observe(Equation { x: seen.features.x, y, weight, keep }) {
            return Taken::Refused;
        }
        // Half of the errors are above it where as many steps go up as down.
        let step = if share > self.typical { 1.0 + ADAPT } else { 1.0 / (1.0 + ADAPT) };
        self.typical = (self.typical * step).clamp(TYPICAL.0, TYPICAL.1);
        self.errors.add(Judged {
            observed_ms: seen.observed_ms.max(SHORTEST_MS),
            configured_ms: seen.configured_ms,
            calibrated_ms: seen.calibrated_ms,
        });
        if far > OUTLIER { Taken::Outlier } else { Taken::Used }
    }
}
