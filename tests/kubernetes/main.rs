//! The `kubernetes` room against a real API server, and against one that misbehaves on purpose.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../apiserver/mod.rs"]
mod apiserver;
mod cluster;
mod election;
mod fake;
mod kinds;
#[path = "../apiserver/process.rs"]
mod process;
mod proxy;
mod replica;
mod secrets;
mod statuses;
mod watch_outages;
mod watches;

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something is so.
async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}
