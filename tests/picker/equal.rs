//! Both front doors decide alike: the same history, state, seed and request give the same decision.

use std::{collections::HashMap, sync::Arc, time::Duration};

use envoy_types::pb::{
    envoy::{
        config::core::v3::{HeaderMap, HeaderValue, Metadata},
        extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode,
        service::ext_proc::v3::{
            HttpBody, HttpHeaders, ProcessingRequest, ProtocolConfiguration, processing_request::Request,
        },
    },
    google::protobuf::{ListValue, Struct, Value, value::Kind},
};
use futures::StreamExt;
use kinference::{
    config::ExtProcConfig,
    load::LoadSample,
    serve::{
        ext_proc::{Decide, ExtProc, Parts},
        proto::{EndpointSubset, PickRequest, PickResponse, Prediction},
    },
    types::{self, Decision, WorkerId},
};
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::json;

use crate::{
    door::{COMPLETIONS, Door, by_id, head, inline, tokens},
    site::{BLOCK, MODEL, profile, prompt},
};

const WORKERS: u64 = 5;

#[derive(Clone, Debug)]
enum Op {
    Place { start: u32, blocks: u32 },
    Scrape { worker: u64, waiting: f64, usage: f64 },
    Store { worker: u64, start: u32 },
    Fail(u64),
    Pass(u64),
}

/// How the native door is given the request.
#[derive(Clone, Copy, Debug)]
enum Means {
    Inline,
    Pushed,
    Tokens,
}

#[derive(Clone, Debug)]
struct Ask {
    start: u32,
    blocks: u32,
    known_model: bool,
    subset: Option<Vec<u64>>,
    means: Means,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..4u32, 1..40u32).prop_map(|(start, blocks)| Op::Place { start, blocks }),
        2 => (1..=WORKERS, 0..4u32, 0.0..1.0).prop_map(|(worker, waiting, usage)| Op::Scrape {
            worker,
            waiting: waiting.into(),
            usage
        }),
        2 => (1..=WORKERS, 0..4u32).prop_map(|(worker, start)| Op::Store { worker, start }),
        1 => (1..=WORKERS).prop_map(Op::Fail),
        1 => (0..3000u64).prop_map(Op::Pass),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let subset = prop::option::of(prop::collection::vec(1..=WORKERS, 0..4));
    let means = prop_oneof![Just(Means::Inline), Just(Means::Pushed), Just(Means::Tokens)];
    (0..4u32, 1..40u32, prop::bool::weighted(0.9), subset, means).prop_map(
        |(start, blocks, known_model, subset, means)| Ask { start, blocks, known_model, subset, means },
    )
}

impl Ask {
    fn ids(&self) -> std::ops::Range<u32> {
        self.start * 100_000..self.start * 100_000 + self.blocks * BLOCK
    }

    fn model(&self) -> &str {
        if self.known_model { MODEL } else { "unknown" }
    }

    fn body(&self) -> Vec<u8> {
        json!({"model": self.model(), "stream": true, "prompt": self.ids().collect::<Vec<_>>()})
            .to_string()
            .into()
    }

    fn endpoints(&self) -> Option<Vec<String>> {
        self.subset.as_ref().map(|ids| ids.iter().map(|id| format!("10.0.0.{id}:8000")).collect())
    }
}

/// What a decision comes to.
#[derive(Debug, PartialEq)]
struct Outcome {
    destinations: Vec<String>,
    prompt_tokens: Option<u64>,
    replicated: bool,
    candidates: Vec<(String, Vec<f64>, u32)>,
    removed: Vec<(String, String)>,
    degraded: Vec<String>,
}

