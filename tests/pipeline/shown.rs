//! How remembered decisions are shown: as the documentation describes them, on one line, and over HTTP.

use std::{
    env, fs,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, SystemTime},
};

use kinference::{
    admin::{self, Admin, Dashboard},
    observe::{Kept, LogFilter, Shown, ShownKept},
    pipeline::Incoming,
    roster::Roster,
    types::{Ending, Outcome, Record, Stage, Stages, Took, Usage},
};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

use crate::site::{BLOCK, MODEL, Site, call, profile, prompt};

const PAGE: &str = "docs/decision-log.md";
/// Set, the examples of the page are written instead of held to the code.
const WRITE: &str = "KINFERENCE_TEST_WRITE_DOCS";

/// Two workers behind a pool whose rule keeps those that hold some of the prompt.
async fn site() -> Site {
    let site = Site::of(&profile("p", |_| {}), 2);
    let backends = json!([{"workerSet": {"name": "s", "model": MODEL}}]);
    let warm = json!([{"name": "warm", "steps": [{"keep": {"cachedPercent": {"above": 50}}}]}]);
    site.enforce(&[
        ("InferencePool", "chat", json!({"models": [{"name": "standard", "backends": backends}]})),
        ("InferencePolicy", "rules", json!({"poolRef": {"name": "chat"}, "rules": warm})),
    ]);
    site.store(1, 0..4 * BLOCK).await;
    site
}

fn asks(model: &str) -> Incoming {
    let body = json!({"model": model, "prompt": (0..5 * BLOCK).collect::<Vec<_>>(), "stream": true});
    Incoming {
        request_id: "7f3c1c1e-5b0f-4c55-9a0c-0d7c6f6c3a11".into(),
        tenant: Some("acme".into()),
        tags: vec!["batch".into()],
        pool: Some("chat".into()),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
        ..call(kinference::types::Api::Completions, body.to_string())
    }
}

/// The same as if it had taken these times.
fn timed(record: &Record) -> Record {
    let micros = Duration::from_micros;
    let (mut stages, mut from) = (Stages::default(), 0);
    for (stage, _) in record.stages.iter() {
        let took = match stage {
            Stage::Tokenize => 1350,
            _ => 40,
        };
        stages.add(stage, Took { from: micros(from), took: micros(took) });
        from += took;
    }
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_796_062_818_300);
    Record { at, stages, took: micros(from), ..record.clone() }
}

