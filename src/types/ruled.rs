//! What the rules of a pool made of a request: which decided, and what each of their steps did.

use std::sync::Arc;

use super::Removed;

/// What a pool made of a request.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Ruled {
    /// The InferencePool: `namespace/name`.
    pub pool: Arc<str>,
    /// The name that it publishes the model by.
    pub model: Arc<str>,
    /// The rules that were run, in order. None: the order is by prediction alone.
    pub rules: Vec<RuleSaid>,
    /// Rules of which it can't be told whether they are for the request.
    pub unknown: Vec<RuleUnknown>,
}

/// What a rule said.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct RuleSaid {
    /// The InferencePolicy.
    pub policy: Arc<str>,
    /// Its generation, where an API server counts it.
    pub generation: Option<i64>,
    /// The rule.
    pub rule: Arc<str>,
    /// Its steps, as far as they were run.
    pub steps: Vec<StepSaid>,
    /// It left nobody, and passed the request on.
    pub passed_on: bool,
}

/// A rule whose `when` needs what is not known.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct RuleUnknown {
    /// The InferencePolicy.
    pub policy: Arc<str>,
    /// The rule.
    pub rule: Arc<str>,
    /// What is missing.
    pub why: String,
}

/// What a step did.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct StepSaid {
    /// The step as it is written, in one line.
    pub text: Arc<str>,
    /// What it came to.
    pub effect: StepEffect,
    /// The candidates that it took away.
    pub removed: Vec<Removed>,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepEffect {
    /// It took candidates away, or found none to take.
    Narrowed,
    /// It leaves none.
    WouldEmpty,
    /// None is preferred: all stay.
    NonePreferred,
    /// Another is faster than the preferred, by so many milliseconds: all stay.
    OthersFaster(f64),
    /// All stay, in another order.
    Ordered,
}

impl StepEffect {
    /// The word in answers.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Narrowed => "narrowed",
            Self::WouldEmpty => "would_empty",
            Self::NonePreferred => "none_preferred",
            Self::OthersFaster(_) => "others_faster",
            Self::Ordered => "ordered",
        }
    }
}

impl Ruled {
    /// The rule that decided, if one did.
    pub fn decided_by(&self) -> Option<&RuleSaid> {
        self.rules.last().filter(|rule| !rule.passed_on)
    }
}

impl RuleSaid {
    /// `policy/rule`, as headers and logs name it.
    pub fn name(&self) -> String {
        format!("{}/{}", self.policy, self.rule)
    }
}
