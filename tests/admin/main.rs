//! The admin listener on a real socket: who may change what, and what becomes of it.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../logs/mod.rs"]
mod logs;
mod site;

use kinference::{fleet::Availability, types::RemovedReason};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use logs::Lines;
use site::{Site, worker};

#[tokio::test]
async fn a_worker_is_taken_out_and_put_back_by_hand() {
    let site = Site::start(vec![worker(1, "ns/w 1%"), worker(2, "w2")]).await;
    let path = "/api/workers/ns%2Fw%201%25/cordon";
    let (lines, _, _guard) = Lines::capture("info");
    let told = |on: bool| json!({"worker": "ns/w 1%", "cordoned": on, "by_file": false, "by_hand": on});
    for (method, on) in [(Method::PUT, true), (Method::DELETE, false)] {
        for _ in 0..2 {
            assert_eq!(site.change(method.clone(), path, None).await, (StatusCode::OK, told(on)));
            let out = on.then_some(RemovedReason::Cordoned);
            assert_eq!((site.member(1).unavailable(), site.member(2).unavailable()), (out, None));
            let fleet = site.get("/api/fleet").await.1;
            assert_eq!([0, 1].map(|i| fleet["workers"][i]["cordoned"].clone()), [json!(on), json!(false)]);
        }
        let words =
            if on { "cordoned by hand: it gets no new requests" } else { "not cordoned by hand any more" };
        lines.only("ns/w 1%", words);
    }
    let (status, told) = site.change(Method::PUT, "/api/workers/w3/cordon", None).await;
    assert_eq!((status, told), (StatusCode::NOT_FOUND, json!({"error": "no worker is called `w3`"})));
}

#[tokio::test]
async fn what_the_file_says_is_undone_there() {
    let mut listed = worker(1, "w1");
    listed.availability = Availability::Cordoned;
    let site = Site::start(vec![listed.clone()]).await;
    let path = "/api/workers/w1/cordon";
    let (status, told) = site.change(Method::PUT, path, None).await;
    let want = json!({"worker": "w1", "cordoned": true, "by_file": true, "by_hand": true});
    assert_eq!((status, told), (StatusCode::OK, want));
    let (status, told) = site.change(Method::DELETE, path, None).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(told, json!({"error": "`w1` stays cordoned: its workers file says `cordoned = true`"}));
    listed.availability = Availability::Ready;
    site.replace(vec![listed]);
    assert!(!site.member(1).cordoned(), "the one by hand was undone");
}

#[tokio::test]
async fn a_fleet_that_is_all_cordoned_is_not_ready() {
    let site = Site::start(vec![worker(1, "w1")]).await;
    assert_eq!(site.get("/readyz").await.0, StatusCode::OK);
    site.change(Method::PUT, "/api/workers/w1/cordon", None).await;
    let (status, told) = site.get("/readyz").await;
    assert_eq!((status, &told["reasons"]), (StatusCode::SERVICE_UNAVAILABLE, &json!(["w1: cordoned"])));
}

#[tokio::test]
async fn the_filter_of_the_log_is_shown_and_changed() {
    let site = Site::start(vec![]).await;
    let log = async |method: Method, body: Option<Value>| site.change(method, "/api/log", body).await;
    let is = |filter: &str| (StatusCode::OK, json!({ "filter": filter }));
    assert_eq!(log(Method::GET, None).await, is("info"));
    assert_eq!(log(Method::PUT, Some(json!({"filter": "kinference=warn"}))).await, is("kinference=warn"));
    let bad = [
        (json!({"filter": "wran"}), StatusCode::BAD_REQUEST, "`wran` is neither a level"),
        (json!({"filter": "a[b"}), StatusCode::BAD_REQUEST, "`a[b`: "),
        (json!({"level": "warn"}), StatusCode::UNPROCESSABLE_ENTITY, "unknown field `level`"),
        (json!({}), StatusCode::UNPROCESSABLE_ENTITY, "missing field `filter`"),
    ];
    for (body, want, words) in bad {
        let (status, told) = log(Method::PUT, Some(body.clone())).await;
        assert_eq!(status, want, "{body}: {told}");
        assert!(told["error"].as_str().unwrap().contains(words), "{body}: {told}");
    }
    assert_eq!(log(Method::PUT, None).await.0, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(log(Method::GET, None).await, is("kinference=warn"), "what is refused changes nothing");
}

#[tokio::test]
async fn a_page_of_another_origin_changes_nothing() {
    let site = Site::start(vec![worker(1, "w1")]).await;
    let path = "/api/workers/w1/cordon";
    for (path, method) in
        [(path, Method::PUT), (path, Method::DELETE), ("/api/log", Method::GET), ("/api/log", Method::PUT)]
    {
        let plain = site.request(method.clone(), path);
        let rebound =
            site.request(method, path).header("x-kinference-admin", "1").header("host", "example.com");
        for request in [plain, rebound] {
            let (status, told) = site::answer(request).await;
            assert_eq!(status, StatusCode::FORBIDDEN);
            assert!(told["error"].as_str().unwrap().contains("changes are taken only"), "{told}");
        }
    }
    assert!(!site.member(1).cordoned());
    // What a browser asks before it lets a page send the header: nothing allows it.
    let asked = site.request(Method::OPTIONS, path).header("origin", "http://example.com");
    let answer = asked.header("access-control-request-headers", "x-kinference-admin").send().await.unwrap();
    assert!(!answer.status().is_success());
    assert!(answer.headers().keys().all(|name| !name.as_str().starts_with("access-control")));
}
