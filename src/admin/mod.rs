//! HTTP for operators on `admin_listen`: `/metrics`, `/readyz`, `/livez`, `/api/fleet`. Read-only.

use std::{
    convert::Infallible,
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
use tokio::net::TcpListener;

use crate::{fleet::readiness, observe::Metrics, roster::Roster};

/// What the admin endpoints show.
pub struct Admin {
    /// The fleet.
    pub roster: Roster,
    /// Everything registered.
    pub metrics: Metrics,
    /// Whether workers answer without ingest.
    pub mock_mode: bool,
    /// Set once SIGTERM came: not ready any more.
    pub draining: Arc<AtomicBool>,
}

/// Serves until the process ends.
///
/// # Errors
/// The listener failed.
pub async fn run(listener: TcpListener, admin: Admin) -> std::io::Result<Infallible> {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/readyz", get(readyz))
        .route("/livez", get(|| async { Json(serde_json::json!({"alive": true})) }))
        .route("/api/fleet", get(fleet_snapshot))
        .with_state(Arc::new(admin));
    axum::serve(listener, router).await?;
    Err(std::io::Error::other("the admin listener closed"))
}

async fn metrics(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], admin.metrics.render())
}

async fn readyz(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    let mut answer = readiness(&admin.roster.registry.snapshot(), admin.mock_mode);
    if admin.draining.load(Ordering::Relaxed) {
        answer.ready = false;
        answer.reasons.insert(0, "shutting down".into());
    }
    let status = if answer.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(answer))
}

async fn fleet_snapshot(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    Json(serde_json::json!({ "workers": admin.roster.workers() }))
}
