//! The prompt's way to tokens: once per (model, profile), within the deadline, else on load alone.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{Json, Router, routing::post};
use kinference::{
    config::TokenizeMode,
    prompt::{LocalModel, parse},
    types::{Api, Degradation, RemovedReason},
};
use serde_json::json;
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Duration, Instant},
};

use crate::site::{MODEL, Site, chat, chat_body, picked, profile, worker, worker_set};

#[tokio::test]
async fn local_tokens_are_what_is_predicted_on() {
    let local = profile("p", |p| p.tokenize_mode = TokenizeMode::Local);
    let decision = Site::of(&local, 2).decide(chat()).await;
    let model =
        LocalModel::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(MODEL)).unwrap();
    let request = parse(Api::ChatCompletions, &chat_body().to_string().into()).unwrap();
    let tokens = model.tokenize(&request).unwrap().ids.len();
    assert!(tokens > 100 && decision.prompt_tokens == Some(tokens) && decision.degraded.is_empty());
}

/// A site whose engines take the connection and never answer.
async fn hanging() -> (Site, TcpListener) {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let p = profile("p", |p| p.tokenize_mode = TokenizeMode::Render);
    let (site, set) = (Site::of(&p, 0), worker_set("s", &p));
    let url = format!("http://{}", silent.local_addr().unwrap());
    let workers =
        (1..=2).map(|id| kinference::fleet::Worker { http_url: Some(url.clone()), ..worker(&set, id) });
    site.registry.replace_set("s", workers.collect()).unwrap();
    (site, silent)
}

#[tokio::test(start_paused = true)]
async fn past_the_deadline_the_pick_is_on_load_alone_and_says_so() {
    let (site, _silent) = hanging().await;
    let began = Instant::now();
    let decision = site.decide(chat()).await;
    assert!(began.elapsed() <= Duration::from_millis(1010), "time is virtual here");
    assert_eq!((&decision.degraded[..], decision.prompt_tokens), (&[Degradation::Deadline][..], None));
    assert_eq!((decision.candidates.len(), decision.primary().prediction.prefill_ms), (2, 0.0));
}

#[tokio::test(start_paused = true)]
async fn who_left_while_the_prompt_was_tokenized_is_not_picked() {
    let (site, _silent) = hanging().await;
    let left = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let stays = site.member(2).worker.clone();
        site.registry.replace_set("s", vec![stays]).unwrap();
    };
    let (decision, ()) = tokio::join!(site.decide(chat()), left);
    assert_eq!((picked(&decision), decision.removed[0].reason), (2, RemovedReason::Gone));
}

#[tokio::test]
async fn a_model_without_a_tokenizer_is_routed_on_load_alone() {
    let local = profile("p", |p| p.tokenize_mode = TokenizeMode::Local);
    let site = Site::new(std::slice::from_ref(&local), |c| c.tokenize.mount_dir = Some("/nowhere".into()));
    let set = worker_set("s", &local);
    site.registry.replace_set("s", vec![worker(&set, 1)]).unwrap();
    let decision = site.decide(chat()).await;
    assert_eq!((&decision.degraded[..], decision.prompt_tokens), (&[Degradation::TokenizeFailed][..], None));
}

#[tokio::test]
async fn not_to_know_a_prompt_does_not_make_it_look_free() {
    let local = profile("local", |p| p.tokenize_mode = TokenizeMode::Local);
    let render = profile("render", |p| p.tokenize_mode = TokenizeMode::Render);
    let site = Site::new(&[local.clone(), render.clone()], |_| {});
    for (id, profile) in [(1, &local), (2, &render)] {
        let set = worker_set(&profile.name, profile);
        site.registry.replace_set(&set.name, vec![worker(&set, id)]).unwrap();
    }
    let decision = site.decide(chat()).await;
    assert_eq!(decision.degraded, [Degradation::TokenizeFailed], "the engine to render has no address");
    let [one, other] = &decision.candidates[..] else { panic!("{decision:?}") };
    assert!(one.prediction.prefill_ms > 0.0);
    assert_eq!(one.prediction, other.prediction);
}

#[tokio::test]
async fn a_prompt_is_rendered_once_for_each_model_and_profile() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let answer = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Json(json!({"token_ids": (0..100).collect::<Vec<u32>>(), "model": MODEL})) }
    };
    let router = Router::new().route("/v1/chat/completions/render", post(answer));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut server = JoinSet::new();
    server.spawn(async move { axum::serve(listener, router).await });
    let profiles = ["p", "q"].map(|name| profile(name, |p| p.tokenize_mode = TokenizeMode::Render));
    let site = Site::new(&profiles, |_| {});
    for (name, profile, first) in [("a", &profiles[0], 1), ("b", &profiles[0], 3), ("c", &profiles[1], 5)] {
        let set = worker_set(name, profile);
        let of = |id| kinference::fleet::Worker { http_url: Some(url.clone()), ..worker(&set, id) };
        site.registry.replace_set(name, vec![of(first), of(first + 1)]).unwrap();
    }
    let decision = site.decide(chat()).await;
    assert_eq!((decision.prompt_tokens, decision.candidates.len()), (Some(100), 6));
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}
