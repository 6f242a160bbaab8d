//! How well a worker is, and what is wrong with it in words. Pure.
//!
//! Invariant: it is `out` exactly when picks pass it by, and every state but `ok` has a reason. Shares are 0 to 1.

use std::{fmt, sync::atomic::Ordering};

use crate::{
    fleet::{Availability, FAILURES_TO_FAIL, KvState, Member},
    load::{Freshness, LoadView},
    types::RemovedReason,
};

/// How well a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing is wrong.
    Ok,
    /// It takes requests, but something is amiss.
    Degraded,
    /// It gets no new requests.
    Out,
}

/// How well a worker is, and why it is not better.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Health {
    /// How well.
    pub state: State,
    /// What is wrong, the gravest first.
    pub why: Vec<Why>,
}

/// Something that is wrong with a worker. It displays as a sentence without a full stop, and serializes as that.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// Picks pass it by, for a reason that needs no more words.
    Removed(RemovedReason),
    /// Somebody took it out of new picks.
    Cordoned(Cordoned),
    /// So many of its answers in a row were failures.
    Failures(u32),
    /// Its `/metrics` did not answer so many polls in a row.
    MissedScrapes(u32),
    /// Its `/v1/models` did not answer so many polls in a row.
    MissedModels(u32),
    /// Its KV events are not followed as they should be.
    KvEvents(KvState),
    /// Its load was never scraped.
    LoadUnknown,
    /// Its load was last scraped so many seconds ago; whether the worst of the fleet is assumed meanwhile.
    LoadOld(u64, bool),
    /// So much of its KV cache is in use by requests.
    CacheFull(f64),
}

/// Who took a worker out of new picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cordoned {
    /// An operator, on the running server.
    ByHand,
    /// Its workers file.
    ByFile,
    /// Either.
    Both,
}

impl Health {
    /// It gets no requests because somebody wants it so, which is no trouble.
    pub fn set_apart(&self) -> bool {
        matches!(self.why.first(), Some(Why::Cordoned(_)))
    }
}

impl Cordoned {
    fn of(member: &Member) -> Self {
        let by_file = member.worker.availability == Availability::Cordoned;
        match (by_file, member.status.cordoned.load(Ordering::Relaxed)) {
            (true, true) => Self::Both,
            (true, false) => Self::ByFile,
            (false, _) => Self::ByHand,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::ByHand => "cordoned by hand",
            Self::ByFile => "cordoned by its workers file",
            Self::Both => "cordoned by hand, and by its workers file",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = |count: &u32| if *count == 1 { "" } else { "s" };
        match self {
            Self::Removed(RemovedReason::NotReady) => f.write_str("not ready: its discovery says so"),
            Self::Removed(RemovedReason::Terminating) => f.write_str("shutting down: its discovery says so"),
            Self::Cordoned(by) => f.write_str(by.words()),
            Self::Removed(RemovedReason::Asleep) => f.write_str("the engine sleeps"),
            Self::Removed(RemovedReason::Failing) => f.write_str("failing: it has to answer first"),
            Self::Removed(other) => f.write_str(other.label()),
            Self::Failures(count) if *count >= FAILURES_TO_FAIL => {
                write!(f, "{count} failures in a row: a probe has to succeed first")
            }
            Self::Failures(count) => write!(f, "{count} failure{} in a row", times(count)),
            Self::MissedScrapes(count) => {
                write!(f, "its engine does not answer: {count} poll{} of /metrics missed", times(count))
            }
            Self::MissedModels(count) => {
                write!(f, "its engine does not answer: {count} poll{} of /v1/models missed", times(count))
            }
            Self::KvEvents(state) => f.write_str(&state.amiss().unwrap_or_default()),
            Self::LoadUnknown => f.write_str("its load is not known: /metrics has not been read"),
            Self::LoadOld(secs, assumed) => {
                match secs {
                    0 => f.write_str("its load was last known less than a second ago")?,
                    secs => write!(f, "its load was last known {secs} s ago")?,
                }
                if *assumed { f.write_str(": the worst of the fleet is assumed") } else { Ok(()) }
            }
            Self::CacheFull(share) => write!(f, "its KV cache is {:.0} % full", share * 100.0),
        }
    }
}

impl serde::Serialize for Why {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How well a worker is with that load. In mock mode nothing is followed, and nothing of that is amiss.
pub(super) fn health(member: &Member, load: &LoadView, mock: bool) -> Health {
    let removed = member.unavailable();
    // An eviction says why in the state of its KV events.
    let named = removed.filter(|reason| *reason != RemovedReason::Evicted).map(|reason| match reason {
        RemovedReason::Cordoned => Why::Cordoned(Cordoned::of(member)),
        other => Why::Removed(other),
    });
    let followed = if mock { Vec::new() } else { followed(member, load) };
    let why: Vec<_> = named.into_iter().chain(answers(member)).chain(followed).collect();
    let state = match removed {
        Some(_) => State::Out,
        None if why.is_empty() => State::Ok,
        None => State::Degraded,
    };
    Health { state, why }
}

/// What is wrong with what was asked of the engine.
fn answers(member: &Member) -> impl Iterator<Item = Why> {
    let status = &member.status;
    let counted = [
        (&status.failures, Why::Failures as fn(u32) -> Why),
        (&status.missed_scrapes, Why::MissedScrapes),
        (&status.missed_models, Why::MissedModels),
    ];
    counted
        .map(|(count, why)| (count.load(Ordering::Relaxed), why))
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, why)| why(count))
}

