//! What answers look like on the wire.

use proptest::prelude::*;

use super::*;
use crate::types::ErrorKind;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_cut_body_is_the_same_body(length in 0..4 * CHUNK_BYTES, last: bool) {
        let bytes: Bytes = (0..length).map(|i| i as u8).collect();
        let chunks: Vec<_> = cut(bytes.clone(), last).collect();
        let joined: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.bytes.clone()).collect();
        prop_assert_eq!(joined, bytes);
        prop_assert!(chunks.iter().all(|chunk| chunk.bytes.len() <= CHUNK_BYTES));
        prop_assert_eq!(chunks.iter().filter(|chunk| chunk.last).count(), usize::from(last));
        prop_assert_eq!(chunks.last().is_some_and(|chunk| chunk.last), last);
        prop_assert_eq!(chunks.len(), length.div_ceil(CHUNK_BYTES).max(usize::from(last)));
    }
}

#[test]
fn every_rejection_is_a_whole_answer() {
    for kind in ErrorKind::ALL {
        let reply = Reply::Immediate(
            Rejection::new(kind, "why"),
            ErrorShape::Anthropic,
            Some("x".repeat(999).into()),
        )
        .encode();
        let Some(Response::ImmediateResponse(answer)) = reply.response else { panic!("{kind:?}") };
        assert_eq!(answer.status.map(|status| status.code), Some(i32::from(kind.http_status())));
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["error"]["message"], "why");
        let sent = answer.headers.unwrap().set_headers;
        let has = |name| sent.iter().any(|h| h.header.as_ref().is_some_and(|h| h.key == name));
        assert!(has(names::CONTENT_TYPE) && has(names::EXPLAIN_REQUEST));
        assert!(sent.iter().flat_map(|h| &h.header).all(|h| h.raw_value.len() <= 256));
        assert_eq!(has(names::RETRY_AFTER), kind.retry_after_secs().is_some());
    }
}

fn common(reply: Reply) -> CommonResponse {
    match reply.encode().response {
        Some(Response::RequestHeaders(headers) | Response::ResponseHeaders(headers)) => headers.response,
        Some(Response::RequestBody(body) | Response::ResponseBody(body)) => body.response,
        other => panic!("{other:?}"),
    }
    .unwrap()
}

#[test]
fn a_new_body_tells_its_length_where_it_is_all_there() {
    let new = |bytes, whole| Reply::ResponseBody(Some(NewBody { bytes: Bytes::from_static(bytes), whole }));
    let edit = Edit { body: Some(Bytes::from_static(b"abc")), ..Edit::default() };
    let table = [
        (Reply::RequestBody(edit), Some(Mutation::Body(b"abc".to_vec())), Some("3")),
        (new(b"abcd", true), Some(Mutation::Body(b"abcd".to_vec())), Some("4")),
        (new(b"abcd", false), Some(Mutation::Body(b"abcd".to_vec())), None),
        (new(b"", false), Some(Mutation::ClearBody(true)), None),
        (Reply::ResponseBody(None), None, None),
        (Reply::RequestBody(Edit::default()), None, None),
    ];
    for (reply, body, length) in table {
        let told = format!("{reply:?}");
        let common = common(reply);
        assert_eq!(common.body_mutation.and_then(|new| new.mutation), body, "{told}");
        let sent = common.header_mutation.map(|headers| headers.set_headers).unwrap_or_default();
        let want: Vec<_> =
            length.map(|length| set(names::CONTENT_LENGTH, length.as_bytes().to_vec())).into_iter().collect();
        assert_eq!(sent, want, "{told}");
    }
    let headers = |resized| {
        common(Reply::ResponseHeaders { explained: None, resized, unwatched: false }).header_mutation
    };
    assert_eq!(headers(true).unwrap().remove_headers, [names::CONTENT_LENGTH]);
    assert_eq!(headers(false), None);
}

#[test]
fn the_proxy_is_asked_to_keep_a_body_that_is_not_watched() {
    let asked = |unwatched| Reply::ResponseHeaders { explained: None, resized: false, unwatched }.encode();
    assert_eq!(asked(true).mode_override, Some(ProcessingMode::default()));
    assert_eq!(asked(false).mode_override, None);
    assert_eq!(Reply::ResponseBody(None).encode().mode_override, None);
}

#[test]
fn trailers_of_a_request_prove_nothing_and_set_nothing_of_ours() {
    let Some(Response::RequestTrailers(answer)) = Reply::RequestTrailers(Edit::default()).encode().response
    else {
        panic!("no trailers")
    };
    let removed = answer.header_mutation.unwrap().remove_headers;
    for name in ["authorization", "cookie", "x-api-key", names::DESTINATION, names::BACKEND] {
        assert!(removed.iter().any(|one| one == name), "{name} goes on in a trailer");
    }
}

#[test]
fn the_pick_is_in_header_and_metadata_alike() {
    let pick = Picked {
        destination: Some("1.2.3.4:80,5.6.7.8:80".into()),
        backend: "workerset/set".into(),
        outward: None,
    };
    let edit = Edit { pick: Some(pick), remove: vec![names::DESTINATION], body: None };
    for reply in [Reply::RequestHeaders(edit.clone()), Reply::RequestBody(edit)] {
        let want = metadata::nested(names::LB_NAMESPACE, names::DESTINATION, "1.2.3.4:80,5.6.7.8:80".into());
        assert_eq!(reply.clone().encode().dynamic_metadata, Some(want));
        let common = common(reply);
        assert!(common.clear_route_cache);
        let mutation = common.header_mutation.unwrap();
        assert_eq!(mutation.remove_headers, [names::DESTINATION]);
        let sent: Vec<_> = mutation.set_headers.into_iter().filter_map(|option| option.header).collect();
        let sent: Vec<_> = sent.iter().map(|h| (h.key.as_str(), h.raw_value.as_slice())).collect();
        let wanted: [(_, &[u8]); 2] =
            [(names::DESTINATION, b"1.2.3.4:80,5.6.7.8:80"), ("x-kinference-backend", b"workerset/set")];
        assert_eq!(sent, wanted);
    }
}
