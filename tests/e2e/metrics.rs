//! Every family of `docs/metrics.md` moves under traffic, or its row says why not here; and the text is one that
//! Prometheus has nothing to say about.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use futures::{channel::mpsc, stream};
use kinference::serve::proto::{
    BodyHead, PickRequest, PushBodyRequest, ReserveRequest, TokenIds, pick_request::Prompt,
    picker_client::PickerClient, push_body_request::Part, rate_limiter_client::RateLimiterClient,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    stack::{Engine, Envoy, Router, Stack, until},
    table,
    tools::tool,
};

const POLICIES: &str = "
apiVersion: kinference.buoyant.io/v1alpha1
kind: InferencePool
metadata: {name: chat}
spec: {models: [{name: standard, backends: [{workerSet: {name: local, model: tiny}}]}]}
";

/// Tokens are compared with the engines', and a prefix is spread from the first time that it is asked for.
fn configuration(policies: &str) -> String {
    format!(
        "body_max_request_kb = 256\nrate_limit.enabled = true\nmetrics.tenant_labels = \"all\"\n\
         [policy]\nenabled = true\nfiles = [\"{policies}\"]\n\
         [[profile]]\nname = \"p\"\ntokenize.mode = \"compare\"\npicker.seed = 7\npicker.replication_threshold_pct = 0.01\n"
    )
}

/// The families that were seen with a series that is not zero.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeSet<String>>>);

impl Seen {
    fn note(&self, text: &str) {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let moved = samples.filter(|line| line.rsplit(' ').next().is_some_and(|value| value != "0"));
        let mut seen = self.0.lock();
        for sample in moved {
            let name = sample.split(['{', ' ']).next().unwrap_or_default();
            seen.insert(name.trim_end_matches("_bucket").to_owned());
        }
    }

    fn has(&self, name: &str) -> bool {
        self.0.lock().contains(name)
    }

    async fn until(&self, name: &str) {
        until(name, async || self.has(name).then_some(())).await;
    }
}

async fn scrape(admin: &str) -> String {
    reqwest::get(format!("http://{admin}/metrics")).await.unwrap().text().await.unwrap()
}

/// Looks at the metrics all the time, for gauges that are back at zero in a moment.
fn watch(admin: &str) -> (Seen, JoinSet<()>) {
    let (seen, mut tasks) = (Seen::default(), JoinSet::new());
    let (noted, admin) = (seen.clone(), admin.to_owned());
    tasks.spawn(async move {
        loop {
            noted.note(&scrape(&admin).await);
            sleep(Duration::from_millis(10)).await;
        }
    });
    (seen, tasks)
}

async fn start(dir: &tempfile::TempDir) -> Option<Stack> {
    let policies = dir.path().join("policies.yaml");
    fs::write(&policies, POLICIES).unwrap();
    let mut engines: Vec<_> = (0..3).map(|_| Engine::start(&["--speedup", "4"])).collect();
    // One that is evicted once it publishes blocks.
    engines.push(Engine::start(&["--speedup", "4", "--kv-block-size-published", "32"]));
    let router = Router::start(&engines, &configuration(policies.to_str().unwrap()));
    let answer = |fleet: &Value| {
        let workers = fleet["workers"].as_array();
        workers.is_some_and(|all| all.len() == 4 && all.iter().all(|w| w["engine"] == "vllm"))
    };
    router.until("all engines answer", answer).await;
    let envoy = Envoy::start("duplex.yaml", &router, &engines).await?;
    Some(Stack { envoy, router, engines, client: reqwest::Client::new() })
}

fn body(text: &str, max_tokens: u32) -> String {
    json!({"model": "tiny", "max_tokens": max_tokens, "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": text}]})
    .to_string()
}

/// A long prompt that is like no other.
fn long() -> String {
    let own = rand::random::<[u8; 16]>().map(u32::from);
    let prompt: Vec<u32> = own.into_iter().chain((0..1024).map(|n| 10 + n % 199)).collect();
    json!({"model": "tiny", "max_tokens": 8, "stream": true, "stream_options": {"include_usage": true},
        "prompt": prompt})
    .to_string()
}

