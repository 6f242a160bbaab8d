//! Runs the steps of the rules that matched over predicted candidates.
//!
//! Invariant: what comes out is an order of candidates that no step took away, the same for the same input. Within a
//! level the steps hold candidates equal: there, the sooner first token comes first.

use std::sync::Arc;

use super::{
    super::crd::{Measure, OnEmpty, Rejection},
    candidate::{Candidate, CandidateCondition},
    pool::Pool,
    request::Request,
    rule::{Rule, Step},
    trace::{Effect, RuleTrace, StepTrace},
};

/// Tokens of a prompt that are reckoned with where they are not known.
const ASSUMED_PROMPT_TOKENS: u64 = 1000;
/// Tokens of an answer that are reckoned with, unless the request wants fewer.
const ASSUMED_OUTPUT_TOKENS: u64 = 500;

/// The rules that decide over a request.
#[derive(Debug)]
pub struct Matched {
    pool: Arc<Pool>,
    model: usize,
    prompt_tokens: f64,
    output_tokens: f64,
    /// Indices of the rules, in order; none: the order is by prediction alone.
    pub rules: Vec<usize>,
    /// Rules of which it can't be told whether they match, and why.
    pub unknown: Vec<(usize, String)>,
}

/// What came of the steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// What each step did.
    pub trace: Vec<RuleTrace>,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It may go to these, in this order.
    Order(Vec<Ranked>),
    /// It is rejected by the rule with that index.
    Reject(usize, Rejection),
}

/// A candidate that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// Index of the candidate.
    pub candidate: usize,
    /// Those of a lower level come first; those of the same are equal but for their prediction.
    pub level: u32,
}

/// What a rule says.
enum Said {
    Order(Vec<Ranked>),
    Reject,
    NextRule,
}

impl Rule {
    pub(super) fn passes_on(&self) -> bool {
        self.on_empty == OnEmpty::NextRule
    }
}

impl Matched {
    pub(super) fn new(pool: Arc<Pool>, model: usize, request: &Request<'_>) -> Self {
        let output = request.output_tokens.unwrap_or(ASSUMED_OUTPUT_TOKENS).min(ASSUMED_OUTPUT_TOKENS);
        Self {
            pool,
            model,
            prompt_tokens: request.prompt_tokens.unwrap_or(ASSUMED_PROMPT_TOKENS) as f64,
            output_tokens: output as f64,
            rules: Vec::new(),
            unknown: Vec::new(),
        }
    }

    /// Runs the steps. Of no candidates, none is taken away: the order is empty.
    pub fn run(&self, candidates: &[Candidate]) -> Outcome {
        let mut trace = Vec::with_capacity(self.rules.len());
        for index in self.rules.iter().copied().filter(|_| !candidates.is_empty()) {
            let rule = &self.pool.rules[index];
            let (said, steps) = self.run_rule(rule, candidates);
            trace.push(RuleTrace { rule: index, steps });
            match said {
                Said::Order(left) => return Outcome { verdict: Verdict::Order(left), trace },
                Said::Reject => {
                    return Outcome { verdict: Verdict::Reject(index, rule.reject.clone()), trace };
                }
                Said::NextRule => {}
            }
        }
        let mut left = all(candidates);
        finish(&mut left, candidates);
        Outcome { verdict: Verdict::Order(left), trace }
    }

    fn run_rule(&self, rule: &Rule, candidates: &[Candidate]) -> (Said, Vec<StepTrace>) {
        let mut left = all(candidates);
        let mut trace = Vec::with_capacity(rule.steps.len());
        for step in &rule.steps {
            let before = left.clone();
            let mut effect = self.step(step, candidates, &mut left);
            let emptied = left.is_empty();
            if emptied {
                effect = Effect::WouldEmpty(rule.on_empty);
            }
            if emptied && rule.on_empty == OnEmpty::Ignore {
                left.clone_from(&before);
            }
            let removed = match left.len() == before.len() {
                true => Vec::new(),
                false => without(&before, &left).map(|one| one.candidate).collect(),
            };
            trace.push(StepTrace { effect, removed });
            match rule.on_empty {
                OnEmpty::Reject if left.is_empty() => return (Said::Reject, trace),
                OnEmpty::NextRule if left.is_empty() => return (Said::NextRule, trace),
                _ => {}
            }
        }
        finish(&mut left, candidates);
        (Said::Order(left), trace)
    }

