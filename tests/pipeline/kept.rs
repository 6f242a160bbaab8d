//! Whatever the rules are and however loaded the fleet is: nobody is lost, nobody who was taken away is picked.

use std::collections::BTreeSet;

use kinference::{load::LoadSample, types::WorkerId};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    pools::{asks, site},
    site::worker_of,
};

fn condition() -> impl Strategy<Value = Value> {
    prop_oneof![
        prop::sample::select(vec!["big", "small"]).prop_map(|set| json!({"workerSets": [set]})),
        (0..4u32).prop_map(|n| json!({"queueLength": {"above": n}})),
        (0..100u32).prop_map(|n| json!({"kvCacheUsePercent": {"above": n}})),
        (0..100u32).prop_map(|n| json!({"cachedPercent": {"above": n}})),
    ]
}

fn step() -> impl Strategy<Value = Value> {
    let measure = prop::sample::select(vec!["PredictedTTFT", "QueueLength", "KVCacheUse", "Cost"]);
    prop_oneof![
        condition().prop_map(|condition| json!({"exclude": condition})),
        condition().prop_map(|condition| json!({"keep": condition})),
        (condition(), 0..500u32)
            .prop_map(|(condition, ms)| json!({"prefer": condition, "unlessFasterByMs": ms})),
        (measure, 0..3u32)
            .prop_map(|(measure, tolerance)| json!({"minimize": measure, "tolerance": tolerance})),
    ]
}

fn rules() -> impl Strategy<Value = Vec<Value>> {
    let on_empty = prop::sample::select(vec!["Reject", "NextRule", "Ignore"]);
    let rule = (prop::collection::vec(step(), 1..5), on_empty);
    prop::collection::vec(rule, 0..4).prop_map(|rules| {
        let rule =
            |(n, (steps, on_empty))| json!({"name": format!("r{n}"), "steps": steps, "onEmpty": on_empty});
        rules.into_iter().enumerate().map(rule).collect()
    })
}

fn loads() -> impl Strategy<Value = Vec<Option<LoadSample>>> {
    let sample = (0..6u32, 0..6u32, 0.0..1.0).prop_map(|(running, waiting, kv_usage)| LoadSample {
        running: running.into(),
        waiting: waiting.into(),
        kv_usage,
    });
    prop::collection::vec(prop::option::of(sample), 4)
}

async fn holds(rules: Vec<Value>, loads: Vec<Option<LoadSample>>, held: u64) {
    let site = site(|p| p.picker.top_k_min = 3);
    let backends = json!([
        {"workerSet": {"name": "big", "model": "qwen-32b", "cost": {"inputPerMillion": 2}}},
        {"workerSet": {"name": "small", "model": "qwen-4b"}},
    ]);
    let pool = ("InferencePool", "chat", json!({"models": [{"name": "standard", "backends": backends}]}));
    let policy = ("InferencePolicy", "rules", json!({"poolRef": {"name": "chat"}, "rules": rules}));
    let resources = if rules.is_empty() { vec![pool] } else { vec![pool, policy] };
    site.enforce(&resources);
    for (id, load) in (1..=4).zip(loads) {
        load.into_iter().for_each(|load| site.load.record_scrape(WorkerId(id), load));
    }
    site.store(held, 0..64).await;
    let decision = match site.pipeline.decide(asks("standard")).await {
        Ok(placement) => placement.decision.clone(),
        Err(rejection) => {
            assert_eq!(rejection.kind.label(), "policy", "{rejection:?}");
            return;
        }
    };
    let of = |all: &[kinference::types::Candidate]| all.iter().map(worker_of).collect::<BTreeSet<_>>();
    let (left, taken) = (of(&decision.candidates), of(&decision.taken));
    assert!(left.is_disjoint(&taken) && left.union(&taken).copied().eq(1..=4), "{left:?} {taken:?}");
    assert_eq!(taken.len(), decision.removed.len());
    assert!(decision.candidates.is_sorted_by_key(|one| one.level));
    let primary = decision.primary();
    assert_eq!(primary.level, decision.candidates[0].level);
    let fallbacks: Vec<_> = decision.fallbacks.iter().map(|at| &decision.candidates[*at]).collect();
    assert!(fallbacks.iter().all(|one| one.model == primary.model && worker_of(one) != worker_of(primary)));
    assert!(fallbacks.is_sorted_by_key(|one| one.level));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn nobody_is_lost_and_nobody_taken_is_picked(rules in rules(), loads in loads(), held in 1..=4u64) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(holds(rules, loads, held));
    }
}
