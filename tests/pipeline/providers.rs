//! Providers beside workers: when they are candidates, what they are predicted at, and what becomes of requests there.

use std::{collections::BTreeMap, sync::Arc};

use kinference::{
    fleet::Worker,
    load::LoadSample,
    pipeline::{Incoming, IncomingBody, Rewrite},
    policy::{NoSecret, Secret, SecretKey, manifests},
    prompt::spliced,
    types::{Api, Decision, ErrorKind, Outcome, RemovedReason, RequestKind, Target, WorkerId},
};
use serde_json::{Value, json};
use tokio::time::{Duration, advance};

use crate::site::{BLOCK, Site, call, other, profile, worker, worker_set};

const MODEL: &str = "Qwen/Qwen3-32B";

/// Workers 1 to `n` of the set `large`, each serving the model, whose predictions do not tie unless they are equal.
fn site(n: u64) -> Site {
    let p = profile("p", |p| {
        (p.picker.tie_tolerance_ms, p.picker.top_k_min) = (0.0, 4);
        p.picker.replication_threshold_pct = 50.0;
    });
    let (site, set) = (Site::of(&p, 0), worker_set("large", &p));
    let of = |id| Worker { model_name: MODEL.into(), ..worker(&set, id) };
    site.registry.replace_set("large", (1..=n).map(of).collect()).unwrap();
    site
}

fn knows(site: &Site, name: &str, key: &str, found: Result<Secret, NoSecret>) {
    let key = SecretKey { namespace: "ns".into(), name: name.into(), key: key.into() };
    site.pipeline.secrets().replace([(key, found)].into());
}

