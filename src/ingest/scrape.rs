//! Scrapes of `/metrics`: one loop per worker that keeps its load, its sleep state and its health true.
//!
//! Owner of `status.asleep` and `missed_scrapes`; notifies `kv_expected`. A worker without `metrics_url` is never
//! scraped and its load stays zero; the loop then only probes it back when its responses kept failing.

mod parse;
mod probation;
mod work;

use std::{
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use prometheus::IntCounterVec;
use reqwest::Client;
use tokio::time::{MissedTickBehavior, interval};

pub use parse::{Scraped, parse};
use probation::Probation;
use work::Work;

use super::{
    fetch::{FetchError, Limits, get},
    missed,
};
use crate::{fleet::Member, load::LoadTable, observe::Metrics};

/// What is read, in words.
const PATH: &str = "/metrics";
/// Largest `/metrics` that is read, in bytes: many times what an engine with 16 ranks publishes.
const MAX_BYTES: usize = 8 << 20;
/// A scrape may take one poll interval, within these bounds.
const MIN_TIMEOUT: Duration = Duration::from_millis(200);
const MAX_TIMEOUT: Duration = Duration::from_secs(5);

/// What every scrape loop shares. Cheap to clone.
#[derive(Clone)]
pub struct Scraper {
    client: Client,
    load: Arc<LoadTable>,
    poll: Duration,
    results: IntCounterVec,
}

/// What one scrape loop remembers of its worker.
#[derive(Default)]
struct Memory {
    work: Work,
    /// The last scrape had no series of the worker's model, and this was said.
    silent: bool,
    probation: Probation,
}

impl Scraper {
    /// Scrapes every `poll` into `load`. Call once: it registers metrics.
    pub fn new(client: Client, load: Arc<LoadTable>, (poll, metrics): (Duration, &Metrics)) -> Self {
        let results = metrics.counters_from_zero(
            "kinference_scrapes_total",
            "Scrapes of engine metrics, by result.",
            ("result", &["ok", "no_series", "timeout", "transport", "status", "too_large"]),
        );
        Self { client, load, poll, results }
    }

    /// Scrapes one worker until the task is dropped; the first scrape comes at once. The caller forgets the
    /// worker in the load table when it leaves.
    pub async fn run(self, member: Arc<Member>) -> Infallible {
        let mut ticks = interval(self.poll);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut memory = Memory::default();
        loop {
            ticks.tick().await;
            let reached = match &member.worker.metrics_url {
                Some(url) => self.scrape(&member, (url, &mut memory)).await,
                None => true,
            };
            if memory.probation.tick(member.status.needs_probe()) && reached && self.probe(&member).await {
                if member.status.probed() {
                    tracing::info!(worker = %member.worker.name, "it answers its probe and is failing no more: back in service");
                }
                memory.probation.released();
            }
        }
    }

    /// One scrape; whether the engine answered.
    async fn scrape(&self, member: &Member, (url, memory): (&str, &mut Memory)) -> bool {
        let limits = Limits { timeout: self.timeout(), bytes: MAX_BYTES };
        match get(&self.client, url, limits).await {
            Ok(body) => {
                missed::answered(member, &member.status.missed_scrapes, PATH);
                let scraped = parse(&String::from_utf8_lossy(&body), member.model().as_deref());
                self.take(member, (scraped, memory));
                true
            }
            Err(error) => {
                self.results.with_label_values(&[label(&error)]).inc();
                missed::failed(member, &member.status.missed_scrapes, (PATH, url, &error));
                false
            }
        }
    }

    /// Takes over what an engine answered. Without series of the worker's model its load stays unknown.
    fn take(&self, member: &Member, (scraped, memory): (Option<Scraped>, &mut Memory)) {
        let Some(scraped) = scraped else {
            self.results.with_label_values(&["no_series"]).inc();
            if !std::mem::replace(&mut memory.silent, true) {
                let (worker, model) = (&member.worker.name, member.model());
                tracing::warn!(%worker, ?model, "the engine's metrics have no load of this model_name");
            }
            return;
        };
        memory.silent = false;
        self.results.with_label_values(&["ok"]).inc();
        self.load.record_scrape(member.worker.id, scraped.load);
        if let Some(asleep) = scraped.asleep {
            let was = member.status.asleep.swap(asleep, Ordering::Relaxed);
            if was != asleep {
                let (worker, now) = (
                    &member.worker.name,
                    if asleep { "asleep: no traffic until it wakes" } else { "awake again" },
                );
                tracing::info!(%worker, "the engine is {now}");
            }
        }
        if memory.work.filled_blocks(&scraped, member.worker.set.kv_block_size) {
            member.status.kv_expected.notify_one();
        }
    }

    /// Whether a worker whose responses kept failing answers on its HTTP base. One without any is given
    /// the benefit of the doubt: the next responses tell.
    async fn probe(&self, member: &Member) -> bool {
        let Some(base) = &member.worker.http_url else { return true };
        let url = format!("{}/health", base.trim_end_matches('/'));
        let limits = Limits { timeout: self.timeout(), bytes: MAX_BYTES };
        match get(&self.client, &url, limits).await {
            Ok(_) => true,
            // No such path, or not for us: but it is there and answers.
            Err(FetchError::Status(status)) => status < 500,
            Err(_) => false,
        }
    }

    fn timeout(&self) -> Duration {
        self.poll.clamp(MIN_TIMEOUT, MAX_TIMEOUT)
    }
}

const fn label(error: &FetchError) -> &'static str {
    match error {
        FetchError::Timeout(_) => "timeout",
        FetchError::Transport(_) => "transport",
        FetchError::Status(_) => "status",
        FetchError::TooLarge(_) => "too_large",
    }
}
