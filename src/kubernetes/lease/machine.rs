//! Leader election as a pure machine: what was learned of the lease in, the next thing to do out.
//!
//! Invariant: a replica leads only until `sent + duration - margin` of its last renewal that worked, by its own clock, and
//! takes a lease only `duration` after it saw that it had changed, by its own clock: never by times that others wrote. One
//! that it had to make is of use only `duration` later: it may have been deleted under a holder that does not know yet.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// The times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// How long a renewal holds.
    pub(super) duration: Duration,
    /// A renewal is due this long before the last one ends; less than `duration`.
    pub(super) grace: Duration,
    /// Between looks at a lease of another, and after a failure.
    pub(super) retry: Duration,
}

impl Terms {
    /// By how much a holder stops before its lease may be taken: clocks may run differently.
    fn margin(&self) -> Duration {
        (self.duration / 10).min(self.grace / 2)
    }

    /// How long one request may take.
    pub(super) fn patience(&self) -> Duration {
        (self.duration / 5).max(Duration::from_millis(500))
    }
}

/// What a lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// `None`: it was given up.
    pub(super) holder: Option<String>,
    pub(super) duration: Duration,
    pub(super) acquired: Option<Timestamp>,
    pub(super) renewed: Option<Timestamp>,
    pub(super) transitions: i32,
}

/// A lease that is there, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Lease { version: String, record: Record },
    Nothing,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It is the lease now.
    Done(Found),
    /// Another has changed, made or deleted it meanwhile.
    Conflict,
    /// Nobody knows.
    Failed,
}

/// What the machine is told.
#[derive(Clone, Debug)]
pub(super) enum Input {
    /// It begins, or has waited for as long as it wanted.
    Woke,
    /// What a look found; `None`: it failed.
    Read(Option<Found>),
    /// A write that was sent then has come back.
    Wrote { sent: Instant, came: Written },
    /// Give the lease up. What was under way is broken off.
    Leave,
}

/// What it wants done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Look at the lease.
    Read,
    /// Make this the lease, in place of that version; `None`: there is to be none.
    Write { record: Record, over: Option<String> },
    /// Wait until then.
    Wait(Instant),
    /// Nothing ever again.
    Rest,
}

/// Both clocks. The wall's is for people to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) at: Instant,
    pub(super) wall: Timestamp,
}

/// One candidate.
#[derive(Debug)]
pub(super) struct Machine {
    me: String,
    terms: Terms,
    /// The lease as last seen, and when it was first seen so.
    seen: Option<(Found, Instant)>,
    /// `seen` is what the API server has, for all we know.
    sure: bool,
    held: Option<Instant>,
    /// The lease that we made, by its time, and from when on we may lead by it.
    made: Option<(Timestamp, Instant)>,
    /// It has asked for the lease, whether it got it or not: it may be the holder.
    asked: bool,
    leaving: bool,
}

impl Machine {
    pub(super) fn new(me: String, terms: Terms) -> Self {
        Self { me, terms, seen: None, sure: false, held: None, made: None, asked: false, leaving: false }
    }

    /// Until when it leads, if it does.
    pub(super) fn held(&self, now: Instant) -> Option<Instant> {
        self.held.filter(|end| *end > now)
    }

    pub(super) fn step(&mut self, input: Input, now: Now) -> Action {
        self.held = self.held(now.at);
        match input {
            Input::Woke if self.sure && self.held.is_some() => self.decide(now),
            Input::Woke => Action::Read,
            Input::Leave if !self.asked => Action::Rest,
            Input::Leave => {
                (self.leaving, self.held) = (true, None);
                Action::Read
            }
            Input::Read(None) => self.pause(now),
            Input::Read(Some(found)) => {
                self.see(found, now.at);
                self.decide(now)
            }
            Input::Wrote { sent, came: Written::Done(found) } => self.wrote(found, sent, now),
            Input::Wrote { came: Written::Conflict, .. } => {
                self.sure = false;
                Action::Read
            }
            Input::Wrote { came: Written::Failed, .. } => {
                self.sure = false;
                self.pause(now)
            }
        }
    }

    fn pause(&self, now: Now) -> Action {
        Action::Wait(now.at + self.terms.retry)
    }

    fn wrote(&mut self, found: Found, sent: Instant, now: Now) -> Action {
        let from = self.leads_from(&found, now.at);
        self.see(found, now.at);
        if self.leaving {
            return Action::Rest;
        }
        let end = sent + self.terms.duration;
        let renewal = end - self.terms.grace;
        if from > now.at {
            return Action::Wait(renewal.min(from));
        }
        self.held = Some(end - self.terms.margin());
        Action::Wait(renewal)
    }

    /// From when on a lease of ours makes us lead.
    fn leads_from(&mut self, found: &Found, now: Instant) -> Instant {
        match found {
            Found::Lease { record: Record { transitions: 0, acquired: Some(made), .. }, .. } => {
                let from = if self.held.is_some() { now } else { now + self.terms.duration };
                let known = self.made.filter(|(known, _)| known == made);
                self.made.insert(known.unwrap_or((*made, from))).1
            }
            _ => now,
        }
    }

    fn see(&mut self, found: Found, at: Instant) {
        let same = |was: &Found| match (was, &found) {
            (Found::Nothing, Found::Nothing) => true,
            (Found::Lease { record: was, .. }, Found::Lease { record: is, .. }) => was == is,
            _ => false,
        };
        let since = self.seen.take().filter(|(was, _)| same(was)).map_or(at, |(_, since)| since);
        self.seen = Some((found, since));
        self.sure = true;
    }

    fn decide(&mut self, now: Now) -> Action {
        let Some((found, since)) = self.seen.clone() else { return Action::Read };
        match found {
            Found::Nothing if self.leaving => Action::Rest,
            Found::Nothing => self.write(None, now),
            Found::Lease { version, record } => match &record.holder {
                // It is ours: maybe by a write whose answer was lost.
                Some(holder) if *holder == self.me => self.write(Some((version, record)), now),
                _ if self.leaving => Action::Rest,
                None => self.write(Some((version, record)), now),
                Some(_) => {
                    self.held = None;
                    let end = since + record.duration;
                    if now.at >= end {
                        return self.write(Some((version, record)), now);
                    }
                    Action::Wait(end.min(now.at + self.terms.retry))
                }
            },
        }
    }

    fn write(&mut self, over: Option<(String, Record)>, now: Now) -> Action {
        self.asked = true;
        let (over, before) = over.unzip();
        let mine = before.as_ref().is_some_and(|record| record.holder.as_ref() == Some(&self.me));
        let acquired = before.as_ref().and_then(|record| record.acquired).filter(|_| mine);
        let transitions = before.as_ref().map_or(0, |record| record.transitions);
        let record = Record {
            holder: (!self.leaving).then(|| self.me.clone()),
            duration: self.terms.duration,
            acquired: Some(acquired.unwrap_or(now.wall)),
            renewed: Some(renewed(before.as_ref(), now.wall)),
            // Zero only of a lease that its holder made. Giving it up and taking it then are one change of holders.
            transitions: transitions.saturating_add(i32::from(before.is_some() && !mine)),
        };
        Action::Write { record, over }
    }
}

/// Always later than before, whatever the wall's clock does: that is how others see a renewal.
fn renewed(before: Option<&Record>, wall: Timestamp) -> Timestamp {
    let next = before
        .and_then(|record| record.renewed)
        .and_then(|renewed| renewed.checked_add(Duration::from_micros(1)).ok());
    next.map_or(wall, |next| next.max(wall))
}