/// The samples of that name, as they are, with the provider's credential known.
fn sample(site: &Site, name: &str) {
    let text = |name: &str| {
        let path = format!("{}/config/samples/policies/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    let (pool, cloud) = (text(name), text("cloud"));
    let made = manifests::read([("pool.yaml", &*pool), ("cloud.yaml", &*cloud)], None);
    site.pipeline.policies().store(Some(Arc::new(made.policies)));
    let key =
        SecretKey { namespace: "default".into(), name: "cloud-credentials".into(), key: "token".into() };
    site.pipeline.secrets().replace([(key, Secret::read(b"k"))].into());
}

/// The model `standard` of pool `chat`: behind it the workers and these providers, each an edit of one that needs nothing.
fn published(site: &Site, providers: &[(&str, Value)]) {
    let mut backends = vec![json!({"workerSet": {"name": "large", "model": MODEL}})];
    let mut resources = Vec::new();
    for (name, edit) in providers {
        backends.push(json!({"provider": {"name": name, "model": "big"}}));
        let mut spec = json!({
            "api": "OpenAI", "host": "api.example.com", "pathPrefix": "/openai",
            "models": [{"name": "big", "upstream": "gpt-big", "expectedTtftMs": 100}],
        });
        let (spec_fields, edit) = (spec.as_object_mut().unwrap(), edit.as_object().unwrap());
        spec_fields.extend(edit.clone());
        resources.push(("InferenceProvider", *name, spec));
    }
    resources.push((
        "InferencePool",
        "chat",
        json!({"models": [{"name": "standard", "backends": backends}]}),
    ));
    site.enforce(&resources);
}

fn cloud(site: &Site) {
    published(site, &[("cloud", json!({}))]);
}

fn body(model: &str) -> Value {
    json!({"model": model, "prompt": (0..64).collect::<Vec<u32>>(), "stream": true})
}

fn asks(pool: &str, model: &str) -> Incoming {
    Incoming { pool: Some(pool.into()), ..call(Api::Completions, body(model).to_string()) }
}

fn ask() -> Incoming {
    asks("chat", "standard")
}

fn picked(decision: &Decision) -> String {
    decision.primary().target.label().to_string()
}

async fn goes(site: &Site, incoming: Incoming) -> String {
    let decision = site.decide(incoming).await;
    picked(&decision)
}

fn waiting(site: &Site, waiting: [f64; 2]) {
    for (id, waiting) in (1..).zip(waiting) {
        site.load.record_scrape(WorkerId(id), LoadSample { waiting, ..LoadSample::default() });
    }
}

fn reasons(decision: &Decision) -> BTreeMap<&str, RemovedReason> {
    decision.removed.iter().map(|one| (&*one.who, one.reason)).collect()
}

#[tokio::test(start_paused = true)]
async fn what_workers_have_no_room_for_bursts_to_the_cloud() {
    let site = site(2);
    sample(&site, "burst-to-cloud");
    let ask = || asks("burst-to-cloud", "standard-model");
    waiting(&site, [0.0, 3.0]);
    assert_eq!(goes(&site, ask()).await, "w1");
    waiting(&site, [3.0, 7.0]);
    let decision = site.decide(ask()).await;
    assert_eq!((picked(&decision), decision.destinations()), ("provider/cloud".into(), None));
    assert_eq!(
        reasons(&decision),
        BTreeMap::from([("w1", RemovedReason::Policy), ("w2", RemovedReason::Policy)])
    );
    // It does not speak that, and no worker has room.
    let messages = Incoming { kind: RequestKind::Inference(Api::Messages), ..chat("standard-model") };
    let messages = Incoming { pool: Some("burst-to-cloud".into()), ..messages };
    assert_eq!(site.refused(messages).await.label(), "policy");
    waiting(&site, [2.0, 3.0]);
    assert_eq!(goes(&site, ask()).await, "w1", "drained");
    (1..=2).for_each(|id| site.fail(id));
    assert_eq!(goes(&site, ask()).await, "provider/cloud");
}

#[tokio::test(start_paused = true)]
async fn personal_data_stays_local() {
    let site = site(1);
    sample(&site, "pii-stays-local");
    let ask = |tags: &[&str]| {
        let tags = tags.iter().map(|tag| Arc::from(*tag)).collect();
        Incoming { tags, ..asks("pii-stays-local", "standard-model") }
    };
    waiting(&site, [50.0, 0.0]);
    assert_eq!(goes(&site, ask(&[])).await, "provider/cloud");
    let decision = site.decide(ask(&["pii"])).await;
    assert_eq!(picked(&decision), "w1");
    assert_eq!(reasons(&decision), BTreeMap::from([("provider/cloud", RemovedReason::Policy)]));
    site.fail(1);
    let refused = site.refusal(ask(&["urgent", "pii"])).await;
    assert_eq!(refused.kind.http_status(), 503);
    assert!(refused.message.contains("personal data does not leave"), "{}", refused.message);
    assert_eq!(goes(&site, ask(&["urgent"])).await, "provider/cloud");
}

fn chat(model: &str) -> Incoming {
    let body = json!({"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "Hello!"}]});
    Incoming { pool: Some("chat".into()), ..call(Api::ChatCompletions, body.to_string()) }
}

#[tokio::test(start_paused = true)]
async fn a_provider_is_told_all_that_the_proxy_needs() {
    let site = site(1);
    let credentials = json!({"mode": "Header", "secretRef": {"name": "keys", "key": "cloud"}});
    published(&site, &[("cloud", json!({"port": 8443, "credentials": credentials}))]);
    let decision = site.decide(ask()).await;
    assert_eq!(
        (picked(&decision), reasons(&decision)["provider/cloud"]),
        ("w1".into(), RemovedReason::NoCredential)
    );
    knows(&site, "keys", "cloud", Secret::read(b"s3cret\n"));
    let decision = site.decide(ask()).await;
    let Target::Provider(target) = &decision.primary().target else { panic!("{decision:?}") };
    assert_eq!((&*target.namespace, &*target.authority), ("ns", "api.example.com:8443"));
    assert_eq!(target.path_prefix.as_deref(), Some("/openai"));
    let credential = target.credential.as_ref().unwrap();
    assert_eq!((&*credential.header, &*credential.value), ("authorization", "Bearer s3cret"));
    assert!(!format!("{decision:?}").contains("s3cret"));
    knows(&site, "keys", "cloud", Secret::read(b"rotated"));
    let decision = site.decide(ask()).await;
    let target = decision.primary().target.provider().unwrap();
    assert_eq!(target.credential.as_ref().unwrap().value, "Bearer rotated");
}

#[tokio::test(start_paused = true)]
async fn who_is_not_asked_is_told_of_with_a_reason() {
    let site = site(1);
    cloud(&site);
    assert_eq!(goes(&site, ask()).await, "provider/cloud");
    let of = |incoming: Incoming| Incoming { pool: Some("chat".into()), ..incoming };
    let table = [
        (of(call(Api::Messages, chat_bytes())), RemovedReason::OtherApi),
        (
            of(call(Api::Responses, json!({"model": "standard", "input": "x"}).to_string())),
            RemovedReason::OtherApi,
        ),
        (Incoming { kind: RequestKind::Other, ..ask() }, RemovedReason::OtherApi),
        (
            Incoming { content_encoding: Some("lzma".into()), model: Some("standard".into()), ..ask() },
            RemovedReason::BodyUnseen,
        ),
        (
            Incoming { body: IncomingBody::Unseen, model: Some("standard".into()), ..ask() },
            RemovedReason::BodyUnseen,
        ),
        (Incoming { subset: Some(vec!["10.0.0.1:8000".into()]), ..ask() }, RemovedReason::NotInSubset),
        (Incoming { exclude: vec!["provider/cloud".into()], ..ask() }, RemovedReason::Excluded),
    ];
    for (incoming, reason) in table {
        let shown = format!("{incoming:?}");
        let decision = site.decide(incoming).await;
        assert_eq!(
            (picked(&decision), reasons(&decision).get("provider/cloud")),
            ("w1".into(), Some(&reason)),
            "{shown}"
        );
    }
    let anything = site.decide(of(other())).await;
    assert_eq!((picked(&anything), reasons(&anything).len()), ("w1".into(), 0), "it asks for no model");
    published(&site, &[("claude", json!({"api": "Anthropic"})), ("rock", json!({"api": "Bedrock"}))]);
    let messages = site.decide(of(call(Api::Messages, chat_bytes()))).await;
    assert_eq!(
        (picked(&messages), reasons(&messages)["provider/rock"]),
        ("provider/claude".into(), RemovedReason::OtherApi)
    );
    let chat = site.decide(chat("standard")).await;
    assert_eq!(
        (picked(&chat), reasons(&chat)["provider/claude"]),
        ("provider/rock".into(), RemovedReason::OtherApi)
    );
}

fn chat_bytes() -> String {
    let IncomingBody::Full(body) = chat("standard").body else { panic!("no body") };
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_providers_alone_needs_no_worker() {
    let site = site(0);
    cloud(&site);
    let decision = site.decide(ask()).await;
    assert_eq!((picked(&decision), decision.candidates.len()), ("provider/cloud".into(), 1));
    let all = decision.primary().prediction.clone();
    assert_eq!((all.ttft_ms, all.provider_ms), (100.0, 100.0));
    let excluded = Incoming { exclude: vec!["provider/cloud".into()], ..ask() };
    assert_eq!(site.refused(excluded).await, ErrorKind::NoWorker);
}

#[tokio::test(start_paused = true)]
async fn only_the_model_and_the_wish_for_usage_change_in_the_body() {
    let site = site(0);
    let sent = async |text: &str| {
        let incoming = Incoming { pool: Some("chat".into()), ..call(Api::ChatCompletions, text.to_owned()) };
        let placement = site.place(incoming).await;
        let body = match &placement.rewrite {
            Some(Rewrite::Splices(splices)) => spliced(text.as_bytes(), splices),
            other => panic!("{other:?}"),
        };
        (String::from_utf8(body.to_vec()).unwrap(), placement.client_model.clone())
    };
    let plain = r#"{ "model" :"standard", "messages":[ ],"temperature":1e400}"#;
    let streamed = plain.replace("[ ]", r#"[ ],"stream":true"#);
    let asks = streamed.replace("[ ]", r#"[ ], "stream_options":{"include_usage": true}"#);
    let renamed = |text: &str| text.replace("\"standard\"", "\"gpt-big\"");
    cloud(&site);
    assert_eq!(sent(plain).await, (renamed(plain), Some("standard".into())));
    assert_eq!(sent(&asks).await.0, renamed(&asks));
    let (told, _) = sent(&streamed).await;
    let value: Value = serde_json::from_str(&told.replace("1e400", "1")).unwrap();
    assert_eq!(
        (&value["stream_options"], &value["model"]),
        (&json!({"include_usage": true}), &json!("gpt-big"))
    );
    assert!(told.ends_with(&renamed(&streamed)[10..]) && told.len() > streamed.len(), "{told}");
    // Anthropic always tells it.
    published(&site, &[("claude", json!({"api": "Anthropic"}))]);
    let incoming = Incoming { pool: Some("chat".into()), ..call(Api::Messages, streamed.clone()) };
    let placement = site.place(incoming).await;
    let Some(Rewrite::Splices(splices)) = &placement.rewrite else { panic!("{:?}", placement.rewrite) };
    assert_eq!(spliced(streamed.as_bytes(), splices), renamed(&streamed));
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_not_asked_for_usage_that_a_provider_of_the_same_model_is() {
    let site = site(1);
    published(&site, &[("cloud", json!({"models": [{"name": "big", "upstream": MODEL}]}))]);
    let ask = |not: &str| Incoming { exclude: vec![not.into()], ..ask() };
    let splices = async |not: &str| match site.place(ask(not)).await.rewrite.take() {
        Some(Rewrite::Splices(splices)) => splices.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!([splices("provider/cloud").await, splices("10.0.0.1:8000").await], [1, 2]);
    // Where it knows the model by the name that is asked for, that wish is all.
    published(&site, &[("cloud", json!({"models": [{"name": "big", "upstream": "standard"}]}))]);
    let placement = site.place(ask("10.0.0.1:8000")).await;
    let Some(Rewrite::Splices(only)) = &placement.rewrite else { panic!("{:?}", placement.rewrite) };
    assert_eq!((only.len(), &placement.client_model), (1, &None));
}

#[tokio::test(start_paused = true)]
async fn its_own_answers_teach_how_soon_it_answers() {
    let site = site(2);
    cloud(&site);
    waiting(&site, [0.0, 0.0]);
    let workers = site.decide(Incoming { exclude: vec!["provider/cloud".into()], ..ask() }).await;
    let limit = workers.primary().prediction.ttft_ms;
    assert!(limit > 100.0, "{limit}");
    let mut asked = 0;
    while goes(&site, ask()).await == "provider/cloud" {
        let mut placement = site.place(ask()).await;
        assert!(placement.decision.fallbacks.is_empty(), "nobody stands in for it");
        advance(Duration::from_secs(2)).await;
        placement.first_token();
        placement.finish(Outcome::Completed, None);
        asked += 1;
        assert!(asked < 100);
    }
    assert!(asked > 1, "one slow answer turns nothing away");
    let decision = site.decide(ask()).await;
    let of_cloud = decision.candidates.iter().find(|one| one.target.provider().is_some()).unwrap();
    assert!(of_cloud.prediction.provider_ms > limit && decision.fallbacks.len() == 1, "{decision:?}");
    let other_worker = &decision.candidates[decision.fallbacks[0]];
    assert!(other_worker.target.worker().is_some());
    advance(Duration::from_secs(3600 * 6)).await;
    waiting(&site, [0.0, 0.0]);
    assert_eq!(goes(&site, ask()).await, "provider/cloud", "what was long ago is forgotten");
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_is_set_aside_and_tried_again_by_one_request() {
    let site = site(1);
    cloud(&site);
    // A refusal of the client's request is none; ours is.
    for outcome in [Outcome::ClientError, Outcome::Failed, Outcome::Refused, Outcome::Refused] {
        let placement = site.place(ask()).await;
        assert_eq!(picked(&placement.decision), "provider/cloud");
        placement.finish(outcome, None);
    }
    let decision = site.decide(ask()).await;
    assert_eq!(
        (picked(&decision), reasons(&decision)["provider/cloud"]),
        ("w1".into(), RemovedReason::Failing)
    );
    advance(Duration::from_secs(10)).await;
    // Large bodies are read and worded off the async threads, so that both are under way before either is decided.
    let large = || {
        let body = json!({"model": "standard", "prompt": (0..20_000).collect::<Vec<u32>>()}).to_string();
        Incoming { pool: Some("chat".into()), ..call(Api::Completions, body) }
    };
    let (one, two) = tokio::join!(site.place(large()), site.place(large()));
    let mut both = [picked(&one.decision), picked(&two.decision)];
    both.sort_unstable();
    assert_eq!(both, ["provider/cloud", "w1"], "one of two that come together");
    for placement in [one, two] {
        placement.finish(Outcome::Completed, None);
    }
    assert_eq!(goes(&site, ask()).await, "provider/cloud");
    let text = site.metrics.render();
    for line in [
        "kinference_provider_calls_total{outcome=\"refused\",provider=\"ns/cloud\"} 2",
        "kinference_provider_in_flight_requests{provider=\"ns/cloud\"} 0",
        &ended("failed", "provider/cloud", 3),
        &ended("client_error", "provider/cloud", 1),
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("outcome=\"refused\",tenant"), "who is asked for a key is told by whom:\n{text}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_wants_a_key_of_the_client_is_not_to_blame() {
    let site = site(1);
    cloud(&site);
    for _ in 0..5 {
        let placement = site.place(Incoming { exclude: vec!["provider/cloud".into()], ..ask() }).await;
        placement.finish(Outcome::Refused, None);
    }
    assert!(!site.member(1).failing());
    assert!(site.metrics.render().contains(&ended("client_error", "large", 5)));
}

/// So many requests for the published model ended like that, as metrics tell.
fn ended(outcome: &str, workerset: &str, requests: u32) -> String {
    let labels = format!(r#"model="standard",outcome="{outcome}",tenant="_none",workerset="{workerset}""#);
    format!("kinference_requests_total{{{labels}}} {requests}")
}

#[tokio::test(start_paused = true)]
async fn equals_are_told_apart_by_what_is_in_flight_there() {
    let site = site(0);
    published(&site, &[("one", json!({})), ("two", json!({}))]);
    let mut held = Vec::new();
    for n in 1..=6 {
        held.push(site.place(ask()).await);
        let of = |name: &str| held.iter().filter(|one| picked(&one.decision) == name).count();
        assert!(of("provider/one").abs_diff(of("provider/two")) == n % 2, "a burst spreads");
    }
    let decision = site.decide(ask()).await;
    assert_eq!(decision.candidates.iter().map(|one| one.own_in_flight).collect::<Vec<_>>(), [3, 3]);
    held.clear();
    let decision = site.decide(ask()).await;
    assert_eq!(decision.candidates.iter().map(|one| one.own_in_flight).sum::<u32>(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hot_prefix_is_never_replicated_to_a_provider() {
    let site = site(1);
    // Slower than the worker that holds the prefix, by less than its prefill: a worker would be warmed.
    published(
        &site,
        &[("cloud", json!({"models": [{"name": "big", "upstream": MODEL, "expectedTtftMs": 450}]}))],
    );
    waiting(&site, [0.0, 0.0]);
    site.store(1, 0..64 * BLOCK).await;
    for _ in 0..60 {
        let tokens: Vec<u32> = (0..64 * BLOCK).collect();
        let body = json!({"model": "standard", "prompt": tokens}).to_string();
        let decision =
            site.decide(Incoming { pool: Some("chat".into()), ..call(Api::Completions, body) }).await;
        let cold = &decision.candidates[1].prediction;
        assert_eq!((picked(&decision), decision.replicated, cold.provider_ms), ("w1".into(), false, 450.0));
    }
}

#[tokio::test(start_paused = true)]
async fn mock_mode_sends_nothing_out() {
    let p = profile("p", |_| {});
    let site = Site::new(std::slice::from_ref(&p), |config| config.mock_mode = true);
    cloud(&site);
    assert_eq!(site.refused(ask()).await, ErrorKind::NoWorker);
}
