//! What the ranks of a worker say of themselves, made into the one `status.kv` of the worker: the worst.
//!
//! Owner: `Follower::run`. Invariant: the only writer of `status.kv` and `kv_begun`, and under one lock, so that two ranks that
//! change at once leave no state behind that neither is in.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::{
    fleet::{KvState, Member},
    types::Rank,
};

/// The states of one worker's ranks.
pub struct Board {
    member: Arc<Member>,
    known: Mutex<Known>,
    changed: Notify,
}

#[derive(Default)]
struct Known {
    /// Each with the moment from which it has been so.
    ranks: BTreeMap<Rank, (KvState, Instant)>,
    /// What the worker is while no rank is followed.
    without: KvState,
}

impl Board {
    /// No rank is followed yet.
    pub fn new(member: Arc<Member>) -> Self {
        Self { member, known: Mutex::default(), changed: Notify::new() }
    }

    /// A rank's state; whether it is another one than before.
    pub fn say(&self, rank: Rank, state: KvState) -> bool {
        let mut known = self.known.lock();
        if known.ranks.get(&rank).is_some_and(|(before, _)| *before == state) {
            return false;
        }
        known.ranks.insert(rank, (state, Instant::now()));
        self.show(&known);
        true
    }

    /// A rank is followed no more.
    pub fn forget(&self, rank: Rank) {
        let mut known = self.known.lock();
        known.ranks.remove(&rank);
        self.show(&known);
    }

    /// What the worker is while no rank is followed.
    pub fn without(&self, state: KvState) {
        let mut known = self.known.lock();
        known.without = state;
        self.show(&known);
    }

    /// The worker as a whole is given up, in words.
    pub fn evict(&self, words: &str) {
        let mut known = self.known.lock();
        known.ranks.clear();
        known.without = KvState::Evicted(words.to_owned());
        self.show(&known);
    }

    /// The rank as logs name it: only where there are several.
    pub fn named(&self, rank: Rank) -> Option<u32> {
        (self.known.lock().ranks.len() > 1).then_some(rank.0)
    }

    /// Returns when some rank has been without a connection for as long as `patience`.
    pub async fn lost(&self, patience: Duration) {
        loop {
            match self.lost_since().map(|since| since + patience) {
                Some(due) if due <= Instant::now() => return,
                Some(due) => tokio::select! {
                    () = sleep_until(due) => {}
                    () = self.changed.notified() => {}
                },
                None => self.changed.notified().await,
            }
        }
    }

    fn lost_since(&self) -> Option<Instant> {
        let known = self.known.lock();
        let lost = known.ranks.values().filter(|(state, _)| *state == KvState::Disconnected);
        lost.map(|(_, since)| *since).min()
    }

    fn show(&self, known: &Known) {
        let state = worst(known.ranks.values().map(|(state, _)| state)).unwrap_or(&known.without);
        if **self.member.status.kv.load() != *state {
            self.member.status.kv.store(Arc::new(state.clone()));
            if matches!(state, KvState::Synced | KvState::LiveOnly) {
                self.member.status.kv_begun.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.changed.notify_one();
    }
}

/// Of several states, the one that a prediction can rely on least.
fn worst<'a>(states: impl Iterator<Item = &'a KvState>) -> Option<&'a KvState> {
    states.max_by_key(|state| match state {
        KvState::Synced => 0,
        KvState::LiveOnly => 1,
        KvState::Replaying => 2,
        KvState::Unknown => 3,
        KvState::Disconnected => 4,
        KvState::Evicted(_) => 5,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::kv::testing::member;

    fn evicted() -> KvState {
        KvState::Evicted("why".into())
    }

    #[test]
    fn the_worst_rank_is_the_state_of_the_worker() {
        let order = [
            KvState::Synced,
            KvState::LiveOnly,
            KvState::Replaying,
            KvState::Unknown,
            KvState::Disconnected,
            evicted(),
        ];
        for (i, one) in order.iter().enumerate() {
            for (j, other) in order.iter().enumerate() {
                let board = Board::new(member());
                assert!(board.say(Rank(0), one.clone()));
                assert!(board.say(Rank(1), other.clone()));
                assert_eq!(**board.member.status.kv.load(), order[i.max(j)], "{one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn a_rank_that_is_forgotten_counts_no_more() {
        let board = Board::new(member());
        let shown = || KvState::clone(&board.member.status.kv.load());
        board.without(KvState::Disconnected);
        assert_eq!(shown(), KvState::Disconnected);
        board.say(Rank(0), KvState::Synced);
        assert_eq!((shown(), board.named(Rank(0))), (KvState::Synced, None));
        board.say(Rank(1), KvState::Disconnected);
        assert_eq!((shown(), board.named(Rank(1))), (KvState::Disconnected, Some(1)));
        board.forget(Rank(1));
        assert_eq!((shown(), board.named(Rank(0))), (KvState::Synced, None));
        board.forget(Rank(0));
        assert_eq!(shown(), KvState::Disconnected);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_lasting_loss_is_told() {
        let patience = Duration::from_secs(3);
        let board = Arc::new(Board::new(member()));
        board.say(Rank(0), KvState::Synced);
        board.say(Rank(1), KvState::Disconnected);
        let begun = Instant::now();
        let flapping = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            board.say(Rank(1), KvState::Replaying);
            tokio::time::sleep(Duration::from_secs(2)).await;
            board.say(Rank(1), KvState::Disconnected);
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(!board.say(Rank(1), KvState::Disconnected), "said again, it lasts on");
        };
        tokio::join!(board.lost(patience), flapping);
        assert_eq!(begun.elapsed(), Duration::from_secs(2 + 2 + 3));
    }
}
