//! The `Picker` service: bodies in, picks out, and what is told of them.

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures::Stream;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use tokio::time::Instant;
use tonic::{Request, Response, Status, Streaming};

use super::{
    answer,
    bodies::{self, Pushed},
    ids::Ids,
    picks::Picks,
    request::{self, Asked, Refused},
    shelf::Shelf,
    stats::{BodyEnd, Stats},
};
use crate::{
    observe::Metrics,
    pipeline::{Incoming, IncomingBody, Pipeline},
    prompt::BodyBudget,
    serve::{
        ext_proc::names,
        proto::{
            ObserveRequest, ObserveResponse, PickRequest, PickResponse, PushBodyRequest, PushBodyResponse,
            picker_server::{self, PickerServer},
        },
        status::{Reason, Refusal},
    },
    types::{ErrorKind, Rejection},
};

/// How late what has had its time may be forgotten.
const TICK: Duration = Duration::from_secs(1);
/// The least that a message may hold, bytes: gRPC's own default.
const LEAST_MESSAGE: usize = 4 * 1024 * 1024;

/// The `traceparent` of a call's metadata: the span that the decision is a child of.
pub type Caller = Option<Arc<str>>;

fn caller<T>(request: &Request<T>) -> Caller {
    let value = request.metadata().get(names::TRACEPARENT)?;
    value.to_str().ok().map(Arc::from)
}

/// What the front door is made of.
pub struct PickerParts {
    /// Who decides.
    pub pipeline: Arc<Pipeline>,
    /// Where bodies are held, the same as every front door's.
    pub budget: Arc<BodyBudget>,
    /// `observation_ttl_secs`
    pub observation_ttl: Duration,
    /// Names this process among the replicas.
    pub replica: Arc<str>,
    /// Where ids come from: seeded from the system's randomness.
    pub rng: StdRng,
}

/// The service. Cheap to clone.
#[derive(Clone)]
pub struct Picker {
    shared: Arc<Shared>,
}

struct Shared {
    pipeline: Arc<Pipeline>,
    budget: Arc<BodyBudget>,
    ids: Ids,
    bodies: Mutex<Shelf<Pushed>>,
    picks: Picks,
    stats: Arc<Stats>,
}

impl Picker {
    /// Of these parts.
    pub fn new(parts: PickerParts, metrics: &Metrics) -> Self {
        let PickerParts { pipeline, budget, observation_ttl, replica, rng } = parts;
        let stats = Arc::new(Stats::new(metrics));
        let shared = Shared {
            pipeline,
            ids: Ids::new(replica, rng),
            // Their number is bounded by the budget.
            bodies: Mutex::new(Shelf::new(budget.limits().ttl, usize::MAX)),
            budget,
            picks: Picks::new(observation_ttl, stats.clone()),
            stats,
        };
        Self { shared: Arc::new(shared) }
    }

    /// As a gRPC service whose message limit follows the body caps: a body that is somewhat too large must still be read
    /// to be turned away properly.
    pub fn into_server(self) -> PickerServer<Self> {
        let limit = self.shared.budget.limits().request_bytes.saturating_mul(2).max(LEAST_MESSAGE);
        PickerServer::new(self).max_decoding_message_size(limit)
    }

    /// Forgets, for ever, what has had its time.
    pub async fn run_expiry(self) -> Infallible {
        loop {
            tokio::time::sleep(TICK).await;
            self.shared.picks.expire();
            self.shared.expire_bodies();
        }
    }

    /// Receives a body and keeps it.
    ///
    /// # Errors
    /// As the contract of `PushBody` says.
    pub async fn push<S>(&self, inbound: S, caller: Caller) -> Result<PushBodyResponse, Refusal>
    where
        S: Stream<Item = Result<PushBodyRequest, Status>> + Unpin,
    {
        let began = Instant::now();
        let refused = |incoming: Incoming, refusal: Refusal| {
            self.shared.refused(Incoming { began, traceparent: caller, ..incoming }, refusal)
        };
        let mut pushed = match bodies::receive(&self.shared.budget, inbound).await {
            Ok(pushed) => pushed,
            Err((head, refusal)) => {
                return Err(refused(request::of_head(&head.unwrap_or_default()), refusal));
            }
        };
        let seen = self.shared.pipeline.inspect(&request::of_body(&mut pushed)).await;
        let seen = seen.map_err(|rejection| refused(request::of_head(&pushed.head), rejection.into()))?;
        let (token, length) = (self.shared.ids.token(), pushed.body.len() as u64);
        self.shared.keep(token, pushed);
        Ok(PushBodyResponse {
            body_id: self.shared.ids.id(token),
            length,
            model: seen.model.map(|model| model.to_string()).unwrap_or_default(),
            stream: seen.stream,
        })
    }

