//! Polls of `/v1/models`: one loop per worker that keeps the models that it serves true.
//!
//! Owner of `status.models` and `missed_models`. The first poll comes at once; while the engine does not
//! answer, polls follow quickly with a growing pause. What was learned last stands until the next answer.

mod cards;

use std::{convert::Infallible, sync::Arc, time::Duration};

use prometheus::IntCounterVec;
use reqwest::Client;
use tokio::time::sleep;

pub use cards::{BadModels, parse};

use super::{
    fetch::{FetchError, Limits, get},
    missed,
};
use crate::{
    fleet::{Member, ModelCard},
    observe::Metrics,
};

const PATH: &str = "/v1/models";
const LIMITS: Limits = Limits { timeout: Duration::from_secs(5), bytes: 1 << 20 };
/// The pause after the first of several failures; doubles with each, up to the longest or the refresh interval.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Bad(#[from] BadModels),
}

/// What every poll loop shares. Cheap to clone.
#[derive(Clone)]
pub struct ModelsPoller {
    client: Client,
    refresh: Duration,
    results: IntCounterVec,
}

impl ModelsPoller {
    /// Polls every `refresh`. Call once: it registers metrics.
    pub fn new(client: Client, refresh: Duration, metrics: &Metrics) -> Self {
        let results = metrics.counters_from_zero(
            "kinference_models_polls_total",
            "Polls of /v1/models, by result.",
            ("result", &["ok", "failed"]),
        );
        Self { client, refresh, results }
    }

    /// Polls one worker until the task is dropped. One without `http_url` serves the model of its configuration.
    pub async fn run(self, member: Arc<Member>) -> Infallible {
        let Some(base) = &member.worker.http_url else { return std::future::pending().await };
        let url = format!("{}{PATH}", base.trim_end_matches('/'));
        loop {
            let missed = self.poll(&member, &url).await;
            sleep(pause(missed, self.refresh)).await;
        }
    }

    /// One poll; how many in a row failed now.
    async fn poll(&self, member: &Member, url: &str) -> u32 {
        let status = &member.status;
        match self.ask(url).await {
            Ok(cards) => {
                self.results.with_label_values(&["ok"]).inc();
                if status.models.load().as_deref() != Some(&cards) {
                    tracing::debug!(worker = %member.worker.name, models = cards.len(), "the models served changed");
                    status.models.store(Some(Arc::new(cards)));
                }
                missed::answered(member, &status.missed_models, PATH);
                0
            }
            Err(error) => {
                self.results.with_label_values(&["failed"]).inc();
                missed::failed(member, &status.missed_models, (PATH, url, &error))
            }
        }
    }

    async fn ask(&self, url: &str) -> Result<Vec<ModelCard>, PollError> {
        Ok(parse(&get(&self.client, url, LIMITS).await?)?)
    }
}

/// The pause before the next poll after `missed` failures in a row.
fn pause(missed: u32, refresh: Duration) -> Duration {
    match missed.checked_sub(1) {
        None => refresh,
        Some(earlier) => FIRST_PAUSE.saturating_mul(1 << earlier.min(16)).min(LONGEST_PAUSE).min(refresh),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let refresh = Duration::from_secs(30);
        let millis: Vec<_> = (0..8).map(|missed| pause(missed, refresh).as_millis()).collect();
        assert_eq!(millis, [30_000, 250, 500, 1000, 2000, 4000, 5000, 5000]);
        assert_eq!(pause(u32::MAX, refresh), LONGEST_PAUSE);
        assert_eq!(pause(1, Duration::from_millis(20)), Duration::from_millis(20));
    }
}
