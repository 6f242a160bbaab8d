//! Statuses of resources: said by anybody in the process, written only by the replica that leads.
//!
//! Invariant: a write is sent only under a permit of the leadership and is cut off at its deadline. Statuses are written as
//! JSON merge patches that name the version they are for, not by server-side apply: with it, conditions would need the
//! CRD's list to be a map, and a write that a partition held up could still land after a later leader's.

mod book;
mod merge;
#[cfg(test)]
mod tests;

use std::{convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use kube::{
    Client, Error, Resource,
    api::{GetParams, Patch, PatchParams, Request},
};
use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGauge};
use rand::{SeedableRng, rngs::StdRng};
use serde::Serialize;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout_at},
};

pub use merge::{Verdict, Wanted};

use self::book::{Book, Job, Key, Next, Present};
use super::{
    failure::{ApiError, Failure, Verb},
    instruments::Errors,
    lease::Leadership,
};
use crate::observe::Metrics;

/// Who we are in `managedFields`.
const MANAGER: &str = "kinference";
/// How long one write may take, if leadership lasts.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where statuses are said. Cheap to clone.
#[derive(Clone)]
pub struct StatusDesk(Arc<Shared>);

struct Shared {
    book: Mutex<Book>,
    news: Notify,
}

impl StatusDesk {
    /// And what writes them, for as long as it runs.
    pub fn new(
        client: Client,
        leadership: Leadership,
        metrics: &Metrics,
    ) -> (Self, impl Future<Output = Infallible> + Send + use<>) {
        let book = Mutex::new(Book::new(StdRng::from_os_rng()));
        let shared = Arc::new(Shared { book, news: Notify::new() });
        let errors = Errors::new(
            metrics,
            "kinference_kubernetes_status_errors_total",
            "Writes of statuses that failed, by verb and kind of failure.",
        );
        let writer = Writer {
            shared: shared.clone(),
            client,
            leadership,
            errors,
            pending: metrics
                .gauges(
                    "kinference_kubernetes_statuses_pending",
                    "Statuses that this replica wants changed.",
                    &[],
                )
                .with_label_values(&[] as &[&str]),
            writes: metrics.counters("kinference_kubernetes_status_writes_total", "Statuses written.", &[]),
        };
        (Self(shared), writer.run())
    }

    /// The status of `object` is to say this. It is compared with what it says in `object`, so say it again of every
    /// new version. Later words replace earlier ones.
    pub fn say<K>(&self, object: &K, wanted: Wanted)
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        self.0.book.lock().say(object, wanted);
        self.0.news.notify_one();
    }

    /// The object is gone, or no more ours to speak of.
    pub fn forget<K: Resource<DynamicType = ()>>(&self, object: &K) {
        self.0.book.lock().forget(&Key::of(object));
    }
}

struct Writer {
    shared: Arc<Shared>,
    client: Client,
    leadership: Leadership,
    errors: Errors,
    pending: IntGauge,
    writes: IntCounterVec,
}

impl Writer {
    async fn run(mut self) -> Infallible {
        loop {
            let next = self.next();
            let until = match next {
                Next::Write(job) => match self.write(&job).await {
                    true => continue,
                    false => None,
                },
                Next::At(until) => Some(until),
                Next::Nothing => None,
            };
            let due = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.shared.news.notified() => {}
                () = self.leadership.changed() => {}
                () = due => {}
            }
        }
    }

    fn next(&self) -> Next {
        let book = self.shared.book.lock();
        self.pending.set(i64::try_from(book.pending()).unwrap_or(i64::MAX));
        book.next(Instant::now(), Timestamp::now())
    }

    /// Whether it was for us to write.
    async fn write(&self, job: &Job) -> bool {
        let Some(permit) = self.leadership.permit() else { return false };
        let limit = Instant::now() + PATIENCE;
        let limit = permit.deadline.map_or(limit, |deadline| deadline.min(limit));
        let wrote = self.patch(job, limit).await;
        let reread = match &wrote {
            Err(error) if error.failure == Failure::Conflict => {
                self.errors.count(error);
                Some(self.get(job, limit).await)
            }
            _ => None,
        };
        drop(permit);
        self.settle(job, reread.is_some(), reread.unwrap_or(wrote));
        true
    }

    fn settle(&self, job: &Job, reread: bool, came: Result<Present, ApiError>) {
        let mut book = self.shared.book.lock();
        let now = Instant::now();
        match came {
            Ok(present) if reread => book.reread(job, present, now),
            Ok(present) => {
                self.writes.with_label_values(&[] as &[&str]).inc();
                if book.wrote(job, present, now) {
                    tracing::info!("statuses are written again");
                }
            }
            Err(error) => {
                self.errors.count(&error);
                if book.failed(job, &error.failure, now) {
                    tracing::warn!(name = job.key.name, %error, "a status can't be written; there may be more");
                }
            }
        }
    }

    async fn patch(&self, job: &Job, limit: Instant) -> Result<Present, ApiError> {
        let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        let patch = Patch::Merge(job.body());
        let request = Request::new(&job.key.path).patch_subresource("status", &job.key.name, &params, &patch);
        self.ask((Verb::Patch, job), request, limit).await
    }

    async fn get(&self, job: &Job, limit: Instant) -> Result<Present, ApiError> {
        let request = Request::new(&job.key.path).get(&job.key.name, &GetParams::default());
        self.ask((Verb::Get, job), request, limit).await
    }

    async fn ask(
        &self,
        (verb, job): (Verb, &Job),
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
        limit: Instant,
    ) -> Result<Present, ApiError> {
        let error = |failure| ApiError { verb, target: job.target.clone(), failure };
        let asking = async {
            let text = self.client.request_text(request.map_err(Error::BuildRequest)?).await?;
            serde_json::from_str(&text).map_err(Error::SerdeError)
        };
        match timeout_at(limit, asking).await {
            Ok(answer) => answer.map(Present::parse).map_err(|failure| error(Failure::of(failure, false))),
            Err(_) => Err(error(Failure::TimedOut)),
        }
    }
}
