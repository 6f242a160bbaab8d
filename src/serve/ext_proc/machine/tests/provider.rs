//! A request that goes to a provider: its headers in each mode, and who gets to see the credential.

use envoy_types::pb::envoy::service::ext_proc::v3::CommonResponse;

use super::*;
use crate::{
    serve::ext_proc::names,
    types::{Credential, ProviderTarget},
};

const SECRET: &str = "Bearer s3cret";

fn provider(path_prefix: Option<&str>) -> Placed {
    let credential = Credential { header: "authorization".into(), value: SECRET.into() };
    let target = ProviderTarget {
        namespace: "ns".into(),
        name: "cloud".into(),
        authority: "api.example.com:8443".into(),
        path_prefix: path_prefix.map(Arc::from),
        credential: Some(Arc::new(credential)),
    };
    let mut decision = (*decision()).clone();
    decision.candidates[0].target = Target::Provider(Arc::new(target));
    decision.fallbacks.clear();
    Placed { decision: Arc::new(decision), ..placed(b"abc".to_vec()) }
}

fn common(reply: Reply) -> CommonResponse {
    let encoded = reply.encode();
    assert_eq!(encoded.dynamic_metadata, None, "no load balancer is to choose an endpoint");
    match encoded.response {
        Some(Response::RequestHeaders(headers)) => headers.response.unwrap(),
        Some(Response::RequestBody(body)) => body.response.unwrap(),
        other => panic!("{other:?}"),
    }
}

fn sent(common: &CommonResponse) -> Vec<(String, String)> {
    let headers = common.header_mutation.as_ref().unwrap().set_headers.iter();
    let headers = headers.filter_map(|option| option.header.as_ref());
    headers.map(|h| (h.key.clone(), String::from_utf8(h.raw_value.clone()).unwrap())).collect()
}

#[test]
fn the_message_that_carries_the_pick_has_it_leave_for_the_provider() {
    for mode in [BodyMode::Duplex, BodyMode::Inferred, BodyMode::Buffered] {
        let mut it = Loop::new(mode, mode);
        let mut head = head(RequestKind::Inference(Api::ChatCompletions));
        Arc::get_mut(&mut head).unwrap().forged = vec![names::DESTINATION];
        it.say([Message::RequestHeaders { head, last: false }, Message::RequestBody(chunk("abc", true))]);
        it.feed(Event::Placed(provider(Some("/openai"))));
        let picks = |reply: &Reply| match reply {
            Reply::RequestHeaders(edit) | Reply::RequestBody(edit) => edit.pick.is_some(),
            _ => false,
        };
        let reply = it.replies.iter().find(|reply| picks(reply)).unwrap().clone();
        let common = common(reply);
        assert!(common.clear_route_cache, "{mode:?}");
        let want = [
            ("x-kinference-backend", "provider/cloud"),
            (":authority", "api.example.com:8443"),
            (":path", "/openai/v1/chat/completions?x=1"),
            ("authorization", SECRET),
        ];
        assert_eq!(sent(&common), want.map(|(name, value)| (name.to_owned(), value.to_owned())), "{mode:?}");
        let removed = common.header_mutation.unwrap().remove_headers;
        for name in ["authorization", "x-api-key", "api-key", "cookie", "proxy-authorization"] {
            assert!(removed.iter().any(|removed| removed == name), "{mode:?}: {name} is let out");
        }
        assert!(removed.iter().any(|name| name == names::DESTINATION), "{mode:?}");
    }
}

#[test]
fn a_worker_gets_the_headers_of_its_client() {
    let mut it = Loop::new(BodyMode::Duplex, BodyMode::Duplex);
    it.say([headers(false), Message::RequestBody(chunk("abc", true))]).place();
    let Reply::RequestHeaders(edit) = it.replies.remove(0) else { panic!("{:?}", it.replies) };
    let Some(Response::RequestHeaders(answer)) = Reply::RequestHeaders(edit).encode().response else {
        panic!("no headers")
    };
    let mutation = answer.response.unwrap().header_mutation.unwrap();
    assert!(mutation.remove_headers.is_empty(), "{mutation:?}");
    assert!(mutation.set_headers.iter().all(|set| !set.header.as_ref().unwrap().key.starts_with(':')));
}

#[test]
fn the_answer_names_the_provider_and_nobody_shows_the_credential() {
    let placed = provider(None);
    assert!(!format!("{placed:?}").contains("s3cret"));
    let told = explaining(placed.decision.clone());
    assert!(!format!("{:?}", told.clone().encode()).contains("s3cret"));
    let Some(Response::ResponseHeaders(answer)) = told.encode().response else { panic!("no headers") };
    let said = sent(&answer.response.unwrap());
    assert!(said.contains(&("x-kinference-worker".into(), "provider/cloud".into())), "{said:?}");

    let mut it = Loop::new(BodyMode::Duplex, BodyMode::Duplex);
    it.say([headers(false), Message::RequestBody(chunk("abc", true))]);
    let (_, effects) = it.machine.step(Event::Placed(placed));
    let shown = format!("{effects:?}");
    assert!(shown.contains("provider/cloud") && !shown.contains("s3cret"), "{shown}");
}
