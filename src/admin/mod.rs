//! HTTP for operators on `admin_listen`: the dashboard at `/`, `/metrics`, `/readyz`, `/livez` and `/api`; what changes
//! anything is in `writes`.

mod dashboard;
mod decisions;
mod guard;
mod live;
mod writes;

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use serde::Serialize;
use tokio::net::TcpListener;

pub use guard::CHANGE_HEADER;
pub use writes::{Cordon, Logged, Refused};

use crate::{
    fleet::{Besides, Readiness, readiness},
    kubernetes::{WatchReport, WatchState, Watches},
    observe::{Decisions, LogFilter, Metrics},
    pipeline::Calibrations,
    roster::Roster,
};

pub use dashboard::Dashboard;
pub use live::run as follow;

/// What the admin endpoints show.
pub struct Admin {
    /// The fleet.
    pub roster: Roster,
    /// The latest decisions.
    pub decisions: Arc<Decisions>,
    /// What is learnt of how long engines take.
    pub calibrations: Arc<Calibrations>,
    /// Everything registered.
    pub metrics: Metrics,
    /// Set once SIGTERM came: not ready any more.
    pub draining: Arc<AtomicBool>,
    /// Whether the policies are known; true where none decide.
    pub policies_known: Arc<AtomicBool>,
    /// They have a provider that requests can be sent to.
    pub reaches_providers: Arc<AtomicBool>,
    /// What follows the Kubernetes API server, if anything does.
    pub watches: Option<Watches>,
    /// What is logged.
    pub log: LogFilter,
    /// What only the dashboard shows.
    pub dashboard: Dashboard,
}

/// What `/readyz` answers.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    readiness: Readiness,
    /// Watches of the Kubernetes API server that do not follow it: what they know is what was.
    behind: Vec<String>,
}

/// Serves until the process ends.
///
/// # Errors
/// The listener failed.
pub async fn run(listener: TcpListener, admin: Arc<Admin>) -> std::io::Result<Infallible> {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/readyz", get(readyz))
        .route("/livez", get(|| async { Json(serde_json::json!({"alive": true})) }))
        .route("/api/fleet", get(fleet_snapshot))
        .route("/api/calibration", get(calibration))
        .route("/api/decisions", get(decisions::latest))
        .route("/api/decisions/{*request_id}", get(decisions::of_request))
        .route("/api/events", get(live::events))
        .merge(writes::routes())
        .merge(dashboard::assets())
        .with_state(admin);
    axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Err(std::io::Error::other("the admin listener closed"))
}

async fn metrics(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], admin.metrics.render())
}

async fn readyz(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    let answer = admin.answer();
    let status = if answer.readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(answer))
}

impl Admin {
    /// What `/readyz` answers now.
    fn answer(&self) -> Answer {
        let besides = Besides {
            mock: self.roster.mock,
            providers: self.reaches_providers.load(Ordering::Relaxed),
            policies_unknown: !self.policies_known.load(Ordering::Relaxed),
            draining: self.draining.load(Ordering::Relaxed),
        };
        let readiness = readiness(&self.roster.registry, besides);
        let watches = self.watches.as_ref().map(Watches::report).unwrap_or_default();
        Answer { readiness, behind: watches.iter().filter_map(behind).collect() }
    }
}

/// What is wrong with a watch, and for how long, in seconds.
fn behind(watch: &WatchReport) -> Option<String> {
    let (since, why) = match &watch.state {
        WatchState::Current | WatchState::Forbidden => return None,
        WatchState::Waiting { since, why } => (since, why.as_ref()),
        WatchState::Behind { since, why } => (since, Some(why)),
    };
    // What keeps it names the resource.
    let what = why.map_or_else(|| format!("no answer yet on {}", watch.target()), |why| why.to_string());
    Some(format!("for {} s: {what}", since.elapsed().as_secs()))
}

async fn fleet_snapshot(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    Json(serde_json::json!({ "workers": admin.roster.workers() }))
}

async fn calibration(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    Json(admin.calibrations.learnt())
}
