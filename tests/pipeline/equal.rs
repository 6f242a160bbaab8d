//! Identical inputs and seed give identical decisions, and a pool that adds nothing changes nothing.

use std::{sync::Arc, time::Duration};

use kinference::{
    load::LoadSample,
    pipeline::Incoming,
    types::{Decision, WorkerId},
};
use proptest::prelude::*;
use serde_json::json;

use crate::site::{BLOCK, MODEL, Site, other, profile, prompt};

#[derive(Clone, Debug)]
enum Op {
    Prompt { start: u32, blocks: u32 },
    Other,
    End(prop::sample::Index),
    FirstToken(prop::sample::Index),
    Scrape { worker: u64, waiting: f64, usage: f64 },
    Store { worker: u64, start: u32 },
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..4u32, 1..40u32).prop_map(|(start, blocks)| Op::Prompt { start, blocks }),
        2 => Just(Op::Other),
        2 => any::<prop::sample::Index>().prop_map(Op::End),
        1 => any::<prop::sample::Index>().prop_map(Op::FirstToken),
        1 => (1..6u64, 0..4u32, 0.0..1.0).prop_map(|(worker, waiting, usage)| Op::Scrape {
            worker,
            waiting: waiting.into(),
            usage
        }),
        1 => (1..6u64, 0..4u32).prop_map(|(worker, start)| Op::Store { worker, start }),
        1 => (0..3000u64).prop_map(Op::Pass),
    ]
}

/// Whether requests name a pool, which publishes the only worker set's model by its own name.
#[derive(Clone, Copy, PartialEq)]
enum Route {
    Bare,
    Pool,
}

/// Every decision of a history.
fn live(ops: &[Op], seed: u64, route: Route) -> Vec<Arc<Decision>> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let seeded = profile("p", |p| {
            p.picker.seed = Some(seed);
            p.picker.top_k_min = 5;
            p.picker.replication_threshold_pct = 30.0;
        });
        let site = Site::of(&seeded, 5);
        let backends = json!([{"workerSet": {"name": "s"}}]);
        site.enforce(&[("InferencePool", "p", json!({"models": [{"name": MODEL, "backends": backends}]}))]);
        let pool = (route == Route::Pool).then(|| "p".into());
        let routed = |incoming| Incoming { pool: pool.clone(), ..incoming };
        let (mut held, mut decisions) = (Vec::new(), Vec::new());
        for op in ops {
            match op {
                Op::Prompt { start, blocks } => {
                    let first = start * 100_000;
                    held.push(site.place(routed(prompt(first..first + blocks * BLOCK))).await);
                }
                Op::Other => held.push(site.place(routed(other())).await),
                Op::End(at) if !held.is_empty() => drop(held.swap_remove(at.index(held.len()))),
                Op::FirstToken(at) if !held.is_empty() => {
                    let at = at.index(held.len());
                    held[at].first_token();
                }
                Op::End(_) | Op::FirstToken(_) => {}
                Op::Scrape { worker, waiting, usage } => {
                    let sample = LoadSample { running: 1.0, waiting: *waiting, kv_usage: *usage };
                    site.load.record_scrape(WorkerId(*worker), sample);
                }
                Op::Store { worker, start } => {
                    site.store(*worker, start * 100_000..start * 100_000 + 20 * BLOCK).await
                }
                Op::Pass(ms) => tokio::time::advance(Duration::from_millis(*ms)).await,
            }
            if matches!(op, Op::Prompt { .. } | Op::Other) {
                decisions.extend(held.last().map(|placement| placement.decision.clone()));
            }
        }
        drop(held);
        let left: u32 = (1..=5).map(|id| site.in_flight(id)).sum();
        assert_eq!(left, 0, "load is back to nothing");
        decisions
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn a_history_repeats_itself_under_the_same_seed(ops in prop::collection::vec(op(), 1..60), seed: u64) {
        prop_assert!(live(&ops, seed, Route::Bare) == live(&ops, seed, Route::Bare));
    }

    #[test]
    fn a_pool_of_one_set_without_rules_changes_nothing(ops in prop::collection::vec(op(), 1..60), seed: u64) {
        let bare = live(&ops, seed, Route::Bare);
        let pooled = live(&ops, seed, Route::Pool);
        prop_assert!(pooled.iter().all(|one| one.model.is_none() || one.ruled.is_some()));
        let unruled = |one: &Arc<Decision>| Decision { ruled: None, ..(**one).clone() };
        prop_assert_eq!(pooled.iter().map(unruled).collect::<Vec<_>>(), bare.iter().map(unruled).collect::<Vec<_>>());
    }
}

#[test]
fn the_seed_matters() {
    let ops = vec![Op::Other; 12];
    let picks = |seed| live(&ops, seed, Route::Bare).iter().map(|d| d.chosen).collect::<Vec<_>>();
    assert!((1..20).any(|seed| picks(seed) != picks(0)));
}
