//! The documented patterns, and what steps do.

use std::sync::Arc;

use super::{super::manifests, *};
use crate::policy::crd::OnEmpty;

const POOL: &str = "\
apiVersion: kinference.buoyant.io/v1alpha1
kind: InferencePool
metadata: {name: chat}
spec:
  models:
  - name: standard-model
    aliases: [default]
    backends:
    - workerSet: {name: big, model: qwen-32b, cost: {inputPerMillion: 1, outputPerMillion: 4}}
    - workerSet: {name: tiny, model: qwen-4b}
    - provider: {name: cloud, model: large}
  - {name: private, tenants: [team-a], backends: [{workerSet: {name: big, model: qwen-32b}}]}
---
apiVersion: kinference.buoyant.io/v1alpha1
kind: InferenceProvider
metadata: {name: cloud}
spec:
  api: OpenAI
  host: api.example.com
  models: [{name: large, cost: {inputPerMillion: 2, outputPerMillion: 8}}]
";

const BIG: usize = 0;
const TINY: usize = 1;
const CLOUD: usize = 2;

/// The pool, with a policy of these rules.
pub(super) fn pool(rules: &str) -> Arc<Pool> {
    let rules: String = rules.lines().map(|line| format!("  {line}\n")).collect();
    let policy = format!(
        "apiVersion: kinference.buoyant.io/v1alpha1\nkind: InferencePolicy\nmetadata: {{name: rules}}\n\
         spec:\n  poolRef: {{name: chat}}\n  rules:\n{rules}"
    );
    let made = manifests::read([("pool", POOL), ("rules", policy.as_str())], None);
    let errors: Vec<_> =
        made.remarks.iter().filter(|remark| remark.severity == manifests::Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    made.policies.pool("chat").unwrap().clone()
}

fn worker(backend: usize, ttft_ms: f64, queue: f64) -> Candidate {
    let load = Load { queue, running: 1.0, kv_use_percent: 10.0 * queue };
    Candidate { backend, ttft_ms, worker: Some(WorkerState { load, ..WorkerState::default() }) }
}

fn cloud(ttft_ms: f64) -> Candidate {
    Candidate { backend: CLOUD, ttft_ms, worker: None }
}

fn tagged(tags: &[String]) -> Request<'_> {
    Request { model: "standard-model", tags, prompt_tokens: Some(1000), ..Request::default() }
}

fn run(pool: &Arc<Pool>, request: &Request<'_>, candidates: &[Candidate]) -> Outcome {
    let model = pool.find(request.model, request.tenant).unwrap();
    let state = PoolState::of(candidates.iter().filter_map(|one| Some(one.worker?.load)));
    pool.rules_for(model, request, &state).run(candidates)
}

fn order(pool: &Arc<Pool>, request: &Request<'_>, candidates: &[Candidate]) -> Vec<usize> {
    match run(pool, request, candidates).verdict {
        Verdict::Order(ranked) => ranked.iter().map(|one| one.candidate).collect(),
        Verdict::Reject(..) => panic!("rejected"),
    }
}

#[test]
fn simple_goes_to_the_cheaper_unless_the_larger_is_faster() {
    let pool = pool(
        "- name: simple\n  match: {tags: {any: [simple]}}\n  steps:\n\
         \x20 - {prefer: {models: [qwen-4b]}, unlessFasterByMs: 200}\n  - minimize: PredictedTTFT",
    );
    let (simple, other) = (["simple".to_owned()], []);
    let near = [worker(BIG, 300.0, 0.0), worker(TINY, 450.0, 0.0)];
    assert_eq!(order(&pool, &tagged(&simple), &near), [1]);
    assert_eq!(order(&pool, &tagged(&other), &near), [0, 1]);
    // The larger one has the prompt in its cache.
    let far = [worker(BIG, 300.0, 0.0), worker(TINY, 501.0, 0.0)];
    let outcome = run(&pool, &tagged(&simple), &far);
    assert_eq!(outcome.trace[0].steps[0].effect, Effect::OthersFaster(201.0));
    assert_eq!(order(&pool, &tagged(&simple), &far), [0, 1]);
    // And there may be no smaller one.
    assert_eq!(run(&pool, &tagged(&simple), &near[..1]).trace[0].steps[0].effect, Effect::NonePreferred);
}

#[test]
fn bursts_go_to_the_cloud() {
    let pool = pool(
        "- name: burst\n  steps:\n  - exclude: {queueLength: {above: 2}}\n  - prefer: {kind: Worker}\n\
         \x20 - minimize: PredictedTTFT",
    );
    let all = [worker(BIG, 900.0, 3.0), worker(BIG, 800.0, 2.0), cloud(100.0)];
    let outcome = run(&pool, &tagged(&[]), &all);
    assert_eq!(order(&pool, &tagged(&[]), &all), [1]);
    let removed: Vec<_> = outcome.trace[0].steps.iter().map(|step| step.removed.clone()).collect();
    assert_eq!(removed, [vec![0], vec![2], vec![]]);
    assert_eq!(order(&pool, &tagged(&[]), &[all[0], all[2]]), [1]);
}

