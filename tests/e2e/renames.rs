//! A model that engines know by another name, through the real Envoy in every mode that the samples could take: the
//! engine gets its own name, the client reads the one that it asked for.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    http::HeaderMap,
    response::IntoResponse,
};
use futures::{StreamExt, stream};
use kinference::{
    config::{BodyLimits, ExtProcConfig},
    observe::Metrics,
    pipeline::{Incoming, IncomingBody, Placement, Rewrite},
    prompt::{BodyBudget, name_model},
    serve::{
        Server, Services,
        ext_proc::{ExtProc, Parts},
    },
    types::{Candidate, Decision, RequestKind, Target, WorkerId, WorkerTarget},
};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::stack::{Engine, Envoy, PATIENCE, adapted};

const PUBLIC: &str = "standard-model";

/// One engine, an upstream that tells what it got, and a server that renames everything, behind Envoy.
struct Renaming {
    envoy: Envoy,
    metrics: Metrics,
    _engine: Engine,
    _tasks: JoinSet<()>,
}

impl Renaming {
    async fn start(sample: &str, response_mode: &str) -> Option<Self> {
        let engine = Engine::start(&["--speedup", "50"]);
        let mut tasks = JoinSet::new();
        let mirror = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoints = [engine.http.clone(), mirror.local_addr().unwrap().to_string()];
        tasks.spawn(async move { axum::serve(mirror, Router::new().fallback(reflect)).await.unwrap() });
        let metrics = Metrics::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let grpc = listener.local_addr().unwrap().to_string();
        let server = server(&metrics, endpoints.clone());
        tasks.spawn(async move { server.run(listener, CancellationToken::new()).await.unwrap() });
        let config = adapted(sample, &grpc, &endpoints.each_ref().map(String::as_str));
        let trailers = if response_mode == "FULL_DUPLEX_STREAMED" { "SEND" } else { "SKIP" };
        let config = config
            .replace("response_body_mode: STREAMED", &format!("response_body_mode: {response_mode}"))
            .replace("response_trailer_mode: SKIP", &format!("response_trailer_mode: {trailers}"));
        let envoy = Envoy::launch(&config).await?;
        Some(Self { envoy, metrics, _engine: engine, _tasks: tasks })
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: String) -> (reqwest::Response, usize) {
        let mut request = reqwest::Client::new().post(format!("{}{path}", self.envoy.url)).body(body);
        for (name, value) in [("content-type", "application/json")].iter().chain(headers) {
            request = request.header(*name, *value);
        }
        let response = timeout(PATIENCE, request.send()).await.expect("an answer in time").unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let length = response.headers().get("content-length").map(|length| length.to_str().unwrap().parse());
        (response, length.transpose().unwrap().unwrap_or_default())
    }

    /// Engines answer to their own name only, and with it; both in one piece and in events.
    async fn engine_and_client_each_read_their_name(&self) {
        let chat =
            json!({"model": PUBLIC, "max_tokens": 6, "messages": [{"role": "user", "content": "hello"}]});
        let responses = json!({"model": PUBLIC, "max_output_tokens": 6, "input": "hello"});
        let table = [("/v1/chat/completions", &chat), ("/v1/messages", &chat), ("/v1/responses", &responses)];
        for (path, body) in table {
            let (answer, _) = self.post(path, &[], body.to_string()).await;
            let answer: Value = answer.json().await.unwrap();
            assert_eq!(answer["model"], PUBLIC, "{path}: {answer}");

            let mut streamed = body.clone();
            streamed["stream"] = true.into();
            let (answer, _) = self.post(path, &[], streamed.to_string()).await;
            let events = answer.text().await.unwrap();
            assert!(events.contains(&format!("\"{PUBLIC}\"")), "{path}: {events}");
            assert!(!events.contains("\"tiny\""), "{path}: {events}");
            let data = events.lines().filter_map(|line| line.strip_prefix("data: "));
            data.filter(|data| *data != "[DONE]").for_each(|data| {
                serde_json::from_str::<Value>(data).unwrap();
            });
        }
    }

