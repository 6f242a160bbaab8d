//! The gRPC server with a real client on a real socket; times on paused clocks, without sockets.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod decisions;

use std::{io, sync::Arc, time::Duration};

use envoy_types::pb::envoy::{
    config::core::v3::{HeaderMap, HeaderValue},
    extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode,
    service::ext_proc::v3::{
        BodyResponse, CommonResponse, HttpBody, HttpHeaders, ProcessingRequest, ProcessingResponse,
        ProtocolConfiguration, body_mutation::Mutation, external_processor_client::ExternalProcessorClient,
        processing_request::Request, processing_response::Response,
    },
};
use futures::StreamExt;
use kinference::{
    config::{BodyLimits, ExtProcConfig},
    observe::Metrics,
    pipeline::{Incoming, IncomingBody, Placement},
    prompt::BodyBudget,
    serve::{
        Server, Services,
        ext_proc::{Decide, ExtProc, Parts},
    },
    types::{Credential, Decision, ErrorKind, ErrorShape, ProviderTarget, Rejection, RequestKind, Target},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Streaming, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

const DEADLINE: Duration = Duration::from_secs(20);
const SECRET: &str = "s3cret";

/// Places everything but a body that says "reject"; one that says "hang" is never decided.
fn decide(incoming: Incoming) -> futures::future::BoxFuture<'static, Result<Placement, Rejection>> {
    Box::pin(async move {
        match &incoming.body {
            IncomingBody::Full(bytes) if bytes.starts_with(b"reject") => {
                Err(Rejection::new(ErrorKind::ModelNotFound, "no such model"))
            }
            IncomingBody::Full(bytes) if bytes.starts_with(b"hang") => std::future::pending().await,
            IncomingBody::Full(bytes) if bytes.starts_with(b"provider") => {
                Ok(Placement::unreserved(outward()))
            }
            _ => Ok(Placement::unreserved(decisions::decision())),
        }
    })
}

/// The decision for a provider, with a credential.
fn outward() -> Arc<Decision> {
    let credential = Credential { header: "authorization".into(), value: format!("Bearer {SECRET}") };
    let target = ProviderTarget {
        namespace: "ns".into(),
        name: "cloud".into(),
        authority: "api.example.com".into(),
        path_prefix: None,
        credential: Some(Arc::new(credential)),
    };
    let mut decision = (*decisions::decision()).clone();
    decision.candidates[0].target = Target::Provider(Arc::new(target));
    decision.fallbacks.clear();
    Arc::new(decision)
}

/// Lists one model to the tenant `team`, and turns others away.
fn models(incoming: &Incoming, shape: ErrorShape) -> Option<Result<Value, Rejection>> {
    let RequestKind::Models(_) = &incoming.kind else { return None };
    match incoming.tenant.as_deref() {
        Some("team") => Some(Ok(json!({"data": ["m"], "anthropic": shape == ErrorShape::Anthropic}))),
        Some(_) => Some(Err(Rejection::new(ErrorKind::PoolNotFound, "no such pool"))),
        None => None,
    }
}

fn service(metrics: &Metrics, limits: BodyLimits) -> ExtProc {
    let parts = Parts {
        models: Some(Arc::new(models)),
        refused: Arc::new(|_, _| {}),
        decide: Arc::new(decide) as Decide,
        budget: BodyBudget::new(limits, metrics),
        config: ExtProcConfig { explain_headers: true, trust_headers: true, ..ExtProcConfig::default() },
        id_seed: 1,
    };
    ExtProc::new(parts, metrics)
}

struct Running {
    channel: Channel,
    metrics: Metrics,
    shutdown: CancellationToken,
    ready: watch::Sender<bool>,
    server: JoinSet<()>,
}

async fn serve() -> Running {
    let metrics = Metrics::new();
    let limits = BodyLimits { request_bytes: 400_000, ..BodyLimits::default() };
    let (ready, is_ready) = watch::channel(true);
    let shutdown = CancellationToken::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let running = Server {
        services: Services::default().with_routing(service(&metrics, limits).into_server()),
        ready: is_ready,
        tls: None,
    };
    let mut server = JoinSet::new();
    let stop = shutdown.clone();
    server.spawn(async move { running.run(listener, stop).await.unwrap() });
    let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
    Running { channel, metrics, shutdown, ready, server }
}

type Sender = mpsc::Sender<ProcessingRequest>;

async fn open(channel: &Channel) -> (Sender, Streaming<ProcessingResponse>) {
    let (send, receive) = mpsc::channel(4);
    let mut client = ExternalProcessorClient::new(channel.clone());
    let answers = client.process(ReceiverStream::new(receive)).await.unwrap().into_inner();
    (send, answers)
}

async fn next(answers: &mut Streaming<ProcessingResponse>) -> Option<ProcessingResponse> {
    tokio::time::timeout(DEADLINE, answers.message()).await.unwrap().unwrap()
}

