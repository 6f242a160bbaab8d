//! `/v1/models` of a pool.

use kinference::{
    pipeline::Incoming,
    types::{ErrorKind, ErrorShape, RequestKind},
};
use serde_json::json;

use crate::{
    pools::site,
    site::{Site, other},
};

fn published() -> Site {
    let site = site(|_| {});
    let backends = json!([{"workerSet": {"name": "big", "model": "qwen-32b"}}]);
    let models = json!([
        {"name": "standard", "aliases": ["gpt-4"], "backends": backends},
        {"name": "org/private", "tenants": ["team-a"], "backends": backends},
    ]);
    site.enforce(&[("InferencePool", "chat", json!({"models": models}))]);
    site
}

fn lists(path: &str, tenant: Option<&str>) -> Incoming {
    let kind = RequestKind::of("GET", path);
    Incoming { kind, tenant: tenant.map(Into::into), pool: Some("chat".into()), ..other() }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_sees_what_it_may_ask_for_in_the_shape_of_its_api() {
    let site = published();
    let models = |path, tenant, shape| site.pipeline.models(&lists(path, tenant), shape).unwrap();
    let openai = |id: &str| json!({"id": id, "object": "model", "created": 0, "owned_by": "kinference"});
    assert_eq!(
        models("/v1/models", None, ErrorShape::OpenAi).unwrap(),
        json!({"object": "list", "data": [openai("standard")]})
    );
    let all = json!({"object": "list", "data": [openai("standard"), openai("org/private")]});
    assert_eq!(models("/v1/models", Some("team-a"), ErrorShape::OpenAi).unwrap(), all);
    let anthropic = json!({
        "data": [{"type": "model", "id": "standard", "display_name": "standard", "created_at": "1970-01-01T00:00:00Z"}],
        "has_more": false, "first_id": "standard", "last_id": "standard",
    });
    assert_eq!(models("/v1/models?limit=9", None, ErrorShape::Anthropic).unwrap(), anthropic);
    assert_eq!(models("/v1/models/gpt-4", None, ErrorShape::OpenAi).unwrap(), openai("gpt-4"));
    let private = models("/v1/models/org%2Fprivate", Some("team-a"), ErrorShape::OpenAi).unwrap();
    assert_eq!(private, openai("org/private"));
    let refused = models("/v1/models/org/private", None, ErrorShape::OpenAi).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::ModelNotFound);
}

#[tokio::test(start_paused = true)]
async fn without_a_pool_or_policies_the_engines_are_asked() {
    let site = published();
    let bare = Incoming { pool: None, ..lists("/v1/models", None) };
    assert!(site.pipeline.models(&bare, ErrorShape::OpenAi).is_none());
    assert_eq!(site.decide(bare).await.candidates.len(), 5);
    assert!(
        site.pipeline
            .models(&Incoming { pool: Some("chat".into()), ..other() }, ErrorShape::OpenAi)
            .is_none()
    );
    let gone = Incoming { pool: Some("gone".into()), ..lists("/v1/models", None) };
    let refused = site.pipeline.models(&gone, ErrorShape::OpenAi).unwrap().unwrap_err();
    assert_eq!(refused.kind, ErrorKind::PoolNotFound);
    assert!(
        site.metrics
            .render()
            .contains("kinference_rejections_total{kind=\"pool_not_found\",tenant=\"_none\"} 1")
    );
    site.pipeline.policies().store(None);
    assert!(site.pipeline.models(&lists("/v1/models", None), ErrorShape::OpenAi).is_none());
}
