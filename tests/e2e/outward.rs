//! A request that is decided to leave for a provider, through the real Envoy in every mode that it could: where it arrives,
//! as what, and how its answer comes back. The decision is made by hand.

use std::sync::Arc;

use kinference::{
    config::{BodyLimits, ExtProcConfig},
    observe::Metrics,
    pipeline::{Incoming, IncomingBody, Placement, Rewrite},
    prompt::{BodyBudget, name_model},
    serve::{
        Server, Services,
        ext_proc::{ExtProc, Parts},
    },
    types::{Candidate, Credential, Decision, ProviderTarget, Target},
};
use serde_json::Value;
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    cloud::{Cloud, Mood},
    stack::{Envoy, PATIENCE, adapted, to_cloud},
};

/// As in the sample.
const HOST: &str = "api.example.com";
const PUBLIC: &str = "standard-model";
const ASKED: &str = "{\"model\": \"standard-model\"}";

/// A provider, and a server that sends everything there, behind Envoy.
struct Outward {
    envoy: Envoy,
    cloud: Cloud,
    _tasks: JoinSet<()>,
}

impl Outward {
    async fn start(adapt: impl FnOnce(String) -> String) -> Option<Self> {
        Self::with(HOST, adapt).await
    }

    /// Of a provider that can prove to be that host.
    async fn with(host: &str, adapt: impl FnOnce(String) -> String) -> Option<Self> {
        let cloud = Cloud::start(host).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let grpc = listener.local_addr().unwrap().to_string();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { server().run(listener, CancellationToken::new()).await.unwrap() });
        let config = to_cloud(adapted("providers.yaml", &grpc, &[]), &cloud);
        let envoy = Envoy::launch(&adapt(config)).await?;
        Some(Self { envoy, cloud, _tasks: tasks })
    }

    async fn chat(&self, body: &str) -> reqwest::Response {
        let request = reqwest::Client::new()
            .post(format!("{}/v1/chat/completions?trace=%2F", self.envoy.url))
            .header("content-type", "application/json")
            .header("authorization", "Bearer of-the-client")
            .header("cookie", "session=1")
            .header("x-api-key", "of-the-client")
            .header("accept-encoding", "gzip")
            .header("x-kinference-backend", "provider/other")
            .header("x-gateway-destination-endpoint", "127.0.0.1:1")
            .body(body.to_owned());
        timeout(PATIENCE, request.send()).await.expect("an answer in time").unwrap()
    }

    /// It arrives where it should, as the client's but for what has to differ, and its answer names the client's model.
    async fn there_and_back(&self) {
        let body = format!("{{ \"n\":1.50,\"model\" : \"{PUBLIC}\",\"messages\":[],\"stream\":false }}");
        let answer = self.chat(&body).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["x-kinference-worker"], "provider/cloud");
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["model"], PUBLIC);

        let arrived = self.cloud.arrived();
        let [one] = &arrived[..] else { panic!("{arrived:?}") };
        assert_eq!(one.path, "/openai/v1/chat/completions?trace=%2F");
        assert_eq!(one.authority, HOST);
        assert_eq!(self.cloud.asked_for().as_deref(), Some(HOST));
        assert_eq!(str::from_utf8(&one.body).unwrap(), body.replacen(PUBLIC, "large", 1));
        assert_eq!(one.headers["authorization"], "Bearer s3cret");
        for name in ["cookie", "x-api-key", "accept-encoding", "x-gateway-destination-endpoint"] {
            assert!(!one.headers.contains_key(name), "{name}: {one:?}");
        }
        let ours = one.headers.keys().find(|name| name.as_str().starts_with("x-kinference-"));
        assert_eq!(ours, None);
        let length = one.headers.get("content-length").map(|length| length.to_str().unwrap().to_owned());
        assert!(length.is_none_or(|length| length == one.body.len().to_string()));

        let streamed = body.replace("\"stream\":false", "\"stream\":true");
        let events = self.chat(&streamed).await.text().await.unwrap();
        assert!(events.contains(PUBLIC) && events.ends_with("data: [DONE]\n\n"), "{events}");
        assert!(!events.contains("\"large\""), "{events}");
    }
}

fn server() -> Server {
    let metrics = Metrics::new();
    let parts = Parts {
        models: None,
        refused: Arc::new(|_, _| {}),
        decide: Arc::new(|incoming| {
            let placed = placed(&incoming);
            Box::pin(async move { Ok(placed) })
        }),
        budget: BodyBudget::new(BodyLimits::default(), &metrics),
        config: ExtProcConfig { explain_headers: true, ..ExtProcConfig::default() },
        id_seed: 1,
    };
    let services = Services::default().with_routing(ExtProc::new(parts, &metrics).into_server());
    Server { services, ready: watch::channel(true).1, tls: None }
}

fn placed(incoming: &Incoming) -> Placement {
    let IncomingBody::Full(body) = &incoming.body else { panic!("{incoming:?}") };
    let mut placement = Placement::unreserved(decision());
    placement.client_model = Some(PUBLIC.into());
    placement.rewrite = Some(Rewrite::Splices(name_model(body, "large").unwrap()));
    placement
}

fn decision() -> Arc<Decision> {
    let credential = Credential { header: "authorization".into(), value: "Bearer s3cret".into() };
    let target = ProviderTarget {
        namespace: "default".into(),
        name: "cloud".into(),
        authority: HOST.into(),
        path_prefix: Some("/openai".into()),
        credential: Some(Arc::new(credential)),
    };
    let only = Candidate::new(Target::Provider(Arc::new(target)), Some("large".into()));
    Arc::new(Decision { model: Some(PUBLIC.into()), candidates: vec![only], ..Decision::default() })
}

fn buffered(config: String) -> String {
    config
        .replace("request_body_mode: FULL_DUPLEX_STREAMED", "request_body_mode: BUFFERED")
        .replace("request_trailer_mode: SEND", "request_trailer_mode: SKIP")
}

fn duplex_answers(config: String) -> String {
    config
        .replace("response_body_mode: STREAMED", "response_body_mode: FULL_DUPLEX_STREAMED")
        .replace("response_trailer_mode: SKIP", "response_trailer_mode: SEND")
}

#[tokio::test]
async fn as_the_sample_says() {
    let Some(outward) = Outward::start(|config| config).await else { return };
    outward.there_and_back().await;
    outward.cloud.turn(Mood::Status(401));
    assert_eq!(outward.chat(ASKED).await.status(), 401, "the client learns what the provider says");
    outward.cloud.turn(Mood::HangsUp);
    outward.cloud.arrived();
    assert_eq!(outward.chat(ASKED).await.status(), 503);
    assert_eq!(outward.cloud.arrived().len(), 1, "what it has seen is not sent again");
}

#[tokio::test]
async fn with_buffered_requests() {
    let Some(outward) = Outward::start(buffered).await else { return };
    outward.there_and_back().await;
}

#[tokio::test]
async fn with_duplex_answers() {
    let Some(outward) = Outward::start(duplex_answers).await else { return };
    outward.there_and_back().await;
}

/// A certificate that is for somebody else gets no request, let alone a credential.
#[tokio::test]
async fn nothing_goes_to_an_impostor() {
    let Some(outward) = Outward::with("elsewhere.example.com", |config| config).await else { return };
    assert_eq!(outward.chat(ASKED).await.status(), 503);
    assert!(outward.cloud.arrived().is_empty());
}
