//! Engines that are asked where they publish, at an HTTP server that says what it is told to.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{extract::State, http::StatusCode, response::IntoResponse};
use kinference::fleet::KvState;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    engine::{Engine, Replays, store},
    router::{BLOCK, DEADLINE, Router},
};

#[derive(Clone)]
enum Answer {
    Json(Value),
    Status(u16),
    Redirect(String),
}

#[derive(Clone)]
struct Site {
    answer: Arc<Mutex<Answer>>,
    asked: Arc<AtomicUsize>,
}

/// The engine's HTTP side.
struct Http {
    url: String,
    site: Site,
    _server: JoinSet<()>,
}

async fn handle(State(site): State<Site>) -> impl IntoResponse {
    site.asked.fetch_add(1, Ordering::Relaxed);
    match site.answer.lock().clone() {
        Answer::Json(answer) => axum::Json(answer).into_response(),
        Answer::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Answer::Redirect(to) => axum::response::Redirect::temporary(&to).into_response(),
    }
}

impl Http {
    async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let site = Site { answer: Arc::new(Mutex::new(answer)), asked: Arc::default() };
        let app = axum::Router::new()
            .route("/kv_event_sources", axum::routing::get(handle))
            .with_state(site.clone());
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, site, _server: server }
    }

    fn says(&self, answer: Answer) {
        *self.site.answer.lock() = answer;
    }

    async fn asked(&self, times: usize) {
        let asked = async {
            while self.site.asked.load(Ordering::Relaxed) < times {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(DEADLINE, asked).await.unwrap();
    }
}

/// What an engine of these ranks says, as one does that listens on every address.
fn sources(engines: &[&Engine]) -> Answer {
    let any = |endpoint: &str| endpoint.replace("127.0.0.1", "*");
    let one = |(rank, engine): (usize, &&Engine)| {
        let entry = json!({
            "enable_kv_cache_events": true, "publisher": "zmq", "endpoint": any(&engine.events_at),
            "replay_endpoint": any(&engine.replay_at), "topic": "kv-events",
        });
        (rank.to_string(), entry)
    };
    Answer::Json(Value::Object(engines.iter().enumerate().map(one).collect()))
}

async fn counts(router: &Router, series: &str, times: u64) {
    let counted = async {
        while router.counted(series) < times {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(DEADLINE, counted).await.unwrap();
}

/// Lets time pass for whoever waits for it.
async fn skip(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

async fn started(hash: u64) -> Engine {
    let mut engine = Engine::start(Replays::WithTopic).await;
    engine.lose(vec![store(hash, BLOCK)]);
    engine
}

#[tokio::test]
async fn an_engine_that_is_starting_is_asked_until_it_answers() {
    let (first, second) = (started(1).await, started(2).await);
    let http = Http::start(Answer::Status(503)).await;
    let router = Router::asking(http.url.clone(), BLOCK);
    router.reaches(KvState::Disconnected, 0).await;
    http.says(sources(&[&first, &second]));
    router.reaches(KvState::Synced, 2).await;
}

#[tokio::test]
async fn an_engine_without_events_to_follow_is_unknown() {
    let off = json!({"0": {"enable_kv_cache_events": false, "publisher": "zmq", "endpoint": "tcp://*:5557"}});
    let null = json!({"0": {"enable_kv_cache_events": true, "publisher": null, "endpoint": "tcp://*:5557"}});
    let elsewhere =
        json!({"0": {"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://10.1.2.3:5557"}});
    for answer in [off, null, elsewhere, json!({}), json!([])]
        .map(Answer::Json)
        .into_iter()
        .chain([Answer::Status(404)])
    {
        let http = Http::start(Answer::Status(503)).await;
        let router = Router::asking(http.url.clone(), BLOCK);
        router.reaches(KvState::Disconnected, 0).await;
        http.says(answer);
        router.reaches(KvState::Unknown, 0).await;
    }
}

#[tokio::test]
async fn what_was_found_stands_until_the_engine_says_otherwise() {
    let engine = started(1).await;
    let http = Http::start(sources(&[&engine])).await;
    let router = Router::asking(http.url.clone(), BLOCK);
    router.reaches(KvState::Synced, 1).await;
    let mut found = 1;
    for wrong in [Answer::Status(503), Answer::Json(json!({"0": "tcp://*:1"})), Answer::Status(404)] {
        http.says(wrong);
        let before = http.site.asked.load(Ordering::Relaxed);
        skip(61).await;
        http.asked(before + 2).await;
        assert!(router.is(&KvState::Synced, 1));
        http.says(sources(&[&engine]));
        found += 1;
        // Only once the answer was read begins the long pause that the next round skips.
        counts(&router, "kinference_kv_source_asks_total{outcome=\"found\"}", found).await;
    }
    assert_eq!(*engine.asked.lock(), [0], "the subscription was never begun anew");
    http.says(Answer::Json(json!({})));
    skip(61).await;
    router.reaches(KvState::Unknown, 0).await;
}

#[tokio::test]
async fn a_rank_that_came_back_elsewhere_is_found_again() {
    let (first, second) = (started(1).await, started(2).await);
    let http = Http::start(sources(&[&first, &second])).await;
    let router = Router::asking(http.url.clone(), BLOCK);
    router.reaches(KvState::Synced, 2).await;
    second.stop().await;
    router.reaches(KvState::Disconnected, 1).await;
    let mut second = started(3).await;
    second.lose(vec![store(4, BLOCK)]);
    http.says(sources(&[&first, &second]));
    skip(7).await;
    router.reaches(KvState::Synced, 3).await;
    assert_eq!(*first.asked.lock(), [0], "the other rank went on undisturbed");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let engine = started(1).await;
    let other = Http::start(sources(&[&engine])).await;
    let http = Http::start(Answer::Redirect(format!("{}kv_event_sources", other.url))).await;
    let router = Router::asking(http.url.clone(), BLOCK);
    http.asked(3).await;
    assert!(router.is(&KvState::Disconnected, 0));
    assert_eq!(other.site.asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_worker_that_can_not_be_asked_is_not_followed() {
    let mut router = Router::asking("no URL".into(), BLOCK);
    let ended = tokio::time::timeout(DEADLINE, router.task.join_next()).await.unwrap();
    assert_eq!(ended.unwrap().unwrap(), None);
    assert!(router.is(&KvState::Unknown, 0));
}