fn message(request: Request) -> ProcessingRequest {
    ProcessingRequest { request: Some(request), ..Default::default() }
}

fn http_headers(pairs: &[(&str, &str)], end_of_stream: bool) -> HttpHeaders {
    let headers = pairs.iter().map(|(key, value)| HeaderValue {
        key: (*key).into(),
        raw_value: value.as_bytes().to_vec(),
        ..Default::default()
    });
    HttpHeaders {
        headers: Some(HeaderMap { headers: headers.collect() }),
        end_of_stream,
        ..Default::default()
    }
}

fn post(mode: Option<BodySendMode>, extra: &[(&str, &str)]) -> ProcessingRequest {
    let mut pairs = vec![(":method", "POST"), (":path", "/v1/chat/completions")];
    pairs.extend_from_slice(extra);
    ProcessingRequest {
        protocol_config: mode.map(|mode| ProtocolConfiguration {
            request_body_mode: mode.into(),
            response_body_mode: mode.into(),
            ..Default::default()
        }),
        ..message(Request::RequestHeaders(http_headers(&pairs, false)))
    }
}

fn body(bytes: &[u8], end_of_stream: bool) -> ProcessingRequest {
    message(Request::RequestBody(HttpBody { body: bytes.to_vec(), end_of_stream, ..Default::default() }))
}

/// The echoed bytes and whether they are the last.
fn echo(answer: BodyResponse) -> (Vec<u8>, bool) {
    let CommonResponse { body_mutation, .. } = answer.response.unwrap();
    let Some(Mutation::StreamedResponse(piece)) = body_mutation.unwrap().mutation else { panic!("no echo") };
    (piece.body, piece.end_of_stream)
}