    /// Every byte but the names, both ways; and what tells of the bodies' lengths and encodings.
    async fn every_other_byte_stays(&self) {
        let body = format!("{{ \"n\":1e400,\"model\" : \"{PUBLIC}\",\"x\":{{\"model\":\"{PUBLIC}\"}} }}");
        let sent_on = body.replacen(PUBLIC, "tiny", 1);
        let (answer, length) = self.post("/mirror", &[], body).await;
        let seen = answer.headers().clone();
        let text = answer.text().await.unwrap();
        assert_eq!(text, mirrored(PUBLIC, &sent_on));
        assert!(length == 0 || length == text.len(), "{length} said of {}", text.len());
        let told = seen["x-seen-length"].to_str().unwrap();
        assert!(told.is_empty() || told.parse::<usize>().unwrap() == sent_on.len(), "{told}");

        let encoded = [("content-encoding", "deflate")];
        let (answer, _) = self.post("/mirror", &encoded, "compressed".repeat(20)).await;
        assert_eq!(answer.headers()["x-seen-encoding"], "");
        assert_eq!(answer.text().await.unwrap(), mirrored(PUBLIC, DECODED));

        let (answer, _) = self.post("/mirror?encode", &[], sent_on.clone()).await;
        assert_eq!(answer.text().await.unwrap(), mirrored("engine/tiny", &sent_on));
        let counted = "kinference_ext_proc_unrenamed_total{reason=\"response_encoded\"} 1";
        assert!(self.metrics.render().contains(counted), "{}", self.metrics.render());
    }
}

/// What an encoded body is taken to be.
const DECODED: &str = r#"{"model":"tiny","decoded":true}"#;

fn server(metrics: &Metrics, endpoints: [String; 2]) -> Server {
    let parts = Parts {
        models: None,
        refused: Arc::new(|_, _| {}),
        decide: Arc::new(move |incoming| {
            let placed = placed(&incoming, &endpoints);
            Box::pin(async move { Ok(placed) })
        }),
        budget: BodyBudget::new(BodyLimits::default(), metrics),
        config: ExtProcConfig::default(),
        id_seed: 1,
    };
    let services = Services::default().with_routing(ExtProc::new(parts, metrics).into_server());
    Server { services, ready: watch::channel(true).1, tls: None }
}

/// Calls of inference APIs go to the engine, everything else to the mirror; each is to name `tiny` there.
fn placed(incoming: &Incoming, [engine, mirror]: &[String; 2]) -> Placement {
    let IncomingBody::Full(body) = &incoming.body else { panic!("{incoming:?}") };
    let endpoint = if incoming.kind == RequestKind::Other { mirror } else { engine };
    let mut placement = Placement::unreserved(decision(endpoint));
    placement.client_model = Some(PUBLIC.into());
    placement.rewrite = Some(match &incoming.content_encoding {
        Some(_) => Rewrite::Whole(Bytes::from_static(DECODED.as_bytes())),
        None => Rewrite::Splices(name_model(body, "tiny").unwrap()),
    });
    placement
}

fn decision(endpoint: &str) -> Arc<Decision> {
    let only = Candidate::new(
        Target::Worker(WorkerTarget {
            id: WorkerId(1),
            name: "w".into(),
            workerset: "local".into(),
            endpoint: endpoint.into(),
        }),
        None,
    );
    Arc::new(Decision { model: Some("tiny".into()), candidates: vec![only], ..Decision::default() })
}

/// What the mirror answers to that body, with a name at the top.
fn mirrored(model: &str, body: &str) -> String {
    format!("{{\"id\" : 1e400, \"model\" : \"{model}\",\"seen\":{}}}\n", json!(body))
}

/// Answers with what it got, in pieces that cut every name, and says how long it is.
async fn reflect(headers: HeaderMap, uri: axum::http::Uri, body: Bytes) -> impl IntoResponse {
    let text = mirrored("engine/tiny", str::from_utf8(&body).unwrap());
    let header = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    let encoding = if uri.query() == Some("encode") { "x-none" } else { "identity" };
    let answer = [
        ("content-type", "application/json".to_owned()),
        ("content-length", text.len().to_string()),
        ("content-encoding", encoding.to_owned()),
        ("x-seen-length", header("content-length")),
        ("x-seen-encoding", header("content-encoding")),
    ];
    let pieces: Vec<_> = text.as_bytes().chunks(7).map(Bytes::copy_from_slice).collect();
    // Each piece by itself, as slow tokens come.
    let slow = stream::iter(pieces).then(async |piece| {
        sleep(Duration::from_millis(3)).await;
        Ok::<_, std::io::Error>(piece)
    });
    (answer, Body::from_stream(slow))
}

async fn renames(sample: &str, response_mode: &str) {
    let Some(renaming) = Renaming::start(sample, response_mode).await else { return };
    renaming.engine_and_client_each_read_their_name().await;
    renaming.every_other_byte_stays().await;
}

#[tokio::test]
async fn duplex_requests_and_streamed_answers() {
    renames("duplex-static.yaml", "STREAMED").await;
}

#[tokio::test]
async fn duplex_requests_and_answers() {
    renames("duplex-static.yaml", "FULL_DUPLEX_STREAMED").await;
}

#[tokio::test]
async fn buffered_requests_and_streamed_answers() {
    renames("buffered-fail-open.yaml", "STREAMED").await;
}

#[tokio::test]
async fn buffered_requests_and_answers() {
    renames("buffered-fail-open.yaml", "BUFFERED").await;
}
