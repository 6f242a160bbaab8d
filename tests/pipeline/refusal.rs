//! What is answered to the client instead of being routed, and what is not.

use std::sync::Arc;

use kinference::{
    fleet::{ModelCard, Worker},
    pipeline::{Incoming, IncomingBody},
    types::{Api, Degradation, ErrorKind, RemovedReason},
};
use serde_json::json;

use crate::site::{MODEL, Site, call, chat, picked, profile, prompt, worker, worker_set};

fn completion(body: &str) -> Incoming {
    call(Api::Completions, body.to_owned())
}

#[tokio::test(start_paused = true)]
async fn what_the_client_got_wrong_is_said() {
    let site = Site::of(&profile("p", |_| {}), 1);
    for (body, kind) in [
        ("", ErrorKind::BadRequest),
        ("{\"model\":", ErrorKind::BadRequest),
        ("[]", ErrorKind::BadRequest),
        (r#"{"prompt":"x"}"#, ErrorKind::BadRequest),
        (r#"{"model":"tokenizer"}"#, ErrorKind::BadRequest),
        (r#"{"model":"gone","prompt":"x"}"#, ErrorKind::ModelNotFound),
    ] {
        assert_eq!(site.refused(completion(body)).await, kind, "{body}");
    }
    assert_eq!(site.refused(Incoming { body: IncomingBody::Empty, ..chat() }).await, ErrorKind::BadRequest);
    let named = site.refusal(completion(r#"{"model":"gone","prompt":"x"}"#)).await;
    assert!(named.message.contains("`gone`"), "{}", named.message);
    assert!(
        site.metrics
            .render()
            .contains("kinference_rejections_total{kind=\"model_not_found\",tenant=\"_none\"} 2")
    );
}

#[tokio::test(start_paused = true)]
async fn without_an_eligible_worker_it_is_our_fault() {
    let empty = Site::of(&profile("p", |_| {}), 0);
    assert_eq!(empty.refused(prompt(0..9)).await, ErrorKind::NoWorker);
    let site = Site::of(&profile("p", |_| {}), 2);
    assert_eq!(site.refused(Incoming { subset: Some(vec![]), ..prompt(0..9) }).await, ErrorKind::NoWorker);
    (1..=2).for_each(|id| site.fail(id));
    let refused = site.refusal(prompt(0..9)).await;
    let removed: Vec<_> = refused.removed.iter().map(|one| (&*one.who, one.reason)).collect();
    assert_eq!(removed, [("w1", RemovedReason::Failing), ("w2", RemovedReason::Failing)]);
    assert_eq!(refused.kind, ErrorKind::NoWorker);
    assert_eq!(site.refused(completion(r#"{"model":"gone","prompt":"x"}"#)).await, ErrorKind::ModelNotFound);
}

#[tokio::test(start_paused = true)]
async fn until_a_worker_has_told_its_models_an_unknown_one_may_exist() {
    let p = profile("p", |_| {});
    let (site, set) = (Site::of(&p, 0), worker_set("s", &p));
    let polled = |id| Worker { http_url: Some("http://10.0.0.1:8000".into()), ..worker(&set, id) };
    site.registry.replace_set("s", vec![polled(1), polled(2), worker(&set, 3)]).unwrap();
    let adapter = r#"{"model":"adapter","prompt":[1,2]}"#;
    assert_eq!(site.refused(completion(adapter)).await, ErrorKind::NoWorker);
    let card = |id: &str, parent: Option<&str>| ModelCard {
        id: id.into(),
        parent: parent.map(Arc::from),
        max_model_len: None,
        owned_by: String::new(),
    };
    let told = |id: u64, cards| site.member(id).status.models.store(Some(Arc::new(cards)));
    told(1, vec![card(MODEL, None)]);
    assert_eq!(site.refused(completion(adapter)).await, ErrorKind::ModelNotFound);
    told(2, vec![card(MODEL, None), card("adapter", Some(MODEL))]);
    assert_eq!(picked(&site.decide(completion(adapter)).await), 2);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_goes_where_it_fits_or_nowhere() {
    let site = Site::of(&profile("p", |_| {}), 2);
    for (id, max_model_len) in [(1, 64), (2, 128)] {
        let card = ModelCard {
            id: MODEL.into(),
            parent: None,
            max_model_len: Some(max_model_len),
            owned_by: String::new(),
        };
        site.member(id).status.models.store(Some(Arc::new(vec![card])));
    }
    assert_eq!(site.decide(prompt(0..63)).await.candidates.len(), 2);
    let decision = site.decide(prompt(0..64)).await;
    assert_eq!((picked(&decision), decision.removed[0].reason), (2, RemovedReason::PromptTooLong));
    let refused = site.refusal(prompt(0..128)).await;
    assert!(refused.kind == ErrorKind::BadRequest && refused.message.contains("128"), "{refused:?}");
    assert!(refused.removed.iter().all(|one| one.reason == RemovedReason::PromptTooLong), "{refused:?}");
    assert_eq!(refused.removed.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_routed_on_load_alone() {
    let site = Site::of(&profile("p", |_| {}), 2);
    let unknown = r#"{"model":"published","prompt":[1,2,3]}"#;
    let cases = [
        (Incoming { content_encoding: Some("lzma".into()), ..chat() }, Degradation::UnknownEncoding),
        (Incoming { content_type: Some("text/plain".into()), ..chat() }, Degradation::NotInference),
        (Incoming { body: IncomingBody::Unseen, ..chat() }, Degradation::BodyUnseen),
        (Incoming { pool: Some("pool".into()), ..completion(unknown) }, Degradation::PoolUnknown),
        (Incoming { pool: Some("pool".into()), ..prompt(0..9) }, Degradation::PoolUnknown),
    ];
    for (request, why) in cases {
        let decision = site.decide(request).await;
        assert_eq!((&decision.degraded[..], decision.prompt_tokens), (&[why][..], None));
        assert_eq!(decision.candidates.len(), 2);
    }
    // Without a content type an inference call is JSON.
    let decision = site.decide(Incoming { content_type: None, ..prompt(0..9) }).await;
    assert_eq!(decision.prompt_tokens, Some(9));
    let bare =
        Incoming { content_type: Some(String::new()), ..call(Api::ChatCompletions, json!({}).to_string()) };
    assert_eq!(site.refused(bare).await, ErrorKind::BadRequest);
}
