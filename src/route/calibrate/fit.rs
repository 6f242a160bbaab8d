//! Regularised least squares with forgetting, within bounds: what is known is kept as information, not as covariance.
//!
//! Invariant: the information is symmetric, at least the prior's (which is never forgotten) and bounded, so that
//! nothing winds up; every coefficient is finite and within its bounds, whatever comes in.

use super::terms::{TERMS, Term, Vector, dot};

/// What a new observation leaves of the older ones, at most.
pub const KEEP: f64 = 0.998;
/// Information beyond this (of one term, in its own units) is no observation of a request.
const MOST_INFORMATION: f64 = 1e30;
/// Sweeps over the terms after an observation, from the solution before it.
const SWEEPS: usize = 24;

/// An observation of a linear function of the coefficients.
#[derive(Clone, Copy, Debug)]
pub struct Equation {
    /// Units of each term.
    pub x: Vector,
    /// What they came to.
    pub y: f64,
    /// One over its variance.
    pub weight: f64,
    /// What it leaves of what was known, up to [`KEEP`].
    pub keep: f64,
}

/// The fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    prior: Vector,
    /// One over the variance of the prior, a term.
    certain: Vector,
    information: [Vector; TERMS],
    /// The information times the coefficients that observations alone ask for.
    moment: Vector,
    theta: Vector,
}

/// What is to be kept of a fit over a restart.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct KeptFit {
    /// What observations say of each pair of terms.
    pub information: [Vector; TERMS],
    /// The information times the coefficients that observations alone ask for.
    pub moment: Vector,
    /// The coefficients.
    pub theta: Vector,
}

impl Fit {
    /// Nothing observed: the configured coefficients.
    pub fn new(prior: Vector) -> Self {
        let certain = std::array::from_fn(|i| Term::ALL[i].spread(prior[i]).powi(-2));
        Self { prior, certain, information: [[0.0; TERMS]; TERMS], moment: [0.0; TERMS], theta: prior }
    }

    /// What is to be kept.
    pub fn kept(&self) -> KeptFit {
        KeptFit { information: self.information, moment: self.moment, theta: self.theta }
    }

    /// Takes up what was kept; `None`: it is not what a fit comes to.
    pub fn restored(prior: Vector, kept: &KeptFit) -> Option<Self> {
        let KeptFit { information, moment, theta } = *kept;
        let all = || information.as_flattened().iter().chain(&moment);
        let in_range = all().all(|one| one.abs() <= MOST_INFORMATION / (1.0 - KEEP));
        let positive = (0..TERMS).all(|i| information[i][i] >= 0.0);
        let symmetric = (0..TERMS).all(|i| (0..i).all(|j| information[i][j] == information[j][i]));
        let within = Term::ALL.into_iter().zip(theta).all(|(term, one)| (0.0..=term.most()).contains(&one));
        let fit = Self { information, moment, theta, ..Self::new(prior) };
        (in_range && positive && symmetric && within).then_some(fit)
    }

    /// The coefficients.
    pub fn theta(&self) -> &Vector {
        &self.theta
    }

    /// Takes in an observation. One that is not finite, or out of all proportion, says nothing: `false`.
    pub fn observe(&mut self, equation: Equation) -> bool {
        let Equation { x, y, weight, keep } = equation;
        let most = x.iter().fold(y.abs(), |most, one| most.max(one.abs()));
        if !(weight >= 0.0 && weight * most * most < MOST_INFORMATION && (0.0..=KEEP).contains(&keep)) {
            return false;
        }
        for i in 0..TERMS {
            for j in 0..TERMS {
                self.information[i][j] = keep * self.information[i][j] + weight * (x[i] * x[j]);
            }
            self.moment[i] = keep * self.moment[i] + weight * x[i] * y;
        }
        self.solve();
        true
    }

    /// Coordinate descent: each term in turn takes its best value within its bounds, the others given.
    fn solve(&mut self) {
        for _ in 0..SWEEPS {
            for (i, term) in Term::ALL.into_iter().enumerate() {
                let row = &self.information[i];
                let others = dot(row, &self.theta) - row[i] * self.theta[i];
                let best =
                    (self.certain[i] * self.prior[i] + self.moment[i] - others) / (self.certain[i] + row[i]);
                self.theta[i] = best.max(0.0).min(term.most());
            }
        }
    }
}
