//! gRPC health: who may be sent traffic, under the names that gateways and probes ask for.
//!
//! `liveness` and the empty name say that the process runs; `readiness` and the ext_proc service's name follow
//! the readiness of the fleet. While draining, only `liveness` serves.

use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_server::SERVICE_NAME;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic_health::{ServingStatus, server::HealthReporter};

const OVERALL: &str = "";
const LIVENESS: &str = "liveness";
const READINESS: &str = "readiness";

/// Keeps the reported health true until `shutdown`.
pub async fn follow(reporter: HealthReporter, mut ready: watch::Receiver<bool>, shutdown: CancellationToken) {
    set(&reporter, &[OVERALL, LIVENESS], true).await;
    loop {
        let now = *ready.borrow_and_update();
        set(&reporter, &[READINESS, SERVICE_NAME], now).await;
        tokio::select! {
            () = shutdown.cancelled() => break,
            changed = ready.changed() => if changed.is_err() {
                // Nobody tells any more: what was last said stands.
                shutdown.cancelled().await;
                break;
            },
        }
    }
    set(&reporter, &[OVERALL, READINESS, SERVICE_NAME], false).await;
}

async fn set(reporter: &HealthReporter, names: &[&str], serving: bool) {
    let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    for name in names {
        reporter.set_service_status(*name, status).await;
    }
}
