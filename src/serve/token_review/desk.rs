//! Answers from memory, else asks, once at a time for each question however many wait for the answer.
//!
//! A question in flight belongs to all who wait for it: it goes on while one is left, for `default_deadline` at most,
//! and ends with the last. Failures are told to all of them and not remembered.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::{
    jwt,
    key::{Key, Keyer},
    memory::Memory,
    stats::{Lookup, Stats},
};
use crate::{
    config::TokenReviewConfig,
    kubernetes::{Question, ReviewError, Verdict},
};

/// Asks the API server.
pub type Ask = Box<dyn Fn(Question) -> BoxFuture<'static, Result<Verdict, ReviewError>> + Send + Sync>;

type Flown = Result<Arc<Verdict>, ReviewError>;
type Flight = Shared<BoxFuture<'static, Flown>>;

/// An answer and where it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What the API server said.
    pub verdict: Arc<Verdict>,
    /// It said so earlier.
    pub cached: bool,
}

/// Where questions are answered.
pub struct Desk {
    ask: Ask,
    keyer: Keyer,
    config: TokenReviewConfig,
    stats: Arc<Stats>,
    state: Mutex<State>,
    /// The failure that the log knows of.
    failing: Mutex<Option<ReviewError>>,
}

struct State {
    memory: Memory,
    /// With a number each: the next one under the same key may have begun when one is cleared away.
    flights: HashMap<Key, (u64, WeakShared<BoxFuture<'static, Flown>>)>,
    begun: u64,
}

enum Found {
    Known(Arc<Verdict>),
    Joined(Flight),
    Begun(Flight),
}

impl Desk {
    /// With nothing remembered.
    pub fn new(ask: Ask, config: TokenReviewConfig, (keyer, stats): (Keyer, Arc<Stats>)) -> Arc<Self> {
        let memory = Memory::new(config.max_cache_entries);
        let state = Mutex::new(State { memory, flights: HashMap::new(), begun: 0 });
        Arc::new(Self { ask, keyer, config, stats, state, failing: Mutex::default() })
    }

    /// The answer, within `budget` or `default_deadline`, whichever is less.
    ///
    /// # Errors
    /// There is none.
    pub async fn review(
        self: &Arc<Self>,
        question: Question,
        budget: Option<Duration>,
    ) -> Result<Answer, ReviewError> {
        let most = self.config.default_deadline;
        let budget = budget.map_or(most, |budget| budget.min(most));
        let answered = timeout(budget, self.answer(self.keyer.key(&question), question)).await;
        answered.unwrap_or(Err(ReviewError::TimedOut))
    }

    async fn answer(self: &Arc<Self>, key: Key, question: Question) -> Result<Answer, ReviewError> {
        loop {
            let (lookup, flight) = match self.find(key, &question) {
                Found::Known(verdict) => {
                    self.stats.looked_up(Lookup::Hit);
                    return Ok(Answer { verdict, cached: true });
                }
                Found::Joined(flight) => (Lookup::Joined, flight),
                Found::Begun(flight) => (Lookup::Miss, flight),
            };
            self.stats.looked_up(lookup);
            match (lookup, flight.await) {
                // Its time was up, which began before ours did.
                (Lookup::Joined, Err(ReviewError::TimedOut)) => {}
                (_, flown) => return flown.map(|verdict| Answer { verdict, cached: false }),
            }
        }
    }

    fn find(self: &Arc<Self>, key: Key, question: &Question) -> Found {
        let mut state = self.state.lock();
        if let Some(verdict) = state.memory.get(&key, Instant::now()) {
            return Found::Known(verdict);
        }
        if let Some(flight) = state.flights.get(&key).and_then(|(_, flight)| flight.upgrade()) {
            return Found::Joined(flight);
        }
        state.begun += 1;
        let landing = Landing { desk: self.clone(), key, number: state.begun };
        let flight = fly(landing, question.clone()).boxed().shared();
        if let Some(weak) = flight.downgrade() {
            let number = state.begun;
            state.flights.insert(key, (number, weak));
        }
        Found::Begun(flight)
    }

    fn ttl(&self, verdict: &Verdict, question: &Question) -> Duration {
        match verdict {
            Verdict::Denied(_) => self.config.negative_ttl,
            Verdict::Authenticated(_) => jwt::time_left(question.token().reveal(), SystemTime::now())
                .map_or(self.config.positive_ttl, |left| left.min(self.config.positive_ttl)),
        }
    }

    /// Questions that the API server is asked now.
    #[cfg(test)]
    pub fn in_flight(&self) -> usize {
        self.state.lock().flights.len()
    }

    /// Logs when the API server begins to fail, fails in another way, and answers again: not every call.
    fn note(&self, failure: Option<&ReviewError>) {
        let kind = |failure: &ReviewError| std::mem::discriminant(failure);
        let before = std::mem::replace(&mut *self.failing.lock(), failure.cloned());
        match failure {
            Some(error) if before.as_ref().map(kind) != Some(kind(error)) => {
                tracing::warn!(%error, "token reviews fail");
            }
            None if before.is_some() => tracing::info!("token reviews work again"),
            _ => {}
        }
    }
}

/// Asks, remembers and clears away, in this order: who comes later finds one or the other.
async fn fly(landing: Landing, question: Question) -> Flown {
    let desk = &landing.desk;
    let began = Instant::now();
    let asked = timeout(desk.config.default_deadline, (desk.ask)(question.clone())).await;
    let flown = asked.unwrap_or(Err(ReviewError::TimedOut)).map(Arc::new);
    desk.stats.round_trips.observe(began.elapsed().as_secs_f64());
    desk.note(flown.as_ref().err());
    if let Ok(verdict) = &flown {
        let remembered = (verdict.clone(), desk.ttl(verdict, &question));
        desk.state.lock().memory.put(landing.key, remembered, Instant::now());
    }
    flown
}

/// Clears a flight away when it ends, or nobody waits for it any more.
struct Landing {
    desk: Arc<Desk>,
    key: Key,
    number: u64,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let flights = &mut self.desk.state.lock().flights;
        if flights.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            flights.remove(&self.key);
        }
    }
}
