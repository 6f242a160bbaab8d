//! What the dashboard shows, live: one ticker reads every decision and makes a frame of all that is shown, `/api/events`
//! tells listeners what changed. `docs/dashboard.md` has the shape.
//!
//! Owner: the ticker, a task of the process. Invariant: bounded listeners, none of them has a queue; frames are made only
//! while somebody listens.

mod clock;
mod compose;
mod events;
mod frame;
mod histogram;
mod listener;
mod news;
mod policies;
mod providers;
mod reader;
mod recent;
mod series;

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{
    sync::{Notify, Semaphore, watch},
    time::{Instant, MissedTickBehavior, interval},
};

pub(super) use events::events;

use self::{compose::Composer, frame::Frame};
use super::Admin;

/// How often what is new is looked at, and told.
const TICK: Duration = Duration::from_millis(500);
/// Listeners at once.
const MOST_LISTENERS: usize = 32;

/// Between the ticker and the listeners.
pub struct Live {
    frames: watch::Sender<Arc<Frame>>,
    /// Somebody waits for a frame.
    wanted: Notify,
    seats: Arc<Semaphore>,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            frames: watch::Sender::default(),
            wanted: Notify::new(),
            seats: Arc::new(Semaphore::new(MOST_LISTENERS)),
        }
    }
}

impl Live {
    /// Frames from now on; the first comes at once.
    fn listen(&self) -> watch::Receiver<Arc<Frame>> {
        let mut frames = self.frames.subscribe();
        let made = frames.borrow_and_update().made;
        if made.is_some_and(|made| made.elapsed() <= TICK) {
            frames.mark_changed();
        } else {
            self.wanted.notify_one();
        }
        frames
    }
}

/// Reads what is decided, for ever, and makes frames of it while somebody listens.
pub async fn run(admin: Arc<Admin>) -> Infallible {
    let mut composer = Composer::default();
    let started = Instant::now();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = admin.dashboard.live.wanted.notified() => {}
        }
        composer.read(&admin, started.elapsed());
        if admin.dashboard.live.frames.receiver_count() > 0 {
            admin.dashboard.live.frames.send_replace(Arc::new(composer.frame(&admin, started.elapsed())));
        } else {
            composer.rest();
        }
    }
}

/// Milliseconds since the epoch.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
