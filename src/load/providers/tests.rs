//! In flight, learnt and set aside: over time that the tests let pass.

use tokio::time::advance;

use super::*;

const EXPECTED: f64 = 1000.0;

struct Site {
    table: Arc<Providers>,
    metrics: Metrics,
    provider: Arc<str>,
    model: Arc<str>,
}

impl Site {
    fn new() -> Self {
        let metrics = Metrics::new();
        let table = Providers::new(&metrics);
        Self { table, metrics, provider: "ns/cloud".into(), model: "large".into() }
    }

    fn at(&self) -> AtProvider<'_> {
        AtProvider { provider: &self.provider, model: &self.model, expected_ttft_ms: EXPECTED }
    }

    fn view(&self) -> ProviderView {
        self.table.view(self.at())
    }

    fn end(&self, outcome: Outcome) {
        end(self.table.reserve(self.at()), outcome);
    }

    fn token_after(&self, ms: u64) {
        let mut request = self.table.reserve(self.at());
        request.first_token(Duration::from_millis(ms));
        end(request, Outcome::Completed);
    }

    fn has(&self, line: &str) -> bool {
        self.metrics.render().contains(line)
    }
}

fn end(mut request: ProviderReservation, outcome: Outcome) {
    request.ended(outcome);
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[tokio::test(start_paused = true)]
async fn what_is_in_flight_is_released_by_whatever_ends_it() {
    let site = Site::new();
    let (one, other) = (site.table.reserve(site.at()), site.table.reserve(site.at()));
    assert_eq!(site.view().own_in_flight, 2);
    assert!(site.has("kinference_provider_in_flight_requests{provider=\"ns/cloud\"} 2"));
    end(one, Outcome::Completed);
    drop(other);
    assert_eq!(site.view().own_in_flight, 0);
    for line in ["completed\",provider=\"ns/cloud\"} 1", "cancelled\",provider=\"ns/cloud\"} 1"] {
        assert!(site.has(&format!("kinference_provider_calls_total{{outcome=\"{line}")), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn first_tokens_move_what_is_expected_by_a_tenth_and_are_forgotten_in_time() {
    let site = Site::new();
    assert_eq!((site.view().ttft_ms, site.view().learnt), (EXPECTED, false));
    site.token_after(11_000);
    assert_eq!((site.view().ttft_ms, site.view().learnt), (2000.0, true));
    advance(secs(600)).await;
    assert_eq!(site.view().ttft_ms, 1500.0);
    for _ in 0..100 {
        site.token_after(200);
    }
    assert!((site.view().ttft_ms - 200.0).abs() < 1.0, "{}", site.view().ttft_ms);
    let other: Arc<str> = "small".into();
    let of_other = site.table.view(AtProvider { model: &other, ..site.at() });
    assert_eq!(of_other.ttft_ms, EXPECTED, "each model has its own");
    // A token counts once.
    let mut request = site.table.reserve(site.at());
    request.first_token(secs(1));
    let before = site.view().ttft_ms;
    request.first_token(secs(500));
    assert_eq!(site.view().ttft_ms, before);
}

#[tokio::test(start_paused = true)]
async fn three_failures_in_a_row_set_it_aside() {
    let site = Site::new();
    let history = [
        Outcome::Failed,
        Outcome::Refused,
        Outcome::Completed,
        Outcome::Failed,
        Outcome::ClientError,
        Outcome::Cancelled,
        Outcome::Refused,
    ];
    for outcome in history {
        site.end(outcome);
        assert!(site.view().takes_requests, "{outcome:?}");
    }
    assert_eq!(site.view().set_aside, None);
    site.end(Outcome::Failed);
    assert!(!site.view().takes_requests);
    assert!(site.has("kinference_provider_set_aside{provider=\"ns/cloud\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn one_request_tries_it_after_a_pause_that_doubles() {
    let site = Site::new();
    let before = site.table.reserve(site.at());
    (0..3).for_each(|_| site.end(Outcome::Failed));
    end(before, Outcome::Completed);
    assert!(!site.view().takes_requests, "what began before says nothing");
    let since = Instant::now();
    let aside = |fault, tried_from| Some(SetAside { since, fault, tried_from });
    assert_eq!(site.view().set_aside, aside(Fault::Failed, Some(since + secs(10))));
    for pause in [10, 20, 40, 80, 160, 300, 300] {
        advance(secs(pause) - Duration::from_millis(1)).await;
        assert!(!site.view().takes_requests, "{pause}");
        advance(Duration::from_millis(1)).await;
        assert!(site.view().takes_requests, "{pause}");
        let trial = site.table.reserve(site.at());
        assert!(!site.view().takes_requests, "one at a time");
        assert_eq!(site.view().set_aside.map(|aside| aside.tried_from), Some(None));
        end(trial, Outcome::Refused);
        assert!(!site.view().takes_requests);
    }
    let again = Instant::now() + secs(300);
    assert_eq!(site.view().set_aside, aside(Fault::Refused, Some(again)), "since the first time");
    advance(secs(300)).await;
    drop(site.table.reserve(site.at()));
    assert!(site.view().takes_requests, "a client that went away: the next one tries");
    site.end(Outcome::Completed);
    assert!(site.view().takes_requests && site.has("kinference_provider_set_aside{provider=\"ns/cloud\"} 0"));
    // The pause begins anew.
    (0..3).for_each(|_| site.end(Outcome::Failed));
    advance(secs(10)).await;
    assert!(site.view().takes_requests);
}

#[tokio::test(start_paused = true)]
async fn the_first_token_of_the_trial_brings_it_back() {
    let site = Site::new();
    (0..3).for_each(|_| site.end(Outcome::Failed));
    advance(secs(10)).await;
    let mut trial = site.table.reserve(site.at());
    trial.first_token(secs(1));
    assert!(site.view().takes_requests, "a long answer keeps nobody waiting");
    end(trial, Outcome::Failed);
    site.end(Outcome::Failed);
    assert!(site.view().takes_requests, "it counts as any other from then on");
    site.end(Outcome::Failed);
    assert!(!site.view().takes_requests);
}

#[tokio::test(start_paused = true)]
async fn what_no_policy_names_any_more_is_forgotten_with_its_last_request() {
    let site = Site::new();
    let named = |model: &str| BTreeSet::from([(site.provider.clone(), Arc::from(model))]);
    site.token_after(11_000);
    site.table.keep(&named("large"));
    assert_eq!(site.view().ttft_ms, 2000.0);
    site.table.keep(&named("another"));
    assert_eq!(site.view().ttft_ms, EXPECTED);
    let last = site.table.reserve(site.at());
    site.table.keep(&BTreeSet::new());
    assert_eq!(site.view().own_in_flight, 1);
    end(last, Outcome::Completed);
    assert!(site.table.books.lock().is_empty() && !site.has("ns/cloud"), "{}", site.metrics.render());
}

#[tokio::test(start_paused = true)]
async fn one_that_never_answers_is_set_aside_by_those_who_waited() {
    let site = Site::new();
    let give_up = async |after: u64, token: bool| {
        let mut request = site.table.reserve(site.at());
        if token {
            request.first_token(Duration::from_millis(10));
        }
        advance(secs(after)).await;
        drop(request);
    };
    for _ in 0..3 {
        give_up(4, false).await;
        give_up(60, true).await;
    }
    assert!(site.view().takes_requests, "who leaves early, or in the middle of an answer, says nothing");
    for _ in 0..3 {
        give_up(5, false).await;
    }
    assert!(!site.view().takes_requests);
    assert_eq!(site.view().set_aside.map(|aside| aside.fault), Some(Fault::Silent));
}

#[tokio::test(start_paused = true)]
async fn one_that_a_policy_names_is_counted_from_zero() {
    let site = Site::new();
    let named =
        |names: &[&Arc<str>]| names.iter().map(|name| ((*name).clone(), site.model.clone())).collect();
    site.table.keep(&named(&[&site.provider]));
    assert!(site.has("kinference_provider_set_aside{provider=\"ns/cloud\"} 0"));
    assert!(site.has("kinference_provider_calls_total{outcome=\"failed\",provider=\"ns/cloud\"} 0"));
    site.table.keep(&named(&[]));
    assert!(!site.has("ns/cloud"), "what no policy names has no series");
}
