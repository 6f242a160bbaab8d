//! Policies that send requests to providers, by the samples themselves, through the real Envoy: when they leave, as what they
//! arrive, how they come back, and what becomes of it when the provider does not do.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kinference::{
    policy::crd::{InferencePool, InferenceProvider},
    serve::proto::{BodyHead, InlineBody, PickRequest, pick_request::Prompt, picker_client::PickerClient},
};
use reqwest::Response;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    apiserver::ApiServer,
    cloud::{ANSWER_TOKENS, Arrived, Cloud, Mood},
    cluster::{Space, kubernetes},
    policies::{error, header, with_pools},
    stack::{Engine, Envoy, PATIENCE, Router, adapted, all, to_cloud, until},
};

/// As in the samples.
const HOST: &str = "api.example.com";
const MODEL: &str = "standard-model";
const CLOUD: &str = "provider/cloud";
const CHAT: &str = "/v1/chat/completions";
const TOKEN: &str = "sk-of-the-cloud-1";
const CLAUDE: &str = "sk-of-claude";

/// One engine that takes one request at a time, a provider, the server with the samples, Envoy.
struct Site {
    envoy: Envoy,
    router: Router,
    engine: Engine,
    cloud: Cloud,
    client: reqwest::Client,
    dir: tempfile::TempDir,
    /// Requests that the provider had answered at the start.
    before: usize,
}

#[derive(Clone, Copy)]
struct Ask<'a> {
    pool: &'a str,
    tags: &'a str,
    path: &'a str,
    stream: bool,
}

const ASK: Ask<'static> = Ask { pool: "burst-to-cloud", tags: "", path: CHAT, stream: false };

impl Site {
    async fn start() -> Option<Self> {
        let engine = Engine::start(&["--speedup", "2", "--max-num-seqs", "1"]);
        let cloud = Cloud::start(HOST).await;
        let dir = tempfile::tempdir().unwrap();
        write_policies(dir.path());
        let configuration = format!(
            "[policy]\nenabled = true\nfiles = [\"{dir}/*.yaml\"]\nsecrets_dir = \"{dir}/secrets\"\n\
             [ext_proc]\ntrust_headers = true\nexplain_headers = true\n",
            dir = dir.path().display()
        );
        let router = Router::talkative(std::slice::from_ref(&engine), &configuration);
        router.until("the worker is known", |f| all(f, |w| w["engine"] == "vllm")).await;
        let text = adapted("providers.yaml", &router.grpc, &[]);
        let text =
            with_pools(with_claude(to_cloud(text, &cloud)), &["burst-to-cloud", "pii-stays-local", "mixed"]);
        let envoy = Envoy::launch(&text).await?;
        let mut site = Self { envoy, router, engine, cloud, client: reqwest::Client::new(), dir, before: 0 };
        site.until_served_by(Ask { pool: "mixed", ..ASK }, CLOUD).await;
        site.before = site.cloud.arrived().len();
        Some(site)
    }

    async fn ask(&self, ask: Ask<'_>) -> Response {
        let body = body(ask).to_string();
        let request = self.client.post(format!("{}{}", self.envoy.url, ask.path));
        let request = request
            .header("content-type", "application/json")
            .header("x-test-pool", ask.pool)
            .header("x-test-tenant", "somebody")
            .header("x-test-tags", ask.tags)
            .header("authorization", "Bearer of-the-client")
            .header("anthropic-version", "2023-06-01");
        timeout(PATIENCE, request.body(body).send()).await.expect("an answer in time").unwrap()
    }

    async fn served_by(&self, ask: Ask<'_>) -> String {
        header(&self.ask(ask).await, "x-kinference-worker").to_owned()
    }

    async fn until_served_by(&self, ask: Ask<'_>, who: &str) {
        until(who, async || (self.served_by(ask).await == who).then_some(())).await;
    }

    /// The one request that has arrived at the provider.
    fn arrived(&self) -> Arrived {
        let mut all = self.cloud.arrived();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    fn write_secret(&self, key: &str, value: &str) {
        write_secret(self.dir.path(), key, value);
    }

    /// Requests that keep the engine busy, one running and the others waiting, until they are dropped.
    async fn busy(&self) -> tokio::task::JoinSet<()> {
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let body = json!({"model": "tiny", "max_tokens": 4000, "ignore_eos": true,
                "messages": [{"role": "user", "content": "on and on"}]});
            let request = self.client.post(format!("http://{}{CHAT}", self.engine.http)).json(&body);
            all.spawn(async move { drop(request.send().await) });
        }
        self.router.until("they wait", |f| f["workers"][0]["load"]["queue"].as_f64() > Some(2.0)).await;
        all
    }
}

fn body(Ask { path, stream, .. }: Ask<'_>) -> Value {
    let mut body = json!({"model": MODEL, "max_tokens": 4, "stream": stream});
    match path {
        "/v1/completions" => body["prompt"] = "hello".into(),
        "/v1/responses" => body["input"] = "hello".into(),
        _ => body["messages"] = json!([{"role": "user", "content": "hello"}]),
    }
    body
}

