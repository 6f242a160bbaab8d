//! Policies, fleets and requests by chance, small enough to meet each other often.

use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};

use super::super::Asked;

/// Tokens in a block.
pub const BLOCK: u32 = 16;
/// Worker sets.
pub const SETS: [&str; 2] = ["big", "small"];
/// Names of models at engines.
pub const MODELS: [&str; 2] = ["qwen-32b", "qwen-4b"];

/// What providers call a model.
pub fn upstream(model: &str) -> String {
    format!("vendor-{model}")
}

/// Each a kind, a name and a spec.
pub type Resources = Vec<(&'static str, String, Value)>;

/// A draw.
#[derive(Debug)]
pub struct Drawn {
    /// What decides.
    #[expect(dead_code, reason = "shown with a draw that fails")]
    pub resources: Resources,
    /// The fleet.
    pub workers: Vec<DrawnWorker>,
    /// The request.
    pub asked: Asked,
    /// Its prompt takes up so many whole blocks, where its tokens are known.
    pub blocks: Option<u32>,
}

/// A worker.
#[derive(Debug)]
pub struct DrawnWorker {
    /// Its set.
    pub set: &'static str,
    /// What its engine serves.
    pub models: Vec<&'static str>,
    /// It takes new requests.
    pub ready: bool,
    /// Requests that wait, that run, and the share of the KV cache in use, in hundredths.
    pub load: (u32, u32, u32),
    /// Leading blocks of the prompt that it holds.
    pub cached: u32,
    /// Requests of our own: of each, its prefill work in milliseconds, and whether its first token is there.
    pub own: Vec<(u32, bool)>,
    /// Milliseconds since its load was told.
    pub age_ms: u64,
}

impl Drawn {
    /// By chance, over these resources.
    pub fn new(rng: &mut StdRng, resources: Resources) -> Self {
        let blocks = rng.random_bool(0.7).then(|| rng.random_range(1..40));
        let path = if blocks.is_some() {
            "/v1/completions"
        } else {
            pick(rng, &["/v1/chat/completions", "/v1/messages", "/v1/chat/completions"])
        };
        let tags = ["batch", "pii", "simple"].into_iter().filter(|_| rng.random_bool(0.3));
        let asked = Asked {
            tags: tags.map(str::to_owned).collect(),
            model: pick(
                rng,
                &["standard", "standard", "standard", "alias", "alias", "second", "second", "unknown"],
            )
            .to_owned(),
            tenant: pick(rng, &[None, Some("acme"), Some("other")]).map(str::to_owned),
            prompt_tokens: blocks.map(|blocks| blocks * BLOCK),
            max_tokens: pick(rng, &[None, Some(100), Some(5000)]),
            path: Some(path.to_owned()),
        };
        let workers = (0..rng.random_range(0..8)).map(|_| worker(rng, blocks.unwrap_or(0))).collect();
        Self { resources, workers, asked, blocks }
    }
}

fn pick<T: Clone>(rng: &mut StdRng, of: &[T]) -> T {
    of.choose(rng).unwrap().clone()
}

fn worker(rng: &mut StdRng, blocks: u32) -> DrawnWorker {
    let models = MODELS.into_iter().filter(|_| rng.random_bool(0.8)).collect();
    let own = (0..rng.random_range(0..4)).map(|_| (rng.random_range(1..2000), rng.random_bool(0.5)));
    let own = own.collect();
    DrawnWorker {
        set: pick(rng, &SETS),
        models,
        ready: rng.random_bool(0.9),
        load: (rng.random_range(0..6), rng.random_range(0..12), rng.random_range(0..=100)),
        cached: if rng.random_bool(0.5) { rng.random_range(0..=blocks) } else { 0 },
        own,
        age_ms: pick(rng, &[0, 200, 900, 20_000]),
    }
}

/// Resources by chance.
pub fn resources(rng: &mut StdRng) -> Resources {
    let provider = |name: &str, api: &str, ttft: u32, cost: f64| {
        let model = json!({"name": "large", "upstream": upstream("large"), "expectedTtftMs": ttft,
            "cost": {"inputPerMillion": cost, "outputPerMillion": cost * 4.0}});
        let spec = json!({"api": api, "host": "api.example.com", "models": [model]});
        ("InferenceProvider", name.to_owned(), spec)
    };
    let mut standard = json!({"name": "standard", "aliases": ["alias"], "backends": backends(rng)});
    if rng.random_bool(0.2) {
        standard["tenants"] = json!(["acme"]);
    }
    let second = json!({"name": "second", "backends": backends(rng)});
    let rules: Vec<_> = (0..rng.random_range(1..6)).map(|n| rule(rng, n)).collect();
    let mut all = vec![
        provider("cloud", "OpenAI", rng.random_range(0..3000), f64::from(rng.random_range(0_u8..4))),
        provider("claude", "Anthropic", rng.random_range(0..3000), f64::from(rng.random_range(0_u8..4))),
        ("InferencePool", "chat".to_owned(), json!({"models": [standard, second]})),
    ];
    if rng.random_bool(0.9) {
        let spec = json!({"poolRef": {"name": "chat"}, "rules": rules});
        all.push(("InferencePolicy", "rules".to_owned(), spec));
    }
    all
}

fn backends(rng: &mut StdRng) -> Vec<Value> {
    let mut all: Vec<_> = SETS
        .iter()
        .flat_map(|set| MODELS.map(|model| (set, model)))
        .map(|(set, model)| {
            let cost = rng.random_range(0..3);
            json!({"workerSet": {"name": set, "model": model, "cost": {"inputPerMillion": cost}}})
        })
        .collect();
    let providers = ["cloud", "claude"].map(|name| json!({"provider": {"name": name, "model": "large"}}));
    all.extend(providers);
    all.retain(|_| rng.random_bool(0.5));
    if all.is_empty() {
        all.push(json!({"workerSet": {"name": "big", "model": MODELS[0]}}));
    }
    all
}

fn rule(rng: &mut StdRng, n: usize) -> Value {
    let steps: Vec<_> = (0..rng.random_range(1..4)).map(|_| step(rng)).collect();
    let on_empty = pick(rng, &["Reject", "NextRule", "Ignore"]);
    let mut rule = json!({"name": format!("r{n}"), "steps": steps, "onEmpty": on_empty});
    let matching = matching(rng);
    if matching.as_object().is_some_and(|fields| !fields.is_empty()) {
        rule["match"] = matching;
    }
    if on_empty == "Reject" && rng.random_bool(0.5) {
        rule["reject"] = json!({"status": 429, "message": format!("No room, says r{n}.")});
    }
    if rng.random_bool(0.3) {
        let when = [
            "pool.ready_workers > 1",
            "request.prompt_tokens > 200",
            "'pii' in request.tags",
            "request.tenant == 'acme'",
            "pool.queue_length.max > 2.0",
        ];
        rule["when"] = json!(pick(rng, &when));
    }
    rule
}

fn matching(rng: &mut StdRng) -> Value {
    let all = [
        ("tenants", json!(["acme"])),
        ("models", json!([pick(rng, &["standard", "second"])])),
        ("tags", pick(rng, &[json!({"any": ["pii", "batch"]}), json!({"none": ["pii"]})])),
        ("promptTokens", json!({"min": rng.random_range(1..400)})),
        (
            "pool",
            pick(
                rng,
                &[json!({"readyWorkers": {"min": 1}}), json!({"queueLength": {"stat": "Mean", "above": 1}})],
            ),
        ),
    ];
    let some = all.into_iter().filter(|_| rng.random_bool(0.2));
    Value::Object(some.map(|(key, value)| (key.to_owned(), value)).collect())
}

fn step(rng: &mut StdRng) -> Value {
    match rng.random_range(0..4) {
        0 => json!({"exclude": condition(rng)}),
        1 => json!({"keep": condition(rng)}),
        2 => {
            let mut step = json!({"prefer": condition(rng)});
            if rng.random_bool(0.5) {
                step["unlessFasterByMs"] = json!(rng.random_range(0..1000));
            }
            step
        }
        _ => {
            let measure = pick(rng, &["PredictedTTFT", "QueueLength", "KVCacheUse", "Cost"]);
            json!({"minimize": measure, "tolerance": rng.random_range(0..3)})
        }
    }
}

fn condition(rng: &mut StdRng) -> Value {
    match rng.random_range(0..8) {
        0 => json!({"kind": "Worker"}),
        1 => json!({"kind": "Provider"}),
        2 => json!({"workerSets": [pick(rng, &SETS)]}),
        3 => json!({"models": [pick(rng, &["qwen-32b", "qwen-4b", "large"])]}),
        4 => json!({"queueLength": {"above": rng.random_range(0..5)}}),
        5 => json!({"kvCacheUsePercent": {"below": rng.random_range(1..100)}}),
        6 => json!({"cachedPercent": {"above": rng.random_range(0..99)}}),
        _ => json!({"runningRequests": {"below": rng.random_range(1..12)}}),
    }
}
