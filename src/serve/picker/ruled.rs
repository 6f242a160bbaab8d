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
        worker_id: removed.who.to_string(),
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
        generation: rule.generation,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_to_those_who_want_candidates() {
        let gone = types::Removed {
            who: "w1".into(),
            model: Some("served".into()),
            reason: types::RemovedReason::Policy,
        };
        let faster =
            types::StepSaid { text: "s".into(), effect: StepEffect::OthersFaster(12.5), removed: vec![] };
        let narrowed =
            types::StepSaid { text: "s".into(), effect: StepEffect::Narrowed, removed: vec![gone] };
        let rule = types::RuleSaid {
            policy: "p".into(),
            generation: Some(3),
            rule: "r".into(),
            steps: vec![faster, narrowed],
            passed_on: true,
        };
        let unknown = types::RuleUnknown { policy: "p".into(), rule: "u".into(), why: "why".into() };
        let ruled = types::Ruled {
            pool: "ns/chat".into(),
            model: "m".into(),
            rules: vec![rule],
            unknown: vec![unknown],
        };
        let brief = told(&ruled, false);
        assert_eq!((brief.pool.as_str(), brief.model.as_str(), brief.unknown.len()), ("ns/chat", "m", 1));
        let [RuleSaid { policy, rule, steps, passed_on: true, generation: Some(3) }] = &brief.rules[..]
        else {
            panic!("{brief:?}")
        };
        assert_eq!((policy.as_str(), rule.as_str(), steps.len()), ("p", "r", 0));
        let steps = &told(&ruled, true).rules[0].steps;
        assert_eq!((steps[0].effect.as_str(), steps[0].faster_by_ms), ("others_faster", Some(12.5)));
        let want = RemovedWorker { worker_id: "w1".into(), reason: "policy".into(), model: "served".into() };
        assert_eq!((steps[1].faster_by_ms, &steps[1].removed[..]), (None, &[want][..]));
    }
}
