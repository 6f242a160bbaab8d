//! Scrapes and models polls against a real HTTP server that behaves as engines do, also on bad days.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod logs;

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{StatusCode, Uri},
    response::IntoResponse,
};
use kinference::{
    config::{Profile, Topology},
    fleet::{Availability, KvSource, MISSED_POLLS_TO_FAIL, Member, Worker, WorkerSet},
    ingest::{models::ModelsPoller, scrape::Scraper},
    load::{Freshness, LoadTable, LoadView},
    observe::Metrics,
    types::WorkerId,
};
use parking_lot::Mutex;
use tokio::{net::TcpListener, task::JoinSet};

use logs::Lines;

const POLL: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_secs(20);
const ID: WorkerId = WorkerId(7);

/// How a path of the engine answers.
#[derive(Clone)]
enum Answer {
    Text(String),
    Status(u16),
    /// Never.
    Hang,
    /// A body without an end.
    Endless,
}

struct Engine {
    metrics: Mutex<Answer>,
    health: Mutex<Answer>,
    models: Mutex<Answer>,
}

async fn handle(State(engine): State<Arc<Engine>>, uri: Uri) -> impl IntoResponse {
    let answer = match uri.path() {
        "/metrics" => engine.metrics.lock().clone(),
        "/health" => engine.health.lock().clone(),
        "/v1/models" => engine.models.lock().clone(),
        _ => Answer::Status(404),
    };
    match answer {
        Answer::Text(text) => text.into_response(),
        Answer::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Answer::Hang => std::future::pending().await,
        Answer::Endless => {
            let chunk = Ok::<_, std::convert::Infallible>(vec![b'#'; 1 << 16]);
            Body::from_stream(futures::stream::repeat(chunk)).into_response()
        }
    }
}

struct Site {
    engine: Arc<Engine>,
    member: Arc<Member>,
    load: Arc<LoadTable>,
    metrics: Metrics,
    server: JoinSet<()>,
    loops: JoinSet<()>,
}

