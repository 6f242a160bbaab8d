//! Asks an engine where it publishes KV events, until it has said so, and again whenever that may have changed.
//!
//! Owner: `Follower::run`. Invariant: what was learned stands until the engine says otherwise: an answer that can't be
//! used, or none, ends no subscription.

use std::{convert::Infallible, sync::Arc, time::Duration};

use reqwest::{Client, redirect::Policy};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    board::Board,
    metrics::{AskOutcome, KvMetrics},
    sources::{BadSources, Host, parse},
};
use crate::{
    fleet::{KvSockets, KvState, Member},
    ingest::fetch::{FetchError, Limits, get},
};

/// 64 ranks with every field take a third of it.
const LIMITS: Limits = Limits { timeout: Duration::from_secs(5), bytes: 64 << 10 };
/// The pause after the first of several failures; doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause while the engine does not answer: it may be starting.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long a subscription must have been lost before the engine is asked again, and the least time between answers.
const LOST: Duration = Duration::from_secs(3);
/// From one answer to the next where nothing is wrong, or where asking will hardly help.
const REFRESH: Duration = Duration::from_secs(60);

/// Why there are no sockets to subscribe to.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("it has no /kv_event_sources: it is older than vLLM 0.31")]
    TooOld,
    #[error("it publishes no KV events: enable_kv_cache_events is false, or its publisher is null")]
    Silent,
    #[error("its /kv_event_sources does not answer: {0}")]
    Fetch(FetchError),
    #[error(transparent)]
    Bad(#[from] BadSources),
}

impl From<FetchError> for AskError {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Status(404) => Self::TooOld,
            error => Self::Fetch(error),
        }
    }
}

impl AskError {
    fn outcome(&self) -> AskOutcome {
        match self {
            Self::Silent => AskOutcome::Silent,
            Self::TooOld => AskOutcome::TooOld,
            Self::Fetch(_) => AskOutcome::Failed,
            Self::Bad(_) => AskOutcome::Refused,
        }
    }

    /// What a worker is of which nothing better is known.
    fn state(&self) -> KvState {
        match self {
            Self::Fetch(_) => KvState::Disconnected,
            Self::TooOld | Self::Silent | Self::Bad(_) => KvState::Unknown,
        }
    }

    /// The pause after so many failures in a row.
    fn pause(&self, missed: u32) -> Duration {
        let longest = match self {
            Self::Fetch(_) => LONGEST_PAUSE,
            Self::TooOld | Self::Silent | Self::Bad(_) => REFRESH,
        };
        FIRST_PAUSE.saturating_mul(1 << missed.saturating_sub(1).min(16)).min(longest)
    }
}

/// A client that goes where it is sent and no further: an engine's redirect could lead anywhere.
pub fn http_client() -> reqwest::Result<Client> {
    Client::builder().no_proxy().connect_timeout(Duration::from_secs(2)).redirect(Policy::none()).build()
}

/// Asks one engine.
pub struct Asker {
    client: Client,
    metrics: KvMetrics,
    member: Arc<Member>,
    board: Arc<Board>,
    url: String,
    host: Host,
    tell: watch::Sender<Vec<KvSockets>>,
}

impl Asker {
    /// `None` for a worker that has no HTTP base to ask at.
    pub fn new(
        (client, metrics): (Client, KvMetrics),
        (member, board): (Arc<Member>, Arc<Board>),
        tell: watch::Sender<Vec<KvSockets>>,
    ) -> Option<Self> {
        let worker = &member.worker.name;
        let Some(base) = member.worker.http_url.as_deref() else {
            tracing::warn!(%worker, "no KV events: it is to be asked for their sources, and has no http_url");
            return None;
        };
        let url = format!("{}/kv_event_sources", base.trim_end_matches('/'));
        match Host::of_url(base) {
            Ok(host) => Some(Self { client, metrics, member, board, url, host, tell }),
            Err(error) => {
                tracing::warn!(%worker, %error, "no KV events: it can't be asked for their sources");
                None
            }
        }
    }

    /// Asks for as long as it is polled.
    pub async fn run(self) -> Infallible {
        let (mut missed, mut said) = (0u32, String::new());
        loop {
            match self.ask().await {
                Ok(sockets) => {
                    (missed, said) = (0, String::new());
                    self.take(sockets);
                    // Time is up: nothing was lost, and still it may have changed.
                    let _ = timeout(REFRESH, self.lost()).await;
                }
                Err(error) => {
                    missed = missed.saturating_add(1);
                    let words = error.to_string();
                    self.miss(&error, words != said);
                    said = words;
                    sleep(error.pause(missed)).await;
                }
            }
        }
    }

    async fn ask(&self) -> Result<Vec<KvSockets>, AskError> {
        let sockets = parse(&get(&self.client, &self.url, LIMITS).await?, &self.host)?;
        if sockets.is_empty() { Err(AskError::Silent) } else { Ok(sockets) }
    }

    fn miss(&self, error: &AskError, new: bool) {
        self.metrics.asked(error.outcome());
        if new {
            tracing::warn!(worker = %self.member.worker.name, url = self.url, %error, "KV events: not found");
        }
        self.board.without(error.state());
        if matches!(error, AskError::Silent) {
            self.tell.send_replace(vec![]);
        }
    }

    fn take(&self, sockets: Vec<KvSockets>) {
        self.metrics.asked(AskOutcome::Found);
        if *self.tell.borrow() == sockets {
            return;
        }
        for KvSockets { rank, events, replay } in &sockets {
            let worker = &self.member.worker.name;
            tracing::info!(%worker, rank = rank.0, endpoint = %events, replay, "KV events: found");
        }
        self.tell.send_replace(sockets);
    }

    async fn lost(&self) {
        sleep(LOST).await;
        self.board.lost(LOST).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_may_be_starting_is_asked_more_often_than_one_that_has_answered() {
        let millis =
            |error: AskError| (1..11).map(|missed| error.pause(missed).as_millis()).collect::<Vec<_>>();
        let starting = millis(AskError::Fetch(FetchError::Status(503)));
        assert_eq!(starting, [250, 500, 1000, 2000, 4000, 5000, 5000, 5000, 5000, 5000]);
        let old = millis(FetchError::Status(404).into());
        assert_eq!(old, [250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(AskError::Silent.pause(u32::MAX), REFRESH);
    }
}
