//! The running subscriptions of one worker: one for each data-parallel rank that is wanted.
//!
//! Owner: `Follower::run`. Invariant: a rank whose sockets stay the same is left alone, whatever becomes of the
//! others; a rank that goes takes its blocks and its state along.

use std::{collections::BTreeMap, sync::Arc};

use futures::{
    StreamExt,
    future::{AbortHandle, Abortable, BoxFuture},
    stream::FuturesUnordered,
};
use tokio::sync::{Notify, watch};

use super::{
    Follower,
    board::Board,
    subscription::{Evicted, Subscriber, Subscription},
};
use crate::{
    cache::CacheWriter,
    fleet::{KvSockets, KvState, Member},
    types::Rank,
};

/// The subscriptions of one worker.
pub struct Ranks {
    follower: Follower,
    member: Arc<Member>,
    board: Arc<Board>,
    running: BTreeMap<Rank, Running>,
    /// One task for all ranks: dropping it ends them all at once, and none writes behind another's back.
    subscribers: FuturesUnordered<Abortable<BoxFuture<'static, Evicted>>>,
}

struct Running {
    sockets: KvSockets,
    expected: Arc<Notify>,
    stop: AbortHandle,
}

impl Ranks {
    /// None runs yet.
    pub fn new(follower: Follower, member: Arc<Member>, board: Arc<Board>) -> Self {
        Self { follower, member, board, running: BTreeMap::new(), subscribers: FuturesUnordered::new() }
    }

    /// Follows the ranks that are wanted, until one of them has the worker evicted.
    pub async fn run(mut self, mut wanted: watch::Receiver<Vec<KvSockets>>) -> Evicted {
        loop {
            let sockets = wanted.borrow_and_update().clone();
            self.adjust(sockets);
            if let Some(evicted) = self.until_changed(&mut wanted).await {
                return evicted;
            }
        }
    }

    async fn until_changed(&mut self, wanted: &mut watch::Receiver<Vec<KvSockets>>) -> Option<Evicted> {
        let member = self.member.clone();
        loop {
            tokio::select! {
                ended = self.subscribers.next(), if !self.subscribers.is_empty() => {
                    // One that was stopped ends, too, and has nothing to say.
                    if let Some(Ok(evicted)) = ended {
                        return Some(evicted);
                    }
                }
                () = member.status.kv_expected.notified() => {
                    self.running.values().for_each(|rank| rank.expected.notify_one());
                }
                Ok(()) = wanted.changed() => return None,
            }
        }
    }

    fn adjust(&mut self, sockets: Vec<KvSockets>) {
        let wanted: BTreeMap<Rank, KvSockets> =
            sockets.into_iter().map(|sockets| (sockets.rank, sockets)).collect();
        let gone: Vec<Rank> = self
            .running
            .iter()
            .filter(|(rank, running)| wanted.get(rank) != Some(&running.sockets))
            .map(|(rank, _)| *rank)
            .collect();
        gone.into_iter().for_each(|rank| self.stop(rank));
        let new: Vec<KvSockets> =
            wanted.into_values().filter(|sockets| !self.running.contains_key(&sockets.rank)).collect();
        // All before any begins, so that each knows whether it is alone.
        for sockets in &new {
            self.board.say(sockets.rank, KvState::Unknown);
        }
        new.into_iter().for_each(|sockets| self.start(sockets));
    }

    fn start(&mut self, sockets: KvSockets) {
        let expected = Arc::new(Notify::new());
        let subscription = Subscription {
            sockets: sockets.clone(),
            replay_timeout: self.follower.replay_timeout,
            expected: expected.clone(),
        };
        let room = (self.writer(sockets.rank), self.follower.metrics.clone(), self.board.clone());
        let subscriber = Subscriber::new(subscription, self.member.clone(), room);
        let future: BoxFuture<'static, Evicted> = Box::pin(subscriber.run());
        let (future, stop) = futures::future::abortable(future);
        self.subscribers.push(future);
        self.running.insert(sockets.rank, Running { sockets, expected, stop });
    }

    fn stop(&mut self, rank: Rank) {
        if let Some(running) = self.running.remove(&rank) {
            running.stop.abort();
        }
        // Fences the writer of the rank, which clears what it held.
        drop(self.writer(rank));
        self.board.forget(rank);
    }

    fn writer(&self, rank: Rank) -> CacheWriter {
        let worker = &self.member.worker;
        self.follower.index.writer(worker.id, rank, worker.set.kv_block_size)
    }
}
