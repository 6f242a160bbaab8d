//! Which worker is picked, and what the decision says of it.

use std::{collections::BTreeMap, sync::Arc, sync::atomic::Ordering};

use kinference::{
    config::Profile,
    fleet::{Availability, KvState, ModelCard},
    load::LoadSample,
    pipeline::{Incoming, IncomingBody},
    types::{Degradation, RemovedReason, WorkerId},
};
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Duration, advance},
};

use crate::site::{BLOCK, MODEL, Site, other, picked, profile, prompt, worker, worker_of, worker_set};

#[tokio::test(start_paused = true)]
async fn the_worker_that_holds_the_prompt_gets_it() {
    let site = Site::of(&profile("p", |_| {}), 3);
    site.store(2, 0..20 * BLOCK).await;
    let decision = site.decide(prompt(0..20 * BLOCK + 3)).await;
    let chosen = decision.primary();
    assert_eq!((worker_of(chosen), chosen.overlap.confirmed, decision.prompt_tokens), (2, 20, Some(323)));
    assert_eq!((chosen.prediction.blocks, chosen.prediction.cached_blocks), (21.0, 20.0));
    let cold = decision.candidates.iter().find(|c| worker_of(c) == 1).unwrap();
    assert_eq!(cold.prediction.prefill_ms, 2.3 * 21.0 + 0.009 * 21.0 * 21.0);
    assert_eq!(chosen.degraded, [Degradation::NoMetrics, Degradation::NoKvEvents]);
}

#[tokio::test(start_paused = true)]
async fn a_cold_prompt_sticks_to_where_it_is_being_prefilled() {
    let site = Site::of(&profile("p", |p| p.picker.tie_tolerance_ms = 0.0), 3);
    let first = site.place(prompt(0..200 * BLOCK)).await;
    // Right away its 820 ms of backlog are worse than a second prefill elsewhere; once they are nearly over, not.
    advance(Duration::from_millis(800)).await;
    let second = site.decide(prompt(0..200 * BLOCK)).await;
    assert_eq!(picked(&second), picked(&first.decision));
    assert_eq!((second.primary().overlap.confirmed, second.primary().overlap.expected), (0, 200));
}

