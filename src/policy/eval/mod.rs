//! Which rule decides over a request, and what its steps make of the candidates. Pure: no clock, no chance.
//!
//! Two calls: [`Pool::rules_for`] before anything is predicted, [`Matched::run`] on predicted candidates.

mod authorization;
mod candidate;
mod condition;
mod pool;
mod request;
mod rule;
mod run;
mod trace;

pub use authorization::Authorization;
pub(super) use candidate::{BackendMask, CandidateCondition};
pub use candidate::{Candidate, WorkerState};
pub use pool::{Backend, Key, Model, Pool, Provider};
pub use request::{Load, PoolState, Request, Spread};
pub(super) use rule::{Matcher, ModelMask, Step};
pub use rule::{Matching, Rule};
pub use run::{Matched, Outcome, Ranked, Verdict};
pub use trace::{Effect, RuleTrace, StepTrace};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
