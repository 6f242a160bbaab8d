//! When a silent subscription is suspected dead: the engine's scrapes move and no event comes.
//!
//! A peer that vanished without closing is never noticed by ZeroMQ here. Suspicion costs a connection and a
//! short replay, so each one that proves nothing doubles the patience: prompts below a block publish nothing.

use std::time::Duration;

use tokio::time::Instant;

/// Scrapes that must have moved without an event.
const SCRAPES: u32 = 3;
/// How long at least without an event, at first.
const PATIENCE: Duration = Duration::from_secs(10);
/// And at most.
const MOST_PATIENCE: Duration = Duration::from_secs(600);

/// What is known of the silence.
#[derive(Clone, Debug)]
pub struct Silence {
    since: Instant,
    moved: u32,
    patience: Duration,
}

impl Silence {
    /// From now on.
    pub fn new(now: Instant) -> Self {
        Self { since: now, moved: 0, patience: PATIENCE }
    }

    /// A live message came.
    pub fn broken(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// A scrape moved; whether the connection is to be suspected now.
    pub fn scrape_moved(&mut self, now: Instant) -> bool {
        self.moved += 1;
        let suspect = self.moved >= SCRAPES && now.duration_since(self.since) >= self.patience;
        if suspect {
            self.since = now;
            self.moved = 0;
            self.patience = (self.patience * 2).min(MOST_PATIENCE);
        }
        suspect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_lasting_silence_under_load_is_suspected() {
        let mut silence = Silence::new(Instant::now());
        assert!(!(0..100).any(|_| silence.scrape_moved(Instant::now())), "too early");
        tokio::time::advance(PATIENCE).await;
        assert!(silence.scrape_moved(Instant::now()));
        tokio::time::advance(PATIENCE).await;
        assert!(!(0..100).any(|_| silence.scrape_moved(Instant::now())), "patience doubled");
        tokio::time::advance(PATIENCE).await;
        assert!(silence.scrape_moved(Instant::now()));
        silence.broken(Instant::now());
        tokio::time::advance(PATIENCE).await;
        let told: Vec<bool> = (0..3).map(|_| silence.scrape_moved(Instant::now())).collect();
        assert_eq!(told, [false, false, true], "a message restores the first patience");
    }
}
