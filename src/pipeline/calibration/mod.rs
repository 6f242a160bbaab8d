//! What calibration has learnt, a worker set: read by every pick without a lock, fed by first tokens.
//!
//! Invariant: an entry is of one configured predictor; another one for the same set starts afresh. Entries that learnt
//! nothing for an hour are dropped when another one comes, so that sets that are gone do not pile up. Milliseconds.

mod instruments;
mod lesson;

use std::{collections::HashMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    config::{Calibration, PredictorConfig},
    fleet::WorkerSet,
    observe::Metrics,
    route::calibrate::{Accuracy, Learner, Observation, Term, Vector, coefficients, with_coefficients},
};

use instruments::Instruments;
pub(super) use lesson::{About, Lesson};

/// After so long without an observation nobody misses an entry.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// The error that is shown is computed anew after so many observations.
const SHOWN_EVERY: u64 = 16;

/// What is learnt of all worker sets.
pub struct Calibrations {
    sets: ArcSwap<HashMap<Arc<str>, Arc<OfSet>>>,
    instruments: Instruments,
}

/// What is learnt of one worker set.
pub struct OfSet {
    name: Arc<str>,
    configured: PredictorConfig,
    fitted: ArcSwap<Fitted>,
    state: Mutex<State>,
}

/// Coefficients that predictions can be made with.
pub struct Fitted {
    /// As they are fitted.
    pub theta: Vector,
    /// In a configuration.
    pub predictor: PredictorConfig,
}

struct State {
    learner: Learner,
    observations: u64,
    latest: Instant,
}

/// What has been learnt of a worker set, to be shown.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Learnt {
    /// Its name.
    pub workerset: String,
    /// Predictions are made with it.
    pub in_force: bool,
    /// First tokens that it was learnt from since the start.
    pub observations: u64,
    /// How true the latest predictions were with the configured coefficients.
    pub before: Accuracy,
    /// And with the fitted ones, as they were then.
    pub after: Accuracy,
    /// Each coefficient, in the order of the formula.
    pub coefficients: Vec<Coefficient>,
}

/// A coefficient, in milliseconds for each unit of its term.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Coefficient {
    /// Its key in `[profile.predictor]`.
    pub key: String,
    /// As configured.
    pub configured: f64,
    /// As fitted.
    pub fitted: f64,
}

impl Calibrations {
    /// Nothing learnt.
    pub fn new(metrics: &Metrics) -> Arc<Self> {
        Arc::new(Self { sets: ArcSwap::default(), instruments: Instruments::new(metrics) })
    }

    /// The entry of a worker set; `None` where calibration is off.
    pub(super) fn of(&self, set: &WorkerSet) -> Option<Arc<OfSet>> {
        let configured = &set.profile.predictor;
        if configured.calibration == Calibration::Off {
            return None;
        }
        if let Some(found) = self.sets.load().get(&set.name).filter(|found| found.configured == *configured) {
            return Some(found.clone());
        }
        let made = Arc::new(OfSet::new(set));
        let before = self.sets.rcu(|sets| {
            let mut sets = HashMap::clone(sets);
            sets.retain(|_, known| known.state.lock().latest.elapsed() < FORGOTTEN_AFTER);
            sets.insert(set.name.clone(), made.clone());
            sets
        });
        let now = self.sets.load();
        before.keys().filter(|name| !now.contains_key(*name)).for_each(|name| self.instruments.forget(name));
        Some(made)
    }

    /// What predictions for a worker set are made with; `None`: with the configured coefficients.
    pub(super) fn in_force(&self, set: &WorkerSet) -> Option<Arc<Fitted>> {
        let on = set.profile.predictor.calibration == Calibration::On;
        on.then(|| self.of(set)).flatten().map(|known| known.fitted.load_full())
    }

    /// What has been learnt, by the name of the worker set.
    pub fn learnt(&self) -> Vec<Learnt> {
        let mut all: Vec<_> = self.sets.load().values().map(|known| known.learnt()).collect();
        all.sort_by(|a, b| a.workerset.cmp(&b.workerset));
        all
    }

    /// A first token was seen.
    fn observe(&self, known: &OfSet, observation: &Observation) {
        let mut state = known.state.lock();
        let taken = state.learner.observe(observation);
        state.observations += 1;
        state.latest = Instant::now();
        let theta = *state.learner.theta();
        let errors = state.observations.is_multiple_of(SHOWN_EVERY).then(|| state.learner.errors().clone());
        drop(state);
        let predictor = with_coefficients(&known.configured, &theta);
        known.fitted.store(Arc::new(Fitted { theta, predictor }));
        self.instruments.observed(&known.name, taken.into());
        self.instruments.coefficients(&known.name, Term::ALL.map(Term::key).into_iter().zip(theta));
        if let Some(errors) = errors {
            self.instruments.errors(&known.name, (errors.configured(), errors.calibrated()));
        }
    }
}

impl OfSet {
    fn new(set: &WorkerSet) -> Self {
        let configured = set.profile.predictor.clone();
        let prior = coefficients(&configured);
        let learner = Learner::new(prior);
        Self {
            name: set.name.clone(),
            fitted: ArcSwap::from_pointee(Fitted { theta: prior, predictor: configured.clone() }),
            configured,
            state: Mutex::new(State { learner, observations: 0, latest: Instant::now() }),
        }
    }

    fn learnt(&self) -> Learnt {
        let state = self.state.lock();
        let (observations, errors) = (state.observations, state.learner.errors().clone());
        drop(state);
        let pairs = coefficients(&self.configured).into_iter().zip(self.fitted.load().theta);
        let coefficient = |(term, (configured, fitted)): (Term, (f64, f64))| Coefficient {
            key: term.key().to_owned(),
            configured,
            fitted,
        };
        Learnt {
            workerset: self.name.to_string(),
            in_force: self.configured.calibration == Calibration::On,
            observations,
            before: errors.configured(),
            after: errors.calibrated(),
            coefficients: Term::ALL.into_iter().zip(pairs).map(coefficient).collect(),
        }
    }
}