fn of_response(response: &PickResponse) -> Outcome {
    let terms = |p: &Prediction| {
        vec![
            p.ttft_ms,
            p.base_ms,
            p.forward_pass_ms,
            p.backlog_ms,
            p.queue_ms,
            p.prefill_ms,
            p.running_ms,
            p.cache_pressure_ms,
            p.saturated_cold_ms,
            p.assumed_ms,
            p.provider_ms,
            p.blocks,
            p.cached_blocks,
            p.queue,
            p.running,
            p.kv_usage,
        ]
    };
    let candidates = response.candidates.iter();
    Outcome {
        destinations: [std::slice::from_ref(&response.endpoint), &response.fallbacks].concat(),
        prompt_tokens: response.prompt_tokens,
        replicated: response.replicated,
        candidates: candidates
            .map(|c| (c.worker_id.clone(), terms(c.prediction.as_ref().unwrap()), c.own_in_flight))
            .collect(),
        removed: response.removed.iter().map(|r| (r.worker_id.clone(), r.reason.clone())).collect(),
        degraded: response.degradations.clone(),
    }
}

fn of_decision(decision: &Decision) -> Outcome {
    let terms = |p: &types::Prediction| {
        vec![
            p.ttft_ms,
            p.base_ms,
            p.forward_pass_ms,
            p.backlog_ms,
            p.queue_ms,
            p.prefill_ms,
            p.running_ms,
            p.cache_pressure_ms,
            p.saturated_cold_ms,
            p.assumed_ms,
            p.provider_ms,
            p.blocks,
            p.cached_blocks,
            p.queue,
            p.running,
            p.kv_usage,
        ]
    };
    let candidates = decision.candidates.iter();
    let removed = decision.removed.iter();
    let degraded = decision.degraded.iter().chain(&decision.primary().degraded);
    Outcome {
        destinations: decision.destinations().unwrap_or_default().split(',').map(str::to_owned).collect(),
        prompt_tokens: decision.prompt_tokens.map(|tokens| tokens as u64),
        replicated: decision.replicated,
        candidates: candidates
            .map(|c| (c.target.label().to_string(), terms(&c.prediction), c.own_in_flight))
            .collect(),
        removed: removed.map(|r| (r.who.to_string(), r.reason.label().to_owned())).collect(),
        degraded: degraded.map(|why| why.label().to_owned()).collect(),
    }
}

/// By the native door.
async fn by_pick(door: &Door, ask: &Ask) -> Option<Outcome> {
    let body = ask.body();
    let request = match ask.means {
        Means::Inline => inline(head(COMPLETIONS), &body),
        Means::Pushed => by_id(&door.push(head(COMPLETIONS), &body).await.unwrap()),
        Means::Tokens => PickRequest { model: ask.model().into(), ..tokens(ask.ids()) },
    };
    let subset = ask.endpoints().map(|endpoints| EndpointSubset { endpoints });
    let response = door.picker.decide(PickRequest { subset, want_candidates: true, ..request }, None).await;
    response.ok().as_ref().map(of_response)
}

/// By Envoy's, as one stream of it; what is given back along holds the load.
async fn by_ext_proc(door: &Door, ask: &Ask) -> (Option<Outcome>, impl Sized) {
    let decided: Arc<Mutex<Option<Arc<Decision>>>> = Arc::default();
    let (pipeline, seen) = (door.site.pipeline.clone(), decided.clone());
    let decide: Decide = Arc::new(move |incoming| {
        let (pipeline, seen) = (pipeline.clone(), seen.clone());
        Box::pin(async move {
            let placement = pipeline.decide(incoming).await?;
            *seen.lock() = Some(placement.decision.clone());
            Ok(placement)
        })
    });
    let config = ExtProcConfig::default();
    let (refused, budget) = (Arc::new(|_: &_, _: &_| {}), door.budget.clone());
    let parts = Parts { decide, models: None, refused, budget, config, id_seed: 1 };
    let metrics = kinference::observe::Metrics::new();
    let messages = [request_head(ask), request_body(ask)].map(Ok);
    let open = futures::stream::iter(messages).chain(futures::stream::pending());
    let mut answers = ExtProc::new(parts, &metrics).answers(open.boxed()).boxed();
    answers.next().await.unwrap().unwrap();
    let decision = decided.lock().take();
    (decision.as_deref().map(of_decision), answers)
}

