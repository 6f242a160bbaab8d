//! Bodies that are pushed: what is said of them, when they are refused, and that nothing of them stays behind.

use std::time::Duration;

use futures::StreamExt;
use kinference::{
    config::BodyLimits,
    serve::{
        proto::{BodyHead, PickRequest, PushBodyRequest},
        status::Reason,
    },
    types::ErrorKind,
};
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};
use tokio_stream::wrappers::ReceiverStream;

use crate::{
    door::{COMPLETIONS, Door, by_id, chunk, first, head, inline, pushing, seeded},
    site::MODEL,
};

fn completion() -> Vec<u8> {
    json!({"model": MODEL, "stream": true, "prompt": (0..900).collect::<Vec<u32>>()}).to_string().into()
}

async fn refusal(door: &Door, messages: Vec<PushBodyRequest>) -> Reason {
    let messages: Vec<_> = messages.into_iter().map(Ok).collect();
    let refusal = door.picker.push(futures::stream::iter(messages), None).await.unwrap_err();
    assert_eq!(door.budget.held_bytes(), 0, "freed at once");
    refusal.reason
}

#[tokio::test]
async fn a_pushed_body_says_what_it_asks_for_and_is_used_once() {
    let door = Door::of(&seeded(), 2);
    let body = completion();
    let messages: Vec<_> = pushing(head(COMPLETIONS), &body).into_iter().map(Ok).collect();
    let pushed = door.picker.push(futures::stream::iter(messages), None).await.unwrap();
    assert_eq!((pushed.length, pushed.model.as_str(), pushed.stream), (body.len() as u64, MODEL, true));
    assert!(pushed.body_id.starts_with("here."), "{}", pushed.body_id);
    assert!(door.budget.held_bytes() > body.len());
    assert!(door.has_counted("kinference_picker_bodies_held 1"));
    let picked = door.pick(by_id(&pushed.body_id)).await;
    assert_eq!((picked.prompt_tokens, picked.body_mutation), (Some(900), None));
    assert_eq!(door.budget.held_bytes(), 0);
    assert_eq!(door.refused(by_id(&pushed.body_id)).await, Reason::BodyNotFound);
    assert_eq!(door.refused(by_id(&picked.pick_id)).await, Reason::BodyNotFound);
    assert_eq!(door.refused(by_id("there.00")).await, Reason::WrongReplica);
    assert!(door.has_counted("kinference_picker_bodies_total{end=\"claimed\"} 1"));
}

#[tokio::test]
async fn what_is_no_inference_call_is_kept_too() {
    let door = Door::of(&seeded(), 1);
    let id = door.push(BodyHead { content_type: "audio/wav".into(), ..head("/v1/audio") }, b"RIFF").await;
    let picked = door.pick(by_id(&id.unwrap())).await;
    assert!(picked.degradations.contains(&"not_inference".to_owned()), "{:?}", picked.degradations);
    // A body may leave its model to the pick.
    let nameless = json!({"prompt": "x"}).to_string();
    let id = door.push(head(COMPLETIONS), nameless.as_bytes()).await.unwrap();
    assert_eq!(door.refused(by_id(&id)).await, Reason::Rejected(ErrorKind::BadRequest));
    assert_eq!(door.budget.held_bytes(), 0);
}

