//! Picks, held from their answer until Observe ends them or nobody has told of them for `observation_ttl_secs`.
//!
//! Invariant: at most `MAX_PICKS` are held and as many ended ones remembered; beyond, the longest unheard of make room,
//! since load that nobody tells of is better forgotten than traffic refused. Whatever leaves releases its load.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    ids::Token,
    shelf::Shelf,
    stats::{Event, Stats},
};
use crate::{
    pipeline::Placement,
    serve::{
        proto::{Completed, Usage, observe_request},
        status::{Reason, Refusal},
    },
    types::{self, Outcome},
};

/// The most picks that are held at once.
const MAX_PICKS: usize = 131_072;

/// The picks.
pub struct Picks {
    shelves: Mutex<Shelves>,
    stats: Arc<Stats>,
}

struct Shelves {
    held: Shelf<Placement>,
    /// So that an end told twice is no error.
    ended: Shelf<()>,
}

/// An end, as it is told.
struct End {
    outcome: Outcome,
    usage: Option<types::Usage>,
    response_id: String,
}

impl Picks {
    /// None yet; what nobody tells of is forgotten after `ttl`.
    pub fn new(ttl: Duration, stats: Arc<Stats>) -> Self {
        let shelves = Shelves { held: Shelf::new(ttl, MAX_PICKS), ended: Shelf::new(ttl, MAX_PICKS) };
        Self { shelves: Mutex::new(shelves), stats }
    }

    /// Holds a pick.
    pub fn hold(&self, token: Token, mut placement: Placement) {
        placement.slim();
        let displaced = {
            let mut shelves = self.shelves.lock();
            let displaced = shelves.held.put(token, placement, Instant::now());
            self.count_held(&shelves);
            displaced
        };
        self.stats.happened(Event::Picked, 1);
        self.stats.happened(Event::Displaced, usize::from(displaced.is_some()));
    }

    /// Something was told of a pick.
    ///
    /// # Errors
    /// There is no such pick, or it was forgotten.
    pub fn observe(&self, token: Token, event: observe_request::Event) -> Result<(), Refusal> {
        self.expire();
        match event {
            observe_request::Event::FirstToken(_) => self.told(token, Event::FirstToken, |pick| {
                // Of a whole answer the first byte says nothing of the first token.
                if pick.streamed {
                    pick.first_token();
                }
            }),
            observe_request::Event::Served(served) => {
                self.told(token, Event::Served, |pick| pick.served_by(&served.endpoint))
            }
            observe_request::Event::Completed(Completed { usage, response_id }) => {
                self.end(token, End { outcome: Outcome::Completed, usage: usage.map(counts), response_id })
            }
            observe_request::Event::Failed(_) => self.end(token, Outcome::Failed.into()),
            observe_request::Event::Cancelled(_) => self.end(token, Outcome::Cancelled.into()),
        }
    }

    /// Forgets what nobody has told of for too long.
    pub fn expire(&self) {
        let now = Instant::now();
        let gone = {
            let mut shelves = self.shelves.lock();
            let gone = shelves.held.expire(now);
            shelves.ended.expire(now);
            self.count_held(&shelves);
            gone
        };
        self.stats.happened(Event::Expired, gone.len());
    }

    fn told(&self, token: Token, event: Event, act: impl FnOnce(&mut Placement)) -> Result<(), Refusal> {
        let mut shelves = self.shelves.lock();
        match shelves.held.touch(token, Instant::now()) {
            Some(placement) => {
                act(placement);
                self.stats.happened(event, 1);
                Ok(())
            }
            None => self.after_end(&shelves, token),
        }
    }

    fn end(&self, token: Token, end: End) -> Result<(), Refusal> {
        let mut placement = {
            let mut shelves = self.shelves.lock();
            let Some(placement) = shelves.held.take(token) else { return self.after_end(&shelves, token) };
            shelves.ended.put(token, (), Instant::now());
            self.count_held(&shelves);
            placement
        };
        if !end.response_id.is_empty() {
            placement.made_response(&end.response_id);
        }
        placement.finish(end.outcome, end.usage);
        self.stats.happened(Event::Ended, 1);
        Ok(())
    }

    fn after_end(&self, shelves: &Shelves, token: Token) -> Result<(), Refusal> {
        if !shelves.ended.has(token) {
            let why = "There is no such pick: it was never made, or was forgotten.";
            return Err(Refusal::new(Reason::PickNotFound, why));
        }
        self.stats.happened(Event::AfterEnd, 1);
        Ok(())
    }

    fn count_held(&self, shelves: &Shelves) {
        self.stats.picks_held.set(i64::try_from(shelves.held.len()).unwrap_or(i64::MAX));
    }
}

impl From<Outcome> for End {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, usage: None, response_id: String::new() }
    }
}

fn counts(usage: Usage) -> types::Usage {
    types::Usage {
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        cached_tokens: usage.cached_tokens,
    }
}
