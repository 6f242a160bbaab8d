//! What becomes of a placed request: load, failures, stored responses.

use kinference::{
    pipeline::{Incoming, IncomingBody},
    types::{Api, Degradation, Outcome, RequestKind, Usage},
};
use serde_json::json;

use crate::{
    logs::Lines,
    site::{MODEL, Site, call, other, picked, profile, prompt, worker, worker_of, worker_set},
};

#[tokio::test(start_paused = true)]
async fn load_moves_with_who_serves_and_the_unreached_worker_is_blamed() {
    let site = Site::of(&profile("p", |_| {}), 2);
    for _ in 0..3 {
        let subset = Some(vec!["10.0.0.1:8000".into()]);
        let mut placement = site.place(Incoming { subset, ..prompt(0..64) }).await;
        placement.served_by("10.0.0.1:8000");
        assert_eq!([site.in_flight(1), site.in_flight(2)], [1, 0]);
        placement.served_by("10.0.0.2:8000");
        placement.served_by("1.2.3.4:1");
        assert_eq!([site.in_flight(1), site.in_flight(2)], [0, 1]);
        placement.finish(Outcome::Completed, None);
        assert_eq!(site.in_flight(2), 0);
    }
    assert!(site.member(1).failing() && !site.member(2).failing());
}

#[tokio::test(start_paused = true)]
async fn only_failures_in_a_row_count_against_a_worker() {
    let site = Site::of(&profile("p", |_| {}), 1);
    let history = [
        Outcome::Failed,
        Outcome::Failed,
        Outcome::Completed,
        Outcome::Failed,
        Outcome::ClientError,
        Outcome::Cancelled,
        Outcome::Failed,
    ];
    for outcome in history {
        site.place(prompt(0..64)).await.finish(outcome, None);
        drop(site.place(prompt(0..64)).await);
        assert!(!site.member(1).failing());
    }
    let usage = Usage { prompt_tokens: 64, completion_tokens: 5, cached_tokens: Some(48) };
    site.place(prompt(0..64)).await.finish(Outcome::Failed, Some(usage));
    assert!(site.member(1).failing());
    let text = site.metrics.render();
    for line in [
        r#"kinference_requests_total{model="tokenizer",outcome="failed",tenant="_none",workerset="s"} 5"#,
        r#"kinference_requests_total{model="tokenizer",outcome="cancelled",tenant="_none",workerset="s"} 8"#,
        r#"kinference_tokens_total{kind="cached_prompt",model="tokenizer",tenant="_none",workerset="s"} 48"#,
        r#"kinference_tokens_total{kind="uncached_prompt",model="tokenizer",tenant="_none",workerset="s"} 16"#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_turn_of_a_worker_is_one_line_and_requests_are_none() {
    let site = Site::of(&profile("p", |_| {}), 1);
    let (lines, _, _guard) = Lines::capture("info");
    // In flight when the worker turns.
    let last = site.place(prompt(0..64)).await;
    let mut placed = Vec::new();
    for _ in 0..5 {
        placed.push(site.place(prompt(0..64)).await);
    }
    placed.pop().unwrap().finish(Outcome::Completed, None);
    assert_eq!(lines.take(), "");
    placed.into_iter().for_each(|placement| placement.finish(Outcome::Failed, None));
    lines.only(
        "w1",
        "WARN kinference::pipeline::placement: its responses are errors, it is failing: no traffic",
    );
    site.refused(prompt(0..64)).await;
    assert_eq!(lines.take(), "", "a refused request is no line either");
    last.finish(Outcome::Completed, None);
    lines.only("w1", "it answered a request and is failing no more: back in service");
}

fn goes_on(id: &str) -> Incoming {
    call(
        Api::Responses,
        json!({"model": MODEL, "input": "and then?", "previous_response_id": id}).to_string(),
    )
}

#[tokio::test(start_paused = true)]
async fn stored_responses_stick_to_their_maker() {
    let site = Site::of(&profile("p", |_| {}), 4);
    let subset = Some(vec!["10.0.0.3:8000".into()]);
    site.place(Incoming { subset, ..other() }).await.made_response("resp_3");
    let get =
        Incoming { kind: RequestKind::StoredResponse("resp_3".into()), body: IncomingBody::Empty, ..other() };
    for request in [goes_on("resp_3"), get] {
        let decision = site.decide(request).await;
        assert_eq!((picked(&decision), decision.candidates.len()), (3, 1));
        assert!(decision.degraded.is_empty() && decision.prompt_tokens.is_none());
    }
    let unknown = site.decide(goes_on("resp_9")).await;
    assert_eq!((unknown.candidates.len(), &unknown.degraded[..]), (4, &[Degradation::StickyMiss][..]));
    site.fail(3);
    let gone = site.decide(goes_on("resp_3")).await;
    assert_eq!((gone.candidates.len(), &gone.degraded[..]), (3, &[Degradation::StickyMiss][..]));
}

#[tokio::test(start_paused = true)]
async fn mock_mode_sends_the_same_request_to_the_same_worker_whatever_became_of_it() {
    let p = profile("p", |_| {});
    let site = Site::new(std::slice::from_ref(&p), |config| config.mock_mode = true);
    let set = worker_set("s", &p);
    site.registry.replace_set("s", (1..=4).map(|id| worker(&set, id)).collect()).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for i in 0..32 {
        let first = picked(&site.decide(prompt(i..i + 9)).await);
        for _ in 0..4 {
            let placement = site.place(prompt(i..i + 9)).await;
            assert_eq!(worker_of(placement.decision.primary()), first);
            placement.finish(Outcome::Failed, None);
        }
        seen.insert(first);
    }
    assert_eq!(seen.len(), 4, "different requests spread");
}
