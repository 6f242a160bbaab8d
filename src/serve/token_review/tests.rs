//! The service on a made-up API server and a paused clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use futures::{FutureExt, future::join_all};
use parking_lot::Mutex;
use tokio::time::{Instant, advance, sleep};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use super::TokenReviews;
use crate::{
    config::TokenReviewConfig,
    kubernetes::{Question, ReviewError, User, Verdict},
    observe::Metrics,
    serve::proto::{ReviewRequest, ReviewResponse, token_review_server::TokenReview},
};

/// Answers after `delay`: tokens that begin with "good" are valid, "fail" fails until `repaired`.
struct Api {
    calls: Arc<AtomicUsize>,
    repaired: Arc<AtomicUsize>,
    metrics: Metrics,
    service: TokenReviews,
}

const DELAY: Duration = Duration::from_millis(10);

fn config() -> TokenReviewConfig {
    TokenReviewConfig { enabled: true, ..TokenReviewConfig::default() }
}

impl Api {
    fn new(delay: Duration, config: TokenReviewConfig) -> Self {
        let (calls, repaired, metrics) = (Arc::new(AtomicUsize::new(0)), Arc::default(), Metrics::new());
        let (counted, works) = (calls.clone(), Arc::<AtomicUsize>::clone(&repaired));
        let ask = move |question: Question| {
            counted.fetch_add(1, Ordering::Relaxed);
            let works = works.clone();
            async move {
                sleep(delay).await;
                let token = question.token().reveal();
                let user = User { username: "u".into(), ..User::default() };
                match token {
                    _ if token.starts_with("fail") && works.load(Ordering::Relaxed) == 0 => {
                        Err(failure(token))
                    }
                    _ if token.starts_with("bad") => Ok(Verdict::Denied("not one of ours".into())),
                    _ => Ok(Verdict::Authenticated(user)),
                }
            }
            .boxed()
        };
        let service = TokenReviews::asking(Box::new(ask), config, &metrics);
        Self { calls, repaired, metrics, service }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    async fn ask(&self, request: ReviewRequest) -> Result<ReviewResponse, Status> {
        self.service.review(Request::new(request)).await.map(tonic::Response::into_inner)
    }

    async fn review(&self, token: &str) -> Result<ReviewResponse, Status> {
        self.ask(request(token)).await
    }

    fn counted(&self, sample: &str, times: u64) {
        let text = self.metrics.render();
        assert!(text.contains(&format!("{sample} {times}\n")), "{sample} {times}: {text}");
    }
}

fn failure(token: &str) -> ReviewError {
    match token {
        "fail refused" => ReviewError::Refused("403 forbidden".into()),
        "fail unreadable" => ReviewError::Unreadable { line: 1, column: 2 },
        _ => ReviewError::Unreachable("refused".into()),
    }
}

fn request(token: &str) -> ReviewRequest {
    ReviewRequest { token: token.into(), ..ReviewRequest::default() }
}

fn within(token: &str, deadline_ms: u32) -> ReviewRequest {
    ReviewRequest { deadline_ms: Some(deadline_ms), ..request(token) }
}

fn reason(status: &Status) -> (Code, String, String) {
    let info = status.get_details_error_info().unwrap();
    (status.code(), info.reason, info.metadata["http_status"].clone())
}

#[tokio::test(start_paused = true)]
async fn a_yes_and_a_no_are_remembered_for_their_time() {
    let api = Api::new(DELAY, config());
    let first = api.review("good").await.unwrap();
    assert_eq!((first.authenticated, first.username.as_str(), first.cached), (true, "u", false));
    let no = api.review("bad").await.unwrap();
    assert_eq!((no.authenticated, no.error.as_str(), no.cached), (false, "not one of ours", false));
    assert_eq!(api.calls(), 2);
    advance(Duration::from_secs(9)).await;
    assert_eq!(api.review("good").await.unwrap(), ReviewResponse { cached: true, ..first.clone() });
    assert_eq!(api.review("bad").await.unwrap(), ReviewResponse { cached: true, ..no });
    assert_eq!(api.calls(), 2);
    advance(Duration::from_secs(2)).await;
    assert!(!api.review("bad").await.unwrap().cached, "negative_ttl_secs is over");
    assert!(api.review("good").await.unwrap().cached);
    advance(Duration::from_secs(60)).await;
    assert_eq!(api.review("good").await.unwrap(), first);
    assert_eq!(api.calls(), 4);
    api.counted("kinference_token_reviews_total{result=\"authenticated\"}", 4);
    api.counted("kinference_token_reviews_total{result=\"denied\"}", 3);
    api.counted("kinference_token_review_lookups_total{found=\"hit\"}", 3);
    api.counted("kinference_token_review_lookups_total{found=\"miss\"}", 4);
}

#[tokio::test(start_paused = true)]
async fn audiences_are_a_set() {
    let api = Api::new(DELAY, config());
    let of = |audiences: &[&str]| {
        let audiences = audiences.iter().map(|a| (*a).into()).collect();
        api.ask(ReviewRequest { audiences, ..request("bad") })
    };
    assert!(!of(&["a", "b"]).await.unwrap().cached);
    assert!(of(&["b", "a", "b"]).await.unwrap().cached);
    assert!(!of(&["a"]).await.unwrap().cached);
    assert!(!of(&[]).await.unwrap().cached);
    assert_eq!(api.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn many_who_ask_the_same_at_once_ask_once() {
    let api = Api::new(DELAY, config());
    let answers = join_all((0..50).map(|i| api.review(if i % 2 == 0 { "good" } else { "bad" }))).await;
    assert!(answers.iter().all(|answer| !answer.as_ref().unwrap().cached));
    assert_eq!(api.calls(), 2);
    api.counted("kinference_token_review_lookups_total{found=\"joined\"}", 48);
    assert_eq!(api.service.desk_in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn failures_are_told_and_not_remembered() {
    let api = Api::new(DELAY, config());
    let unavailable = (Code::Unavailable, "REVIEW_UNAVAILABLE".to_owned(), "503".to_owned());
    for (token, words) in [
        ("fail", "can't be reached"),
        ("fail refused", "`create` on tokenreviews"),
        ("fail unreadable", "no TokenReview"),
    ] {
        let before = api.calls();
        let both = [api.review(token).await.unwrap_err(), api.review(token).await.unwrap_err()];
        assert_eq!(api.calls(), before + 2);
        for status in both {
            assert_eq!(reason(&status), unavailable);
            assert!(status.message().contains(words), "{status}");
        }
    }
    api.repaired.store(1, Ordering::Relaxed);
    assert!(api.review("fail").await.unwrap().authenticated);
    api.counted("kinference_token_reviews_total{result=\"unavailable\"}", 6);
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_by_its_own_deadline_or_ours_whichever_is_earlier() {
    let api = Api::new(Duration::from_secs(3600), config());
    for (asked, after) in [(request("good"), 2000), (within("good", 60_000), 2000), (within("good", 50), 50)]
    {
        let began = Instant::now();
        let status = api.ask(asked).await.unwrap_err();
        assert_eq!(began.elapsed().as_millis(), after);
        assert_eq!(reason(&status), (Code::DeadlineExceeded, "REVIEW_TIMEOUT".into(), "504".into()));
    }
    assert_eq!((api.calls(), api.service.desk_in_flight()), (3, 0));
    api.counted("kinference_token_reviews_total{result=\"timeout\"}", 3);
}

#[tokio::test(start_paused = true)]
async fn no_deadline_keeps_a_remembered_answer_from_being_told() {
    let api = Api::new(DELAY, config());
    api.review("good").await.unwrap();
    assert!(api.ask(within("good", 0)).await.unwrap().cached);
    assert_eq!(api.ask(within("other", 0)).await.unwrap_err().code(), Code::DeadlineExceeded);
}

#[tokio::test(start_paused = true)]
async fn who_began_may_leave_and_the_others_get_their_answer() {
    let api = Api::new(Duration::from_secs(1), config());
    let (first, second) = tokio::join!(api.ask(within("good", 100)), api.review("good"));
    assert_eq!(first.unwrap_err().code(), Code::DeadlineExceeded);
    assert!(second.unwrap().authenticated);
    assert_eq!(api.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_waits_for_ends() {
    let api = Api::new(Duration::from_secs(1), config());
    {
        let asked = api.review("good");
        tokio::pin!(asked);
        assert!(asked.as_mut().now_or_never().is_none());
        assert_eq!(api.service.desk_in_flight(), 1);
    }
    assert_eq!(api.service.desk_in_flight(), 0);
    assert!(!api.review("good").await.unwrap().cached);
    assert_eq!(api.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn who_joins_late_has_all_of_their_own_time() {
    let api = Api::new(Duration::from_secs(3600), config());
    let began = Instant::now();
    let late = async {
        sleep(Duration::from_millis(1500)).await;
        api.review("good").await
    };
    let (first, late) = tokio::join!(api.review("good"), late);
    assert_eq!(
        (first.unwrap_err().code(), late.unwrap_err().code()),
        (Code::DeadlineExceeded, Code::DeadlineExceeded)
    );
    assert_eq!((began.elapsed().as_millis(), api.calls()), (3500, 2), "asked again when the first gave up");
}

#[tokio::test(start_paused = true)]
async fn no_yes_outlives_the_token() {
    let api = Api::new(DELAY, config());
    let exp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 30;
    let jwt =
        |kind: &str| format!("{kind}.{}.x", BASE64_URL_SAFE_NO_PAD.encode(format!(r#"{{"exp":{exp}}}"#)));
    assert!(!api.review(&jwt("good")).await.unwrap().cached);
    advance(Duration::from_secs(25)).await;
    assert!(api.review(&jwt("good")).await.unwrap().cached);
    advance(Duration::from_secs(6)).await;
    assert!(!api.review(&jwt("good")).await.unwrap().cached, "positive_ttl_secs is 60, but exp has passed");
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_and_may_be_off() {
    let api = Api::new(DELAY, TokenReviewConfig { max_cache_entries: 1, ..config() });
    for token in ["good 1", "good 2", "good 1"] {
        assert!(!api.review(token).await.unwrap().cached);
    }
    let off = Api::new(
        DELAY,
        TokenReviewConfig { positive_ttl: Duration::ZERO, negative_ttl: Duration::ZERO, ..config() },
    );
    for token in ["good", "good", "bad", "bad"] {
        assert!(!off.review(token).await.unwrap().cached);
    }
}

#[tokio::test]
async fn a_review_needs_a_token() {
    let api = Api::new(DELAY, config());
    let status = api.review("").await.unwrap_err();
    assert_eq!(reason(&status), (Code::InvalidArgument, "BAD_REQUEST".into(), "400".into()));
    assert_eq!(api.calls(), 0);
    api.counted("kinference_token_reviews_total{result=\"bad_request\"}", 1);
}

/// Everything that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_logged_when_they_begin_and_tokens_never() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let logged = tracing::subscriber::set_default(subscriber);
    let api = Api::new(DELAY, config());
    for token in ["fail s3cret", "fail s3cret", "fail refused", "good s3cret", "good s3cret", "bad s3cret"] {
        api.review(token).await.ok();
    }
    drop(logged);
    let text = String::from_utf8(log.0.lock().clone()).unwrap();
    assert_eq!(text.matches("token reviews fail").count(), 2, "{text}");
    assert_eq!(text.matches("token reviews work again").count(), 1, "{text}");
    assert!(!text.contains("s3cret"), "{text}");
    assert!(!api.metrics.render().contains("s3cret"));
}
