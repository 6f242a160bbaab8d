//! What the rules of a pool make of its candidates.

use kinference::{
    load::LoadSample,
    pipeline::{Incoming, IncomingBody},
    types::{Decision, ErrorKind, RemovedReason, StepEffect, WorkerId},
};
use serde_json::{Value, json};
use tokio::time::{Duration, advance};

use crate::{
    pools::{asks, ids, site},
    site::{BLOCK, Site, picked, worker_of},
};

/// Workers 1 and 2 behind `qwen-32b`, 3 and 4 behind the cheaper `qwen-4b`, under these rules.
fn ruled(rules: Value) -> Site {
    tied(0.0, rules)
}

/// The same, where predictions tie within so many milliseconds.
fn tied(tolerance_ms: f64, rules: Value) -> Site {
    let site = site(|p| (p.picker.top_k_min, p.picker.tie_tolerance_ms) = (4, tolerance_ms));
    let backends = json!([
        {"workerSet": {"name": "big", "model": "qwen-32b", "cost": {"inputPerMillion": 2, "outputPerMillion": 8}}},
        {"workerSet": {"name": "small", "model": "qwen-4b", "cost": {"inputPerMillion": 1, "outputPerMillion": 4}}},
    ]);
    site.enforce(&[
        ("InferencePool", "chat", json!({"models": [{"name": "standard", "backends": backends}]})),
        ("InferencePolicy", "rules", json!({"poolRef": {"name": "chat"}, "rules": rules})),
    ]);
    site
}

fn tagged(tag: &str) -> Incoming {
    Incoming { tags: vec![tag.into()], ..asks("standard") }
}

fn decided_by(decision: &Decision) -> Option<String> {
    decision.ruled.as_ref()?.decided_by().map(|rule| rule.name())
}

