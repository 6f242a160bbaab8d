//! Whether this replica leads, and until when it may write.
//!
//! Invariant: a write begins only under a permit, ends by the permit's deadline, and the lease is given up only after all
//! permits are back.

use tokio::{sync::watch, time::Instant};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

/// Whether this replica leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leading {
    /// Another does, or nobody.
    No,
    /// It does, and may write until then. A renewal moves that on.
    Until(Instant),
    /// It does for good: leader election is off.
    Always,
}

/// Tells whether this replica leads. Cheap to clone.
#[derive(Clone)]
pub struct Leadership {
    leading: watch::Receiver<Leading>,
    writes: TaskTracker,
}

/// Leave to write.
pub struct Permit {
    /// When the write must have ended; `None`: no matter when.
    pub deadline: Option<Instant>,
    _held: TaskTrackerToken,
}

impl Leadership {
    /// And what tells it.
    pub(super) fn new(leading: Leading) -> (watch::Sender<Leading>, Self) {
        let (tell, leading) = watch::channel(leading);
        (tell, Self { leading, writes: TaskTracker::new() })
    }

    /// Leave to write, if this replica leads now.
    pub fn permit(&self) -> Option<Permit> {
        // Taken before the look: who gives the lease up turns this off first and waits for tokens after.
        let held = self.writes.token();
        match *self.leading.borrow() {
            Leading::No => None,
            Leading::Until(end) if end <= Instant::now() => None,
            Leading::Until(end) => Some(Permit { deadline: Some(end), _held: held }),
            Leading::Always => Some(Permit { deadline: None, _held: held }),
        }
    }

    /// It leads now.
    pub fn leads(&self) -> bool {
        self.permit().is_some()
    }

    /// Waits until it is told otherwise than it was when this returned the last time; a renewal counts. For ever
    /// if nothing tells it any more.
    pub async fn changed(&mut self) {
        if self.leading.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// Waits until no permit is held.
    pub(super) async fn written(&self) {
        self.writes.close();
        self.writes.wait().await;
        self.writes.reopen();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn permits_end_with_the_lease() {
        let (tell, leadership) = Leadership::new(Leading::No);
        assert!(!leadership.leads());
        let end = Instant::now() + Duration::from_secs(3);
        tell.send_replace(Leading::Until(end));
        assert_eq!(leadership.permit().unwrap().deadline, Some(end));
        sleep(Duration::from_secs(3)).await;
        assert!(leadership.permit().is_none());
        tell.send_replace(Leading::Always);
        assert_eq!(leadership.permit().unwrap().deadline, None);
    }

    #[tokio::test(start_paused = true)]
    async fn giving_up_waits_for_writes_under_way() {
        let (tell, leadership) = Leadership::new(Leading::Always);
        let permit = leadership.permit().unwrap();
        tell.send_replace(Leading::No);
        assert!(timeout(Duration::from_secs(1), leadership.written()).await.is_err());
        drop(permit);
        leadership.written().await;
    }
}
