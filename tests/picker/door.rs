//! A Picker over a site, and requests for it.

use std::{sync::Arc, time::Duration};

use kinference::{
    config::{BodyLimits, Profile},
    prompt::BodyBudget,
    serve::{
        picker::{Picker, PickerParts},
        proto::{
            BodyHead, InlineBody, ObserveRequest, PickRequest, PickResponse, PushBodyRequest, TokenIds,
            observe_request, pick_request::Prompt, push_body_request::Part,
        },
        status::{Reason, Refusal},
    },
};
use rand::{SeedableRng, rngs::StdRng};

use crate::site::{MODEL, Site, profile};

pub const OBSERVATION_TTL: Duration = Duration::from_secs(600);
pub const COMPLETIONS: &str = "/v1/completions";

pub struct Door {
    pub site: Site,
    pub budget: Arc<BodyBudget>,
    pub picker: Picker,
}

pub fn seeded() -> Profile {
    profile("p", |_| {})
}

impl Door {
    /// Over workers `1..=n`.
    pub fn of(profile: &Profile, n: u64) -> Self {
        Self::with(profile, n, BodyLimits::default())
    }

    pub fn with(profile: &Profile, n: u64, limits: BodyLimits) -> Self {
        let site = Site::of(profile, n);
        let budget = BodyBudget::new(limits, &site.metrics);
        let parts = PickerParts {
            pipeline: site.pipeline.clone(),
            budget: budget.clone(),
            observation_ttl: OBSERVATION_TTL,
            replica: "here".into(),
            rng: StdRng::seed_from_u64(1),
        };
        let picker = Picker::new(parts, &site.metrics);
        Self { site, budget, picker }
    }

    pub async fn pick(&self, request: PickRequest) -> PickResponse {
        self.picker.decide(request, None).await.unwrap()
    }

    pub async fn refused(&self, request: PickRequest) -> Reason {
        self.picker.decide(request, None).await.unwrap_err().reason
    }

    pub fn observe(&self, pick_id: &str, event: observe_request::Event) -> Result<(), Refusal> {
        self.picker.note(ObserveRequest { pick_id: pick_id.into(), event: Some(event) })
    }

    /// The id of a pushed body.
    pub async fn push(&self, head: BodyHead, body: &[u8]) -> Result<String, Refusal> {
        let messages: Vec<_> = pushing(head, body).into_iter().map(Ok).collect();
        Ok(self.picker.push(futures::stream::iter(messages), None).await?.body_id)
    }

    pub fn in_flight(&self) -> u32 {
        self.site.registry.snapshot().keys().map(|id| self.site.in_flight(id.0)).sum()
    }

    pub fn has_counted(&self, line: &str) -> bool {
        self.site.metrics.render().lines().any(|l| l == line)
    }
}

pub fn head(path: &str) -> BodyHead {
    BodyHead { path: path.into(), ..BodyHead::default() }
}

pub fn chunk(bytes: &[u8]) -> PushBodyRequest {
    PushBodyRequest { part: Some(Part::Chunk(bytes.to_vec())) }
}

pub fn first(head: BodyHead) -> PushBodyRequest {
    PushBodyRequest { part: Some(Part::Head(head)) }
}

/// The messages of a push.
pub fn pushing(head: BodyHead, body: &[u8]) -> Vec<PushBodyRequest> {
    std::iter::once(first(head)).chain(body.chunks(1000).map(chunk)).collect()
}

pub fn inline(head: BodyHead, body: &[u8]) -> PickRequest {
    let body = InlineBody { head: Some(head), body: body.to_vec() };
    PickRequest { prompt: Some(Prompt::Body(body)), ..PickRequest::default() }
}

pub fn by_id(id: &str) -> PickRequest {
    PickRequest { prompt: Some(Prompt::BodyId(id.into())), ..PickRequest::default() }
}

pub fn tokens(ids: impl IntoIterator<Item = u32>) -> PickRequest {
    let ids = TokenIds { ids: ids.into_iter().collect(), ..TokenIds::default() };
    PickRequest {
        prompt: Some(Prompt::Tokens(ids)),
        model: MODEL.into(),
        stream: true,
        ..PickRequest::default()
    }
}
