//! Rules that hardly do what was meant: never reached, or leaving nothing whatever the candidates are.

use super::{
    super::{
        crd::{self, OnEmpty},
        eval::{BackendMask, CandidateCondition, Model, Rule, Step},
        problem::Problem,
    },
    Finding, Weight,
    pools::Place,
};

/// What is suspicious in the rules of a pool; each with its place and as it was written.
pub(super) fn findings(models: &[Model], rules: &[Rule], written: &[(Place, &crd::Rule)]) -> Vec<Finding> {
    let mut out = Vec::new();
    for (n, (rule, (place, _))) in rules.iter().zip(written).enumerate() {
        if let Some(earlier) = (0..n).find(|earlier| hides(written[*earlier].1, written[n].1)) {
            let earlier = &rules[earlier];
            let message = format!(
                "is never reached: `{}` of {} decides over all that it matches",
                earlier.name, earlier.policy
            );
            out.push(suspicious(place, message));
        } else if let Some(step) = empties(models, rule) {
            let message =
                format!("leaves no candidate, whatever they are, and then does {:?}", rule.on_empty);
            out.push(suspicious(&place.field("steps").item(step), message));
        }
    }
    out
}

fn suspicious(place: &Place, message: String) -> Finding {
    Finding {
        resource: place.resource,
        weight: Weight::Suspicious,
        problem: Problem::new(place.path.clone(), message),
    }
}

/// Whether whatever the later rule matches has been decided over by the earlier one.
fn hides(earlier: &crd::Rule, later: &crd::Rule) -> bool {
    let decides = earlier.on_empty != OnEmpty::NextRule;
    let as_wide = |of: &crd::Rule| of.matches.is_none() && of.when.is_none();
    decides && (as_wide(earlier) || (earlier.matches == later.matches && earlier.when == later.when))
}

/// The step after which no backend is left of any model that the rule is for.
fn empties(models: &[Model], rule: &Rule) -> Option<usize> {
    let matched = |n: &usize| rule.matcher.models >> n & 1 == 1 && !models[*n].backends.is_empty();
    let steps: Vec<_> = (0..models.len()).filter(matched).map(|n| emptied_by(n, &models[n], rule)).collect();
    // Its models do not exist: that is said where they are named.
    steps.into_iter().collect::<Option<Vec<_>>>()?.into_iter().max()
}

fn emptied_by(index: usize, model: &Model, rule: &Rule) -> Option<usize> {
    let mut left: BackendMask = BackendMask::MAX >> (BackendMask::BITS as usize - model.backends.len());
    let providers =
        model.backends.iter().enumerate().map(|(n, one)| BackendMask::from(one.provider.is_some()) << n);
    let providers = providers.fold(0, |mask, bit| mask | bit);
    for (n, step) in rule.steps.iter().enumerate() {
        // What may hold of some candidate of a backend, and what holds of each whatever its load.
        let may = |condition: &CandidateCondition| {
            condition.backends[index]
                & if condition.of_workers_only() { !providers } else { BackendMask::MAX }
        };
        match step {
            Step::Keep(condition) => left &= may(condition),
            Step::Exclude(condition) if !condition.of_workers_only() => left &= !condition.backends[index],
            _ => {}
        }
        if left == 0 {
            return Some(n);
        }
    }
    None
}