/// Answers, errors, and bodies that are long in coming.
async fn traffic(stack: &Stack, seen: &Seen) {
    assert_eq!(stack.chat("hello").await.status(), 200);
    for name in ["kinference_worker_backlog_seconds", "kinference_decisions_replicated_total"] {
        until(name, async || {
            let answer = stack.post("/v1/completions", long()).await;
            assert_eq!(answer.status(), 200);
            answer.bytes().await.unwrap();
            seen.has(name).then_some(())
        })
        .await;
    }
    let unknown = json!({"model": "nope", "messages": [{"role": "user", "content": "x"}]}).to_string();
    assert_eq!(stack.post("/v1/chat/completions", unknown).await.status(), 404);
    assert_eq!(stack.post("/v1/chat/completions", body(&"x".repeat(300_000), 1)).await.status(), 413);
    let listed = stack.client.get(format!("{}/v1/models", stack.envoy.url)).send().await.unwrap();
    assert_eq!(listed.status(), 200);
    let text = body("slow to come", 4);
    let (first, rest) = text.split_at(text.len() / 2);
    let (parts, slow) = mpsc::unbounded();
    let send = |part: &str| parts.unbounded_send(Ok::<_, std::io::Error>(part.to_owned())).unwrap();
    let posted = stack.post("/v1/chat/completions", reqwest::Body::wrap_stream(slow));
    let uploaded = async {
        send(first);
        seen.until("kinference_body_held_bytes").await;
        send(rest);
        parts.close_channel();
    };
    assert_eq!(tokio::join!(posted, uploaded).0.status(), 200);
}

/// The native API: a pool's model, a pushed body, and what is turned away.
async fn calls(stack: &Stack, seen: &Seen) {
    let address = format!("http://{}", stack.router.grpc);
    let mut picker = PickerClient::connect(address.clone()).await.unwrap();
    let of_pool = PickRequest {
        inference_pool: "chat".into(),
        model: "standard".into(),
        tenant: "team-a".into(),
        prompt: Some(Prompt::Tokens(TokenIds { ids: (0..64).collect(), ..TokenIds::default() })),
        ..PickRequest::default()
    };
    assert_eq!(picker.pick(of_pool).await.unwrap().into_inner().worker_set, "local");
    seen.until("kinference_picker_picks_held").await;
    let head = BodyHead { path: "/v1/chat/completions".into(), ..BodyHead::default() };
    let parts = [Part::Head(head), Part::Chunk(body("pushed", 1).into_bytes())];
    let parts = parts.map(|part| PushBodyRequest { part: Some(part) });
    let pushed = picker.push_body(stream::iter(parts)).await.unwrap().into_inner();
    seen.until("kinference_picker_bodies_held").await;
    let by_id = Prompt::BodyId(pushed.body_id);
    let claims = PickRequest { prompt: Some(by_id), ..PickRequest::default() };
    picker.pick(claims.clone()).await.unwrap();
    assert_eq!(picker.pick(claims).await.unwrap_err().code(), tonic::Code::NotFound);
    let mut limiter = RateLimiterClient::connect(address).await.unwrap();
    let reservation = ReserveRequest { tenant: "team-a".into(), ..ReserveRequest::default() };
    assert!(limiter.reserve(reservation).await.unwrap().into_inner().admitted);
}

#[tokio::test]
async fn every_family_moves_or_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let Some(stack) = start(&dir).await else { return };
    let (seen, _watching) = watch(&stack.router.admin);
    traffic(&stack, &seen).await;
    calls(&stack, &seen).await;
    // Behind our back, so that it publishes for sure.
    let odd = format!("http://{}/v1/completions", stack.engines[3].http);
    let sent = stack.client.post(odd).header("content-type", "application/json").body(long()).send();
    assert_eq!(sent.await.unwrap().status(), 200);
    // What comes after the answer, and what is counted in whole seconds.
    for late in [
        "kinference_kv_evictions_total",
        "kinference_tokenize_comparisons_total",
        "process_cpu_seconds_total",
    ] {
        seen.until(late).await;
    }
    let text = scrape(&stack.router.admin).await;
    seen.note(&text);
    let still: Vec<_> = table::rows()
        .into_iter()
        .filter(|row| row.excuse.is_empty())
        .map(|row| if row.kind == "histogram" { row.name + "_count" } else { row.name })
        .filter(|name| !seen.has(name))
        .collect();
    assert!(still.is_empty(), "never moved, and no word why: {still:#?}\n{text}");
    assert!(text.contains("tenant=\"team-a\""), "{text}");
    lint(&text);
}

/// Prometheus' own check has nothing to say.
fn lint(text: &str) {
    let Some(promtool) = tool("promtool", "KINFERENCE_TEST_PROMTOOL") else { return };
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let said = [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(out.status.success() && said.iter().all(String::is_empty), "{}\n{said:?}", out.status);
}

#[test]
fn all_programs_are_of_one_version() {
    let said = |program: &str| {
        let out = Command::new(program).arg("--version").output().unwrap();
        String::from_utf8(out.stdout).unwrap().split_once(' ').unwrap().1.to_owned()
    };
    let programs =
        [env!("CARGO_BIN_EXE_kinference"), env!("CARGO_BIN_EXE_kinfctl"), env!("CARGO_BIN_EXE_vllm-sim")];
    assert_eq!(programs.map(said), [(); 3].map(|()| format!("{}\n", kinference::observe::version())));
}
