//! Leader election as a pure machine: what was learned of the lease in, the next thing to do out.
//!
//! Invariant: a replica leads only until `sent + duration - margin` of its last renewal that worked, by its own clock, and
//! takes a lease only `duration` after it saw that it had changed, by its own clock: never by times that others wrote, nor
//! sooner because somebody edited the lease. One that it had to make is of use only `duration` later: it may have been
//! deleted under a holder that does not know yet.

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
    /// `None`: it was given up, or somebody has edited it.
    pub(super) holder: Option<String>,
    /// Zero: it does not say.
    pub(super) duration: Duration,
    /// `None`, with `renewed`: it was given up, by one that led by it or had the right to.
    pub(super) acquired: Option<Timestamp>,
    pub(super) renewed: Option<Timestamp>,
    pub(super) transitions: i32,
}

impl Record {
    /// Nobody leads by it. One that lost its holder to an edit still has its holder's time, or none at all.
    fn is_given_up(&self) -> bool {
        self.holder.is_none() && self.acquired.is_none() && self.renewed.is_some()
    }
}

/// A lease that is there, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Lease { version: String, record: Record },
    Nothing,
}

impl Found {
    /// Nobody has taken or renewed it meanwhile. A record without a time, after an edit, may come back: there the version
    /// tells, which labels change too.
    fn is_still(&self, now: &Self) -> bool {
        match (self, now) {
            (Self::Nothing, Self::Nothing) => true,
            (Self::Lease { version: was, record: before }, Self::Lease { version: is, record }) => {
                before == record && (record.renewed.is_some() || was == is)
            }
            _ => false,
        }
    }
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
    /// Its last holder other than nobody, and for how long it took it: an edit makes that no less.
    last: Option<Claim>,
    /// The lease that we made, by its time, and from when on we may lead by it.
    made: Option<(Timestamp, Instant)>,
    /// Something was written, for all we know.
    wrote: bool,
    leaving: Option<Leaving>,
}

/// What one holder said last.
#[derive(Debug)]
struct Claim {
    holder: String,
    renewed: Option<Timestamp>,
    duration: Duration,
}

/// On its way out.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    led: bool,
}

impl Machine {
    pub(super) fn new(me: String, terms: Terms) -> Self {
        let (seen, held, last, made) = (None, None, None, None);
        Self { me, terms, seen, sure: false, held, last, made, wrote: false, leaving: None }
    }

    /// Who keeps us waiting without having renewed for longer than we would be given, and for how long yet.
    pub(super) fn overdue(&self, now: Instant) -> Option<(&str, Duration)> {
        let (found, since) = self.seen.as_ref()?;
        let Found::Lease { record: Record { holder: Some(holder), .. }, .. } = found else { return None };
        let left = self.free_at(found, *since).saturating_duration_since(now);
        let late = *holder != self.me && now > *since + self.terms.duration && !left.is_zero();
        late.then_some((holder, left))
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
            Input::Leave => {
                self.leaving = Some(Leaving { led: self.held.take().is_some() });
                if self.wrote { Action::Read } else { Action::Rest }
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
        if self.leaving.is_some() {
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
        if let Found::Lease { record, .. } = &found {
            self.hear(record);
        }
        let since = self.seen.take().filter(|(was, _)| was.is_still(&found)).map_or(at, |(_, since)| since);
        self.seen = Some((found, since));
        self.sure = true;
    }

    fn hear(&mut self, record: &Record) {
        let Record { holder: Some(holder), renewed, duration, .. } = record else { return };
        // Who renews says how long anew; all else is an edit.
        let same = |last: &&Claim| last.holder == *holder && last.renewed == *renewed;
        let known = self.last.as_ref().filter(same).map_or(Duration::ZERO, |last| last.duration);
        let duration = known.max(*duration);
        self.last = Some(Claim { holder: holder.clone(), renewed: *renewed, duration });
    }

    /// When a lease of another that was seen so at `since` may be taken.
    fn free_at(&self, found: &Found, since: Instant) -> Instant {
        let Found::Lease { record, .. } = found else { return since };
        let last = self.last.as_ref().map_or(Duration::ZERO, |last| last.duration);
        since + self.terms.duration.max(record.duration).max(last)
    }

    fn decide(&mut self, now: Now) -> Action {
        let Some((found, since)) = self.seen.clone() else { return Action::Read };
        let free_at = self.free_at(&found, since);
        let leaving = self.leaving.is_some();
        match found {
            Found::Nothing if leaving => Action::Rest,
            Found::Nothing => self.write(None, now),
            Found::Lease { version, record } => match &record.holder {
                // It is ours: maybe by a write whose answer was lost.
                Some(holder) if *holder == self.me => self.write(Some((version, record)), now),
                _ if leaving => Action::Rest,
                None if record.is_given_up() => self.write(Some((version, record)), now),
                // Nobody else could have taken it while we lead.
                None if self.held.is_some() => self.write(Some((version, record)), now),
                _ => {
                    self.held = None;
                    if now.at >= free_at {
                        return self.write(Some((version, record)), now);
                    }
                    Action::Wait(free_at.min(now.at + self.terms.retry))
                }
            },
        }
    }

    fn write(&mut self, over: Option<(String, Record)>, now: Now) -> Action {
        let (over, before) = over.unzip();
        let mine = before.as_ref().is_some_and(|record| record.holder.as_ref() == Some(&self.me));
        let acquired = before.as_ref().and_then(|record| record.acquired).filter(|_| mine);
        let transitions = before.as_ref().map_or(0, |record| record.transitions);
        // Of one that we made, and never led by, another may still think that it leads.
        let given_up = self.leaving.is_some_and(|leaving| leaving.led || transitions > 0);
        self.wrote = true;
        let record = Record {
            holder: self.leaving.is_none().then(|| self.me.clone()),
            duration: self.terms.duration,
            acquired: (!given_up).then(|| acquired.unwrap_or(now.wall)),
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
