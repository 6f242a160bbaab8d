//! Polls of an engine that fail in a row: they are counted, and what follows from them is said once, by a line.
//!
//! Invariant: a line says that the worker is failing, or is not any more, only if this poll made it so.

use std::{
    fmt::Display,
    sync::atomic::{AtomicU32, Ordering},
};

use crate::fleet::{MISSED_POLLS_TO_FAIL, Member};

/// A poll of `what`, at that URL, failed; how many in a row have now.
pub fn failed(member: &Member, missed: &AtomicU32, (what, url, error): (&str, &str, &dyn Display)) -> u32 {
    let before = member.failing();
    let now = missed.fetch_add(1, Ordering::Relaxed) + 1;
    if now == MISSED_POLLS_TO_FAIL {
        let then =
            if !before && member.failing() { "; it is failing: no traffic until it answers" } else { "" };
        tracing::warn!(worker = %member.worker.name, url, %error, "{what} can't be read{then}");
    }
    now
}

/// A poll of `what` was answered.
pub fn answered(member: &Member, missed: &AtomicU32, what: &str) {
    let before = member.failing();
    if missed.swap(0, Ordering::Relaxed) >= MISSED_POLLS_TO_FAIL {
        let then = if before && !member.failing() { "; it is failing no more: back in service" } else { "" };
        tracing::info!(worker = %member.worker.name, "{what} can be read again{then}");
    }
}