#[tokio::test]
async fn bodies_are_refused_early_and_leave_nothing() {
    let limits = BodyLimits { total_bytes: 20_000, request_bytes: 8_000, ..BodyLimits::default() };
    let door = Door::with(&seeded(), 1, limits);
    let json = BodyHead { content_encoding: "gzip".into(), ..head(COMPLETIONS) };
    let announced = |content_length| BodyHead { content_length, ..head(COMPLETIONS) };
    let table = [
        (vec![], ErrorKind::BadRequest.into()),
        (vec![chunk(b"{}")], ErrorKind::BadRequest.into()),
        (vec![first(head(COMPLETIONS)), first(head(COMPLETIONS))], ErrorKind::BadRequest.into()),
        (vec![PushBodyRequest { part: None }], ErrorKind::BadRequest.into()),
        (pushing(head(COMPLETIONS), b"{\"model\":"), ErrorKind::BadRequest.into()),
        (pushing(head(COMPLETIONS), b""), ErrorKind::BadRequest.into()),
        (pushing(json, b"no gzip"), ErrorKind::BadRequest.into()),
        (vec![first(announced(8_001))], ErrorKind::BodyTooLarge.into()),
        (pushing(head(COMPLETIONS), &[b' '; 8_001]), ErrorKind::BodyTooLarge.into()),
    ];
    let refusals = table.len();
    for (messages, reason) in table {
        assert_eq!(refusal(&door, messages).await, reason);
    }
    // Each is told of once.
    let told = door.site.decisions.after(0, usize::MAX);
    let kinds = told.iter().map(|one| one.record.decided.as_ref().unwrap_err().kind);
    assert_eq!(kinds.filter(|kind| *kind == ErrorKind::BodyTooLarge).count(), 2);
    assert!(told.len() == refusals && told.iter().all(|one| !one.record.request_id.is_empty()));
    assert_eq!(told[refusals - 1].record.call, "completions");
    assert!(door.has_counted("kinference_rejections_total{kind=\"body_too_large\",tenant=\"_none\"} 2"));
    let body = completion();
    let mut kept = Vec::new();
    let refused = loop {
        match door.push(head(COMPLETIONS), &body).await {
            Ok(id) => kept.push(id),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refused.reason, Reason::Rejected(ErrorKind::Overloaded));
    assert!(!kept.is_empty() && door.budget.held_bytes() <= limits.total_bytes);
    door.pick(by_id(&kept[0])).await;
    door.push(head(COMPLETIONS), &body).await.unwrap();
}

#[tokio::test]
async fn empty_bodies_are_bounded_as_well() {
    let limits = BodyLimits { total_bytes: 8_000, ..BodyLimits::default() };
    let door = Door::with(&seeded(), 1, limits);
    for _ in 0..100 {
        if let Err(refusal) = door.push(head("/x"), b"").await {
            assert_eq!(refusal.reason, Reason::Rejected(ErrorKind::Overloaded));
            return;
        }
    }
    panic!("100 bodies in 8,000 bytes");
}

#[tokio::test(start_paused = true)]
async fn a_stalled_body_is_cut_at_the_idle_timeout() {
    let limits = BodyLimits::default();
    let door = Door::of(&seeded(), 1);
    for said in [vec![], vec![first(head(COMPLETIONS))], vec![first(head(COMPLETIONS)), chunk(b"{")]] {
        let (send, receive) = mpsc::channel(4);
        for message in said {
            send.send(Ok(message)).await.unwrap();
        }
        let began = Instant::now();
        let refusal = door.picker.push(ReceiverStream::new(receive), None).await.unwrap_err();
        assert_eq!(refusal.reason, Reason::Rejected(ErrorKind::BodyTimeout));
        assert!(
            began.elapsed() >= limits.idle_timeout
                && began.elapsed() < limits.idle_timeout + Duration::from_secs(1)
        );
        assert_eq!(door.budget.held_bytes(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_trickles_in_ends_with_its_ttl() {
    let limits = BodyLimits::default();
    let door = Door::of(&seeded(), 1);
    let trickle = futures::stream::unfold(0, |n| async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Some((Ok(if n == 0 { first(head(COMPLETIONS)) } else { chunk(b" ") }), n + 1))
    });
    let began = Instant::now();
    let refusal = door.picker.push(trickle.boxed(), None).await.unwrap_err();
    assert_eq!(refusal.reason, Reason::Rejected(ErrorKind::BodyTimeout));
    assert!(began.elapsed() >= limits.ttl && began.elapsed() < limits.ttl + Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_nobody_claims_is_released() {
    let limits = BodyLimits::default();
    let door = Door::of(&seeded(), 1);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(door.picker.clone().run_expiry());
    let id = door.push(head(COMPLETIONS), &completion()).await.unwrap();
    tokio::time::sleep(limits.ttl / 2).await;
    assert!(door.budget.held_bytes() > 0);
    tokio::time::sleep(limits.ttl / 2 + Duration::from_secs(2)).await;
    assert_eq!(door.budget.held_bytes(), 0);
    assert_eq!(door.refused(by_id(&id)).await, Reason::BodyNotFound);
    assert!(door.has_counted("kinference_picker_bodies_total{end=\"expired\"} 1"));
}

#[tokio::test]
async fn a_pick_with_too_large_a_body_is_told_of_with_what_is_known() {
    let limits = BodyLimits { request_bytes: 8_000, ..BodyLimits::default() };
    let door = Door::with(&seeded(), 1, limits);
    let sent = BodyHead { request_id: "mine".into(), ..head(COMPLETIONS) };
    let asked = PickRequest { tenant: "acme".into(), model: "m".into(), ..inline(sent, &[b' '; 8_001]) };
    assert_eq!(door.refused(asked).await, ErrorKind::BodyTooLarge.into());
    let record = &door.site.decisions.of_request("mine")[0].record;
    assert_eq!((record.tenant.as_deref(), record.model.as_deref()), (Some("acme"), Some("m")));
    assert_eq!(record.call, "completions");
    // What a decision turns away it tells of itself; a call that is wrong in itself is no request.
    assert_eq!(door.refused(inline(head(COMPLETIONS), b"[]")).await, ErrorKind::BadRequest.into());
    assert_eq!(door.refused(by_id("here.1")).await, Reason::BodyNotFound);
    assert_eq!(door.site.decisions.reach().kept, 2);
    assert!(door.has_counted("kinference_rejections_total{kind=\"body_too_large\",tenant=\"_other\"} 1"));
}
