//! A decision with the load that it reserved, from the pick to the end of the response.
//!
//! Invariant: whatever ends a request, dropping its placement releases its load.

use std::{
    mem,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    fleet::{Member, Registry, Turn},
    load::{ProviderReservation, Reservation},
    observe::{Decisions, Told},
    types::{Decision, Ending, Outcome, Usage},
};

use super::{
    Incoming, Pipeline, Rewrite, Subject,
    calibration::Lesson,
    metrics::{PipelineMetrics, Prediction, Who, workerset},
    sticky::StickyMap,
    wording::{Wordings, Words},
};

/// A decision with the load that it reserved. Dropping it unfinished counts as cancelled.
pub struct Placement {
    /// What was decided.
    pub decision: Arc<Decision>,
    /// The client asked for a streamed answer.
    pub streamed: bool,
    /// How the body has to change, if at all.
    pub rewrite: Option<Rewrite>,
    /// The name that the client knows the model by, where the engine answers with another: the answer is made to name it.
    pub client_model: Option<Arc<str>>,
    /// Until it has ended.
    live: Option<Box<Live>>,
}

/// The load that a placed request puts on who serves it.
pub(super) enum Reserved {
    Worker(Arc<Member>, Reservation),
    Provider(ProviderReservation),
}

/// What a placed request holds.
struct Live {
    reserved: Reserved,
    registry: Arc<Registry>,
    sticky: Arc<StickyMap>,
    metrics: Arc<PipelineMetrics>,
    who: Who,
    /// What serves it, as a label.
    workerset: Arc<str>,
    /// When the request's head was read.
    began: Instant,
    decided_at: Instant,
    /// Whoever serves it is whom the prediction is of.
    as_picked: bool,
    /// Nobody probes a worker back into service: how requests end is not held against it.
    mock: bool,
    /// Where the decision was told, and its end will be.
    decisions: Arc<Decisions>,
    told: Told,
    ttft: Option<Duration>,
    /// What its first token will teach.
    lesson: Option<Lesson>,
}

impl Placement {
    pub(super) fn new(
        pipeline: &Pipeline,
        incoming: &Incoming,
        decision: Decision,
        reserved: Reserved,
    ) -> Self {
        let live = Live {
            reserved,
            registry: pipeline.rooms.registry.clone(),
            sticky: pipeline.sticky.clone(),
            metrics: pipeline.metrics.clone(),
            who: pipeline.metrics.who(incoming.tenant.as_ref(), decision.model.as_ref()),
            workerset: workerset(&decision.primary().target),
            began: incoming.began,
            as_picked: true,
            decided_at: Instant::now(),
            mock: pipeline.mock,
            decisions: pipeline.rooms.decisions.clone(),
            told: Told::default(),
            ttft: None,
            lesson: None,
        };
        let mut placement = Self::unreserved(Arc::new(decision));
        placement.live = Some(Box::new(live));
        placement
    }

    /// A decision that holds no load and tells nobody how it went: for tests of the front doors.
    pub fn unreserved(decision: Arc<Decision>) -> Self {
        Self { decision, streamed: false, rewrite: None, client_model: None, live: None }
    }

    /// Under which labels it counts, until it has ended.
    pub(super) fn account(&self) -> Option<(&Who, &Arc<str>)> {
        self.live.as_deref().map(|live| (&live.who, &live.workerset))
    }

    /// Its first token will teach that.
    pub(super) fn teaches(&mut self, lesson: Option<Lesson>) {
        if let Some(live) = &mut self.live {
            live.lesson = lesson;
        }
    }

    /// Its decision was told.
    pub(super) fn told(&mut self, told: Told) {
        if let Some(live) = &mut self.live {
            live.told = told;
        }
    }

    /// Has the body read as whoever serves it wants it, and the answer name the model as the client does.
    pub(super) fn word(&mut self, subject: Subject, (wordings, words): (&Wordings, Option<Words>)) {
        match words.filter(|words| words.differ(subject.model.as_ref())) {
            Some(words) => {
                self.rewrite = wordings.rewrite(&words);
                self.client_model = subject.model.filter(|model| *model != words.model);
            }
            None => self.rewrite = subject.rewrite,
        }
    }

    /// Keeps of the decision only the chosen candidate, for a holder of many placements.
    pub fn slim(&mut self) {
        let decision = &self.decision;
        self.decision = Arc::new(Decision {
            model: decision.model.clone(),
            prompt_tokens: decision.prompt_tokens,
            candidates: vec![decision.primary().clone()],
            degraded: decision.degraded.clone(),
            replicated: decision.replicated,
            ..Decision::default()
        });
    }