impl Site {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let base = format!("http://{address}/");
        Self::with(address, listener, (Some(format!("{base}metrics")), Some(base))).await
    }

    async fn with(
        address: SocketAddr,
        listener: TcpListener,
        urls: (Option<String>, Option<String>),
    ) -> Self {
        let engine = Arc::new(Engine {
            metrics: Mutex::new(busy(0)),
            health: Mutex::new(Answer::Status(200)),
            models: Mutex::new(Answer::Text(r#"{"data": [{"id": "m"}]}"#.into())),
        });
        let metrics = Metrics::new();
        let load = LoadTable::new(Duration::from_secs(60), &metrics);
        let member =
            Arc::new(Member { worker: worker(address, urls), generation: 1, status: Arc::default() });
        let mut site = Self { engine, member, load, metrics, server: JoinSet::new(), loops: JoinSet::new() };
        site.serve(listener);
        site
    }

    fn serve(&mut self, listener: TcpListener) {
        let router = Router::new().fallback(handle).with_state(self.engine.clone());
        self.server.spawn(async move { axum::serve(listener, router).await.unwrap() });
    }

    fn scrape(&mut self) {
        let scraper = Scraper::new(reqwest::Client::new(), self.load.clone(), (POLL, &self.metrics));
        let member = self.member.clone();
        self.loops.spawn(async move { match scraper.run(member).await {} });
    }

    fn poll_models(&mut self) {
        let poller = ModelsPoller::new(reqwest::Client::new(), POLL, &self.metrics);
        let member = self.member.clone();
        self.loops.spawn(async move { match poller.run(member).await {} });
    }

    fn view(&self) -> LoadView {
        self.load.lock().view(ID)
    }

    fn missed(&self) -> u32 {
        self.member.status.missed_scrapes.load(Ordering::Relaxed)
    }

    /// Scrapes that went well.
    fn scrapes(&self) -> u64 {
        let text = self.metrics.render();
        let counted =
            text.lines().find_map(|line| line.strip_prefix("kinference_scrapes_total{result=\"ok\"} "));
        counted.map_or(0, |count| count.parse().unwrap())
    }

    fn fail(&self) {
        while !self.member.failing() {
            self.member.status.record(true);
        }
    }

    async fn until(&self, what: &str, met: impl Fn(&Self) -> bool) {
        let wait = async {
            while !met(self) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        assert!(
            tokio::time::timeout(DEADLINE, wait).await.is_ok(),
            "never: {what}\n{}",
            self.metrics.render()
        );
    }

    async fn until_counted(&self, result: &str) {
        self.until(result, |site| site.metrics.render().contains(&format!("result=\"{result}\""))).await;
    }
}

fn worker(address: SocketAddr, (metrics_url, http_url): (Option<String>, Option<String>)) -> Worker {
    let set = WorkerSet {
        name: "set".into(),
        profile: Arc::new(Profile::default()),
        kv_block_size: 16,
        render_url: None,
    };
    Worker {
        id: ID,
        name: "w".into(),
        set: Arc::new(set),
        model_name: "m".into(),
        kv: KvSource::Unknown,
        metrics_url,
        http_url,
        endpoint: address.to_string().into(),
        topology: Topology::default(),
        availability: Availability::Ready,
    }
}

/// Metrics of an engine with 4 waiting requests, after that many tokens.
fn busy(tokens: u32) -> Answer {
    Answer::Text(format!(
        "vllm:num_requests_running{{engine=\"0\",model_name=\"m\"}} 2.0\n\
         vllm:num_requests_waiting{{engine=\"0\",model_name=\"m\"}} 4.0\n\
         vllm:engine_sleep_state{{model_name=\"m\",sleep_state=\"awake\"}} 1.0\n\
         vllm:prompt_tokens_total{{engine=\"0\",model_name=\"m\"}} {tokens}\n"
    ))
}

#[tokio::test]
async fn load_sleep_and_activity_follow_the_engine() {
    let mut site = Site::new().await;
    site.scrape();
    site.until("load", |s| s.view().queue == 4.0).await;
    assert_eq!(site.view().running, 2.0);
    *site.engine.metrics.lock() = busy(5000);
    let expected = site.member.status.kv_expected.notified();
    tokio::time::timeout(DEADLINE, expected).await.expect("KV events are expected");
    let (lines, _, _guard) = Lines::capture("info");
    let asleep = "vllm:num_requests_running 0\nvllm:engine_sleep_state{sleep_state=\"awake\"} 0.0\n";
    *site.engine.metrics.lock() = Answer::Text(asleep.into());
    site.until("asleep", |s| s.member.status.asleep.load(Ordering::Relaxed)).await;
    lines.only("w", "INFO kinference::ingest::scrape: the engine is asleep: no traffic until it wakes");
    *site.engine.metrics.lock() = busy(5);
    site.until("awake", |s| !s.member.status.asleep.load(Ordering::Relaxed)).await;
    lines.only("w", "the engine is awake again");
}

#[tokio::test]
async fn failed_scrapes_are_counted_and_forgotten() {
    let mut site = Site::new().await;
    *site.engine.metrics.lock() = Answer::Status(503);
    site.scrape();
    site.until("missed", |s| s.missed() > MISSED_POLLS_TO_FAIL).await;
    site.until_counted("status").await;
    assert!(!site.member.failing(), "its models are not polled: nothing else says that it is gone");
    assert_eq!(site.view().freshness, Freshness::Never);
    for (bad, result) in [(Answer::Hang, "timeout"), (Answer::Endless, "too_large")] {
        *site.engine.metrics.lock() = busy(0);
        site.until("scraped again", |s| s.missed() == 0).await;
        *site.engine.metrics.lock() = bad;
        site.until_counted(result).await;
    }
}

#[tokio::test]
async fn an_engine_that_goes_away_and_comes_back_is_noticed() {
    let mut site = Site::new().await;
    site.scrape();
    site.poll_models();
    site.until("load and models", |s| s.view().queue == 4.0 && s.member.status.models.load().is_some()).await;
    let (lines, _, _guard) = Lines::capture("info");
    site.server.shutdown().await;
    site.until("failing", |s| s.member.failing()).await;
    let told = lines.take();
    let (missed, failing) = ("can't be read", "; it is failing: no traffic until it answers");
    assert_eq!((told.matches(missed).count(), told.matches(failing).count()), (2, 1), "{told}");
    assert_eq!(site.view().queue, 4.0, "the last value is kept until it is stale");
    let listener = TcpListener::bind(&*site.member.worker.endpoint).await.unwrap();
    site.serve(listener);
    site.until("in service", |s| !s.member.failing()).await;
    lines.only("w", "can be read again; it is failing no more: back in service");
}

#[tokio::test]
async fn metrics_of_another_model_are_no_load() {
    let mut site = Site::new().await;
    *site.engine.metrics.lock() = Answer::Text("vllm:num_requests_waiting{model_name=\"x\"} 9\n".into());
    site.scrape();
    site.until_counted("no_series").await;
    assert_eq!((site.view().freshness, site.missed()), (Freshness::Never, 0));
}

#[tokio::test]
async fn failing_responses_are_forgiven_by_a_probe_only() {
    let mut site = Site::new().await;
    *site.engine.health.lock() = Answer::Status(500);
    site.fail();
    site.scrape();
    site.until("5 scrapes", |s| s.scrapes() >= 5).await;
    assert!(site.member.failing(), "scrapes alone don't bring it back");
    let (lines, _, _guard) = Lines::capture("info");
    *site.engine.health.lock() = Answer::Status(200);
    site.until("in service", |s| !s.member.failing()).await;
    lines.only("w", "it answers its probe and is failing no more: back in service");
}

#[tokio::test]
async fn without_urls_nothing_is_asked_and_a_failing_worker_gets_another_chance() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut site = Site::with(listener.local_addr().unwrap(), listener, (None, None)).await;
    site.scrape();
    site.poll_models();
    site.fail();
    site.until("in service", |s| !s.member.failing()).await;
    assert_eq!(site.view(), LoadView::default());
    assert!(site.member.serves("m").is_some() && site.member.status.models.load().is_none());
}

#[tokio::test]
async fn models_follow_the_engine_and_stand_while_it_is_silent() {
    let mut site = Site::new().await;
    *site.engine.models.lock() = Answer::Status(404);
    site.poll_models();
    let missed = |s: &Site| s.member.status.missed_models.load(Ordering::Relaxed);
    site.until("missed", |s| missed(s) > 1).await;
    assert!(site.member.serves("m").is_some() && site.member.serves("lora").is_none());
    let body = r#"{"data": [{"id": "m", "max_model_len": 64}, {"id": "lora", "parent": "m"}]}"#;
    *site.engine.models.lock() = Answer::Text(body.into());
    site.until("adapter", |s| s.member.serves("lora").is_some_and(|c| c.max_model_len == Some(64))).await;
    assert_eq!(missed(&site), 0);
    *site.engine.models.lock() = Answer::Text("{}".into());
    site.until("missed", |s| missed(s) > 1).await;
    assert!(site.member.serves("lora").is_some());
    *site.engine.models.lock() = Answer::Text(r#"{"data": [{"id": "other"}]}"#.into());
    site.until("other", |s| s.member.serves("other").is_some()).await;
    assert!(site.member.serves("m").is_none());
}
