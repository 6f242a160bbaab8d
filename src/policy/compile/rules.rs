//! The rules of a pool, in the order in which they are tried.

use std::{cmp::Reverse, sync::Arc};

use super::{
    super::{
        crd::{self, CandidateMatch, InferencePolicy, Measure, RuleMatch},
        eval::{Backend, BackendMask, CandidateCondition, Key, Matcher, Model, ModelMask, Rule, Step},
        problem::FieldPath,
        when::When,
    },
    Compiler, lint, listed,
    pools::Place,
    text,
};

impl Compiler<'_> {
    pub(super) fn rules(&mut self, pool: &Key, models: &[Model]) -> Box<[Rule]> {
        let of_pool = |(key, (_, policy)): &(&Key, &(usize, &InferencePolicy))| {
            key.namespace == pool.namespace && policy.spec.pool_ref.name == *pool.name
        };
        let mut policies: Vec<_> =
            self.policies.iter().filter(of_pool).map(|(key, one)| (key.clone(), *one)).collect();
        policies.sort_by_key(|(key, (_, policy))| (Reverse(policy.spec.priority), key.name.clone()));
        let mut out = Vec::new();
        let mut places = Vec::new();
        for (key, (resource, policy)) in policies {
            let rules = Place { resource, path: FieldPath::of("spec.rules") };
            for (n, rule) in policy.spec.rules.iter().enumerate() {
                let place = rules.item(n);
                if let Some(compiled) = self.rule(&key, rule, (models, &place)) {
                    out.push(Rule { generation: policy.metadata.generation, ..compiled });
                    places.push((place, rule));
                }
            }
        }
        self.findings.extend(lint::findings(models, &out, &places));
        out.into()
    }

    /// `None`: its `when` is no expression, which its policy was told when it was read.
    fn rule(&mut self, policy: &Key, rule: &crd::Rule, (models, at): (&[Model], &Place)) -> Option<Rule> {
        let when = rule.when.as_deref().map(When::compile).transpose().ok()?;
        let (steps, texts): (Vec<_>, Vec<_>) =
            self.steps(&rule.steps, (models, &at.field("steps"))).into_iter().unzip();
        Some(Rule {
            policy: policy.name.clone(),
            generation: None,
            name: rule.name.as_str().into(),
            matcher: self.matcher(&rule.matches.clone().unwrap_or_default(), (models, &at.field("match"))),
            when,
            steps: steps.into(),
            texts: texts.into(),
            on_empty: rule.on_empty,
            reject: rule.reject.clone().unwrap_or_default(),
        })
    }

    /// The steps, each with its text.
    fn steps(&mut self, steps: &[crd::Step], (models, at): (&[Model], &Place)) -> Vec<(Step, Arc<str>)> {
        let last = steps.iter().rposition(|step| step.minimize.is_some());
        let compiled = steps.iter().enumerate().filter_map(|(n, step)| {
            let place = at.item(n);
            let mut condition = |field: &str, given: &Option<CandidateMatch>| {
                given.as_ref().map(|given| self.condition(given, (models, &place.field(field))))
            };
            let compiled = if let Some(condition) = condition("exclude", &step.exclude) {
                Step::Exclude(condition)
            } else if let Some(condition) = condition("keep", &step.keep) {
                Step::Keep(condition)
            } else if let Some(condition) = condition("prefer", &step.prefer) {
                Step::Prefer(condition, step.unless_faster_by_ms.map(f64::from))
            } else {
                match (step.minimize?, step.tolerance) {
                    (Measure::PredictedTtft, None) if last == Some(n) => Step::Soonest,
                    (measure, tolerance) => Step::Minimize(measure, tolerance.unwrap_or_default()),
                }
            };
            Some((compiled, text::of(step)))
        });
        compiled.collect()
    }

    fn matcher(&mut self, given: &RuleMatch, (models, at): (&[Model], &Place)) -> Matcher {
        let mut mask: ModelMask = if given.models.is_empty() { ModelMask::MAX } else { 0 };
        for (n, name) in given.models.iter().enumerate() {
            if let Some(index) = models.iter().position(|model| *model.name == **name) {
                mask |= 1 << index;
            } else {
                let there = listed(models.iter().map(|model| &*model.name));
                let message = format!(
                    "is {name:?}, which the pool does not publish by that name; it publishes: {there}"
                );
                self.unresolved(at.resource, at.path.field("models").item(n), message);
            }
        }
        let tags = given.tags.clone().unwrap_or_default();
        let pool = given.pool.clone().unwrap_or_default();
        Matcher {
            models: mask,
            tenants: given.tenants.clone().into(),
            any_tags: tags.any.into(),
            all_tags: tags.all.into(),
            no_tags: tags.none.into(),
            prompt_tokens: given.prompt_tokens,
            ready_workers: pool.ready_workers,
            queue: pool.queue_length.map(Into::into),
            running: pool.running_requests.map(Into::into),
            kv_use: pool.kv_cache_use_percent.map(Into::into),
        }
    }

    fn condition(&mut self, given: &CandidateMatch, (models, at): (&[Model], &Place)) -> CandidateCondition {
        let all = || models.iter().flat_map(|model| &model.backends);
        type Name = fn(&Backend) -> Option<&str>;
        let names: [(&str, &[String], Name); 3] = [
            ("workerSets", &given.worker_sets, |one| one.provider.is_none().then_some(&one.source)),
            ("providers", &given.providers, |one| one.provider.is_some().then_some(&one.source)),
            ("models", &given.models, |one| Some(&one.model)),
        ];
        for (field, wanted, name) in names {
            for (n, wanted) in
                wanted.iter().enumerate().filter(|(_, one)| !all().any(|b| name(b) == Some(one)))
            {
                let message = format!(
                    "is {wanted:?}, which is not behind the pool; there are: {}",
                    listed(all().filter_map(name))
                );
                self.unresolved(at.resource, at.path.field(field).item(n), message);
            }
        }
        let fits = |backend: &Backend| {
            given.kind.is_none_or(|kind| kind == backend.kind())
                && names.iter().all(|(_, wanted, name)| {
                    wanted.is_empty()
                        || name(backend).is_some_and(|name| wanted.iter().any(|one| one == name))
                })
        };
        let mask = |model: &Model| {
            let bits =
                model.backends.iter().enumerate().map(|(n, backend)| BackendMask::from(fits(backend)) << n);
            bits.fold(0, |mask, bit| mask | bit)
        };
        CandidateCondition {
            backends: models.iter().map(mask).collect(),
            queue: given.queue_length.map(Into::into),
            running: given.running_requests.map(Into::into),
            kv_use: given.kv_cache_use_percent.map(Into::into),
            cached: given.cached_percent.map(Into::into),
            staleness: given.staleness_ms.map(Into::into),
        }
    }
}
