//! `/api/events` over HTTP: snapshots, deltas, the most workers and listeners; and what the page's headers forbid.

use reqwest::{Response, StatusCode};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    stack::{Engine, PATIENCE, Router, until},
    traffic::{Ask, Gateway, tokens},
};

/// A listener.
struct Listener {
    response: Response,
    read: String,
}

impl Listener {
    async fn on(router: &Router, query: &str) -> Self {
        let response = reqwest::get(format!("http://{}/api/events{query}", router.admin)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert!(!response.headers().contains_key("access-control-allow-origin"));
        Self { response, read: String::new() }
    }

    /// The next event's name and data.
    async fn next(&mut self) -> (String, Value) {
        loop {
            if let Some((event, rest)) = self.read.split_once("\n\n") {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                let told = (field("event: ").to_owned(), serde_json::from_str(field("data: ")).unwrap());
                self.read = rest.to_owned();
                return told;
            }
            let chunk = timeout(PATIENCE, self.response.chunk()).await.expect("an event in time");
            self.read += std::str::from_utf8(&chunk.unwrap().unwrap()).unwrap();
        }
    }

    /// The first delta that satisfies a condition.
    async fn delta(&mut self, holds: impl Fn(&Value) -> bool) -> Value {
        loop {
            let (event, data) = self.next().await;
            assert_ne!(event, "snapshot");
            if holds(&data) {
                return data;
            }
        }
    }
}

#[tokio::test]
async fn a_snapshot_comes_first_then_what_is_new() {
    let engines = [Engine::start(&["--speedup", "50"])];
    let router = Router::start(&engines, "");
    router.until("it is followed", |fleet| fleet["workers"][0]["health"]["state"] == "ok").await;
    let mut gateway = Gateway::to(&router.grpc).await;
    assert!(gateway.ask(&Ask { tenant: "acme".into(), ..Ask::of(tokens(1, 160)) }).await);
    let mut listener = Listener::on(&router, "").await;
    let (event, all) = listener.next().await;
    assert_eq!(event, "snapshot");
    assert_eq!((&all["fleet"]["total"], &all["workers"][0]["name"]), (&1.into(), &"w0".into()));
    assert_eq!(
        (&all["decisions"][0]["tenant"], &all["policies"]["enabled"]),
        (&"acme".into(), &false.into())
    );
    assert_eq!(all["tenants"]["top"][0]["prompt_tokens"], 160);
    assert_eq!((&all["totals"]["seen"], &all["buckets"][0]["decisions"]), (&1.into(), &1.into()));
    // The same prompt again: now its blocks are held, and the engine says so.
    assert!(gateway.ask(&Ask::of(tokens(1, 160))).await);
    let delta = listener.delta(|delta| delta["ended"].is_array() && delta["ended"][0]["seq"] == 2).await;
    let ending = &delta["ended"][0]["ending"];
    assert_eq!((&ending["outcome"], &ending["served_by"]), (&"completed".into(), &0.into()));
    assert!(ending["ttft_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{ending}");
    assert_eq!(delta["totals"]["ended"], 2);
    assert!(
        delta["totals"]["observed_ms"][0].is_f64() && delta["totals"]["cached_tokens"].as_u64() > Some(0)
    );
    router.set_workers(&[]);
    let delta = listener.delta(|delta| delta["removed"].is_array()).await;
    assert_eq!((&delta["removed"][0], &delta["fleet"]["total"]), (&0.into(), &0.into()));
}

#[tokio::test]
async fn more_workers_than_are_shown_can_be_searched() {
    let engines: Vec<_> = (0..3).map(|_| Engine::start(&["--speedup", "50"])).collect();
    let router = Router::start(&engines, "dashboard_max_workers = 2");
    let all = |fleet: &Value| fleet["workers"].as_array().is_some_and(|all| all.len() == 3);
    router.until("all are there", all).await;
    let (_, shown) = Listener::on(&router, "").await.next().await;
    assert_eq!((shown["workers"].as_array().unwrap().len(), &shown["fleet"]["hidden"]), (2, &1.into()));
    let (_, found) = Listener::on(&router, "?search=W2").await.next().await;
    assert_eq!((&found["workers"][0]["name"], &found["fleet"]["matching"]), (&"w2".into(), &1.into()));
}

#[tokio::test]
async fn listeners_are_bounded_and_leave_their_place() {
    let router = Router::start(&[], "");
    let mut listeners = Vec::new();
    for _ in 0..32 {
        listeners.push(Listener::on(&router, "").await);
    }
    let url = format!("http://{}/api/events", router.admin);
    let refused = reqwest::get(&url).await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.text().await.unwrap().starts_with("32 dashboards are open on this server already"));
    listeners.pop();
    let free = async || reqwest::get(&url).await.ok()?.error_for_status().ok();
    until("its place is free", free).await;
}

#[tokio::test]
async fn the_page_loads_nothing_from_elsewhere() {
    let router = Router::start(&[], "");
    let page = reqwest::get(format!("http://{}/", router.admin)).await.unwrap();
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                  img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'";
    assert_eq!(page.headers()["content-security-policy"], policy);
    assert_eq!(page.headers()["x-content-type-options"], "nosniff");
    assert_eq!(page.headers()["referrer-policy"], "no-referrer");
    let html = page.text().await.unwrap();
    let named: Vec<_> = html.split(['"']).filter(|part| part.starts_with("dashboard/")).collect();
    assert!(named.len() >= 3 && !html.contains("://"), "{named:?}");
    for name in named {
        let asset = reqwest::get(format!("http://{}/{name}", router.admin)).await.unwrap();
        assert_eq!(
            (asset.status(), &asset.headers()["content-security-policy"]),
            (StatusCode::OK, &policy.parse().unwrap())
        );
    }
}