#[test]
fn pii_stays_local_or_is_rejected() {
    let pool = pool(
        "- name: pii\n  match: {tags: {any: [pii]}}\n  steps:\n  - exclude: {kind: Provider}\n\
         \x20 - minimize: PredictedTTFT\n  onEmpty: Reject\n  reject: {status: 451, message: stays here}",
    );
    let pii = ["pii".to_owned()];
    assert_eq!(order(&pool, &tagged(&pii), &[cloud(1.0), worker(BIG, 9000.0, 50.0)]), [1]);
    let outcome = run(&pool, &tagged(&pii), &[cloud(1.0)]);
    let Verdict::Reject(0, rejection) = &outcome.verdict else { panic!("{outcome:?}") };
    assert_eq!((rejection.status, rejection.message.as_str()), (451, "stays here"));
    assert_eq!(outcome.trace[0].steps.len(), 1, "what follows is not run");
    assert_eq!(outcome.trace[0].steps[0].effect, Effect::WouldEmpty(OnEmpty::Reject));
    // Nothing to take away from: not the policy's doing.
    assert_eq!(order(&pool, &tagged(&pii), &[]), [0; 0]);
}

#[test]
fn batches_run_on_idle_gpus() {
    let pool = pool(
        "- name: batch\n  match: {tags: {any: [batch]}}\n  steps:\n  - keep: {kvCacheUsePercent: {below: 70}}\n\
         \x20 - minimize: KVCacheUse",
    );
    let batch = ["batch".to_owned()];
    let all = [worker(BIG, 1.0, 7.0), worker(BIG, 2.0, 6.9), worker(TINY, 3.0, 1.0), cloud(0.5)];
    assert_eq!(
        order(&pool, &tagged(&batch), &all),
        [2, 1],
        "70 percent is not under 70, and a provider has no use"
    );
}

#[test]
fn names_and_aliases_are_one_model_to_those_who_may_ask() {
    let pool = pool("- {name: any, steps: [{minimize: PredictedTTFT}]}");
    assert_eq!((pool.find("standard-model", None), pool.find("default", None)), (Some(0), Some(0)));
    assert_eq!((pool.find("private", None), pool.find("private", Some("team-b"))), (None, None));
    assert_eq!(pool.find("private", Some("team-a")), Some(1));
    assert_eq!(pool.find("qwen-32b", Some("team-a")), None, "only what is published");
    let names = |tenant| pool.names(tenant).map(|name| name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(None), ["standard-model"]);
    assert_eq!(names(Some("team-a")), ["standard-model", "private"]);
}

#[test]
fn what_leaves_none_passes_on_or_is_passed_over() {
    let next = pool(
        "- {name: a, steps: [{keep: {kind: Provider}}], onEmpty: NextRule}\n\
         - {name: b, match: {tenants: [other]}, steps: [{keep: {workerSets: [big]}}]}\n\
         - {name: c, steps: [{keep: {workerSets: [tiny]}}], onEmpty: NextRule}",
    );
    let all = [worker(BIG, 1.0, 0.0), worker(TINY, 2.0, 0.0)];
    let outcome = run(&next, &tagged(&[]), &all);
    assert_eq!(outcome.trace.iter().map(|rule| rule.rule).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(order(&next, &tagged(&[]), &all), [1]);
    assert_eq!(order(&next, &tagged(&[]), &all[..1]), [0], "no rule is left: by prediction alone");
    let ignore = pool(
        "- {name: a, steps: [{keep: {kind: Provider}}, {exclude: {workerSets: [big]}}], onEmpty: Ignore}",
    );
    assert_eq!(order(&ignore, &tagged(&[]), &all), [1]);
}

#[test]
fn measures_follow_one_another_within_tolerance() {
    let pool = pool("- name: a\n  steps:\n  - {minimize: QueueLength, tolerance: 1}\n  - minimize: Cost\n");
    let all = [
        worker(BIG, 1.0, 0.0),
        worker(TINY, 5.0, 1.0),
        worker(TINY, 4.0, 1.0),
        worker(TINY, 0.0, 1.5),
        worker(TINY, 0.0, 2.6),
        cloud(0.0),
    ];
    let Verdict::Order(ranked) = run(&pool, &tagged(&[]), &all).verdict else { panic!() };
    let ranked: Vec<_> = ranked.iter().map(|one| (one.level, one.candidate)).collect();
    // Queues 0 to 1 are equal, a provider's is 0; then 1.5; then 2.6, which is out of its tolerance.
    assert_eq!(ranked, [(0, 2), (0, 1), (1, 0), (2, 5), (3, 3), (4, 4)]);
}

#[test]
fn rules_are_matched_on_all_that_they_say() {
    let pool = pool(
        "- name: a\n  match:\n    tenants: [t]\n    models: [standard-model]\n    promptTokens: {min: 10, max: 20}\n\
         \x20   tags: {all: [x, yy], none: [z]}\n    pool: {readyWorkers: {min: 2}, queueLength: {stat: Max, above: 3}}\n\
         \x20 when: request.tags.size() < 4\n  steps: [{minimize: Cost}]",
    );
    let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
    let fits = tags(&["x", "yy"]);
    let base = Request { tenant: Some("t"), tags: &fits, prompt_tokens: Some(20), ..tagged(&[]) };
    let busy = PoolState::of([0.0, 4.0].map(|queue| Load { queue, ..Load::default() }).into_iter());
    let matched = |request: Request<'_>, state: &PoolState| pool.rules_for(0, &request, state).rules == [0];
    assert!(matched(base, &busy));
    assert!(!matched(Request { tenant: None, ..base }, &busy));
    assert!(!matched(Request { prompt_tokens: Some(21), ..base }, &busy));
    assert!(!matched(Request { prompt_tokens: None, ..base }, &busy));
    assert!(!matched(base, &PoolState::default()));
    for wrong in [tags(&["x"]), tags(&["x", "yy", "z"]), tags(&["x", "yy", "a", "b"])] {
        assert!(!matched(Request { tags: &wrong, ..base }, &busy), "{wrong:?}");
    }
    assert!(pool.rules_for(1, &base, &busy).rules.is_empty(), "another model");
}
