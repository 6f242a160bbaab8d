//! Picks: their load, what is told of them, and their end.

use std::time::Duration;

use kinference::{
    serve::{
        picker::Picker,
        proto::{
            Cancelled, Completed, EndpointSubset, Failed, FirstToken, ObserveRequest, PickRequest, Served,
            Usage, observe_request::Event,
        },
        status::Reason,
    },
    types::{ErrorKind, WorkerId},
};

use crate::{
    door::{COMPLETIONS, Door, OBSERVATION_TTL, head, inline, seeded, tokens},
    site::MODEL,
};

fn token() -> Event {
    Event::FirstToken(FirstToken {})
}

fn completed(response_id: &str) -> Event {
    let usage = Usage { prompt_tokens: 10, completion_tokens: 3, cached_tokens: Some(4) };
    Event::Completed(Completed { usage: Some(usage), response_id: response_id.into() })
}

fn only(endpoint: &str, request: PickRequest) -> PickRequest {
    PickRequest { subset: Some(EndpointSubset { endpoints: vec![endpoint.into()] }), ..request }
}

fn expiring(picker: &Picker) -> tokio::task::JoinSet<std::convert::Infallible> {
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(picker.clone().run_expiry());
    tasks
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_picks_that_nobody_observes_leave_no_load() {
    let door = Door::of(&seeded(), 4);
    let _tasks = expiring(&door.picker);
    let mut last = String::new();
    for n in 0..10_000 {
        last = door.pick(tokens([n, n + 1])).await.pick_id;
    }
    assert_eq!(door.in_flight(), 10_000);
    assert!(door.has_counted("kinference_picker_picks_held 10000"));
    tokio::time::sleep(OBSERVATION_TTL + Duration::from_secs(2)).await;
    assert_eq!(door.in_flight(), 0);
    assert!(door.has_counted("kinference_picker_picks_held 0"));
    assert!(door.has_counted("kinference_picker_events_total{event=\"expired\"} 10000"));
    assert_eq!(door.observe(&last, token()).unwrap_err().reason, Reason::PickNotFound);
}

#[tokio::test(start_paused = true)]
async fn an_unobserved_prefill_drains_and_a_word_keeps_a_pick() {
    let door = Door::of(&seeded(), 1);
    let _tasks = expiring(&door.picker);
    let backlog = || door.site.load.lock().view(WorkerId(1)).own_without_token;
    let (silent, told) = (door.pick(tokens(0..160)).await, door.pick(tokens(0..320)).await);
    assert_eq!(backlog(), 2);
    door.observe(&told.pick_id, token()).unwrap();
    assert_eq!(backlog(), 1, "leaves at its first token");
    tokio::time::sleep(OBSERVATION_TTL / 2).await;
    assert_eq!((backlog(), door.in_flight()), (0, 2), "leaves once its prefill is predicted to be over");
    door.observe(&told.pick_id, token()).unwrap();
    tokio::time::sleep(OBSERVATION_TTL * 3 / 4).await;
    assert_eq!(door.in_flight(), 1);
    assert_eq!(door.observe(&silent.pick_id, token()).unwrap_err().reason, Reason::PickNotFound);
    door.observe(&told.pick_id, completed("")).unwrap();
    assert_eq!(door.in_flight(), 0);
    assert!(
        door.has_counted(
            "kinference_ttft_seconds_count{model=\"tokenizer\",tenant=\"_none\",workerset=\"s\"} 1"
        ),
        "told twice, counted once"
    );
}

#[tokio::test(start_paused = true)]
async fn ends_are_idempotent_and_remembered_for_a_while() {
    let door = Door::of(&seeded(), 1);
    for (n, end) in
        [completed(""), Event::Failed(Failed {}), Event::Cancelled(Cancelled {})].into_iter().enumerate()
    {
        let id = door.pick(tokens(0..16)).await.pick_id;
        door.observe(&id, end.clone()).unwrap();
        assert_eq!(door.in_flight(), 0);
        for again in [end, token(), completed(""), Event::Failed(Failed {})] {
            door.observe(&id, again).unwrap();
        }
        assert!(door.has_counted(&format!("kinference_picker_events_total{{event=\"ended\"}} {}", n + 1)));
        if n == 2 {
            tokio::time::sleep(OBSERVATION_TTL).await;
            assert_eq!(door.observe(&id, token()).unwrap_err().reason, Reason::PickNotFound);
        }
    }
    for outcome in ["completed", "failed", "cancelled"] {
        let labels = format!(r#"model="{MODEL}",outcome="{outcome}",tenant="_none",workerset="s""#);
        assert!(door.has_counted(&format!("kinference_requests_total{{{labels}}} 1")));
    }
    assert!(door.has_counted(
        "kinference_tokens_total{kind=\"output\",model=\"tokenizer\",tenant=\"_none\",workerset=\"s\"} 3"
    ));
    assert!(door.has_counted("kinference_picker_events_total{event=\"after_end\"} 12"));
}

#[tokio::test]
async fn what_is_told_in_vain_says_why() {
    let door = Door::of(&seeded(), 1);
    let reason = |id: &str| door.observe(id, token()).unwrap_err().reason;
    assert_eq!(reason("here.00000000000000000000000000000001"), Reason::PickNotFound);
    assert_eq!(reason("nonsense"), Reason::PickNotFound);
    assert_eq!(reason("there.00000000000000000000000000000001"), Reason::WrongReplica);
    let id = door.pick(tokens(0..16)).await.pick_id;
    let nothing = door.picker.note(ObserveRequest { pick_id: id, event: None });
    assert_eq!(nothing.unwrap_err().reason, Reason::Rejected(ErrorKind::BadRequest));
}

#[tokio::test]
async fn load_moves_to_who_serves_and_stored_responses_stick() {
    let door = Door::of(&seeded(), 2);
    let picked = door.pick(only("10.0.0.1:8000", tokens(0..64))).await;
    assert_eq!((picked.endpoint.as_str(), picked.fallbacks.len()), ("10.0.0.1:8000", 0));
    let served = Event::Served(Served { endpoint: "10.0.0.2:8000".into() });
    door.observe(&picked.pick_id, served.clone()).unwrap();
    door.observe(&picked.pick_id, served).unwrap();
    assert_eq!((door.site.in_flight(1), door.site.in_flight(2)), (0, 1));
    assert!(door.has_counted("kinference_requests_moved_total 1"));
    door.observe(&picked.pick_id, completed("resp_1")).unwrap();
    let body = format!(r#"{{"model":"{MODEL}","input":"x","previous_response_id":"resp_1"}}"#);
    for _ in 0..8 {
        let next = door.pick(inline(head("/v1/responses"), body.as_bytes())).await;
        assert_eq!(next.worker_id, "w2");
    }
}

#[tokio::test]
async fn engines_that_fail_get_no_more_picks() {
    let door = Door::of(&seeded(), 1);
    for _ in 0..kinference::fleet::FAILURES_TO_FAIL {
        let id = door.pick(tokens(0..16)).await.pick_id;
        door.observe(&id, Event::Failed(Failed {})).unwrap();
    }
    assert_eq!(door.refused(tokens(0..16)).await, Reason::Rejected(ErrorKind::NoWorker));
}

#[tokio::test]
async fn callers_narrow_the_field_and_see_it() {
    let door = Door::of(&seeded(), 3);
    let exclude = vec!["10.0.0.1:8000".to_owned(), "10.9.9.9:1".to_owned()];
    let want = PickRequest { exclude, want_candidates: true, ..tokens(0..64) };
    let picked = door.pick(want.clone()).await;
    assert_ne!(picked.worker_id, "w1");
    assert_eq!(picked.candidates.len(), 2);
    assert_eq!(picked.worker_set, "s");
    let removed: Vec<_> = picked.removed.iter().map(|r| (r.worker_id.as_str(), r.reason.as_str())).collect();
    assert_eq!(removed, [("w1", "excluded")]);
    let chosen = picked.candidates.iter().find(|c| c.worker_id == picked.worker_id).unwrap();
    assert_eq!(chosen.prediction, picked.prediction);
    let header = &picked.set_headers[0];
    assert_eq!(header.name, "x-gateway-destination-endpoint");
    let all = [std::slice::from_ref(&picked.endpoint), &picked.fallbacks].concat();
    assert_eq!(header.value, all.join(","));
    assert!(picked.remove_headers.contains(&header.name));
    let unasked = door.pick(PickRequest { want_candidates: false, ..want }).await;
    assert!(unasked.candidates.is_empty() && unasked.removed.is_empty());
    assert_eq!(door.refused(only("10.9.9.9:1", tokens(0..64))).await, Reason::Rejected(ErrorKind::NoWorker));
    let none = PickRequest { subset: Some(EndpointSubset::default()), ..tokens(0..64) };
    assert_eq!(door.refused(none).await, Reason::Rejected(ErrorKind::NoWorker));
    assert_eq!(
        door.refused(PickRequest { model: String::new(), ..tokens(0..64) }).await,
        Reason::Rejected(ErrorKind::BadRequest)
    );
    assert_eq!(door.refused(tokens([])).await, Reason::Rejected(ErrorKind::BadRequest));
    let unknown = PickRequest { model: "unknown".into(), ..tokens(0..64) };
    assert_eq!(door.refused(unknown).await, Reason::Rejected(ErrorKind::ModelNotFound));
    let promptless = |model: &str| PickRequest { model: model.into(), ..PickRequest::default() };
    assert_eq!(door.refused(promptless("unknown")).await, Reason::Rejected(ErrorKind::ModelNotFound));
    for model in ["", MODEL] {
        assert_eq!(door.pick(promptless(model)).await.prompt_tokens, None);
    }
    let broken = inline(head(COMPLETIONS), b"{");
    assert_eq!(door.refused(broken).await, Reason::Rejected(ErrorKind::BadRequest));
}