fn shown(kept: &Kept) -> Value {
    serde_json::to_value(ShownKept::from(kept)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_page_shows_what_the_code_does() {
    let site = site().await;
    let mut placement = site.place(asks("standard")).await;
    placement.first_token();
    placement.finish(
        Outcome::Completed,
        Some(Usage { prompt_tokens: 80, completion_tokens: 12, cached_tokens: Some(64) }),
    );
    site.refusal(asks("other")).await;
    let mut kept = site.decisions.after(0, 9);
    for one in &mut kept {
        one.record = Arc::new(timed(&one.record));
        let (ttft, took) = (Some(Duration::from_millis(415)), Duration::from_millis(1900));
        one.ending = one.ending.map(|ending| Ending { ttft, took, ..ending });
    }
    let rejected = serde_json::to_value(Shown::from(&*kept[1].record)).unwrap();
    let pretty = |value: &Value| format!("```json\n{}\n```\n", serde_json::to_string_pretty(value).unwrap());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let mut page = fs::read_to_string(&path).unwrap();
    for example in [pretty(&shown(&kept[0])), pretty(&rejected)] {
        if env::var_os(WRITE).is_none() {
            let stale = format!("{PAGE} is stale: {WRITE}=1 cargo nextest run --test pipeline writes it");
            assert!(page.contains(&example), "{stale}; it lacks\n{example}");
        }
    }
    if env::var_os(WRITE).is_some() {
        for (marker, example) in [("decision", &shown(&kept[0])), ("rejection", &rejected)] {
            let marker = format!("<!-- {marker}: made from the code -->\n");
            let (before, rest) = page.split_once(&marker).unwrap();
            let after = rest.split_once("\n```\n").unwrap().1;
            page = format!("{before}{marker}{}{after}", pretty(example));
        }
        fs::write(&path, page).unwrap();
    }
}

#[tokio::test]
async fn it_is_one_line_without_a_prompt_whatever_the_client_sends() {
    let site = Site::of(&profile("p", |_| {}), 1);
    let hostile = format!("a\n{{\"forged\": 1}}\u{1b}[31m\u{2028}{}", "x".repeat(60_000));
    let asks = |body: &str| Incoming {
        request_id: hostile.as_str().into(),
        tenant: Some(hostile.as_str().into()),
        tags: vec![hostile.as_str().into(); 1000],
        ..call(kinference::types::Api::ChatCompletions, body.to_owned())
    };
    let secret = json!({"model": MODEL, "messages": [{"role": "user", "content": "s3cret"}]}).to_string();
    drop(site.place(asks(&secret)).await);
    site.refusal(asks(&secret[..secret.len() - 1])).await;
    site.refusal(asks(&json!({"model": MODEL, "messages": "s3cret"}).to_string())).await;
    site.refusal(asks(&json!({"model": hostile, "messages": []}).to_string())).await;
    for kept in site.decisions.of_request(&hostile) {
        let line = serde_json::to_string(&Shown::from(&*kept.record)).unwrap();
        assert!(!line.contains(['\n', '\u{1b}']) && line.len() < 20_000, "{line}");
        assert!(!line.contains("s3cret"), "{line}");
    }
    assert_eq!(site.decisions.reach().kept, 4);
    assert_eq!(site.decisions.of_request(&hostile).len(), 4);
}

/// Runs until what is asked of it is done.
async fn asked<T>(site: Site, ask: impl AsyncFnOnce(&str) -> T) -> T {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let Site { registry, index, load, metrics, decisions, pipeline, .. } = site;
    let (_filter, log) = LogFilter::new(EnvFilter::new("info"));
    let admin = Admin {
        log,
        reaches_providers: Arc::default(),
        roster: Roster { registry, index, load, mock: false },
        decisions,
        calibrations: pipeline.calibrations().clone(),
        metrics,
        draining: Arc::default(),
        policies_known: Arc::new(AtomicBool::new(true)),
        watches: None,
        dashboard: Dashboard::default(),
    };
    tokio::select! {
        ended = admin::run(listener, Arc::new(admin)) => panic!("{ended:?}"),
        answer = ask(&address) => answer,
    }
}

#[tokio::test]
async fn the_admin_listener_tells_the_latest_first() {
    let site = Site::of(&profile("p", |_| {}), 2);
    for id in ["a/b c", "other", "a/b c"] {
        drop(site.place(Incoming { request_id: id.into(), ..prompt(0..64) }).await);
    }
    asked(site, async |address| {
        let get = async |path: &str| {
            let answer = reqwest::get(format!("{address}{path}")).await.unwrap();
            (answer.status(), answer.text().await.unwrap())
        };
        let numbers = |text: &str| -> Vec<u64> {
            let answer: Value = serde_json::from_str(text).unwrap();
            answer["decisions"].as_array().unwrap().iter().map(|one| one["seq"].as_u64().unwrap()).collect()
        };
        for (path, want) in [
            ("/api/decisions", vec![3, 2, 1]),
            ("/api/decisions?limit=2", vec![3, 2]),
            ("/api/decisions?after=2&limit=9", vec![3]),
            ("/api/decisions?after=3", vec![]),
            ("/api/decisions/a%2Fb%20c", vec![3, 1]),
        ] {
            let (status, text) = get(path).await;
            assert_eq!((status, numbers(&text)), (StatusCode::OK, want), "{path}");
        }
        let (status, text) = get("/api/decisions/nobody").await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &answer["kept"]), (StatusCode::NOT_FOUND, &json!(3)));
        assert!(answer["oldest"].as_str().unwrap().ends_with('Z'), "{answer}");
        let (status, text) = get("/api/decisions?after=x").await;
        assert!(status == StatusCode::BAD_REQUEST && text.contains("after"), "{status} {text}");
    })
    .await;
}
