//! Tells gRPC health what `/readyz` says, a moment later.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::{Task, policies::Policies};
use crate::fleet::{self, Besides, Registry};

/// How stale gRPC health may be.
const READINESS_POLL: Duration = Duration::from_millis(200);

/// Tells the gRPC health service whether the fleet can serve, by policies that are known.
pub(super) async fn follow(
    ready: watch::Sender<bool>,
    registry: Arc<Registry>,
    (mock, draining, policies): (bool, Arc<AtomicBool>, Policies),
) -> (&'static str, Task) {
    loop {
        let besides = Besides {
            mock,
            providers: policies.reach_providers.load(Ordering::Relaxed),
            policies_unknown: !policies.known.load(Ordering::Relaxed),
            draining: draining.load(Ordering::Relaxed),
        };
        let now = fleet::readiness(&registry, besides).ready;
        ready.send_if_modified(|was| std::mem::replace(was, now) != now);
        tokio::time::sleep(READINESS_POLL).await;
    }
}
