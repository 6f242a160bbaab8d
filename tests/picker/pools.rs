//! Picks from an InferencePool: what is told of its rules, and of those whom they turn away.

use kinference::serve::{
    proto::{PickRequest, RuleSaid, body_mutation::Change},
    status::{HTTP_STATUS, Reason},
};
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::{
    door::{COMPLETIONS, Door, head, inline, seeded},
    site::MODEL,
};

/// `standard` over workers 1 to 3, where `rules` decide.
fn door(rules: Value) -> Door {
    let door = Door::of(&seeded(), 3);
    let backends = json!([{"workerSet": {"name": "s", "model": MODEL}}]);
    door.site.enforce(&[
        ("InferencePool", "chat", json!({"models": [{"name": "standard", "backends": backends}]})),
        ("InferencePolicy", "rules", json!({"poolRef": {"name": "chat"}, "rules": rules})),
    ]);
    door
}

fn asks(model: &str) -> PickRequest {
    let body = json!({"model": model, "prompt": [1, 2, 3]}).to_string();
    PickRequest {
        inference_pool: "ns/chat".into(),
        want_candidates: true,
        ..inline(head(COMPLETIONS), body.as_bytes())
    }
}

#[tokio::test]
async fn the_rules_and_who_they_took_away_are_told() {
    let door = door(json!([{"name": "idle", "steps": [{"exclude": {"runningRequests": {"above": 0}}}]}]));
    let first = door.pick(asks("standard")).await;
    let picked = door.pick(asks("standard")).await;
    assert_eq!((picked.model.as_str(), picked.candidates.len(), picked.taken.len()), (MODEL, 2, 1));
    assert_eq!(picked.taken[0].worker_id, first.worker_id);
    assert_eq!((picked.removed.len(), picked.removed[0].reason.as_str()), (1, "policy"));
    let ruled = picked.ruled.unwrap();
    assert_eq!((ruled.pool.as_str(), ruled.model.as_str()), ("ns/chat", "standard"));
    let [RuleSaid { policy, rule, steps, passed_on: false, .. }] = &ruled.rules[..] else {
        panic!("{ruled:?}")
    };
    assert_eq!((policy.as_str(), rule.as_str(), steps[0].removed.len()), ("rules", "idle", 1));
    let Some(Change::Splices(splices)) = picked.body_mutation.unwrap().change else { panic!("no splices") };
    assert_eq!(splices.splices[0].replacement, format!("\"{MODEL}\"").as_bytes());
    let brief = door.pick(PickRequest { want_candidates: false, ..asks("standard") }).await;
    assert_eq!((brief.taken.len(), brief.ruled.unwrap().rules[0].steps.len()), (0, 0));
}

#[tokio::test]
async fn whoever_is_turned_away_is_told_so_in_words_of_grpc() {
    let door = door(json!([{
        "name": "none", "onEmpty": "Reject", "reject": {"status": 403, "message": "not for you"},
        "steps": [{"keep": {"runningRequests": {"above": 9}}}],
    }]));
    let table = [
        (asks("standard"), "REJECTED_BY_POLICY", Code::PermissionDenied, "403"),
        (asks("gone"), "MODEL_NOT_FOUND", Code::NotFound, "404"),
        (
            PickRequest { inference_pool: "gone".into(), ..asks("standard") },
            "POOL_NOT_FOUND",
            Code::Unavailable,
            "503",
        ),
    ];
    for (request, reason, code, http) in table {
        let refusal = door.picker.decide(request, None).await.unwrap_err();
        assert!(matches!(refusal.reason, Reason::Rejected(_)));
        let status = Status::from(refusal);
        let info = status.get_error_details().error_info().cloned().unwrap();
        assert_eq!(
            (info.reason.as_str(), status.code(), info.metadata[HTTP_STATUS].as_str()),
            (reason, code, http)
        );
    }
    assert_eq!(door.in_flight(), 0);
}
