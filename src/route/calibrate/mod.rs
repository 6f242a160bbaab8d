//! A predictor that calibrates itself: the formula's own coefficients, fitted to observed times to first token.
//!
//! Online least squares with forgetting; the configured coefficients are the prior. Pure: observations in,
//! coefficients out. Invariant: coefficients are finite and within bounds, whatever is observed. Milliseconds.

mod errors;
mod fit;
mod learner;
mod terms;

pub use errors::{Accuracy, Errors};
pub use learner::{Kept, Learner, Observation, SHORTEST_MS, Taken};
pub use terms::{Features, TERMS, Term, Vector, coefficients, predict_calibrated, with_coefficients};

#[cfg(test)]
mod tests;
