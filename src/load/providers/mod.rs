//! Providers, as far as their load is known: our own requests there, how soon they answer, and whether they do.
//!
//! Invariant: every reservation is released by `Drop`, and of a provider that is set aside one request at most is on
//! trial. Providers are named `namespace/name`; milliseconds; time is tokio's.

mod health;
mod instruments;
mod learnt;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

pub use self::health::{FAILURES, Fault, SetAside};
use self::{
    health::{Change, Health, Sign},
    instruments::Instruments,
    learnt::Learnt,
};
use crate::{observe::Metrics, types::Outcome};

/// Nobody who gives up sooner says anything of a provider.
const LEAST_PATIENCE: Duration = Duration::from_secs(5);

/// A provider as a request asks for it.
#[derive(Clone, Copy, Debug)]
pub struct AtProvider<'a> {
    /// `namespace/name`
    pub provider: &'a Arc<str>,
    /// What it calls the model.
    pub model: &'a Arc<str>,
    /// Milliseconds to the first token, as far as nothing was observed.
    pub expected_ttft_ms: f64,
}

/// A provider at the moment of a pick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProviderView {
    /// It takes requests: it is not set aside, or may be tried again.
    pub takes_requests: bool,
    /// Own requests that have not ended.
    pub own_in_flight: u32,
    /// Milliseconds to the first token.
    pub ttft_ms: f64,
    /// First tokens of the model were observed there: `ttft_ms` is not only what was expected.
    pub learnt: bool,
    /// It is set aside.
    pub set_aside: Option<SetAside>,
}

/// All providers that were asked.
pub struct Providers {
    books: Mutex<HashMap<Arc<str>, Books>>,
    instruments: Instruments,
}

#[derive(Default)]
struct Books {
    in_flight: u32,
    health: Health,
    /// By what it calls the model.
    learnt: HashMap<Arc<str>, Learnt>,
    /// No policy names it any more: forgotten with its last request.
    left: bool,
}

impl Books {
    fn ttft_ms(&self, at: AtProvider<'_>, now: Instant) -> f64 {
        let learnt = self.learnt.get(at.model);
        learnt.map_or(at.expected_ttft_ms, |learnt| learnt.ms(at.expected_ttft_ms, now))
    }
}

impl Providers {
    /// None asked yet.
    pub fn new(metrics: &Metrics) -> Arc<Self> {
        Arc::new(Self { books: Mutex::default(), instruments: Instruments::new(metrics) })
    }

    /// What is known of it.
    pub fn view(&self, at: AtProvider<'_>) -> ProviderView {
        let (now, books) = (Instant::now(), self.books.lock());
        let of = books.get(at.provider);
        ProviderView {
            takes_requests: of.is_none_or(|books| books.health.takes_requests(now)),
            own_in_flight: of.map_or(0, |books| books.in_flight),
            ttft_ms: of.map_or(at.expected_ttft_ms, |books| books.ttft_ms(at, now)),
            learnt: of.is_some_and(|books| books.learnt.contains_key(at.model)),
            set_aside: of.and_then(|books| books.health.set_aside()),
        }
    }

    /// Counts a request as in flight there until the reservation is dropped.
    pub fn reserve(self: &Arc<Self>, at: AtProvider<'_>) -> ProviderReservation {
        let now = Instant::now();
        let mut all = self.books.lock();
        let books = all.entry(at.provider.clone()).or_default();
        books.left = false;
        books.in_flight += 1;
        self.instruments.in_flight(at.provider, books.in_flight);
        let predicted = Duration::from_secs_f64(books.ttft_ms(at, now).clamp(0.0, 1e9) / 1e3);
        ProviderReservation {
            trial: books.health.begin(now),
            table: self.clone(),
            provider: at.provider.clone(),
            model: at.model.clone(),
            expected_ttft_ms: at.expected_ttft_ms,
            had_token: false,
            began: now,
            patience: (3 * predicted).max(LEAST_PATIENCE),
            outcome: Outcome::Cancelled,
        }
    }

    /// These are known from now on, and all others forgotten; each a provider and what it calls a model. What is in flight is counted to its end.
    pub fn keep(&self, named: &BTreeSet<(Arc<str>, Arc<str>)>) {
        let is_named = |provider: &str| named.iter().any(|(name, _)| **name == *provider);
        let mut all = self.books.lock();
        for (provider, _) in named {
            all.entry(provider.clone()).or_insert_with(|| {
                self.instruments.begin(provider);
                Books::default()
            });
        }
        all.retain(|provider, books| {
            books.left = !is_named(provider);
            books.learnt.retain(|model, _| named.contains(&(provider.clone(), model.clone())));
            let kept = !books.left || books.in_flight > 0;
            if !kept {
                self.instruments.forget(provider);
            }
            kept
        });
    }

    /// With the books of a provider, if there are any.
    fn of(&self, provider: &Arc<str>, act: impl FnOnce(&mut Books, Instant) -> Option<Change>) {
        let mut all = self.books.lock();
        let Some(books) = all.get_mut(provider) else { return };
        let change = act(books, Instant::now());
        self.instruments.in_flight(provider, books.in_flight);
        if let Some(change) = change {
            self.instruments.changed(provider, change);
        }
        if books.left && books.in_flight == 0 {
            all.remove(provider);
            self.instruments.forget(provider);
        }
    }
}

/// A request in flight at a provider. Dropping it releases it, whatever ended the request.
pub struct ProviderReservation {
    table: Arc<Providers>,
    provider: Arc<str>,
    model: Arc<str>,
    expected_ttft_ms: f64,
    /// It is the one that shows whether the provider is back.
    trial: bool,
    had_token: bool,
    began: Instant,
    /// Who gives up without a token after this was not answered.
    patience: Duration,
    outcome: Outcome,
}

impl ProviderReservation {
    /// The first token of a streamed answer was seen, so long after the decision. Calls after the first do nothing.
    pub fn first_token(&mut self, after: Duration) {
        if std::mem::replace(&mut self.had_token, true) {
            return;
        }
        self.table.instruments.ttft(&self.provider, after);
        let (model, expected, trial) = (&self.model, self.expected_ttft_ms, std::mem::take(&mut self.trial));
        self.table.of(&self.provider, |books, now| {
            let learnt = books.learnt.entry(model.clone()).or_insert_with(|| Learnt::new(expected, now));
            learnt.observe(after, expected, now);
            if trial { books.health.end(true, Sign::Good, now) } else { None }
        });
    }

    /// Whether the first token was seen.
    pub fn had_token(&self) -> bool {
        self.had_token
    }

    /// How the request ended, to be told before it is dropped; untold, it was cancelled.
    pub fn ended(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for ProviderReservation {
    fn drop(&mut self) {
        self.table.instruments.ended(&self.provider, self.outcome);
        let given_up = self.outcome == Outcome::Cancelled && !self.had_token;
        self.table.of(&self.provider, |books, now| {
            books.in_flight -= 1;
            let unanswered = given_up && now.saturating_duration_since(self.began) >= self.patience;
            let sign = if unanswered { Sign::Bad(Fault::Silent) } else { Sign::of(self.outcome) };
            books.health.end(self.trial, sign, now)
        });
    }
}

#[cfg(test)]
mod tests;