/// Every worker is predicted alike, whatever its load: the fewest in flight decide.
fn level() -> Profile {
    profile("p", |p| {
        p.picker.top_k_min = 3;
        p.predictor.q_running_penalty_peak_ms = 0.0;
        p.predictor.queue_ms_per_entry = 0.0;
    })
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_equal_requests_spreads_evenly() {
    let site = Site::of(&level(), 3);
    let mut held = Vec::new();
    for _ in 0..30 {
        held.push(site.place(other()).await);
    }
    assert_eq!([1, 2, 3].map(|id| site.in_flight(id)), [10, 10, 10]);
    drop(held);
    assert_eq!([1, 2, 3].map(|id| site.in_flight(id)), [0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn picks_on_many_threads_see_each_other() {
    let site = Arc::new(Site::of(&level(), 3));
    let mut picks = JoinSet::new();
    for _ in 0..6 {
        let site = site.clone();
        picks.spawn(async move {
            let mut held = Vec::new();
            for _ in 0..1000 {
                held.push(site.place(other()).await);
            }
            held
        });
    }
    let held: Vec<_> = picks.join_all().await.into_iter().flatten().collect();
    // Nothing ended meanwhile, so that each pick of a worker saw one request more than the one before it.
    let mut seen: Vec<_> =
        held.iter().map(|p| (worker_of(p.decision.primary()), p.decision.primary().own_in_flight)).collect();
    seen.sort_unstable();
    let want: Vec<_> = (1..=3).flat_map(|id| (0..2000).map(move |n| (id, n))).collect();
    assert!(seen == want, "two picks saw the same load");
    drop(held);
    assert_eq!([1, 2, 3].map(|id| site.in_flight(id)), [0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_pick_on_load_alone_honours_who_is_eligible() {
    let (p, n) = (profile("p", |_| {}), 8);
    let (site, set) = (Site::of(&p, 0), worker_set("s", &p));
    let mut workers: Vec<_> = (1..=n).map(|id| worker(&set, id)).collect();
    workers[0].availability = Availability::Terminating;
    site.registry.replace_set("s", workers).unwrap();
    site.member(2).status.kv.store(Arc::new(KvState::Evicted("why".into())));
    site.member(3).status.asleep.store(true, Ordering::Relaxed);
    site.fail(4);
    site.member(5).status.cordoned.store(true, Ordering::Relaxed);
    let subset = Some((1..n).map(|id| format!("10.0.0.{id}:8000")).collect());
    let decision = site.decide(Incoming { subset, ..other() }).await;
    let why: BTreeMap<_, _> = decision.removed.iter().map(|r| (&*r.who, r.reason)).collect();
    let want = [
        ("w1", RemovedReason::Terminating),
        ("w2", RemovedReason::Evicted),
        ("w3", RemovedReason::Asleep),
        ("w4", RemovedReason::Failing),
        ("w5", RemovedReason::Cordoned),
        ("w8", RemovedReason::NotInSubset),
    ];
    assert_eq!(why, BTreeMap::from(want));
    assert_eq!(decision.degraded, [Degradation::NotInference]);
    assert_eq!((decision.candidates.len(), decision.prompt_tokens, &decision.model), (2, None, &None));
}

#[tokio::test(start_paused = true)]
async fn calls_of_other_paths_go_to_who_serves_the_model_that_they_name() {
    let site = Site::of(&profile("p", |p| p.picker.top_k_min = 3), 3);
    let card =
        |id: &str| ModelCard { id: id.into(), parent: None, max_model_len: None, owned_by: String::new() };
    site.member(3).status.models.store(Some(Arc::new(vec![card("embed")])));
    let json = |body: serde_json::Value| Incoming {
        content_type: Some("application/json; charset=utf-8".into()),
        body: IncomingBody::Full(body.to_string().into()),
        ..other()
    };
    let named = site.decide(json(json!({"model": "embed", "input": "x"}))).await;
    assert_eq!((picked(&named), named.model.as_deref()), (3, Some("embed")));
    assert_eq!(named.degraded, [Degradation::NotInference]);
    for unknown in [json!({"model": "gone"}), json!({}), json!([])] {
        assert_eq!(site.decide(json(unknown)).await.candidates.len(), 3, "the engine answers that");
    }
    assert_eq!(site.decide(json(json!({"model": MODEL}))).await.candidates.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_hung_engine_is_never_the_cheapest() {
    let site = Site::of(&profile("p", |_| {}), 2);
    let sample = |waiting| LoadSample { waiting, ..LoadSample::default() };
    site.load.record_scrape(WorkerId(1), sample(0.0));
    site.load.record_scrape(WorkerId(2), sample(3.0));
    assert_eq!(picked(&site.decide(prompt(0..64)).await), 1);
    advance(Duration::from_secs(6)).await;
    site.load.record_scrape(WorkerId(2), sample(3.0));
    let decision = site.decide(prompt(100..164)).await;
    let hung = decision.candidates.iter().find(|c| worker_of(c) == 1).unwrap();
    assert_eq!((hung.degraded[0], hung.prediction.queue), (Degradation::StaleMetrics, 3.0));
    let fresh = decision.candidates.iter().find(|c| worker_of(c) == 2).unwrap();
    assert_eq!(fresh.degraded, [Degradation::NoKvEvents]);
}

#[tokio::test(start_paused = true)]
async fn a_hot_prefix_is_warmed_elsewhere() {
    let hot = profile("p", |p| p.picker.replication_threshold_pct = 50.0);
    let site = Site::of(&hot, 3);
    site.store(2, 0..64 * BLOCK).await;
    let (mut replicated, mut warm) = (Vec::new(), 0);
    for i in 0..60 {
        let tail = 1_000_000 + i * 100;
        let decision = site.decide(prompt((0..64 * BLOCK).chain(tail..tail + 40))).await;
        if decision.replicated {
            replicated.push(picked(&decision));
        } else {
            warm += u32::from(picked(&decision) == 2);
        }
    }
    assert_eq!(warm, 31, "of fewer than 32 prompts a share says nothing");
    assert!(replicated.len() == 29 && replicated.iter().all(|id| *id != 2), "{replicated:?}");
    // Once enough workers hold it, no more are warmed.
    site.store(1, 0..64 * BLOCK).await;
    assert!(!site.decide(prompt(0..64 * BLOCK)).await.replicated);
}