/// The samples, with this test's worker set and model for theirs, and a prefix for the provider.
fn write_policies(dir: &Path) {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples/policies");
    for name in ["cloud.yaml", "burst-to-cloud.yaml", "pii-stays-local.yaml"] {
        let text = fs::read_to_string(samples.join(name)).unwrap();
        let text = text
            .replace("{name: large, model: Qwen/Qwen3-32B}", "{name: local, model: tiny}")
            .replace(&format!("host: {HOST}"), &format!("host: {HOST}\n  pathPrefix: /openai"));
        fs::write(dir.join(name), text).unwrap();
    }
    fs::write(dir.join("mixed.yaml"), include_str!("providers.yaml")).unwrap();
    fs::create_dir_all(dir.join("secrets/cloud-credentials")).unwrap();
    write_secret(dir, "token", TOKEN);
    write_secret(dir, "claude", CLAUDE);
}

fn write_secret(dir: &Path, key: &str, value: &str) {
    let dir = dir.join("secrets/cloud-credentials");
    let (new, path) = (dir.join(".new"), dir.join(key));
    fs::write(&new, format!("{value}\n")).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(new, path).unwrap();
}

/// The provider's cluster once more, under the other's name.
fn with_claude(text: String) -> String {
    let from = text.find("    - name: provider/cloud").unwrap();
    let to = text.find("    # One of these for each worker set.").unwrap();
    let claude = text[from..to].replace(CLOUD, "provider/claude");
    format!("{}{claude}{}", &text[..to], &text[to..])
}

#[tokio::test]
async fn a_burst_goes_to_the_cloud_and_personal_data_stays() {
    let Some(mut site) = Site::start().await else { return };
    let pii = Ask { pool: "pii-stays-local", tags: "pii,urgent", ..ASK };
    assert_eq!(site.served_by(ASK).await, "w0", "idle engines come first");
    let busy = site.busy().await;
    site.until_served_by(ASK, CLOUD).await;
    assert_eq!(site.served_by(Ask { stream: true, ..ASK }).await, CLOUD);
    site.cloud.arrived();
    drop(busy);
    site.until_served_by(ASK, "w0").await;
    assert_eq!(site.served_by(pii).await, "w0");
    site.engine.kill();
    site.until_served_by(Ask { tags: "", ..pii }, CLOUD).await;
    site.cloud.arrived();
    let rejected = "No engine of ours is free, and personal data does not leave this cluster.";
    let refused = async || {
        let (status, message) = error(site.ask(pii).await).await;
        (status == 503 && message == rejected).then_some(())
    };
    until("it is rejected", refused).await;
    assert!(site.cloud.arrived().is_empty(), "not one of them left");
}

#[tokio::test]
async fn a_request_leaves_with_nothing_but_what_the_provider_needs() {
    let Some(site) = Site::start().await else { return };
    let mixed = Ask { pool: "mixed", ..ASK };
    for stream in [false, true] {
        let answer = site.ask(Ask { stream, ..mixed }).await;
        assert_eq!((answer.status().as_u16(), header(&answer, "x-kinference-worker")), (200, CLOUD));
        let text = answer.text().await.unwrap();
        assert!(text.contains(&format!("\"{MODEL}\"")) && !text.contains("\"large\""), "{text}");
        let one = site.arrived();
        assert_eq!((&*one.path, &*one.authority), ("/openai/v1/chat/completions", HOST));
        assert_eq!(one.headers["authorization"], format!("Bearer {TOKEN}"));
        let inside = one.headers.keys().find(|name| name.as_str().starts_with("x-kinference-"));
        assert_eq!(inside, None);
        let mut want = body(Ask { stream, ..mixed });
        want["model"] = "large".into();
        if stream {
            want["stream_options"] = json!({"include_usage": true});
        }
        assert_eq!(serde_json::from_slice::<Value>(&one.body).unwrap(), want);
    }
    let answers = (site.before + 2) * ANSWER_TOKENS;
    until("both answers' usage is counted", async || {
        let text =
            reqwest::get(format!("http://{}/metrics", site.router.admin)).await.ok()?.text().await.ok()?;
        let series = text
            .lines()
            .filter(|line| line.starts_with("kinference_tokens_total") && line.contains("output"));
        let tokens: f64 = series.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum();
        (tokens as usize >= answers).then_some(())
    })
    .await;

    each_api_has_its_provider(&site).await;
    the_native_api_tells_the_same(&site).await;
    let log = site.router.log();
    assert!(log.contains("\"level\":\"TRACE\""), "everything is logged");
    for secret in [TOKEN, CLAUDE, "of-the-client"] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    site.rotates().await;
}

