//! What the rules of a pool made of a request, as a PickResponse tells it.

use crate::{
    serve::proto::{RemovedWorker, RuleSaid, RuleUnknown, Ruled, StepSaid},
    types::{self, StepEffect},
};

/// Which rules were run and, with `steps`, what each of their steps did.
pub fn told(ruled: &types::Ruled, steps: bool) -> Ruled {
    let unknown = ruled.unknown.iter().map(|rule| RuleUnknown {
        policy: rule.policy.to_string(),
        rule: rule.rule.to_string(),
        why: rule.why.clone(),
    });
    Ruled {
        pool: ruled.pool.to_string(),
        model: ruled.model.to_string(),
        rules: ruled.rules.iter().map(|rule| said(rule, steps)).collect(),
        unknown: unknown.collect(),
    }
}

/// Who was no candidate, or is none any more.
pub fn removed(removed: &types::Removed) -> RemovedWorker {
    RemovedWorker {
        worker_id: removed.worker.to_string(),
        reason: removed.reason.label().to_owned(),
        model: removed.model.as_deref().unwrap_or_default().to_owned(),
    }
}

fn said(rule: &types::RuleSaid, steps: bool) -> RuleSaid {
    let said = rule.steps.iter().filter(|_| steps);
    RuleSaid {
        policy: rule.policy.to_string(),
        rule: rule.rule.to_string(),
        steps: said.map(step).collect(),
        passed_on: rule.passed_on,
    }
}

fn step(step: &types::StepSaid) -> StepSaid {
    let faster_by_ms = match step.effect {
        StepEffect::OthersFaster(by) => Some(by),
        _ => None,
    };
    StepSaid {
        effect: step.effect.label().to_owned(),
        faster_by_ms,
        removed: step.removed.iter().map(removed).collect(),
    }
}
