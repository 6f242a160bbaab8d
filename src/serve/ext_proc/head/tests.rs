//! What a request's headers and metadata are read as, trusted and not.

use std::collections::HashMap;

use envoy_types::pb::{
    envoy::config::core::v3::{HeaderMap, HeaderValue},
    google::protobuf::{ListValue, Struct, Value, value::Kind},
};

use super::*;

fn headers(pairs: &[(&str, &str)]) -> HttpHeaders {
    let headers = pairs.iter().map(|(key, value)| HeaderValue {
        key: (*key).into(),
        raw_value: value.as_bytes().to_vec(),
        ..Default::default()
    });
    HttpHeaders { headers: Some(HeaderMap { headers: headers.collect() }), ..Default::default() }
}

fn string(text: &str) -> Value {
    Value { kind: Some(Kind::StringValue(text.into())) }
}

fn metadata(entries: &[(&str, &str, Value)]) -> Metadata {
    let mut all: HashMap<String, Struct> = HashMap::new();
    for (namespace, key, value) in entries {
        all.entry((*namespace).into()).or_default().fields.insert((*key).into(), value.clone());
    }
    Metadata { filter_metadata: all, ..Default::default() }
}

fn parse(headers: &HttpHeaders, metadata: Option<&Metadata>, trust_headers: bool) -> Head {
    let config = ExtProcConfig { trust_headers, ..ExtProcConfig::default() };
    Head::parse(headers, metadata, &config, || "own".into())
}

fn plain(list: &[Arc<str>]) -> Vec<&str> {
    list.iter().map(AsRef::as_ref).collect()
}

#[test]
fn tenant_tags_and_pool_come_from_metadata_or_trusted_headers() {
    let sent = headers(&[
        ("x-kinference-tenant", "evil"),
        ("x-kinference-tags", "a, b,,c"),
        ("x-kinference-tags", "d"),
        ("x-kinference-pool", " p "),
    ]);
    let untrusted = parse(&sent, None, false);
    assert_eq!((untrusted.tenant, untrusted.tags.len(), untrusted.pool), (None, 0, None));
    let trusted = parse(&sent, None, true);
    assert_eq!(trusted.tenant.as_deref(), Some("evil"));
    assert_eq!(plain(&trusted.tags), ["a", "b", "c", "d"]);
    assert_eq!(trusted.pool.as_deref(), Some("p"));

    let tags = Value { kind: Some(Kind::ListValue(ListValue { values: vec![string("x"), string("y")] })) };
    let said = metadata(&[("kinference", "tenant", string("good")), ("kinference", "tags", tags)]);
    for trust in [false, true] {
        let head = parse(&sent, Some(&said), trust);
        assert_eq!(head.tenant.as_deref(), Some("good"));
        assert_eq!(plain(&head.tags), ["x", "y"]);
        assert_eq!(head.pool.as_deref(), trust.then_some("p"));
    }
}

#[test]
fn a_subset_hint_is_all_empty_or_some() {
    let hint = |value| metadata(&[("envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset", value)]);
    let subset = |metadata: &Metadata| parse(&headers(&[]), Some(metadata), false).subset;
    assert_eq!(parse(&headers(&[]), None, false).subset, None);
    assert_eq!(subset(&hint(string(""))), Some(vec![]));
    assert_eq!(subset(&hint(string("10.0.0.1:8000, 10.0.0.2:8000"))).map(|s| s.len()), Some(2));
}

#[test]
fn the_rest_follows_the_headers() {
    let sent = headers(&[
        (":method", "POST"),
        (":path", "/v1/messages?beta=true"),
        ("content-type", "application/json"),
        ("content-length", "67"),
        ("x-gateway-destination-endpoint", "6.6.6.6:80"),
        ("x-kinference-worker", "mine"),
    ]);
    let head = parse(&sent, None, false);
    assert_eq!(head.request_id.as_ref(), "own");
    assert_eq!(head.kind, RequestKind::Inference(Api::Messages));
    assert_eq!(head.shape, ErrorShape::Anthropic);
    assert_eq!(head.content_length, Some(67));
    assert_eq!(head.forged, [names::DESTINATION, names::EXPLAIN_WORKER]);
}

#[test]
fn bodies_matter_to_inference_and_json() {
    let needs = |path: &str, content_type: &str| {
        let sent = headers(&[(":method", "POST"), (":path", path), ("content-type", content_type)]);
        parse(&sent, None, false).needs_body()
    };
    assert!(needs("/v1/completions", "application/json") && needs("/v1/completions", ""));
    assert!(!needs("/v1/completions", "text/plain"));
    assert!(!needs("/v1/responses/resp_1/cancel", "application/json"));
    assert!(needs("/v1/embeddings", "Application/JSON; charset=utf-8"));
    assert!(needs("/v1/other", "application/vnd.api+json"));
    assert!(!needs("/v1/audio/transcriptions", "multipart/form-data; boundary=x"));
}
