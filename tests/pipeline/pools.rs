//! What a pool publishes, what serves it, and what is said of what it does not publish.

use std::{collections::BTreeMap, sync::Arc};

use kinference::{
    config::{BodyMetadata, Profile},
    fleet::{ModelCard, Worker},
    pipeline::{Incoming, Rewrite},
    prompt::spliced,
    types::{Api, Decision, Degradation, ErrorKind, RemovedReason, RequestKind},
};
use serde_json::{Value, json};

use crate::site::{BLOCK, MODEL, Site, call, other, picked, profile, worker, worker_of, worker_set};

/// A published model with backends of worker sets, each `(set, model)`.
fn model(name: &str, backends: &[(&str, &str)]) -> Value {
    let of = |(set, model): &(&str, &str)| json!({"workerSet": {"name": set, "model": model}});
    json!({"name": name, "backends": backends.iter().map(of).collect::<Vec<_>>()})
}

pub fn card(id: &str, parent: Option<&str>) -> ModelCard {
    let parent = parent.map(Arc::from);
    ModelCard { id: id.into(), parent, max_model_len: None, owned_by: String::new() }
}

/// Workers 1 and 2 of set `big`, 3 and 4 of set `small`, each serving its set's model; 5 is of no pool. Predictions do not
/// tie unless they are equal.
pub fn site(edit: impl FnOnce(&mut Profile)) -> Site {
    let p = profile("p", |p| {
        p.picker.tie_tolerance_ms = 0.0;
        edit(p);
    });
    peopled(Site::of(&p, 0), &p)
}

fn peopled(site: Site, p: &Profile) -> Site {
    for (name, model, ids) in
        [("big", "qwen-32b", 1..=2), ("small", "qwen-4b", 3..=4), ("rest", MODEL, 5..=5)]
    {
        let set = worker_set(name, p);
        let of = |id| Worker { model_name: model.into(), ..worker(&set, id) };
        site.registry.replace_set(name, ids.map(of).collect()).unwrap();
    }
    site
}

fn pool(models: &[Value]) -> [(&'static str, &'static str, Value); 1] {
    [("InferencePool", "chat", json!({"models": models}))]
}

pub fn asks(model: &str) -> Incoming {
    let prompt: Vec<u32> = (0..64).collect();
    let body = json!({"model": model, "prompt": prompt, "stream": true}).to_string();
    Incoming { pool: Some("chat".into()), ..call(Api::Completions, body) }
}

pub fn ids(decision: &Arc<Decision>) -> Vec<u64> {
    let mut ids: Vec<_> = decision.candidates.iter().map(worker_of).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test(start_paused = true)]
