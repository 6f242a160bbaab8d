//! The dashboard's page: static files that are part of the program. What it shows comes from `live`.
//!
//! Invariant: the page loads nothing from elsewhere, and a browser is told so.

use std::sync::Arc;

use axum::{
    Router,
    http::{HeaderName, header},
    response::IntoResponse,
    routing::get,
};

use super::{Admin, live::Live};
use crate::{pipeline::PoliciesInForce, policy::Notices};

/// What only the dashboard shows, and what its listeners share.
#[derive(Default)]
pub struct Dashboard {
    /// The name of this process among the replicas.
    pub replica: Arc<str>,
    /// Workers that are shown at once.
    pub max_workers: usize,
    /// The policies that decide.
    pub policies: PoliciesInForce,
    /// Where everything stands that is declared.
    pub notices: Notices,
    /// Between the one who looks and those who listen.
    pub live: Live,
}

/// A file of the page: where it is served, its type, its content.
type Asset = (&'static str, &'static str, &'static str);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const ASSETS: [Asset; 11] = [
    ("/", HTML, include_str!("assets/index.html")),
    ("/dashboard/style.css", CSS, include_str!("assets/style.css")),
    ("/dashboard/app.js", SCRIPT, include_str!("assets/app.js")),
    ("/dashboard/dom.js", SCRIPT, include_str!("assets/dom.js")),
    ("/dashboard/fleet.js", SCRIPT, include_str!("assets/fleet.js")),
    ("/dashboard/charts.js", SCRIPT, include_str!("assets/charts.js")),
    ("/dashboard/panels.js", SCRIPT, include_str!("assets/panels.js")),
    ("/dashboard/providers.js", SCRIPT, include_str!("assets/providers.js")),
    ("/dashboard/decisions.js", SCRIPT, include_str!("assets/decisions.js")),
    ("/dashboard/detail.js", SCRIPT, include_str!("assets/detail.js")),
    ("/dashboard/icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

/// Nothing from elsewhere, nothing inline, in nobody's frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

const HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    // Another version of the program has another page.
    (header::CACHE_CONTROL, "no-cache"),
];

/// The files of the page.
pub(super) fn assets() -> Router<Arc<Admin>> {
    ASSETS.into_iter().fold(Router::new(), |router, (path, kind, content)| {
        router.route(path, get(async move || answer(kind, content)))
    })
}

fn answer(kind: &'static str, content: &'static str) -> impl IntoResponse {
    (HEADERS, [(header::CONTENT_TYPE, kind)], content)
}
