//! The latest decisions over HTTP, newest first: all of them, and those over the requests of an id.
//!
//! Each is shown as `docs/decision-log.md` describes it, with its number and how its request ended.

use std::sync::Arc;

use axum::{
    extract::{Path, Query, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::observe::{Kept, Reach, ShownKept, shown_time};

use super::Admin;

/// Decisions of an answer, unless it is asked for more or fewer.
const LIMIT: usize = 50;
/// More than this no answer has.
const MOST: usize = 200;
/// Answers that are written at once. Each may have the candidates of a large fleet; decisions go first.
static WRITING: Semaphore = Semaphore::const_new(1);

/// Which of the latest decisions are asked for.
#[derive(Deserialize)]
pub(super) struct Asked {
    /// Only those after that number.
    #[serde(default)]
    after: u64,
    /// No more than these.
    #[serde(default = "limit")]
    limit: usize,
}

const fn limit() -> usize {
    LIMIT
}

#[derive(Serialize)]
struct Answer<'k> {
    decisions: Vec<ShownKept<'k>>,
    /// How many are remembered.
    kept: usize,
    /// RFC 3339, when the request of the oldest one came.
    oldest: Option<String>,
}

/// The newest `limit` after the number `after`.
pub(super) async fn latest(State(admin): State<Arc<Admin>>, Query(asked): Query<Asked>) -> Response {
    let mut newest = admin.decisions.after(asked.after, asked.limit.min(MOST));
    newest.reverse();
    answer(StatusCode::OK, newest, admin.decisions.reach()).await
}

/// All over requests of that id; 404 where there is none.
pub(super) async fn of_request(State(admin): State<Arc<Admin>>, Path(id): Path<String>) -> Response {
    let mut found = admin.decisions.of_request(&id);
    found.truncate(MOST);
    let status = if found.is_empty() { StatusCode::NOT_FOUND } else { StatusCode::OK };
    answer(status, found, admin.decisions.reach()).await
}

/// Written off the async threads.
async fn answer(status: StatusCode, found: Vec<Kept>, reach: Reach) -> Response {
    let write = move || {
        let oldest = reach.oldest.map(shown_time);
        let decisions = found.iter().map(ShownKept::from).collect();
        serde_json::to_vec(&Answer { decisions, kept: reach.kept, oldest })
    };
    let Ok(_one) = WRITING.acquire().await else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    match tokio::task::spawn_blocking(write).await {
        Ok(Ok(json)) => (status, [(CONTENT_TYPE, "application/json")], json).into_response(),
        failed => {
            tracing::error!(?failed, "decisions are not written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
