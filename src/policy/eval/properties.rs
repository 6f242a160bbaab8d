//! What holds of every policy and every fleet.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;

use super::{super::crd::OnEmpty, tests::pool, *};

fn candidate() -> impl Strategy<Value = Candidate> {
    let load = (0_u8..6, 0_u8..4, 0_u8..=100).prop_map(|(queue, running, kv)| Load {
        queue: queue.into(),
        running: running.into(),
        kv_use_percent: kv.into(),
    });
    let state = (load, 0_u8..=100, 0_u16..9000).prop_map(|(load, cached, stale)| WorkerState {
        load,
        cached_percent: cached.into(),
        staleness_ms: stale.into(),
    });
    let ttft = prop_oneof![9 => (0_u16..50).prop_map(f64::from), 1 => Just(f64::NAN)];
    (0_usize..3, ttft, state).prop_map(|(backend, ttft_ms, state)| Candidate {
        backend,
        ttft_ms,
        worker: (backend < 2).then_some(state),
    })
}

fn fleet() -> impl Strategy<Value = Vec<Candidate>> {
    prop::collection::vec(candidate(), 0..12)
}

fn condition() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "kind: Worker",
        "kind: Provider",
        "workerSets: [big]",
        "models: [qwen-4b, large]",
        "providers: [cloud]",
        "queueLength: {above: 2}",
        "kind: Worker, queueLength: {above: 0, below: 4}",
        "kvCacheUsePercent: {below: 70}",
        "runningRequests: {below: 2}",
        "cachedPercent: {above: 30}",
        "stalenessMs: {above: 5000}",
    ])
}

fn step() -> impl Strategy<Value = String> {
    let margin = prop::option::of(0_u16..40);
    let minimize = prop::sample::select(vec!["PredictedTTFT", "QueueLength", "KVCacheUse", "Cost"]);
    prop_oneof![
        condition().prop_map(|condition| format!("{{exclude: {{{condition}}}}}")),
        condition().prop_map(|condition| format!("{{keep: {{{condition}}}}}")),
        (condition(), margin.clone()).prop_map(|(condition, margin)| match margin {
            Some(margin) => format!("{{prefer: {{{condition}}}, unlessFasterByMs: {margin}}}"),
            None => format!("{{prefer: {{{condition}}}}}"),
        }),
        (minimize, margin).prop_map(|(measure, tolerance)| match tolerance {
            Some(tolerance) => format!("{{minimize: {measure}, tolerance: {tolerance}}}"),
            None => format!("{{minimize: {measure}}}"),
        }),
    ]
}

/// Rules, which match in turn: all, some and none.
fn rules() -> impl Strategy<Value = String> {
    let on_empty = prop::sample::select(vec!["Reject", "NextRule", "Ignore"]);
    let when = prop::sample::select(vec![
        "'true'",
        "pool.ready_workers > 2",
        "request.prompt_tokens > 5",
        "'false'",
    ]);
    let rule = (prop::collection::vec(step(), 1..5), on_empty, when);
    prop::collection::vec(rule, 1..4).prop_map(|rules| {
        let rules = rules.iter().enumerate().map(|(n, (steps, on_empty, when))| {
            format!("- {{name: r{n}, when: {when}, onEmpty: {on_empty}, steps: [{}]}}\n", steps.join(", "))
        });
        rules.collect()
    })
}

fn run(pool: &Arc<Pool>, candidates: &[Candidate]) -> Outcome {
    let request = Request { model: "standard-model", ..Request::default() };
    let state = PoolState::of(candidates.iter().filter_map(|one| Some(one.worker?.load)));
    pool.rules_for(0, &request, &state).run(candidates)
}

fn by_prediction(candidates: &[Candidate]) -> Vec<Ranked> {
    let mut all: Vec<_> = (0..candidates.len()).collect();
    all.sort_by(|a, b| candidates[*a].ttft_ms.total_cmp(&candidates[*b].ttft_ms));
    all.into_iter().map(|candidate| Ranked { candidate, level: 0 }).collect()
}

static KEEPS_ALL: LazyLock<Arc<Pool>> = LazyLock::new(|| {
    pool("- {name: a, steps: [{exclude: {queueLength: {above: 1000}}}, {minimize: PredictedTTFT}]}")
});
static NEVER_MATCHES: LazyLock<Arc<Pool>> =
    LazyLock::new(|| pool("- {name: a, when: 'false', steps: [{keep: {kind: Provider}}]}"));

/// What holds of an outcome.
fn holds(pool: &Arc<Pool>, candidates: &[Candidate]) -> Result<(), TestCaseError> {
    let outcome = run(pool, candidates);
    // NaN is unequal to itself, so the words are compared.
    prop_assert_eq!(format!("{:?}", outcome), format!("{:?}", run(pool, candidates)), "the same twice");
    let last = outcome.trace.last();
    let emptied = |on_empty: OnEmpty| {
        last.is_some_and(|rule| {
            rule.steps.last().is_some_and(|step| step.effect == Effect::WouldEmpty(on_empty))
        })
    };
    let ranked = match &outcome.verdict {
        Verdict::Order(ranked) => ranked,
        Verdict::Reject(rule, _) => {
            prop_assert!(emptied(OnEmpty::Reject) && last.is_some_and(|last| last.rule == *rule));
            return Ok(());
        }
    };
    let decided = last.filter(|_| !emptied(OnEmpty::NextRule));
    let removed = decided.iter().flat_map(|rule| &rule.steps).flat_map(|step| step.removed.iter().copied());
    let mut seen: Vec<_> = ranked.iter().map(|one| one.candidate).chain(removed).collect();
    seen.sort_unstable();
    prop_assert_eq!(seen, (0..candidates.len()).collect::<Vec<_>>(), "each once: left, or taken away");
    prop_assert!(candidates.is_empty() || !ranked.is_empty());
    prop_assert!(ranked.is_sorted_by_key(|one| one.level));
    let ttft = |one: &Ranked| candidates[one.candidate].ttft_ms;
    for pair in ranked.windows(2).filter(|pair| pair[0].level == pair[1].level) {
        prop_assert!(ttft(&pair[0]).total_cmp(&ttft(&pair[1])).is_le());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn an_order_is_of_those_that_no_step_took_away(rules in rules(), fleets in prop::collection::vec(fleet(), 8)) {
        let pool = pool(&rules);
        for candidates in fleets {
            holds(&pool, &candidates)?;
        }
    }

    #[test]
    fn to_keep_all_and_minimize_prediction_is_no_policy(candidates in fleet()) {
        let expected = Verdict::Order(by_prediction(&candidates));
        prop_assert_eq!(run(&KEEPS_ALL, &candidates).verdict, expected.clone());
        prop_assert_eq!(run(&NEVER_MATCHES, &candidates).verdict, expected);
    }
}
