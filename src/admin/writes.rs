//! What operators change on a running server over `admin_listen`: cordons by hand, and what is logged. JSON in and out.
//!
//! Owner of `status.cordoned`. Invariant: nothing here is reached by whom `guard` refuses.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
};

use axum::{
    Json, Router,
    extract::{ConnectInfo, Path, Request, State, rejection::JsonRejection},
    http::StatusCode,
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::{get, put},
};
use serde::{Deserialize, Serialize};

use super::{Admin, guard::refusal};
use crate::{
    fleet::{Availability, Member},
    observe::LogFilterError,
};

/// Whether a worker is taken out of new picks, and who says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cordon {
    /// `worker_id_str`
    pub worker: String,
    /// One of the two below says so.
    pub cordoned: bool,
    /// Its workers file does.
    pub by_file: bool,
    /// Somebody did, on this server.
    pub by_hand: bool,
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Logged {
    /// As the variable `RUST_LOG` has it, such as `info,kinference=debug`.
    pub filter: String,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// In words.
    pub error: String,
}

type Answer<T> = Result<Json<T>, (StatusCode, Json<Refused>)>;

/// The routes, guarded.
pub(super) fn routes() -> Router<Arc<Admin>> {
    Router::new()
        .route("/api/workers/{name}/cordon", put(cordon).delete(uncordon))
        .route("/api/log", get(logged).put(log))
        .route_layer(from_fn(guarded))
}

async fn guarded(ConnectInfo(peer): ConnectInfo<SocketAddr>, request: Request, next: Next) -> Response {
    match refusal(peer, request.headers()) {
        Some(why) => refused(StatusCode::FORBIDDEN, why).into_response(),
        None => next.run(request).await,
    }
}

fn refused(status: StatusCode, error: impl Into<String>) -> (StatusCode, Json<Refused>) {
    (status, Json(Refused { error: error.into() }))
}

async fn cordon(State(admin): State<Arc<Admin>>, Path(name): Path<String>) -> Answer<Cordon> {
    let member = member(&admin, &name)?;
    if !member.status.cordoned.swap(true, Ordering::Relaxed) {
        tracing::info!(worker = name, "cordoned by hand: it gets no new requests");
    }
    Ok(Json(Cordon::of(&member)))
}

async fn uncordon(State(admin): State<Arc<Admin>>, Path(name): Path<String>) -> Answer<Cordon> {
    let member = member(&admin, &name)?;
    let was = member.status.cordoned.swap(false, Ordering::Relaxed);
    let now = Cordon::of(&member);
    if was {
        tracing::info!(worker = name, still_by_file = now.by_file, "not cordoned by hand any more");
    }
    if now.by_file {
        let why = format!("`{name}` stays cordoned: its workers file says `cordoned = true`");
        return Err(refused(StatusCode::CONFLICT, why));
    }
    Ok(Json(now))
}

async fn logged(State(admin): State<Arc<Admin>>) -> Answer<Logged> {
    admin.log.now().map(|filter| Json(Logged { filter })).map_err(not_logged)
}

async fn log(State(admin): State<Arc<Admin>>, asked: Result<Json<Logged>, JsonRejection>) -> Answer<Logged> {
    let Json(asked) = asked.map_err(|bad| refused(bad.status(), bad.body_text()))?;
    admin.log.set(&asked.filter).map_err(not_logged)?;
    logged(State(admin)).await
}

fn not_logged(why: LogFilterError) -> (StatusCode, Json<Refused>) {
    let status = match why {
        LogFilterError::Gone(_) => StatusCode::INTERNAL_SERVER_ERROR,
        LogFilterError::Directive(_) | LogFilterError::Grammar(..) => StatusCode::BAD_REQUEST,
    };
    refused(status, why.to_string())
}

fn member(admin: &Admin, name: &str) -> Result<Arc<Member>, (StatusCode, Json<Refused>)> {
    let fleet = admin.roster.registry.snapshot();
    let found = fleet.values().find(|member| &*member.worker.name == name);
    found.cloned().ok_or_else(|| refused(StatusCode::NOT_FOUND, format!("no worker is called `{name}`")))
}

impl Cordon {
    fn of(member: &Member) -> Self {
        Self {
            worker: member.worker.name.to_string(),
            cordoned: member.cordoned(),
            by_file: member.worker.availability == Availability::Cordoned,
            by_hand: member.status.cordoned.load(Ordering::Relaxed),
        }
    }
}
