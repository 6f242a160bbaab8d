//! What is in the spans, which decisions have some, and what becomes of them when the receiver does not take them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kinference::{
    observe::{Decisions, Metrics, TraceOptions, TraceProtocol, Traces},
    pipeline::Incoming,
    types::{Outcome, Stage, Usage},
};
use opentelemetry_proto::tonic::{
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};

use crate::{
    receiver::Receiver,
    site::{MODEL, Site, call, profile, prompt, worker, worker_set},
};

const WITHIN: Duration = Duration::from_secs(60);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// A pipeline that is traced.
struct Traced {
    site: Site,
    metrics: Metrics,
    decisions: Arc<Decisions>,
    receiver: Receiver,
}

impl Traced {
    /// Runs `test` over it, and what sends its spans.
    async fn with(protocol: TraceProtocol, sample: f64, test: impl AsyncFnOnce(&mut Self)) {
        let (receiver, metrics) = (Receiver::start(protocol).await, Metrics::new());
        let options = TraceOptions {
            endpoint: receiver.endpoint.clone(),
            protocol,
            sample,
            service: "router".into(),
            instance: "replica-1".into(),
            timeout: WITHIN,
            seed: 7,
        };
        let (traces, exporter) = Traces::new(options, reqwest::Client::new(), &metrics).unwrap();
        let decisions = Arc::new(Decisions::new(None, Some(traces)));
        let profile = profile("p", |_| {});
        let site = Site::telling(std::slice::from_ref(&profile), decisions.clone(), |_| {});
        let set = worker_set("s", &profile);
        site.registry.replace_set("s", vec![worker(&set, 1), worker(&set, 2)]).unwrap();
        let mut traced = Self { site, metrics, decisions, receiver };
        tokio::select! {
            _ = exporter.run() => {}
            () = test(&mut traced) => {}
        }
    }