fn request_head(ask: &Ask) -> ProcessingRequest {
    let header = |(key, value): (&str, &str)| HeaderValue {
        key: key.into(),
        raw_value: value.as_bytes().to_vec(),
        ..Default::default()
    };
    let headers = [(":method", "POST"), (":path", COMPLETIONS)].map(header).to_vec();
    let duplex = BodySendMode::FullDuplexStreamed.into();
    ProcessingRequest {
        request: Some(Request::RequestHeaders(HttpHeaders {
            headers: Some(HeaderMap { headers }),
            ..Default::default()
        })),
        protocol_config: Some(ProtocolConfiguration {
            request_body_mode: duplex,
            response_body_mode: duplex,
            ..Default::default()
        }),
        metadata_context: ask.endpoints().map(subset_hint),
        ..Default::default()
    }
}

fn request_body(ask: &Ask) -> ProcessingRequest {
    let body = HttpBody { body: ask.body(), end_of_stream: true, ..Default::default() };
    ProcessingRequest { request: Some(Request::RequestBody(body)), ..Default::default() }
}

fn subset_hint(endpoints: Vec<String>) -> Metadata {
    let values = endpoints.into_iter().map(|e| Value { kind: Some(Kind::StringValue(e)) }).collect();
    let list = Value { kind: Some(Kind::ListValue(ListValue { values })) };
    let key = "x-gateway-destination-endpoint-subset".to_owned();
    let fields = Struct { fields: HashMap::from([(key, list)]) };
    Metadata {
        filter_metadata: HashMap::from([("envoy.lb.subset_hint".into(), fields)]),
        ..Default::default()
    }
}

/// The outcomes of the requests, asked by one of the doors after a history.
fn asked((ops, asks): (&[Op], &[Ask]), seed: u64, native: bool) -> Vec<Option<Outcome>> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let seeded = profile("p", |p| {
            p.picker.seed = Some(seed);
            p.picker.top_k_min = 3;
            p.picker.replication_threshold_pct = 30.0;
        });
        let door = Door::of(&seeded, WORKERS);
        let site = &door.site;
        let mut held = Vec::new();
        for op in ops {
            match op {
                Op::Place { start, blocks } => {
                    let first = start * 100_000;
                    let placed = site.pipeline.decide(prompt(first..first + blocks * BLOCK)).await;
                    held.extend(placed.ok());
                }
                Op::Scrape { worker, waiting, usage } => {
                    let sample = LoadSample { running: 1.0, waiting: *waiting, kv_usage: *usage };
                    site.load.record_scrape(WorkerId(*worker), sample);
                }
                Op::Store { worker, start } => {
                    site.store(*worker, start * 100_000..start * 100_000 + 20 * BLOCK).await
                }
                Op::Fail(worker) => site.fail(*worker),
                Op::Pass(ms) => tokio::time::advance(Duration::from_millis(*ms)).await,
            }
        }
        let (mut outcomes, mut streams) = (Vec::new(), Vec::new());
        for ask in asks {
            if native {
                outcomes.push(by_pick(&door, ask).await);
            } else {
                let (outcome, stream) = by_ext_proc(&door, ask).await;
                outcomes.push(outcome);
                streams.push(stream);
            }
        }
        outcomes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn both_doors_decide_alike(
        ops in prop::collection::vec(op(), 0..40),
        asks in prop::collection::vec(ask(), 1..8),
        seed: u64,
    ) {
        let native = asked((&ops, &asks), seed, true);
        prop_assert_eq!(native, asked((&ops, &asks), seed, false));
    }
}

#[test]
fn decisions_are_compared_at_all() {
    let ask = Ask { start: 0, blocks: 9, known_model: true, subset: None, means: Means::Pushed };
    let unknown = Ask { known_model: false, ..ask.clone() };
    let outcomes = asked((&[], &[ask, unknown]), 1, false);
    assert_eq!(outcomes[0].as_ref().unwrap().candidates.len(), WORKERS as usize);
    assert_eq!(outcomes[1], None);
}
