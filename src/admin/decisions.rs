//! The latest decisions over HTTP, newest first: all of them, and those over the requests of an id.
//!
//! Each is shown as `docs/decision-log.md` describes it, with its number and how its request ended.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};

use crate::observe::{Kept, Reach, ShownKept, shown_time};

use super::Admin;

/// Decisions of an answer, unless it is asked for more or fewer.
const LIMIT: usize = 50;

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
    let mut newest = admin.decisions.after(asked.after, asked.limit);
    newest.reverse();
    answer(StatusCode::OK, &newest, admin.decisions.reach())
}

/// All over requests of that id; 404 where there is none.
pub(super) async fn of_request(State(admin): State<Arc<Admin>>, Path(id): Path<String>) -> Response {
    let found = admin.decisions.of_request(&id);
    let status = if found.is_empty() { StatusCode::NOT_FOUND } else { StatusCode::OK };
    answer(status, &found, admin.decisions.reach())
}

fn answer(status: StatusCode, found: &[Kept], reach: Reach) -> Response {
    let oldest = reach.oldest.map(shown_time);
    let decisions = found.iter().map(ShownKept::from).collect();
    (status, Json(Answer { decisions, kept: reach.kept, oldest })).into_response()
}