/// What is wrong with what is followed of it.
fn followed(member: &Member, load: &LoadView) -> Vec<Why> {
    let kv = KvState::clone(&member.status.kv.load());
    let kv = kv.amiss().is_some().then_some(Why::KvEvents(kv));
    let secs = (load.age_ms.unwrap_or_default() / 1e3) as u64;
    let scraped = match load.freshness {
        Freshness::Fresh => None,
        Freshness::Never => member.worker.metrics_url.is_some().then_some(Why::LoadUnknown),
        // Of less than a second there is nothing to say.
        Freshness::Kept => (secs > 0).then_some(Why::LoadOld(secs, false)),
        Freshness::Stale => Some(Why::LoadOld(secs, true)),
    };
    let threshold = member.worker.set.profile.predictor.cache_pressure_saturated_threshold;
    let full = (load.kv_usage > threshold).then_some(Why::CacheFull(load.kv_usage));
    kv.into_iter().chain(scraped).chain(full).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        config::{Profile, Topology},
        fleet::{KvSource, MISSED_POLLS_TO_FAIL, Worker, WorkerSet},
        types::WorkerId,
    };

    fn member(availability: Availability) -> Member {
        let profile = Arc::new(Profile::default());
        let set = WorkerSet { name: "s".into(), profile, kv_block_size: 16, render_url: None };
        let worker = Worker {
            id: WorkerId(1),
            name: "w1".into(),
            set: Arc::new(set),
            model_name: "m".into(),
            kv: KvSource::Unknown,
            metrics_url: Some("http://10.0.0.1/metrics".into()),
            http_url: Some("http://10.0.0.1".into()),
            endpoint: "10.0.0.1:8000".into(),
            topology: Topology::default(),
            availability,
        };
        let member = Member { worker, generation: 1, status: Arc::default() };
        member.status.kv.store(Arc::new(KvState::Synced));
        member
    }

    fn fresh() -> LoadView {
        LoadView { freshness: Freshness::Fresh, age_ms: Some(10.0), ..LoadView::default() }
    }

    fn said(member: &Member, load: &LoadView) -> (State, String) {
        let health = health(member, load, false);
        (health.state, health.why.iter().map(Why::to_string).collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn a_worker_that_lacks_nothing_is_ok() {
        assert_eq!(said(&member(Availability::Ready), &fresh()), (State::Ok, String::new()));
    }

    #[test]
    fn every_missed_poll_is_told_before_it_takes_the_worker_out() {
        let member = member(Availability::Ready);
        member.status.missed_scrapes.store(1, Ordering::Relaxed);
        let one = "its engine does not answer: 1 poll of /metrics missed";
        assert_eq!(said(&member, &fresh()), (State::Degraded, one.into()));
        member.status.missed_scrapes.store(MISSED_POLLS_TO_FAIL, Ordering::Relaxed);
        member.status.missed_models.store(MISSED_POLLS_TO_FAIL, Ordering::Relaxed);
        let (state, why) = said(&member, &fresh());
        assert_eq!(state, State::Out);
        assert!(why.starts_with("failing: ") && why.contains("5 polls of /v1/models missed"), "{why}");
    }

    #[test]
    fn an_eviction_says_why() {
        let member = member(Availability::Ready);
        member.status.kv.store(Arc::new(KvState::Evicted("blocks of 32".into())));
        assert_eq!(said(&member, &fresh()), (State::Out, "evicted: blocks of 32".into()));
    }

    #[test]
    fn what_discovery_says_is_told_as_such() {
        let told = |availability| said(&member(availability), &fresh());
        let (not_ready, ending) = (told(Availability::NotReady), told(Availability::Terminating));
        assert_eq!(not_ready, (State::Out, "not ready: its discovery says so".into()));
        assert_eq!(ending, (State::Out, "shutting down: its discovery says so".into()));
    }

    #[test]
    fn a_cordon_is_told_with_who_wants_it_and_is_no_trouble() {
        let (kept, taken_out) = (member(Availability::Ready), member(Availability::Cordoned));
        assert_eq!(said(&taken_out, &fresh()), (State::Out, "cordoned by its workers file".into()));
        for member in [&kept, &taken_out] {
            member.status.cordoned.store(true, Ordering::Relaxed);
        }
        assert_eq!(said(&kept, &fresh()), (State::Out, "cordoned by hand".into()));
        let both = health(&taken_out, &fresh(), false);
        assert_eq!(both.why[0].to_string(), "cordoned by hand, and by its workers file");
        assert!(both.set_apart());
        kept.status.kv.store(Arc::new(KvState::Evicted("blocks of 32".into())));
        assert!(!health(&kept, &fresh(), false).set_apart(), "it could not be used anyway");
    }

    #[test]
    fn what_is_known_of_load_and_cache_is_told() {
        let member = member(Availability::Ready);
        let stale = LoadView { freshness: Freshness::Stale, age_ms: Some(7900.0), kv_usage: 0.97, ..fresh() };
        let both =
            "its load was last known 7 s ago: the worst of the fleet is assumed; its KV cache is 97 % full";
        assert_eq!(said(&member, &stale), (State::Degraded, both.into()));
        let just = LoadView { age_ms: Some(700.0), kv_usage: 0.0, ..stale };
        let words = "its load was last known less than a second ago: the worst of the fleet is assumed";
        assert_eq!(said(&member, &just), (State::Degraded, words.into()));
        let never = said(&member, &LoadView::default());
        assert_eq!(never, (State::Degraded, "its load is not known: /metrics has not been read".into()));
        member.status.kv.store(Arc::default());
        let mock = health(&member, &LoadView::default(), true);
        assert_eq!(mock, Health { state: State::Ok, why: vec![] });
    }
}
