//! The cases of the sample policies, which `kinfctl test` runs over a described fleet: the server decides alike.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use kinference::{
    fleet::{Availability, Worker},
    load::LoadSample,
    pipeline::Incoming,
    policy::{Secret, compile::Policies, manifests},
    types::{Api, Decision, Rejection, WorkerId},
};
use serde_json::{Map, Value, json};

use crate::site::{BLOCK, Site, call, profile, worker, worker_set};

/// What a case says of each worker.
type Fleet = BTreeMap<String, Map<String, Value>>;

fn text(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples/policies");
    std::fs::read_to_string(dir.join(name)).unwrap()
}

fn policies(test: &Value) -> Policies {
    let names = test["policies"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
    let files: Vec<_> = names.map(|name| (name, text(name))).collect();
    manifests::read(files.iter().map(|(name, text)| (*name, text.as_str())), None).policies
}

/// The fleet of a case: that of all, with what the case changes.
fn fleet(test: &Value, case: &Value) -> Fleet {
    let mut out = Fleet::new();
    for (name, state) in [&test["fleet"], &case["given"]].into_iter().flat_map(Value::as_object).flatten() {
        out.entry(name.clone()).or_default().extend(state.as_object().unwrap().clone());
    }
    out
}

/// A site with that fleet, each worker serving what a pool expects of its set, and every credential known.
async fn site(policies: Policies, fleet: &Fleet, tokens: u64) -> Site {
    let p = profile("p", |_| {});
    let site = Site::of(&p, 0);
    let backends: Vec<_> =
        policies.pools().flat_map(|pool| &pool.models).flat_map(|model| &model.backends).collect();
    let mut sets: BTreeMap<&str, Vec<Worker>> = BTreeMap::new();
    for (id, (name, state)) in (1..).zip(fleet) {
        let set = state["workerSet"].as_str().unwrap();
        let model = &backends.iter().find(|backend| &*backend.source == set).unwrap().model;
        let ready = state.get("ready").is_none_or(|ready| ready == true);
        let availability = if ready { Availability::Ready } else { Availability::NotReady };
        let one = worker(&worker_set(set, &p), id);
        sets.entry(set).or_default().push(Worker {
            name: name.as_str().into(),
            model_name: model.clone(),
            availability,
            ..one
        });
    }
    for (set, workers) in sets {
        site.registry.replace_set(set, workers).unwrap();
    }
    for (id, state) in (1..).zip(fleet.values()) {
        let number = |name: &str| state.get(name).and_then(Value::as_f64).unwrap_or_default();
        let sample = LoadSample {
            waiting: number("queue"),
            running: number("running"),
            kv_usage: number("kvCacheUsePercent") / 100.0,
        };
        site.load.record_scrape(WorkerId(id), sample);
        // Whole blocks are cached.
        let blocks = (number("cachedPercent") / 100.0 * (tokens as u32 / BLOCK) as f64) as u32;
        site.store(id, 0..blocks * BLOCK).await;
    }
    let known = policies.secrets().values().map(|key| (key.clone(), Secret::read(b"k"))).collect();
    site.pipeline.secrets().replace(known);
    site.pipeline.policies().store(Some(Arc::new(policies)));
    site
}

/// The request of a case.
fn request(test: &Value, when: &Value) -> Incoming {
    let text = |name: &str| when[name].as_str();
    let api = Api::ALL.into_iter().find(|api| Some(api.path()) == text("path")).unwrap_or(Api::Completions);
    let tokens: Vec<u64> = (0..length(when)).collect();
    let model = text("model").unwrap();
    let body = match api {
        Api::Messages => {
            json!({"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "Hello!"}]})
        }
        _ => json!({"model": model, "prompt": tokens}),
    };
    Incoming {
        pool: test["pool"].as_str().map(Arc::from),
        tenant: text("tenant").map(Arc::from),
        tags: when["tags"].as_array().into_iter().flatten().map(|tag| tag.as_str().unwrap().into()).collect(),
        ..call(api, body.to_string())
    }
}

/// Tokens of its prompt.
fn length(when: &Value) -> u64 {
    when["promptTokens"].as_u64().unwrap_or(1)
}

fn names(value: &Value) -> Vec<&str> {
    value.as_array().map_or_else(
        || value.as_str().into_iter().collect(),
        |all| all.iter().filter_map(Value::as_str).collect(),
    )
}

fn check(decided: &Result<Arc<Decision>, Rejection>, then: &Value, it: &str) {
    let name = |label: &str| label.trim_start_matches("provider/").to_owned();
    let ruled = match decided {
        Ok(decision) => {
            let left: Vec<_> = decision.candidates.iter().map(|one| name(&one.target.label())).collect();
            let picks = names(&then["picks"]);
            let picked = name(&decision.primary().target.label());
            assert!(then["rejects"].is_null(), "{it}: goes to {picked}");
            assert!(picks.is_empty() || picks.contains(&&*picked), "{it}: goes to {picked}");
            assert!(then["order"].is_null() || names(&then["order"]) == left, "{it}: leaves {left:?}");
            &decision.ruled
        }
        Err(rejection) => {
            let (status, message) = (rejection.kind.http_status(), &rejection.message);
            let wanted = then["rejects"]["status"].as_u64().or(then["rejects"].as_u64());
            assert_eq!(wanted, Some(status.into()), "{it}: {message}");
            assert!(
                message.contains(then["rejects"]["message"].as_str().unwrap_or_default()),
                "{it}: {message}"
            );
            &rejection.ruled
        }
    };
    if let Some(rule) = then["rule"].as_str() {
        let by = ruled.as_ref().and_then(|ruled| ruled.decided_by()).map_or("none", |by| &*by.rule);
        assert_eq!(by, rule, "{it}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_decides_as_the_samples_expect() {
    let mut cases = 0;
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples/policies");
    for entry in std::fs::read_dir(dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".test.yaml") {
            continue;
        }
        let test: Value = serde_saphyr::from_str(&text(&name)).unwrap();
        for case in test["cases"].as_array().unwrap() {
            let it = format!("{name}: {}", case["it"].as_str().unwrap());
            let site = site(policies(&test), &fleet(&test, case), length(&case["when"])).await;
            let decided = site.pipeline.decide(request(&test, &case["when"])).await;
            check(&decided.map(|placement| placement.decision.clone()), &case["then"], &it);
            cases += 1;
        }
    }
    assert!(cases > 10, "{cases}");
}
