//! What the steps of rules did, for people who ask why.

use super::{super::crd::OnEmpty, run::Ranked};

/// What a rule did.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleTrace {
    /// Its index in the pool's rules.
    pub rule: usize,
    /// Its steps, as far as they were run.
    pub steps: Vec<StepTrace>,
}

/// What a step did.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTrace {
    /// What it came to.
    pub effect: Effect,
    /// The candidates that it took away.
    pub removed: Vec<usize>,
}

/// What a step came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// It took candidates away, or found none to take.
    Narrowed,
    /// It leaves none.
    WouldEmpty(OnEmpty),
    /// A `prefer`: none is preferred, all stay.
    NonePreferred,
    /// A `prefer`: another one is faster by so many milliseconds, all stay.
    OthersFaster(f64),
    /// A `minimize`: all stay, in this order.
    Ordered(Vec<Ranked>),
}