async fn a_published_name_or_alias_goes_to_what_is_behind_it_in_its_own_words() {
    let site = site(|_| {});
    let mut published = model("standard", &[("big", "qwen-32b")]);
    published["aliases"] = json!(["gpt-4"]);
    site.enforce(&pool(&[published]));
    for asked in ["standard", "gpt-4"] {
        let request = asks(asked);
        let kinference::pipeline::IncomingBody::Full(body) = request.body.clone() else { panic!("no body") };
        let placement = site.place(request).await;
        let decision = &placement.decision;
        assert_eq!((ids(decision), decision.model.as_deref()), (vec![1, 2], Some(asked)));
        assert!(decision.candidates.iter().all(|one| one.model.as_deref() == Some("qwen-32b")));
        let ruled = decision.ruled.as_ref().unwrap();
        assert_eq!((&*ruled.pool, &*ruled.model, ruled.rules.len()), ("ns/chat", "standard", 0));
        assert_eq!(placement.client_model.as_deref(), Some(asked));
        let Some(Rewrite::Splices(splices)) = &placement.rewrite else { panic!("{:?}", placement.rewrite) };
        let sent = String::from_utf8(spliced(&body, splices).to_vec()).unwrap();
        let original = String::from_utf8(body.to_vec()).unwrap();
        assert_eq!(sent, original.replace(&format!("\"{asked}\""), "\"qwen-32b\""));
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_stays_changes_nothing_of_the_body() {
    let site = site(|_| {});
    site.enforce(&pool(&[model("qwen-32b", &[("big", "qwen-32b")])]));
    let placement = site.place(asks("qwen-32b")).await;
    assert_eq!((&placement.rewrite, &placement.client_model), (&None, &None));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_published_for_the_tenant_does_not_exist_and_what_is_gets_listed() {
    let site = site(|_| {});
    let mut private = model("private", &[("big", "qwen-32b")]);
    private["tenants"] = json!(["team-a"]);
    site.enforce(&pool(&[model("standard", &[("small", "qwen-4b")]), private]));
    let of = |tenant: Option<&str>, model: &str| Incoming { tenant: tenant.map(Arc::from), ..asks(model) };
    assert_eq!(ids(&site.decide(of(Some("team-a"), "private")).await), [1, 2]);
    let table = [
        (None, "private", "The model `private` does not exist. There are: `standard`."),
        (Some("team-b"), "qwen-4b", "The model `qwen-4b` does not exist. There are: `standard`."),
        (Some("team-a"), "gone", "The model `gone` does not exist. There are: `standard`, `private`."),
    ];
    for (tenant, model, message) in table {
        let refused = site.refusal(of(tenant, model)).await;
        assert_eq!((refused.kind, &*refused.message), (ErrorKind::ModelNotFound, message));
    }
    // Also for calls that are not parsed further: nobody gets around the list.
    let embeddings = Incoming { kind: RequestKind::Other, ..asks("private") };
    assert_eq!(site.refused(embeddings).await, ErrorKind::ModelNotFound);
}

#[tokio::test(start_paused = true)]
async fn many_names_are_not_all_told() {
    let site = site(|_| {});
    let models: Vec<_> = (0..40).map(|n| model(&format!("m{n}"), &[("big", "qwen-32b")])).collect();
    site.enforce(&pool(&models));
    let refused = site.refusal(asks(&"x".repeat(5000))).await;
    assert!(refused.message.ends_with("`m31`, 8 more."), "{}", refused.message);
    assert!(refused.message.len() < 1000);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_not_there_is_no_fault_of_the_client() {
    let site = site(|_| {});
    site.enforce(&[]);
    let refused = site.refusal(asks("qwen-32b")).await;
    assert_eq!((refused.kind, refused.kind.http_status()), (ErrorKind::PoolNotFound, 503));
    // A request that names none is none of a pool's business.
    assert_eq!(ids(&site.decide(Incoming { pool: None, ..asks("qwen-32b") }).await), [1, 2]);
    site.enforce(&pool(&[model("m", &[("big", "qwen-32b")])]));
    for name in ["chat", "ns/chat"] {
        assert_eq!(ids(&site.decide(Incoming { pool: Some(name.into()), ..asks("m") }).await), [1, 2]);
    }
    // Without policies a pool's name says nothing.
    site.pipeline.policies().store(None);
    let decision = site.decide(asks("m")).await;
    assert_eq!((ids(&decision).len(), &decision.degraded[..]), (5, &[Degradation::PoolUnknown][..]));
}

#[tokio::test(start_paused = true)]
async fn only_who_knows_the_model_by_the_same_name_stands_in() {
    let site = site(|p| p.picker.top_k_min = 4);
    site.enforce(&pool(&[model("standard", &[("big", "qwen-32b"), ("small", "qwen-4b")])]));
    site.store(4, 0..64).await;
    let decision = site.decide(asks("standard")).await;
    assert_eq!((ids(&decision), picked(&decision)), (vec![1, 2, 3, 4], 4));
    let fallbacks: Vec<_> =
        decision.fallbacks.iter().map(|at| worker_of(&decision.candidates[*at])).collect();
    assert_eq!(
        (fallbacks, decision.destinations()),
        (vec![3], Some("10.0.0.4:8000,10.0.0.3:8000".to_owned()))
    );
    site.fail(4);
    site.member(3).status.models.store(Some(Arc::new(vec![card("another", None)])));
    let decision = site.decide(asks("standard")).await;
    let why: BTreeMap<_, _> = decision.removed.iter().map(|one| (&*one.who, one.reason)).collect();
    let want = [("w3", RemovedReason::OtherModel), ("w4", RemovedReason::Failing)];
    assert_eq!((ids(&decision), why), (vec![1, 2], BTreeMap::from(want)));
    let exclude = vec!["10.0.0.1:8000".into()];
    assert_eq!(ids(&site.decide(Incoming { exclude, ..asks("standard") }).await), [2]);
    let subset = Some(vec!["10.0.0.5:8000".into()]);
    assert_eq!(site.refused(Incoming { subset, ..asks("standard") }).await, ErrorKind::NoWorker);
}

#[tokio::test(start_paused = true)]
async fn a_worker_may_be_there_twice_with_its_adapter() {
    let site = site(|_| {});
    let cards =
        vec![card("qwen-32b", None), ModelCard { max_model_len: Some(64), ..card("lora", Some("qwen-32b")) }];
    site.member(1).status.models.store(Some(Arc::new(cards)));
    site.enforce(&pool(&[model("standard", &[("big", "qwen-32b"), ("big", "lora")])]));
    // What it holds for the base it does not hold for the adapter.
    site.store(1, 0..2 * BLOCK).await;
    let short = |n: u32| {
        let body = json!({"model": "standard", "prompt": (0..n).collect::<Vec<_>>()}).to_string();
        Incoming { pool: Some("chat".into()), ..call(Api::Completions, body) }
    };
    let decision = site.decide(short(3 * BLOCK)).await;
    let held: Vec<_> = decision
        .candidates
        .iter()
        .map(|one| (worker_of(one), one.model.as_deref().unwrap(), one.overlap.confirmed))
        .collect();
    assert_eq!(held[0], (1, "qwen-32b", 2));
    assert!(
        held.contains(&(1, "lora", 0)) && held.contains(&(2, "qwen-32b", 0)) && held.len() == 3,
        "{held:?}"
    );
    let decision = site.decide(short(64)).await;
    let gone: Vec<_> =
        decision.removed.iter().map(|one| (&*one.who, one.model.as_deref(), one.reason)).collect();
    assert_eq!(
        gone,
        [("w2", Some("lora"), RemovedReason::OtherModel), ("w1", Some("lora"), RemovedReason::PromptTooLong)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_model_goes_to_any_worker_behind_what_its_tenant_may_ask_for() {
    let site = site(|_| {});
    let mut private = model("private", &[("small", "qwen-4b")]);
    private["tenants"] = json!(["team-a"]);
    site.enforce(&pool(&[model("standard", &[("big", "qwen-32b"), ("big", "lora")]), private]));
    let any = |tenant: Option<&str>| Incoming {
        pool: Some("chat".into()),
        tenant: tenant.map(Arc::from),
        ..other()
    };
    let decision = site.decide(any(Some("team-a"))).await;
    assert_eq!(
        (ids(&decision), &decision.degraded[..]),
        (vec![1, 2, 3, 4], &[Degradation::NotInference][..])
    );
    assert_eq!((ids(&site.decide(any(None)).await), decision.ruled.is_none()), (vec![1, 2], true));
}

#[tokio::test(start_paused = true)]
async fn stored_responses_stick_within_their_pool() {
    let site = site(|_| {});
    site.enforce(&pool(&[
        model("standard", &[("big", "qwen-32b")]),
        model("cheap", &[("small", "qwen-4b")]),
    ]));
    let goes_on = |model: &str| {
        let body = json!({"model": model, "input": "and then?", "previous_response_id": "resp"}).to_string();
        Incoming { pool: Some("chat".into()), ..call(Api::Responses, body) }
    };
    let subset = Some(vec!["10.0.0.2:8000".into()]);
    site.place(Incoming { subset, ..asks("standard") }).await.made_response("resp");
    let placement = site.place(goes_on("standard")).await;
    assert_eq!((ids(&placement.decision), placement.client_model.as_deref()), (vec![2], Some("standard")));
    assert!(placement.rewrite.is_some());
    let elsewhere = site.decide(goes_on("cheap")).await;
    assert_eq!((ids(&elsewhere), &elsewhere.degraded[..]), (vec![3, 4], &[Degradation::StickyMiss][..]));
}

#[tokio::test(start_paused = true)]
async fn mock_mode_keeps_to_the_pool_and_to_its_words() {
    let p = profile("p", |_| {});
    let site = Site::new(std::slice::from_ref(&p), |config| config.mock_mode = true);
    for (name, model, ids) in [("big", "qwen-32b", 1..=2), ("small", "qwen-4b", 3..=4)] {
        let set = worker_set(name, &p);
        let of = |id| Worker { model_name: model.into(), ..worker(&set, id) };
        site.registry.replace_set(name, ids.map(of).collect()).unwrap();
    }
    site.enforce(&pool(&[model("standard", &[("big", "qwen-32b"), ("small", "qwen-4b")])]));
    let placement = site.place(asks("standard")).await;
    let (chosen, decision) = (placement.decision.primary(), &placement.decision);
    assert_eq!((ids(decision), placement.client_model.as_deref()), (vec![1, 2, 3, 4], Some("standard")));
    let [other] = decision.fallbacks[..] else { panic!("{:?}", decision.fallbacks) };
    assert_eq!(decision.candidates[other].model, chosen.model);
    assert_eq!(site.refused(asks("gone")).await, ErrorKind::ModelNotFound);
}

#[tokio::test(start_paused = true)]
async fn a_body_says_whose_request_it_is_only_where_it_may() {
    let body = |tenant: &str| {
        let metadata = json!({"kinference.tenant": tenant, "kinference.pool": "chat"});
        json!({"model": "private", "prompt": "hi", "metadata": metadata}).to_string()
    };
    let asks = |tenant: &str| call(Api::Completions, body(tenant));
    let all = BodyMetadata { tags: true, tenant: true, pool: true };
    let p = profile("p", |_| {});
    let believing = |what| {
        let site = Site::new(std::slice::from_ref(&p), |config| config.policy.body_metadata = what);
        let site = peopled(site, &p);
        let mut private = model("private", &[("big", "qwen-32b")]);
        private["tenants"] = json!(["acme"]);
        site.enforce(&pool(&[private]));
        site
    };
    let site = believing(all);
    assert_eq!(ids(&site.decide(asks("acme")).await), [1, 2]);
    assert_eq!(site.refused(asks("other")).await, ErrorKind::ModelNotFound);
    // Who is trusted has said it.
    let said = Incoming { tenant: Some("other".into()), ..asks("acme") };
    assert_eq!(site.refused(said).await, ErrorKind::ModelNotFound);
    let deaf = believing(BodyMetadata { tenant: false, ..all });
    assert_eq!(deaf.refused(asks("acme")).await, ErrorKind::ModelNotFound);
}

#[tokio::test(start_paused = true)]
async fn what_can_t_be_read_does_not_get_around_a_pool() {
    let site = site(|_| {});
    site.enforce(&pool(&[model("standard", &[("small", "qwen-4b")])]));
    let text = Incoming { content_type: Some("text/plain".into()), ..asks("qwen-32b") };
    let packed = Incoming { content_encoding: Some("lzma".into()), ..asks("qwen-32b") };
    for request in [text, packed] {
        assert_eq!(site.refused(request.clone()).await, ErrorKind::BadRequest);
        // Without a pool the engine says what it thinks of it.
        site.decide(Incoming { pool: None, ..request }).await;
    }
}
