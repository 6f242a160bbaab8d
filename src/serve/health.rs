//! gRPC health: who may be sent traffic, under the names that gateways and probes ask for.
//!
//! `liveness`, the empty name and services that need no fleet say that the process runs; `readiness` and the
//! services that route follow the readiness of the fleet. Once the server stops, only `liveness` serves.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic_health::{ServingStatus, server::HealthReporter};

const OVERALL: &str = "";
const LIVENESS: &str = "liveness";
const READINESS: &str = "readiness";

/// The full names of services, by what their health follows.
pub struct Names {
    /// The server's own.
    pub always: Vec<&'static str>,
    /// The fleet's.
    pub ready: Vec<&'static str>,
}

impl Default for Names {
    fn default() -> Self {
        Self { always: vec![OVERALL], ready: vec![READINESS] }
    }
}

/// Reports all names for the first time: nobody is to find that a service is not there while it is.
pub async fn begin(reporter: &HealthReporter, names: &Names, ready: bool) {
    set(reporter, &[LIVENESS], true).await;
    set(reporter, &names.always, true).await;
    set(reporter, &names.ready, ready).await;
}

/// Keeps the reported health true until `shutdown`.
pub async fn follow(
    reporter: HealthReporter,
    names: Names,
    mut ready: watch::Receiver<bool>,
    shutdown: CancellationToken,
) {
    loop {
        let now = *ready.borrow_and_update();
        set(&reporter, &names.ready, now).await;
        tokio::select! {
            () = shutdown.cancelled() => break,
            changed = ready.changed() => if changed.is_err() {
                // Nobody tells any more: what was last said stands.
                shutdown.cancelled().await;
                break;
            },
        }
    }
    set(&reporter, &names.always, false).await;
    set(&reporter, &names.ready, false).await;
}

async fn set(reporter: &HealthReporter, names: &[&str], serving: bool) {
    let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    for name in names {
        reporter.set_service_status(*name, status).await;
    }
}
