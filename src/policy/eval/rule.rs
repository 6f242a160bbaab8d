//! A compiled rule: which requests it is for, and its steps.

use std::sync::Arc;

use super::{
    super::{
        crd::{CountRange, Measure, OnEmpty, Rejection},
        when::When,
    },
    candidate::CandidateCondition,
    condition::{SpreadBetween, in_range},
    request::{PoolState, Request},
};

/// The models of a pool for which something holds: bit N is model N.
pub(in crate::policy) type ModelMask = u64;

/// A rule, compiled for its pool.
#[derive(Debug)]
pub struct Rule {
    /// The policy that it is of.
    pub policy: Arc<str>,
    /// The generation of that policy, where an API server counts it.
    pub generation: Option<i64>,
    /// Its name.
    pub name: Arc<str>,
    pub(in crate::policy) matcher: Matcher,
    pub(in crate::policy) when: Option<When>,
    pub(in crate::policy) steps: Box<[Step]>,
    /// Its steps as they are written, each in one line.
    pub texts: Box<[Arc<str>]>,
    pub(in crate::policy) on_empty: OnEmpty,
    pub(in crate::policy) reject: Rejection,
}

/// `match`, compiled. Of lists, none given is all.
#[derive(Debug, PartialEq)]
pub(in crate::policy) struct Matcher {
    pub models: ModelMask,
    pub tenants: Box<[String]>,
    pub any_tags: Box<[String]>,
    pub all_tags: Box<[String]>,
    pub no_tags: Box<[String]>,
    pub prompt_tokens: Option<CountRange>,
    pub ready_workers: Option<CountRange>,
    pub queue: Option<SpreadBetween>,
    pub running: Option<SpreadBetween>,
    pub kv_use: Option<SpreadBetween>,
}

/// A step, compiled.
#[derive(Debug, PartialEq)]
pub(in crate::policy) enum Step {
    Exclude(CandidateCondition),
    Keep(CandidateCondition),
    /// With the margin in milliseconds by which others have to be faster.
    Prefer(CandidateCondition, Option<f64>),
    Minimize(Measure, f64),
    /// The last `minimize: PredictedTTFT`, without tolerance: what decides in the end in any case.
    Soonest,
}

/// Whether a rule is for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matching {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// Its `when` needs what is not known, which is as good as no.
    Unknown(String),
}

impl Rule {
    /// Whether the rule is for that request, of the model with that index.
    pub fn matches(&self, model: usize, request: &Request<'_>, pool: &PoolState) -> Matching {
        if !self.matcher.matches(model, request, pool) {
            return Matching::No;
        }
        match self.when.as_ref().map(|when| when.holds(request, pool)) {
            None | Some(Ok(true)) => Matching::Yes,
            Some(Ok(false)) => Matching::No,
            Some(Err(why)) => Matching::Unknown(why),
        }
    }
}

impl Matcher {
    fn matches(&self, model: usize, request: &Request<'_>, pool: &PoolState) -> bool {
        let has = |tag: &String| request.tags.contains(tag);
        let spread =
            |condition: Option<SpreadBetween>, of| condition.is_none_or(|condition| condition.has(of));
        self.models >> model & 1 == 1
            && (self.tenants.is_empty()
                || request.tenant.is_some_and(|tenant| self.tenants.iter().any(|one| one == tenant)))
            && (self.any_tags.is_empty() || self.any_tags.iter().any(has))
            && self.all_tags.iter().all(has)
            && !self.no_tags.iter().any(has)
            && self
                .prompt_tokens
                .is_none_or(|range| request.prompt_tokens.is_some_and(|n| in_range(range, n)))
            && self.ready_workers.is_none_or(|range| in_range(range, pool.ready_workers.into()))
            && spread(self.queue, pool.queue)
            && spread(self.running, pool.running)
            && spread(self.kv_use, pool.kv_use_percent)
    }
}