#[tokio::test(start_paused = true)]
async fn the_first_rule_that_matches_decides_and_tells_what_it_did() {
    let site = ruled(json!([
        {"name": "simple", "match": {"tags": {"any": ["simple"]}}, "steps": [
            {"keep": {"models": ["qwen-4b"]}}, {"minimize": "PredictedTTFT"}]},
        {"name": "late", "match": {"tags": {"any": ["late", "simple"]}}, "steps": [{"keep": {"models": ["qwen-32b"]}}]},
    ]));
    // The small ones are taken although a large one holds all of it.
    site.store(1, 0..64).await;
    let decision = site.decide(tagged("simple")).await;
    assert_eq!((ids(&decision), decided_by(&decision).as_deref()), (vec![3, 4], Some("rules/simple")));
    let mut taken: Vec<_> =
        decision.taken.iter().map(|one| (worker_of(one), one.overlap.confirmed)).collect();
    taken.sort_unstable();
    assert_eq!(taken, [(1, 4), (2, 0)], "with what was predicted of them");
    let gone: Vec<_> = decision.removed.iter().map(|one| (&*one.who, one.reason)).collect();
    assert_eq!(gone, [("w1", RemovedReason::Policy), ("w2", RemovedReason::Policy)]);
    let rules = &decision.ruled.as_ref().unwrap().rules;
    let steps: Vec<_> = rules[0].steps.iter().map(|step| (step.effect, step.removed.len())).collect();
    assert_eq!((rules.len(), steps), (1, vec![(StepEffect::Narrowed, 2), (StepEffect::Ordered, 0)]));
    let written: Vec<_> = rules[0].steps.iter().map(|step| &*step.text).collect();
    assert_eq!(written, ["keep: {models: [qwen-4b]}", "minimize: PredictedTTFT"]);
    assert_eq!(ids(&site.decide(tagged("late")).await), [1, 2]);
    let free = site.decide(tagged("none")).await;
    assert_eq!((ids(&free), picked(&free), decided_by(&free)), (vec![1, 2, 3, 4], 1, None));
    let text = site.metrics.render();
    for line in [
        "kinference_pool_decisions_total{by=\"rule\"} 2",
        "kinference_pool_decisions_total{by=\"prediction\"} 1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_order_of_the_rules_comes_before_the_prediction() {
    let site = ruled(json!([{"name": "cheap", "steps": [{"minimize": "Cost"}]}]));
    site.store(1, 0..64).await;
    site.store(4, 0..2 * BLOCK).await;
    let decision = site.decide(asks("standard")).await;
    let order: Vec<_> = decision.candidates.iter().map(|one| (worker_of(one), one.level)).collect();
    assert_eq!(order, [(4, 0), (3, 0), (1, 1), (2, 1)]);
    assert_eq!(
        (picked(&decision), decision.fallbacks.clone()),
        (4, vec![1]),
        "the others are of another model"
    );
}

#[tokio::test(start_paused = true)]
async fn equals_to_the_rules_are_picked_among_as_ever() {
    let site = tied(1e6, json!([{"name": "cheap", "steps": [{"minimize": "Cost"}]}]));
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(site.place(asks("standard")).await);
    }
    assert_eq!([1, 2, 3, 4].map(|id| site.in_flight(id)), [0, 0, 5, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_has_the_status_and_the_words_of_its_rule() {
    let site = ruled(json!([{
        "name": "local", "match": {"tags": {"any": ["pii"]}}, "onEmpty": "Reject",
        "steps": [{"exclude": {"kind": "Worker"}}],
        "reject": {"status": 451, "message": "not here"},
    }]));
    let refused = site.refusal(tagged("pii")).await;
    assert_eq!(
        (refused.kind.label(), refused.kind.http_status(), &*refused.message),
        ("policy", 451, "not here")
    );
    let removed: Vec<_> = refused.removed.iter().map(|one| one.reason).collect();
    assert_eq!(removed, [RemovedReason::Policy; 4]);
    let ruled = refused.ruled.unwrap();
    assert_eq!(ruled.decided_by().unwrap().name(), "rules/local");
    let step = &ruled.rules[0].steps[0];
    assert_eq!((step.effect, step.removed.len()), (StepEffect::WouldEmpty, 4));
    assert_eq!(&*step.text, "exclude: {kind: Worker}");
    assert!(
        site.metrics.render().contains("kinference_rejections_total{kind=\"policy\",tenant=\"_none\"} 1")
    );
    assert_eq!([1, 2, 3, 4].map(|id| site.in_flight(id)), [0; 4]);
    assert_ne!(refused.kind, ErrorKind::NoWorker);
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_passes_on_leaves_it_to_the_next_or_to_the_prediction() {
    let empty = json!({"keep": {"runningRequests": {"above": 1000}}});
    let site = ruled(json!([
        {"name": "first", "onEmpty": "NextRule", "steps": [empty]},
        {"name": "second", "match": {"tags": {"any": ["x"]}}, "steps": [{"keep": {"workerSets": ["small"]}}]},
    ]));
    let decision = site.decide(tagged("x")).await;
    assert_eq!((ids(&decision), decided_by(&decision).as_deref()), (vec![3, 4], Some("rules/second")));
    let decision = site.decide(tagged("y")).await;
    assert_eq!((ids(&decision).len(), decided_by(&decision), decision.taken.len()), (4, None, 0));
    assert!(decision.ruled.as_ref().unwrap().rules[0].passed_on);
}

#[tokio::test(start_paused = true)]
async fn rules_match_on_the_length_of_the_prompt_and_the_state_of_the_pool() {
    let site = ruled(json!([
        {"name": "long", "match": {"promptTokens": {"min": 65}}, "steps": [{"keep": {"workerSets": ["big"]}}]},
        {"name": "busy", "match": {"pool": {"queueLength": {"stat": "Mean", "above": 2}}},
         "steps": [{"keep": {"workerSets": ["small"]}}]},
    ]));
    assert_eq!(ids(&site.decide(asks("standard")).await).len(), 4, "64 tokens, nobody waits");
    for id in 1..=4 {
        let sample = LoadSample { waiting: 3.0, ..LoadSample::default() };
        site.load.record_scrape(WorkerId(id), sample);
    }
    assert_eq!(ids(&site.decide(asks("standard")).await), [3, 4]);
    let long = json!({"model": "standard", "prompt": (0..65).collect::<Vec<u32>>()}).to_string();
    let long = Incoming { body: IncomingBody::Full(long.into()), ..asks("standard") };
    assert_eq!(ids(&site.decide(long).await), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn what_we_have_sent_ourselves_waits_before_any_scrape_tells() {
    let site = tied(
        1e6,
        json!([{
            "name": "burst", "onEmpty": "Reject", "reject": {"status": 429, "message": "full"},
            "steps": [{"exclude": {"queueLength": {"above": 2}}}],
        }]),
    );
    let mut held = Vec::new();
    for _ in 0..12 {
        held.push(site.place(asks("standard")).await);
    }
    assert_eq!([1, 2, 3, 4].map(|id| site.in_flight(id)), [3; 4]);
    let full = site.refusal(asks("standard")).await;
    assert_eq!((full.kind.http_status(), full.kind.retry_after_secs()), (429, Some(1)));
    held[0].first_token();
    let only = worker_of(held[0].decision.primary());
    assert_eq!(worker_of(site.decide(asks("standard")).await.primary()), only);
}

#[tokio::test(start_paused = true)]
async fn load_that_was_never_told_is_older_than_any() {
    let site = ruled(json!([{"name": "fresh", "steps": [{"exclude": {"stalenessMs": {"above": 3000}}}]}]));
    for id in [2, 3] {
        site.load.record_scrape(WorkerId(id), LoadSample::default());
    }
    assert_eq!(ids(&site.decide(asks("standard")).await), [2, 3]);
    advance(Duration::from_secs(4)).await;
    site.load.record_scrape(WorkerId(2), LoadSample::default());
    assert_eq!(ids(&site.decide(asks("standard")).await), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_hot_prefix_is_spread_over_what_the_rules_leave_alone() {
    let site = site(|p| {
        p.picker.top_k_min = 4;
        p.picker.replication_threshold_pct = 50.0;
    });
    let backends = json!([{"workerSet": {"name": "big", "model": "qwen-32b"}}]);
    let rules = json!([{"name": "one", "steps": [{"exclude": {"runningRequests": {"above": 5}}}]}]);
    site.enforce(&[
        ("InferencePool", "chat", json!({"models": [{"name": "standard", "backends": backends}]})),
        ("InferencePolicy", "rules", json!({"poolRef": {"name": "chat"}, "rules": rules})),
    ]);
    site.store(1, 0..64).await;
    let busy = LoadSample { running: 6.0, ..LoadSample::default() };
    site.load.record_scrape(WorkerId(2), busy);
    for _ in 0..40 {
        let decision = site.decide(asks("standard")).await;
        assert_eq!((picked(&decision), decision.replicated), (1, false));
    }
    site.load.record_scrape(WorkerId(2), LoadSample::default());
    let decision = site.decide(asks("standard")).await;
    assert_eq!((picked(&decision), decision.replicated), (2, true));
}

#[tokio::test(start_paused = true)]
async fn cost_reckons_with_the_answer_that_a_request_may_have() {
    let site = site(|_| {});
    let backends = json!([
        {"workerSet": {"name": "big", "model": "qwen-32b", "cost": {"inputPerMillion": 1, "outputPerMillion": 9}}},
        {"workerSet": {"name": "small", "model": "qwen-4b", "cost": {"inputPerMillion": 5, "outputPerMillion": 1}}},
    ]);
    let rules = json!([{"name": "cheap", "steps": [{"minimize": "Cost"}]}]);
    site.enforce(&[
        ("InferencePool", "chat", json!({"models": [{"name": "standard", "backends": backends}]})),
        ("InferencePolicy", "rules", json!({"poolRef": {"name": "chat"}, "rules": rules})),
    ]);
    let with = |most: u64| {
        let body = json!({"model": "standard", "prompt": (0..64).collect::<Vec<u32>>(), "max_tokens": most});
        Incoming { body: IncomingBody::Full(body.to_string().into()), ..asks("standard") }
    };
    // 64 tokens in: 1 and 5 a million; out: 9 and 1.
    for (most, model) in [(10, "qwen-32b"), (100, "qwen-4b")] {
        assert_eq!(site.decide(with(most)).await.primary().model.as_deref(), Some(model));
    }
}