    /// Decides, and holds the pick.
    ///
    /// # Errors
    /// As the contract of `Pick` says.
    pub async fn decide(&self, request: PickRequest, caller: Caller) -> Result<PickResponse, Refusal> {
        let Shared { pipeline, budget, ids, picks, .. } = &*self.shared;
        let (token, stream, explain) = (ids.token(), request.stream, request.want_candidates);
        let claim = |id: &str| self.shared.claim(id);
        let read = request::read(request, budget, claim, || ids.id(token));
        let Asked { incoming, path, held } = read.map_err(|Refused { incoming, refusal }| {
            self.shared.refused(Incoming { traceparent: caller.clone(), ..*incoming }, refusal)
        })?;
        let incoming = Incoming { traceparent: caller, ..incoming };
        let body_len = match &incoming.body {
            IncomingBody::Full(body) => body.len(),
            IncomingBody::Empty | IncomingBody::Unseen => 0,
        };
        let mut placement = pipeline.decide(incoming).await?;
        drop(held);
        let about = answer::Asked { path: path.as_deref(), body_len };
        placement.streamed |= stream && body_len == 0;
        let mut response = answer::answer(&placement.decision, placement.rewrite.take(), about);
        if explain {
            answer::explain(&mut response, &placement.decision);
        }
        response.pick_id = ids.id(token);
        picks.hold(token, placement);
        Ok(response)
    }

    /// Notes what is told of a pick.
    ///
    /// # Errors
    /// As the contract of `Observe` says.
    pub fn note(&self, ObserveRequest { pick_id, event }: ObserveRequest) -> Result<(), Refusal> {
        let event =
            event.ok_or_else(|| Refusal::new(ErrorKind::BadRequest, "An observation needs an event."))?;
        let token = self.shared.ids.parse(&pick_id, Reason::PickNotFound)?;
        self.shared.picks.observe(token, event)
    }

    fn told<T>(&self, result: Result<T, Refusal>) -> Result<Response<T>, Status> {
        result.map(Response::new).map_err(|refusal| {
            self.shared.stats.refused(refusal.reason);
            refusal.into()
        })
    }
}

impl Shared {
    /// A request is turned away before it was decided. What is wrong with the call says nothing of its request.
    fn refused(&self, mut incoming: Incoming, refusal: Refusal) -> Refusal {
        if let Reason::Rejected(kind) = refusal.reason {
            if incoming.request_id.is_empty() {
                incoming.request_id = self.ids.id(self.ids.token()).into();
            }
            self.pipeline.refused(&incoming, &Rejection::new(kind, refusal.message.as_str()));
        }
        refusal
    }

    fn keep(&self, token: u128, pushed: Pushed) {
        let mut bodies = self.bodies.lock();
        bodies.put(token, pushed, Instant::now());
        self.count(&bodies);
    }

    fn claim(&self, id: &str) -> Result<Pushed, Refusal> {
        let token = self.ids.parse(id, Reason::BodyNotFound)?;
        self.expire_bodies();
        let mut bodies = self.bodies.lock();
        let why = "There is no such body: it was never pushed, was used, or was kept for too long.";
        let pushed = bodies.take(token).ok_or_else(|| Refusal::new(Reason::BodyNotFound, why))?;
        self.count(&bodies);
        self.stats.left(BodyEnd::Claimed, 1);
        Ok(pushed)
    }

    fn expire_bodies(&self) {
        let gone = {
            let mut bodies = self.bodies.lock();
            let gone = bodies.expire(Instant::now());
            self.count(&bodies);
            gone
        };
        self.stats.left(BodyEnd::Expired, gone.len());
    }

    fn count(&self, bodies: &Shelf<Pushed>) {
        self.stats.bodies_held.set(i64::try_from(bodies.len()).unwrap_or(i64::MAX));
    }
}

#[tonic::async_trait]
impl picker_server::Picker for Picker {
    async fn push_body(
        &self,
        request: Request<Streaming<PushBodyRequest>>,
    ) -> Result<Response<PushBodyResponse>, Status> {
        let caller = caller(&request);
        let pushed = self.push(request.into_inner(), caller).await;
        self.told(pushed)
    }

    async fn pick(&self, request: Request<PickRequest>) -> Result<Response<PickResponse>, Status> {
        let caller = caller(&request);
        let picked = self.decide(request.into_inner(), caller).await;
        self.told(picked)
    }

    async fn observe(&self, request: Request<ObserveRequest>) -> Result<Response<ObserveResponse>, Status> {
        let noted = self.note(request.into_inner());
        self.told(noted.map(|()| ObserveResponse {}))
    }
}
