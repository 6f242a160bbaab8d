//! A pick by another model than the body's: routed by that one, and the body changed to name it.

use kinference::{
    serve::{
        proto::{BodyHead, BodyMutation, PickRequest, PickResponse, body_mutation::Change},
        status::Reason,
    },
    types::ErrorKind,
};
use serde_json::{Value, json};

use crate::{
    door::{COMPLETIONS, Door, by_id, head, inline, seeded},
    site::MODEL,
};

fn by_model(request: PickRequest) -> PickRequest {
    PickRequest { model: MODEL.into(), ..request }
}

/// The body after the answered change, as a gateway makes it.
fn changed(body: &[u8], picked: &PickResponse) -> Vec<u8> {
    let change = picked.body_mutation.clone().and_then(|BodyMutation { change }| change);
    let out = match change {
        None => body.to_vec(),
        Some(Change::Body(body)) => body,
        Some(Change::Splices(splices)) => {
            let (mut out, mut kept) = (Vec::new(), 0);
            for splice in splices.splices {
                out.extend_from_slice(&body[kept..splice.start as usize]);
                out.extend(splice.replacement);
                kept = splice.end as usize;
            }
            out.extend_from_slice(&body[kept..]);
            out
        }
    };
    let length = picked.set_headers.iter().find(|h| h.name == "content-length").map(|h| h.value.clone());
    assert_eq!(length, picked.body_mutation.as_ref().map(|_| out.len().to_string()));
    out
}

#[tokio::test]
async fn the_model_is_spliced_into_the_body() {
    let door = Door::of(&seeded(), 1);
    let ids: Vec<u32> = (0..64).collect();
    for named in [
        json!({"model": "alias", "prompt": ids}),
        json!({"prompt": ids}),
        json!({"model": MODEL, "prompt": ids}),
    ] {
        let body = serde_json::to_vec_pretty(&named).unwrap();
        let id = door.push(head(COMPLETIONS), &body).await.unwrap();
        for request in [inline(head(COMPLETIONS), &body), by_id(&id)] {
            let picked = door.pick(by_model(request)).await;
            assert_eq!(picked.prompt_tokens, Some(64));
            assert_eq!(picked.body_mutation.is_none(), named["model"] == MODEL);
            let out: Value = serde_json::from_slice(&changed(&body, &picked)).unwrap();
            assert_eq!(out, json!({"model": MODEL, "prompt": ids}));
        }
    }
}

#[tokio::test]
async fn an_encoded_body_is_replaced() {
    let door = Door::of(&seeded(), 1);
    let body = json!({"prompt": [1, 2, 3], "model": "alias"}).to_string();
    let packed = gzip(body.as_bytes()).await;
    let head = BodyHead { content_encoding: "gzip".into(), ..head(COMPLETIONS) };
    let picked = door.pick(by_model(inline(head.clone(), &packed))).await;
    assert_eq!(changed(&packed, &picked), format!(r#"{{"prompt":[1,2,3],"model":"{MODEL}"}}"#).into_bytes());
    assert!(picked.remove_headers.contains(&"content-encoding".to_owned()));
    let untouched = gzip(json!({"prompt": [1, 2, 3], "model": MODEL}).to_string().as_bytes()).await;
    let picked = door.pick(by_model(inline(head, &untouched))).await;
    assert_eq!(picked.body_mutation, None);
    assert!(!picked.remove_headers.contains(&"content-encoding".to_owned()));
}

#[tokio::test]
async fn other_json_calls_are_renamed_and_the_rest_is_only_routed() {
    let door = Door::of(&seeded(), 1);
    let json = BodyHead { content_type: "application/json".into(), ..head("/v1/embeddings") };
    let body = br#"{"model":"alias","input":"x"}"#;
    let picked = door.pick(by_model(inline(json.clone(), body))).await;
    assert_eq!(changed(body, &picked), format!(r#"{{"model":"{MODEL}","input":"x"}}"#).into_bytes());
    for (head, body) in [(json.clone(), &b"[]"[..]), (head("/v1/audio"), b"RIFF")] {
        assert_eq!(door.pick(by_model(inline(head, body))).await.body_mutation, None);
    }
    let unknown = PickRequest { model: "unknown".into(), ..inline(json, body) };
    assert_eq!(door.refused(unknown).await, Reason::Rejected(ErrorKind::ModelNotFound));
    assert_eq!(door.budget.held_bytes(), 0);
}

async fn gzip(body: &[u8]) -> Vec<u8> {
    use tokio::io::AsyncReadExt;
    let mut out = Vec::new();
    async_compression::tokio::bufread::GzipEncoder::new(body).read_to_end(&mut out).await.unwrap();
    out
}