    fn step(&self, step: &Step, candidates: &[Candidate], left: &mut Vec<Ranked>) -> Effect {
        let holds = |condition: &CandidateCondition, one: &Ranked| {
            condition.holds(self.model, &candidates[one.candidate])
        };
        match step {
            Step::Exclude(condition) => left.retain(|one| !holds(condition, one)),
            Step::Keep(condition) => left.retain(|one| holds(condition, one)),
            Step::Prefer(condition, margin) => {
                let preferred: Vec<_> = left.iter().copied().filter(|one| holds(condition, one)).collect();
                if preferred.is_empty() {
                    return Effect::NonePreferred;
                }
                let lead = lead_of_others(&preferred, left, candidates);
                if margin.is_some_and(|margin| lead > margin) {
                    return Effect::OthersFaster(lead);
                }
                *left = preferred;
            }
            Step::Minimize(measure, tolerance) => {
                let values: Vec<_> = candidates.iter().map(|one| self.measured(*measure, one)).collect();
                split(left, &values, *tolerance);
                return Effect::Ordered(left.clone());
            }
            Step::Soonest => return Effect::Ordered(left.clone()),
        }
        Effect::Narrowed
    }

    fn measured(&self, measure: Measure, candidate: &Candidate) -> f64 {
        let load = candidate.worker.map(|worker| worker.load).unwrap_or_default();
        match measure {
            Measure::PredictedTtft => candidate.ttft_ms,
            Measure::QueueLength => load.queue,
            Measure::KvCacheUse => load.kv_use_percent,
            Measure::Cost => {
                let backend = self.pool.models[self.model].backends.get(candidate.backend);
                let cost = backend.map(|backend| backend.cost).unwrap_or_default();
                (cost.input_per_million * self.prompt_tokens + cost.output_per_million * self.output_tokens)
                    / 1e6
            }
        }
    }
}

fn all(candidates: &[Candidate]) -> Vec<Ranked> {
    (0..candidates.len()).map(|candidate| Ranked { candidate, level: 0 }).collect()
}

/// Milliseconds by which the fastest of the others is faster than the fastest preferred one.
fn lead_of_others(preferred: &[Ranked], left: &[Ranked], candidates: &[Candidate]) -> f64 {
    let sooner = |soonest: f64, one: &Ranked| soonest.min(candidates[one.candidate].ttft_ms);
    let others = without(left, preferred).fold(f64::INFINITY, sooner);
    if others.is_finite() { preferred.iter().fold(f64::INFINITY, sooner) - others } else { f64::NEG_INFINITY }
}

/// Those of `all` that are not among `some`, which are in the same order.
fn without<'a>(all: &'a [Ranked], some: &'a [Ranked]) -> impl Iterator<Item = &'a Ranked> {
    let mut some = some.iter().peekable();
    all.iter().filter(move |one| some.next_if(|next| next.candidate == one.candidate).is_none())
}

/// Splits each level by the value: a new one begins where the value is out of tolerance of the level's least.
fn split(left: &mut [Ranked], values: &[f64], tolerance: f64) {
    let value = |one: &Ranked| values[one.candidate];
    left.sort_by(|a, b| a.level.cmp(&b.level).then_with(|| value(a).total_cmp(&value(b))));
    let mut level = 0;
    let mut first: Option<(u32, f64)> = None;
    for one in left {
        let new = first.is_none_or(|(of, least)| of != one.level || value(one) > least + tolerance);
        if new {
            level += u32::from(first.is_some());
            first = Some((one.level, value(one)));
        }
        one.level = level;
    }
}

/// The order within levels, the same for the same candidates.
fn finish(left: &mut [Ranked], candidates: &[Candidate]) {
    let ttft = |one: &Ranked| candidates[one.candidate].ttft_ms;
    left.sort_by(|a, b| {
        let by_time = || ttft(a).total_cmp(&ttft(b)).then(a.candidate.cmp(&b.candidate));
        a.level.cmp(&b.level).then_with(by_time)
    });
}
