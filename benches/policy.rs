//! What policies cost a request: 10 rules, of which the last matches, and its steps over 256 candidates.
//!
//! Prints the median and the 99th percentile in microseconds.

use std::{
    io::{self, Write},
    sync::Arc,
};

use kinference::policy::{
    eval::{Candidate, Load, Pool, PoolState, Request, WorkerState},
    manifests,
};
use tokio::time::Instant;

const CANDIDATES: u32 = 256;
const ROUNDS: usize = 2000;

const POOL: &str = "\
apiVersion: kinference.buoyant.io/v1alpha1
kind: InferencePool
metadata: {name: chat}
spec:
  models:
  - name: standard
    backends:
    - workerSet: {name: big, model: qwen-32b, cost: {inputPerMillion: 1}}
    - workerSet: {name: tiny, model: qwen-4b}
";

fn policy(when: &str) -> String {
    let other = |n: usize| {
        format!(
            "  - name: r{n}\n    match:\n      tenants: [a{n}, b{n}]\n      tags: {{any: [x{n}, z{n}], none: [q]}}\n\
             \x20     pool: {{queueLength: {{above: 1}}}}\n    steps: [{{keep: {{kind: Provider}}}}]\n"
        )
    };
    let others: String = (0..9).map(other).collect();
    format!(
        "apiVersion: kinference.buoyant.io/v1alpha1\nkind: InferencePolicy\nmetadata: {{name: rules}}\nspec:\n\
         \x20 poolRef: {{name: chat}}\n  rules:\n{others}  - name: last\n{when}    steps:\n\
         \x20   - exclude: {{queueLength: {{above: 5}}, kvCacheUsePercent: {{above: 80}}}}\n\
         \x20   - prefer: {{models: [qwen-4b], cachedPercent: {{above: 10}}}}\n      unlessFasterByMs: 1\n\
         \x20   - minimize: QueueLength\n      tolerance: 1\n    - minimize: Cost\n"
    )
}

fn candidate(n: u32) -> Candidate {
    let spread = f64::from(n.wrapping_mul(2_654_435_761) >> 16) / 65_536.0;
    let load = Load { queue: (spread * 8.0).floor(), running: 1.0, kv_use_percent: 100.0 * spread };
    let worker = WorkerState { load, cached_percent: 100.0 - 100.0 * spread, staleness_ms: 0.0 };
    Candidate { backend: n as usize % 2, ttft_ms: 1000.0 * spread, worker: Some(worker) }
}

/// Microseconds of each round.
fn measure(pool: &Arc<Pool>, candidates: &[Candidate]) -> Vec<f64> {
    let tags = ["chat".to_owned(), "eu".to_owned()];
    let request = Request {
        model: "standard",
        tenant: Some("t"),
        tags: &tags,
        prompt_tokens: Some(900),
        output_tokens: None,
    };
    let round = |_| {
        let start = Instant::now();
        let state = PoolState::of(candidates.iter().filter_map(|one| Some(one.worker?.load)));
        let outcome = pool.rules_for(0, &request, &state).run(candidates);
        let took = start.elapsed().as_secs_f64() * 1e6;
        assert_eq!(std::hint::black_box(outcome).trace.len(), 1, "the last rule has to match");
        took
    };
    let mut all: Vec<_> = (0..ROUNDS).map(round).collect();
    all.sort_by(f64::total_cmp);
    all
}

fn main() -> io::Result<()> {
    // Test runners start every target too, and ask for its tests: there are none.
    if !std::env::args().any(|arg| arg == "--bench") {
        return Ok(());
    }
    let candidates: Vec<_> = (0..CANDIDATES).map(candidate).collect();
    for (name, when) in [
        ("without CEL", ""),
        ("with CEL", "    when: request.prompt_tokens > 100 && !('pii' in request.tags)\n"),
    ] {
        let rules = policy(when);
        let made = manifests::read([("pool", POOL), ("rules", rules.as_str())], None);
        let pool = made.policies.pool("chat").map_err(io::Error::other)?;
        let took = measure(pool, &candidates);
        let (median, p99) = (took[ROUNDS / 2], took[ROUNDS * 99 / 100]);
        writeln!(
            io::stdout(),
            "10 rules, {CANDIDATES} candidates, {name}: median {median:.1} us, p99 {p99:.1} us"
        )?;
    }
    Ok(())
}
