//! The rules of a pool put to a request: matched before anything is predicted, run over what was.
//!
//! Invariant: whoever a rule takes away is not picked, and is told of in the decision.

use std::sync::Arc;

use crate::{
    load::{LoadTable, LoadView},
    policy::{
        crd::OnEmpty,
        eval::{self, Effect, Load, Matched, PoolState, Request, RuleTrace, Verdict, WorkerState},
    },
    types::{
        Candidate, ErrorKind, PolicyStatus, Rejection, Removed, RemovedReason, RuleSaid, RuleUnknown, Ruled,
        StepEffect, StepSaid,
    },
};

use super::{Incoming, Subject, field::Seat, pools::InPool};

/// The rules for a request for a published model.
pub(super) struct Rules<'p> {
    pool: &'p InPool,
    model: usize,
    matched: Matched,
}

/// What the rules leave.
pub(super) struct Left {
    pub candidates: Vec<Candidate>,
    pub taken: Vec<Candidate>,
    pub ruled: Option<Arc<Ruled>>,
}

impl Left {
    /// All of them: there are no rules.
    pub fn all(candidates: Vec<Candidate>) -> Self {
        Self { candidates, taken: Vec::new(), ruled: None }
    }
}

/// A worker's load as rules see it.
pub(super) fn load_of(view: &LoadView) -> Load {
    Load { queue: waiting(view), running: view.running, kv_use_percent: view.kv_usage * 100.0 }
}

/// Requests that wait for their first token. Our own count from their pick on: until the next scrape only we know.
pub(super) fn waiting(view: &LoadView) -> f64 {
    view.queue + f64::from(view.own_without_token)
}

/// Finds the rules for a request. The state of the pool is that of the workers that may serve it.
pub(super) fn matched<'p>(
    pool: &'p InPool,
    (incoming, subject, tokens): (&Incoming, &Subject, Option<usize>),
    (seats, table): (&[Seat], &Arc<LoadTable>),
) -> Option<Rules<'p>> {
    let model = pool.model?;
    let tags: Vec<String> = incoming.tags.iter().map(|tag| tag.to_string()).collect();
    let request = Request {
        model: &pool.pool.models[model].name,
        tenant: incoming.tenant.as_deref(),
        tags: &tags,
        prompt_tokens: tokens.map(|tokens| tokens as u64),
        output_tokens: subject.parsed.as_ref().and_then(|parsed| parsed.max_output),
    };
    let state = if pool.pool.rules.is_empty() { PoolState::default() } else { state(seats, table) };
    Some(Rules { pool, model, matched: pool.pool.rules_for(model, &request, &state) })
}

fn state(seats: &[Seat], table: &Arc<LoadTable>) -> PoolState {
    let mut ids: Vec<_> = seats.iter().filter_map(|seat| Some(seat.member()?.worker.id)).collect();
    ids.dedup();
    let loads: Vec<_> = {
        let load = table.lock();
        ids.into_iter().map(|id| load_of(&load.view(id))).collect()
    };
    PoolState::of(loads.into_iter())
}

impl Rules<'_> {
    /// Runs them over the candidates: (candidate, index of its backend, age of its load).
    ///
    /// # Errors
    /// A rule turns the request away.
    pub fn run(
        &self,
        candidates: Vec<Candidate>,
        others: &[(usize, Option<f64>)],
    ) -> Result<Left, Rejection> {
        let seen: Vec<_> = candidates.iter().zip(others).map(|(one, other)| seen(one, *other)).collect();
        let outcome = self.matched.run(&seen);
        let ruled = Arc::new(self.ruled(&candidates, &outcome.trace));
        match outcome.verdict {
            Verdict::Order(ranked) => {
                let mut levels = vec![None; candidates.len()];
                ranked.iter().for_each(|one| levels[one.candidate] = Some(one.level));
                let (mut left, mut taken) = (Vec::new(), Vec::new());
                for (candidate, level) in candidates.into_iter().zip(levels) {
                    match level {
                        Some(level) => left.push(Candidate { level, ..candidate }),
                        None => taken.push(candidate),
                    }
                }
                Ok(Left { candidates: left, taken, ruled: Some(ruled) })
            }
            Verdict::Reject(_, reject) => Err(Rejection {
                kind: ErrorKind::Policy(PolicyStatus::of(reject.status)),
                message: reject.message,
                ruled: Some(ruled),
                removed: removed(&candidates).collect(),
            }),
        }
    }

    fn ruled(&self, candidates: &[Candidate], trace: &[RuleTrace]) -> Ruled {
        let pool = &self.pool.pool;
        let unknown = self.matched.unknown.iter().map(|(index, why)| {
            let rule = &pool.rules[*index];
            RuleUnknown { policy: rule.policy.clone(), rule: rule.name.clone(), why: why.clone() }
        });
        let said = |of: &RuleTrace| {
            let rule = &pool.rules[of.rule];
            let steps = of.steps.iter().zip(&rule.texts);
            let steps: Vec<_> = steps.map(|(step, text)| step_said((step, text), candidates)).collect();
            let next = |step: &eval::StepTrace| step.effect == Effect::WouldEmpty(OnEmpty::NextRule);
            let passed_on = of.steps.last().is_some_and(next);
            let (policy, generation) = (rule.policy.clone(), rule.generation);
            RuleSaid { policy, generation, rule: rule.name.clone(), steps, passed_on }
        };
        Ruled {
            pool: pool.key.to_string().into(),
            model: pool.models[self.model].name.clone(),
            rules: trace.iter().map(said).collect(),
            unknown: unknown.collect(),
        }
    }
}

/// What was taken away, as the decision lists it.
pub(super) fn removed(taken: &[Candidate]) -> impl Iterator<Item = Removed> {
    taken.iter().map(by_policy)
}

fn by_policy(candidate: &Candidate) -> Removed {
    Removed { who: candidate.target.label(), model: candidate.model.clone(), reason: RemovedReason::Policy }
}

fn seen(candidate: &Candidate, (backend, age_ms): (usize, Option<f64>)) -> eval::Candidate {
    let prediction = &candidate.prediction;
    let cached = if prediction.blocks > 0.0 { prediction.cached_blocks / prediction.blocks } else { 0.0 };
    let load = Load {
        queue: candidate.waiting,
        running: prediction.running,
        kv_use_percent: prediction.kv_usage * 100.0,
    };
    let worker = WorkerState {
        load,
        cached_percent: cached * 100.0,
        // What was never told is older than anything, but has to be below no bound at all.
        staleness_ms: age_ms.unwrap_or(f64::MAX),
    };
    let worker = candidate.target.worker().map(|_| worker);
    eval::Candidate { backend, ttft_ms: prediction.ttft_ms, worker }
}

fn step_said((step, text): (&eval::StepTrace, &Arc<str>), candidates: &[Candidate]) -> StepSaid {
    let effect = match &step.effect {
        Effect::Narrowed => StepEffect::Narrowed,
        Effect::WouldEmpty(_) => StepEffect::WouldEmpty,
        Effect::NonePreferred => StepEffect::NonePreferred,
        Effect::OthersFaster(by) => StepEffect::OthersFaster(*by),
        Effect::Ordered(_) => StepEffect::Ordered,
    };
    let removed = step.removed.iter().map(|at| by_policy(&candidates[*at])).collect();
    StepSaid { text: text.clone(), effect, removed }
}