/// Waits until the metrics say so.
async fn until(metrics: &Metrics, line: &str) {
    let wait = async {
        while !metrics.render().contains(line) {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, wait).await;
    assert!(waited.is_ok(), "{line} is not in {}", metrics.render());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplex_request_goes_there_and_back() {
    let running = serve().await;
    let (send, mut answers) = open(&running.channel).await;
    let sent: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
    send.send(post(Some(BodySendMode::FullDuplexStreamed), &[])).await.unwrap();
    for piece in sent.chunks(65_536) {
        send.send(body(piece, false)).await.unwrap();
    }
    send.send(body(b"", true)).await.unwrap();

    let first = next(&mut answers).await.unwrap();
    assert!(first.dynamic_metadata.is_some());
    let Some(Response::RequestHeaders(headers)) = first.response else { panic!("{first:?}") };
    let set = headers.response.unwrap().header_mutation.unwrap().set_headers.remove(0).header.unwrap();
    assert_eq!(set.raw_value, decisions::DESTINATIONS.as_bytes());
    let mut received = Vec::new();
    loop {
        let Some(Response::RequestBody(answer)) = next(&mut answers).await.unwrap().response else {
            panic!("no body")
        };
        let (bytes, last) = echo(answer);
        received.extend(bytes);
        if last {
            break;
        }
    }
    assert!(received == sent);

    send.send(message(Request::ResponseHeaders(http_headers(&[(":status", "200")], true)))).await.unwrap();
    let Some(Response::ResponseHeaders(headers)) = next(&mut answers).await.unwrap().response else {
        panic!("no response headers")
    };
    let explained: Vec<_> = headers.response.unwrap().header_mutation.unwrap().set_headers;
    let explained: Vec<_> = explained.into_iter().map(|option| option.header.unwrap()).collect();
    let value = |name: &str| {
        let header = explained.iter().find(|header| header.key == name).unwrap();
        String::from_utf8(header.raw_value.clone()).unwrap()
    };
    assert_eq!(value("x-kinference-worker"), "w1");
    assert_eq!(value("x-kinference-predicted-ttft-ms"), "12.3");
    assert_eq!(value("x-kinference-cached-blocks"), "3");
    assert_eq!(value("x-kinference-prompt-tokens"), "9");
    assert_eq!(value("x-kinference-degraded"), "no_metrics");
    drop(send);
    assert!(next(&mut answers).await.is_none());
    until(&running.metrics, "kinference_ext_proc_streams_total{end=\"completed\"} 1").await;
    until(&running.metrics, "kinference_ext_proc_open_streams 0").await;
}

#[tokio::test]
async fn rejections_are_immediate_and_end_the_stream() {
    let running = serve().await;
    let duplex = Some(BodySendMode::FullDuplexStreamed);
    let buffered = Some(BodySendMode::Buffered);
    let big = vec![0; 300_000];
    let table = [
        (vec![post(duplex, &[]), body(b"reject", true)], 404),
        (vec![post(duplex, &[("content-length", "400001")]), body(&big, false), body(b"", true)], 413),
        (vec![post(buffered, &[("content-length", "400001")])], 413),
        (vec![post(duplex, &[]), body(&big, false), body(&big, true)], 413),
    ];
    for (messages, status) in table {
        let (send, mut answers) = open(&running.channel).await;
        for message in messages {
            send.send(message).await.unwrap();
        }
        let Some(Response::ImmediateResponse(answer)) = next(&mut answers).await.unwrap().response else {
            panic!("{status} expected")
        };
        assert_eq!(answer.status.unwrap().code, status);
        let told: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(told["error"]["code"], status);
        assert!(next(&mut answers).await.is_none());
    }
    until(&running.metrics, "kinference_ext_proc_streams_total{end=\"rejected\"} 4").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bursts_of_resets_leave_nothing_behind_and_other_streams_alone() {
    const BURSTS: usize = 10;
    const STREAMS: usize = 300;
    let running = serve().await;
    let (send, mut answers) = open(&running.channel).await;
    for _ in 0..BURSTS {
        let burst = futures::future::join_all((0..STREAMS).map(async |_| {
            let (send, answers) = open(&running.channel).await;
            send.send(post(Some(BodySendMode::FullDuplexStreamed), &[])).await.unwrap();
            send.send(body(b"hang", true)).await.unwrap();
            (send, answers)
        }));
        drop(burst.await);
    }
    let ended = BURSTS * STREAMS;
    until(&running.metrics, &format!("kinference_ext_proc_streams_total{{end=\"cancelled\"}} {ended}")).await;
    until(&running.metrics, "kinference_ext_proc_open_streams 1").await;
    send.send(post(Some(BodySendMode::Streamed), &[])).await.unwrap();
    assert!(matches!(next(&mut answers).await.unwrap().response, Some(Response::RequestHeaders(_))));
}

#[tokio::test]
async fn health_follows_readiness_and_draining_waits_for_streams() {
    let mut running = serve().await;
    let mut health = HealthClient::new(running.channel.clone());
    let ext_proc = "envoy.service.ext_proc.v3.ExternalProcessor";
    for name in ["", "liveness", "readiness", ext_proc] {
        until_health(&mut health, name, 1).await;
    }
    running.ready.send(false).unwrap();
    for (name, status) in [("", 1), ("liveness", 1), ("readiness", 2), (ext_proc, 2)] {
        until_health(&mut health, name, status).await;
    }
    let (send, mut answers) = open(&running.channel).await;
    send.send(post(Some(BodySendMode::FullDuplexStreamed), &[])).await.unwrap();
    until(&running.metrics, "kinference_ext_proc_messages_total{message=\"request_headers\"} 1").await;
    running.shutdown.cancel();
    send.send(body(b"late", true)).await.unwrap();
    assert!(matches!(next(&mut answers).await.unwrap().response, Some(Response::RequestHeaders(_))));
    assert!(running.server.try_join_next().is_none(), "the server left an open stream");
    drop((send, answers));
    tokio::time::timeout(DEADLINE, running.server.join_next()).await.unwrap().unwrap().unwrap();
}

async fn until_health(health: &mut HealthClient<Channel>, name: &str, status: i32) {
    let wait = async {
        let request = HealthCheckRequest { service: name.into() };
        while health.check(request.clone()).await.map(|a| a.into_inner().status).ok() != Some(status) {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, wait).await.is_ok(), "{name:?} never became {status}");
}

/// One stream without a socket, on the test's clock.
fn offline(
    limits: BodyLimits,
) -> (Sender, futures::stream::BoxStream<'static, Result<ProcessingResponse, tonic::Status>>, Metrics) {
    let metrics = Metrics::new();
    let (send, receive) = mpsc::channel(4);
    let answers = service(&metrics, limits).answers(ReceiverStream::new(receive).map(Ok));
    (send, answers.boxed(), metrics)
}

#[tokio::test(start_paused = true)]
async fn slow_bodies_time_out() {
    let limits = BodyLimits::default();
    let idle = [post(Some(BodySendMode::FullDuplexStreamed), &[]), body(b"{", false)];
    let inferred = [post(None, &[]), body(b"{", false)];
    for (messages, after) in [(idle, limits.idle_timeout), (inferred, limits.idle_timeout)] {
        let (send, mut answers, _) = offline(limits);
        let began = tokio::time::Instant::now();
        for message in messages {
            send.send(message).await.unwrap();
        }
        let answer = answers.next().await.unwrap().unwrap();
        assert!(began.elapsed() >= after && began.elapsed() < after + Duration::from_secs(1));
        let Some(Response::ImmediateResponse(answer)) = answer.response else { panic!("{answer:?}") };
        assert_eq!(answer.status.unwrap().code, 408);
        assert!(answers.next().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_trickles_in_ends_with_its_ttl() {
    let limits = BodyLimits::default();
    let (send, mut answers, metrics) = offline(limits);
    let began = tokio::time::Instant::now();
    let mut trickle = JoinSet::new();
    trickle.spawn(async move {
        send.send(post(Some(BodySendMode::FullDuplexStreamed), &[])).await.unwrap();
        while send.send(body(b" ", false)).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    });
    let answer = answers.next().await.unwrap().unwrap();
    assert!(matches!(answer.response, Some(Response::ImmediateResponse(_))));
    assert!(began.elapsed() >= limits.ttl && began.elapsed() < limits.ttl + Duration::from_secs(5));
    drop(answers);
    assert!(metrics.render().contains("kinference_ext_proc_rejections_total{kind=\"body_timeout\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_silent_sender_without_a_mode_is_answered_in_time() {
    let (send, mut answers, _) = offline(BodyLimits::default());
    let began = tokio::time::Instant::now();
    send.send(post(None, &[])).await.unwrap();
    let answer = answers.next().await.unwrap().unwrap();
    assert!(matches!(answer.response, Some(Response::RequestHeaders(_))));
    assert!(began.elapsed() < Duration::from_millis(200));
}

#[tokio::test]
async fn what_is_only_observed_is_not_answered() {
    let (send, mut answers, metrics) = offline(BodyLimits::default());
    let observed = ProcessingRequest { observability_mode: true, ..post(Some(BodySendMode::Streamed), &[]) };
    send.send(observed).await.unwrap();
    drop(send);
    assert!(answers.next().await.is_none());
    drop(answers);
    assert!(metrics.render().contains("kinference_ext_proc_streams_total{end=\"cancelled\"} 1"));
}

#[tokio::test]
async fn what_a_pool_publishes_is_answered_at_once() {
    let running = serve().await;
    let table = [
        (vec![("x-kinference-tenant", "team")], 200, json!({"data": ["m"], "anthropic": false})),
        (
            vec![("x-kinference-tenant", "team"), ("anthropic-version", "2023-06-01")],
            200,
            json!({"data": ["m"], "anthropic": true}),
        ),
        (
            vec![("x-kinference-tenant", "other"), ("anthropic-version", "2023-06-01")],
            503,
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "no such pool"}}),
        ),
    ];
    for (extra, status, body) in table {
        let (send, mut answers) = open(&running.channel).await;
        let mut pairs = vec![(":method", "GET"), (":path", "/v1/models")];
        pairs.extend(extra);
        send.send(message(Request::RequestHeaders(http_headers(&pairs, true)))).await.unwrap();
        let Some(Response::ImmediateResponse(answer)) = next(&mut answers).await.unwrap().response else {
            panic!("it is not answered")
        };
        assert_eq!(answer.status.unwrap().code, status);
        assert_eq!(serde_json::from_slice::<Value>(&answer.body).unwrap(), body);
        assert!(next(&mut answers).await.is_none(), "nothing follows");
    }
    let (send, mut answers) = open(&running.channel).await;
    let asked = http_headers(&[(":method", "GET"), (":path", "/v1/models")], true);
    send.send(message(Request::RequestHeaders(asked))).await.unwrap();
    let answer = next(&mut answers).await.unwrap().response;
    assert!(matches!(answer, Some(Response::RequestHeaders(_))), "an engine is asked");
    let text = running.metrics.render();
    for line in [
        "kinference_ext_proc_streams_total{end=\"completed\"} 2",
        "kinference_ext_proc_rejections_total{kind=\"pool_not_found\"} 1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Not even where everything is logged, our own and the libraries'.
#[tokio::test]
async fn a_credential_is_on_the_wire_and_in_no_log_and_no_metric() {
    let log = Log::default();
    let writer = log.clone();
    let everything = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(everything);
    let running = serve().await;
    let (send, mut answers) = open(&running.channel).await;
    send.send(post(Some(BodySendMode::FullDuplexStreamed), &[])).await.unwrap();
    send.send(body(b"provider", true)).await.unwrap();
    let Some(Response::RequestHeaders(headers)) = next(&mut answers).await.unwrap().response else {
        panic!("no headers")
    };
    let set = headers.response.unwrap().header_mutation.unwrap().set_headers;
    let sent = format!("Bearer {SECRET}").into_bytes();
    assert!(set.iter().any(|one| one.header.as_ref().is_some_and(|header| header.raw_value == sent)));
    next(&mut answers).await.unwrap();
    send.send(message(Request::ResponseHeaders(http_headers(&[(":status", "200")], true)))).await.unwrap();
    next(&mut answers).await.unwrap();
    drop(send);
    assert!(next(&mut answers).await.is_none());
    let logged = String::from_utf8(log.0.lock().clone()).unwrap();
    assert!(logged.contains("TRACE") && !logged.contains(SECRET), "{logged}");
    assert!(!running.metrics.render().contains(SECRET));
}