    /// The spans that came, their resource checked.
    async fn spans(&mut self) -> Vec<Span> {
        assert!(self.decisions.flush(WITHIN).await);
        let mut all = Vec::new();
        for of_resource in self.receiver.received() {
            let resource = attributes(&of_resource.resource.unwrap().attributes);
            assert_eq!(resource["service.name"], "router");
            assert_eq!(resource["service.instance.id"], "replica-1");
            all.extend(of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
        all
    }

    fn counted(&self, fate: &str) -> u64 {
        let name = format!("kinference_traces_spans_total{{result=\"{fate}\"}} ");
        let text = self.metrics.render();
        text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    }
}

/// Each as text.
fn attributes(all: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::BoolValue(flag) => flag.to_string(),
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let pair = |one: &KeyValue| (one.key.clone(), text(one.value.as_ref().unwrap().value.as_ref().unwrap()));
    let found: BTreeMap<_, _> = all.iter().map(pair).collect();
    assert_eq!(found.len(), all.len(), "a key is there twice");
    found
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn named<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let first = found.next().unwrap_or_else(|| panic!("no {name} among {spans:?}"));
    assert!(found.next().is_none(), "{name} is there twice");
    first
}

fn called(flags: &str) -> Incoming {
    let traceparent = format!("00-{TRACE}-{CALLER}-{flags}");
    Incoming { traceparent: Some(traceparent.as_str().into()), request_id: "r-1".into(), ..prompt(0..64) }
}

async fn a_decision_is_traced(protocol: TraceProtocol) {
    Traced::with(protocol, 0.0, async |traced| {
        let mut placement = traced.site.place(called("01")).await;
        let chosen = placement.decision.primary().target.worker().unwrap().clone();
        placement.first_token();
        let usage = Usage { prompt_tokens: 64, completion_tokens: 3, cached_tokens: Some(16) };
        placement.finish(Outcome::Completed, Some(usage));
        let spans = traced.spans().await;

        let decide = named(&spans, "kinference.decide");
        assert_eq!((hex(&decide.trace_id), hex(&decide.parent_span_id)), (TRACE.into(), CALLER.into()));
        assert_eq!((decide.kind, &decide.status), (SpanKind::Internal.into(), &None));
        let said = attributes(&decide.attributes);
        let port = chosen.endpoint.rsplit_once(':').unwrap().1;
        for (key, want) in [
            ("gen_ai.operation.name", "text_completion"),
            ("gen_ai.request.model", MODEL),
            ("kinference.request_id", "r-1"),
            ("kinference.worker", &*chosen.name),
            ("kinference.candidates", "2"),
            ("server.port", port),
        ] {
            assert_eq!(said[key], want, "{key}");
        }

        // No pool: no rules. All stages lie in the decision, and follow each other.
        let stages = Stage::ALL.into_iter().filter(|stage| *stage != Stage::Policy);
        let mut before = decide.start_time_unix_nano;
        for stage in stages.map(|stage| named(&spans, stage.label())) {
            assert_eq!((&stage.trace_id, &stage.parent_span_id), (&decide.trace_id, &decide.span_id));
            assert!(before <= stage.start_time_unix_nano, "{stage:?}");
            assert!(stage.start_time_unix_nano <= stage.end_time_unix_nano, "{stage:?}");
            assert!(stage.end_time_unix_nano <= decide.end_time_unix_nano, "{stage:?}");
            before = stage.start_time_unix_nano;
        }

        let response = named(&spans, &format!("text_completion {MODEL}"));
        assert_eq!((&response.trace_id, &response.parent_span_id), (&decide.trace_id, &decide.span_id));
        assert_eq!((response.kind, &response.status), (SpanKind::Client.into(), &None));
        assert_eq!(response.start_time_unix_nano, decide.end_time_unix_nano);
        let [token] = &response.events[..] else { panic!("{:?}", response.events) };
        assert!(
            (response.start_time_unix_nano..=response.end_time_unix_nano).contains(&token.time_unix_nano)
        );
        let said = attributes(&response.attributes);
        assert_eq!([&said["gen_ai.usage.input_tokens"], &said["gen_ai.usage.output_tokens"]], ["64", "3"]);
        assert_eq!(said["kinference.outcome"], "completed");

        let mut ids: Vec<_> = spans.iter().map(|span| &span.span_id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!((spans.len(), ids.len()), (8, 8), "{spans:?}");
        assert_eq!((traced.counted("exported"), traced.counted("failed")), (8, 0));
    })
    .await;
}

#[tokio::test]
async fn a_decision_is_traced_over_grpc() {
    a_decision_is_traced(TraceProtocol::Grpc).await;
}

#[tokio::test]
async fn a_decision_is_traced_over_http() {
    a_decision_is_traced(TraceProtocol::Http).await;
}

#[tokio::test]
async fn a_rejection_is_an_error_and_has_no_response() {
    Traced::with(TraceProtocol::Grpc, 1.0, async |traced| {
        let body = r#"{"model": "none such", "messages": [{"role": "user", "content": "s3cret"}]}"#;
        traced.site.refusal(call(kinference::types::Api::ChatCompletions, body)).await;
        let spans = traced.spans().await;
        let decide = named(&spans, "kinference.decide");
        let status = decide.status.as_ref().unwrap();
        assert_eq!(status.code, i32::from(StatusCode::Error));
        assert_eq!(status.message, "The model `none such` does not exist.");
        let said = attributes(&decide.attributes);
        assert_eq!([&said["error.type"], &said["http.response.status_code"]], ["model_not_found", "404"]);
        assert_eq!([&said["gen_ai.operation.name"], &said["gen_ai.request.model"]], ["chat", "none such"]);
        assert!(spans.iter().all(|span| span.kind == i32::from(SpanKind::Internal)));
        assert!(!format!("{spans:?}").contains("s3cret"));
    })
    .await;
}

#[tokio::test]
async fn a_failed_response_is_an_error_and_a_cancelled_one_is_none() {
    Traced::with(TraceProtocol::Grpc, 1.0, async |traced| {
        traced.site.place(prompt(0..64)).await.finish(Outcome::Failed, None);
        drop(traced.site.place(prompt(0..64)).await);
        let spans = traced.spans().await;
        let ends = spans.iter().filter(|span| span.kind == i32::from(SpanKind::Client));
        let ends: Vec<_> = ends
            .map(|span| {
                let outcome = attributes(&span.attributes)["kinference.outcome"].clone();
                (outcome, span.status.as_ref().map(|status| status.code))
            })
            .collect();
        let error = Some(i32::from(StatusCode::Error));
        assert_eq!(ends, [("failed".to_owned(), error), ("cancelled".to_owned(), None)]);
    })
    .await;
}

#[tokio::test]
async fn the_caller_decides_what_is_sampled_and_without_one_the_share_does() {
    for (sample, flags, traced_too) in [
        (0.0, Some("01"), true),
        (1.0, Some("00"), false),
        (0.0, None, false),
        (1.0, None, true),
        // What is malformed is as good as none.
        (1.0, Some("zz"), true),
    ] {
        Traced::with(TraceProtocol::Grpc, sample, async |traced| {
            let incoming = flags.map_or_else(|| prompt(0..64), called);
            drop(traced.site.place(incoming).await);
            let spans = traced.spans().await;
            assert_eq!(!spans.is_empty(), traced_too, "{sample} {flags:?}");
            let own = spans.iter().filter(|span| span.parent_span_id.is_empty()).count();
            assert_eq!(own == 1, traced_too && flags != Some("01"), "a new trace: {sample} {flags:?}");
        })
        .await;
    }
    Traced::with(TraceProtocol::Grpc, 0.3, async |traced| {
        for _ in 0..500 {
            drop(traced.site.place(prompt(0..16)).await);
        }
        let spans = traced.spans().await;
        let decided = spans.iter().filter(|span| span.name == "kinference.decide").count();
        // Of 500 at 0.3 with that seed.
        assert!((110..190).contains(&decided), "{decided}");
    })
    .await;
}

#[tokio::test]
async fn what_is_not_taken_is_counted_and_later_spans_get_through() {
    for protocol in [TraceProtocol::Grpc, TraceProtocol::Http] {
        Traced::with(protocol, 1.0, async |traced| {
            traced.receiver.refuse(true);
            drop(traced.site.place(prompt(0..64)).await);
            assert!(traced.spans().await.is_empty());
            assert_eq!((traced.counted("failed"), traced.counted("exported")), (8, 0));
            traced.receiver.refuse(false);
            traced.receiver.be_picky();
            drop(traced.site.place(prompt(0..64)).await);
            assert_eq!(traced.spans().await.len(), 8);
            assert_eq!((traced.counted("failed"), traced.counted("exported")), (9, 7), "one was rejected");
        })
        .await;
    }
}

#[tokio::test]
async fn a_decision_does_not_wait_for_a_receiver_that_is_away() {
    // Nobody runs what sends: nothing leaves the queue.
    let metrics = Metrics::new();
    let options = TraceOptions {
        endpoint: "http://127.0.0.1:1".into(),
        protocol: TraceProtocol::Grpc,
        sample: 1.0,
        service: "router".into(),
        instance: "replica-1".into(),
        timeout: WITHIN,
        seed: 7,
    };
    let (traces, _idle) = Traces::new(options, reqwest::Client::new(), &metrics).unwrap();
    let decisions = Arc::new(Decisions::new(None, Some(traces)));
    let site = Site::telling(&[profile("p", |_| {})], decisions.clone(), |_| {});
    // Without workers: rejections, which have no candidates, and three spans each.
    for _ in 0..65_536 + 10 {
        site.refusal(crate::site::other()).await;
    }
    assert!(metrics.render().contains("kinference_traces_spans_total{result=\"dropped\"} 30\n"));
    assert!(!decisions.flush(Duration::from_millis(1)).await);
}