    /// The first byte of a streamed answer's body went by. Counts once.
    pub fn first_token(&mut self) {
        let Some(live) = &mut self.live else { return };
        let observed = live.decided_at.elapsed();
        if !live.reserved.first_token(observed) {
            return;
        }
        if let Reserved::Worker(member, _) = &live.reserved {
            answered(member);
        }
        live.ttft = Some(observed);
        if let Some(lesson) = live.lesson.take() {
            lesson.first_token(observed, live.as_picked);
        }
        live.metrics.first_token(&live.who, &live.workerset, observed);
        if live.as_picked && self.decision.prompt_tokens.is_some() {
            let predicted = predicted_secs(&self.decision);
            live.metrics.predicted(&live.who, &live.workerset, Prediction { predicted, observed });
        }
    }

    /// Who really serves it, as the proxy reports (`ip:port`): the load moves there. The picked worker was
    /// not reached: that counts as a failure of it. Of a provider addresses say nothing.
    pub fn served_by(&mut self, endpoint: &str) {
        let Some(live) = &mut self.live else { return };
        let Reserved::Worker(member, reservation) = &mut live.reserved else { return };
        if *endpoint == *member.worker.endpoint {
            return;
        }
        let fleet = live.registry.snapshot();
        let Some(server) = fleet.values().find(|m| *m.worker.endpoint == *endpoint) else { return };
        reservation.move_to(server.worker.id);
        let unreached = std::mem::replace(member, server.clone());
        live.workerset = server.worker.set.name.clone();
        live.as_picked = false;
        live.record(&unreached, true);
        live.metrics.moved();
    }

    /// The id of a stored response was seen (`/v1/responses`): later requests naming it stick to the worker.
    pub fn made_response(&mut self, id: &str) {
        if let Some(Live { reserved: Reserved::Worker(member, _), sticky, .. }) = self.live.as_deref() {
            sticky.put(id, member.worker.id);
        }
    }

    /// It ended.
    pub fn finish(mut self, outcome: Outcome, usage: Option<Usage>) {
        let Some(mut live) = self.live.take() else { return };
        if let Reserved::Provider(reservation) = &mut live.reserved {
            reservation.ended(outcome);
        }
        let outcome = match &live.reserved {
            Reserved::Worker(member, _) => live.of_worker(member, outcome),
            Reserved::Provider(_) if outcome == Outcome::Refused => Outcome::Failed,
            Reserved::Provider(_) => outcome,
        };
        live.ended(&self.decision, outcome, usage);
    }
}

/// Seconds to the first token that the pick was made on.
fn predicted_secs(decision: &Decision) -> f64 {
    decision.primary().prediction.ttft_ms / 1e3
}

impl Reserved {
    /// The first token was seen, so long after the decision; `false`: one was seen before.
    fn first_token(&mut self, after: Duration) -> bool {
        let had = match self {
            Self::Worker(_, reservation) => reservation.had_token(),
            Self::Provider(reservation) => reservation.had_token(),
        };
        match self {
            Self::Worker(_, reservation) => reservation.first_token(),
            Self::Provider(reservation) => reservation.first_token(after),
        }
        !had
    }
}

impl Live {
    fn ended(&mut self, decision: &Decision, outcome: Outcome, usage: Option<Usage>) {
        if let Some(lesson) = self.lesson.take() {
            lesson.ended();
        }
        let member = match &self.reserved {
            Reserved::Worker(member, _) => Some(member),
            Reserved::Provider(_) => None,
        };
        let ending = Ending {
            outcome,
            ttft: self.ttft,
            predicted: Duration::try_from_secs_f64(predicted_secs(decision)).unwrap_or(Duration::MAX),
            served_by: member.map(|member| member.worker.id),
            took: self.decided_at.elapsed(),
            usage,
        };
        self.metrics.ended(&self.who, &self.workerset, (&ending, self.began.elapsed()));
        member.iter().for_each(|member| member.status.count(outcome));
        self.decisions.ended(mem::take(&mut self.told), ending);
    }

    /// Holds it against or in favour of a worker how a request there ended, and tells how that counts.
    fn of_worker(&self, member: &Member, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Completed => {
                self.record(member, false);
                answered(member);
            }
            Outcome::Failed => self.record(member, true),
            // What a client did says nothing about the engine.
            Outcome::Refused => return Outcome::ClientError,
            Outcome::ClientError | Outcome::Cancelled => {}
        }
        outcome
    }

    fn record(&self, member: &Member, failed: bool) {
        if self.mock {
            return;
        }
        let worker = &*member.worker.name;
        match member.status.record(failed) {
            Some(Turn::BeganToFail) => {
                tracing::warn!(
                    worker,
                    "its responses are errors, it is failing: no traffic until a probe succeeds"
                );
            }
            Some(Turn::Recovered) => {
                tracing::info!(worker, "it answered a request and is failing no more: back in service");
            }
            None => {}
        }
    }
}

fn answered(member: &Member) {
    member.status.answered.store(true, Ordering::Relaxed);
}

impl Drop for Placement {
    fn drop(&mut self) {
        if let Some(live) = &mut self.live {
            live.ended(&self.decision, Outcome::Cancelled, None);
        }
    }
}