async fn each_api_has_its_provider(site: &Site) {
    let mixed = Ask { pool: "mixed", ..ASK };
    for stream in [false, true] {
        let answer = site.ask(Ask { path: "/v1/messages", stream, ..mixed }).await;
        assert_eq!(header(&answer, "x-kinference-worker"), "provider/claude");
        let text = answer.text().await.unwrap();
        assert!(text.contains(MODEL) && !text.contains("sonnet"), "{text}");
        let one = site.arrived();
        assert_eq!(one.path, "/v1/messages");
        assert_eq!(one.headers["x-api-key"], CLAUDE);
        assert_eq!(one.headers["anthropic-version"], "2023-06-01");
        assert!(!one.headers.contains_key("authorization"), "{one:?}");
    }
    assert_eq!(site.served_by(Ask { path: "/v1/completions", ..mixed }).await, CLOUD);
    assert_eq!(site.arrived().path, "/openai/v1/completions");
    assert_eq!(site.served_by(Ask { path: "/v1/responses", ..mixed }).await, "w0", "no provider has these");
}

async fn the_native_api_tells_the_same(site: &Site) {
    let mut picker = PickerClient::connect(format!("http://{}", site.router.grpc)).await.unwrap();
    let picked = picker.pick(natively("mixed")).await.unwrap().into_inner();
    let provider = picked.provider.unwrap();
    assert_eq!((&*provider.name, &*provider.authority), ("cloud", HOST));
    assert_eq!((&*picked.worker_id, &*picked.endpoint), (CLOUD, ""));
    let set = |name: &str| {
        let header = picked.set_headers.iter().find(|header| header.name == name);
        header.unwrap_or_else(|| panic!("{name}: {:?}", picked.set_headers)).value.clone()
    };
    assert_eq!(set(":path"), "/openai/v1/chat/completions?x=1");
    assert_eq!(set("authorization"), format!("Bearer {TOKEN}"));
}

fn natively(pool: &str) -> PickRequest {
    let body = body(ASK).to_string().into_bytes();
    let head = BodyHead { path: format!("{CHAT}?x=1"), ..BodyHead::default() };
    let prompt = Prompt::Body(InlineBody { head: Some(head), body });
    PickRequest { prompt: Some(prompt), inference_pool: pool.into(), ..PickRequest::default() }
}

impl Site {
    async fn rotates(&self) {
        self.write_secret("token", "sk-of-the-cloud-2");
        let arrives = async || {
            self.ask(Ask { pool: "mixed", ..ASK }).await;
            (self.arrived().headers["authorization"] == "Bearer sk-of-the-cloud-2").then_some(())
        };
        until("the new credential is used", arrives).await;
        fs::remove_file(self.dir.path().join("secrets/cloud-credentials/token")).unwrap();
        self.until_served_by(Ask { pool: "mixed", ..ASK }, "w0").await;
    }
}

#[tokio::test]
async fn a_provider_that_fails_is_set_aside() {
    let Some(site) = Site::start().await else { return };
    let mixed = Ask { pool: "mixed", ..ASK };
    for mood in [Mood::Status(500), Mood::HangsUp, Mood::Status(500)] {
        site.cloud.turn(mood);
        let answer = site.ask(mixed).await;
        assert!(answer.status().is_server_error(), "{answer:?}");
    }
    site.until_served_by(mixed, "w0").await;
    site.cloud.arrived();
    assert_eq!(site.served_by(mixed).await, "w0");
    assert!(site.cloud.arrived().is_empty());
}

/// A cluster that has everything but engines: providers and their Secrets are all there is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_secret_of_a_cluster_is_used_and_the_status_says_what_is_missing() {
    let Some(cluster) = ApiServer::start() else { return };
    let space = Space::new(cluster.client().await).await;
    let extra = format!("{}[policy]\nenabled = true\nnamespace = \"{}\"\n", kubernetes(&space), space.name);
    let router = Router::in_cluster(&cluster.kubeconfig, &extra);
    let credentials = json!({"mode": "Header", "secretRef": {"name": "cloud-credentials", "key": "token"}});
    let spec =
        json!({"api": "OpenAI", "host": HOST, "models": [{"name": "large"}], "credentials": credentials});
    space.put::<InferenceProvider>("cloud", json!({"spec": spec})).await;
    let backend = json!({"provider": {"name": "cloud", "model": "large"}});
    let spec = json!({"models": [{"name": MODEL, "backends": [backend]}]});
    space.put::<InferencePool>("outside", json!({"spec": spec})).await;

    let says = async |want: &str| {
        until(want, async || {
            let provider = space.api::<InferenceProvider>().get("cloud").await.unwrap();
            let status = json!(provider.status?.conditions);
            status.to_string().contains(want).then_some(())
        })
        .await;
    };
    says(&format!("names key `token` of Secret {}/cloud-credentials, which does not exist", space.name))
        .await;
    let mut picker = PickerClient::connect(format!("http://{}", router.grpc)).await.unwrap();
    let mut pick = async || picker.pick(natively("outside")).await.map(tonic::Response::into_inner);
    assert_eq!(pick().await.unwrap_err().code(), tonic::Code::Unavailable);
    for token in ["sk-1", "sk-2"] {
        let data = json!({"token": ByteString(format!("{token}\n").into_bytes())});
        space.put::<Secret>("cloud-credentials", json!({"data": data})).await;
        let sent = format!("Bearer {token}");
        until("it is used", async || {
            let picked = pick().await.ok()?;
            picked.set_headers.iter().any(|header| header.value == sent).then_some(())
        })
        .await;
    }
    says("all that it names exists").await;
}
