//! The one path from a request to a `Decision`: read, resolve candidates, tokenize, predict, pick, reserve.
//!
//! Both front doors call [`Pipeline::decide`]. It answers within the deadline: what could not be learned in
//! time makes the pick poorer, and the `Decision` says so.

mod calibration;
mod choose;
mod clock;
mod decode;
mod field;
mod incoming;
mod listing;
mod metrics;
mod mock;
mod off_thread;
mod placement;
mod pools;
mod providers;
mod rules;
mod sticky;
mod subject;
mod tokens;
mod wording;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rand::{SeedableRng, rngs::StdRng};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    cache::CacheIndex,
    config::{BodyMetadata, Config},
    fleet::{Registry, Snapshot},
    load::LoadTable,
    observe::{Decisions, Metrics},
    policy::{Secrets, compile::Policies},
    prompt::Tokenizers,
    route::{Demand, HotPrefixes},
    types::{Degradation, ErrorKind, ErrorShape, Rejection, Removed, RequestKind, Stage},
};

pub use calibration::{Calibrations, Coefficient, Learnt};
pub use field::at as at_provider;
pub use incoming::{Incoming, IncomingBody, Inspected, Rewrite};
pub use placement::Placement;

use choose::Asked;
use clock::Clock;
use decode::Decoding;
use field::{Backing, Field, Seat};
use metrics::PipelineMetrics;
use pools::InPool;
use sticky::StickyMap;
use subject::{Nameless, Reading, Subject};
use wording::Wordings;

/// The rooms that a decision draws on.
pub struct Rooms {
    /// Who the workers are.
    pub registry: Arc<Registry>,
    /// Which blocks they hold.
    pub index: Arc<CacheIndex>,
    /// How loaded they are.
    pub load: Arc<LoadTable>,
    /// How prompts become tokens.
    pub tokenizers: Arc<Tokenizers>,
    /// Where decisions are told.
    pub decisions: Arc<Decisions>,
}

/// The pipeline. One for the process.
pub struct Pipeline {
    rooms: Rooms,
    deadline: Duration,
    decoding: Decoding,
    mock: bool,
    body_metadata: BodyMetadata,
    pickers: HashMap<String, Mutex<PickerState>>,
    /// Chance among providers, where no worker's profile decides.
    outside: Mutex<StdRng>,
    /// Which engine of a group is asked to render next.
    turn: AtomicUsize,
    sticky: Arc<StickyMap>,
    policies: PoliciesInForce,
    secrets: Secrets,
    metrics: Arc<PipelineMetrics>,
    calibrations: Arc<Calibrations>,
}

/// The policies that decide; none: policies are off, and a pool's name says nothing.
pub type PoliciesInForce = Arc<ArcSwapOption<Policies>>;

/// What a profile's picks remember.
struct PickerState {
    rng: StdRng,
    hot: HashMap<Arc<str>, HotPrefixes>,
}

impl Pipeline {
    /// A pipeline over those rooms.
    pub fn new(config: &Config, rooms: Rooms, metrics: &Metrics) -> Self {
        let rng = |seed: Option<u64>| seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64);
        let state = |seed: Option<u64>| PickerState { rng: rng(seed), hot: HashMap::new() };
        let any_seed = config.profiles.iter().find_map(|profile| profile.picker.seed);
        Self {
            rooms,
            deadline: config.ext_proc.deadline,
            decoding: Decoding::new(config.body),
            mock: config.mock_mode,
            body_metadata: config.policy.body_metadata,
            pickers: config
                .profiles
                .iter()
                .map(|p| (p.name.clone(), Mutex::new(state(p.picker.seed))))
                .collect(),
            outside: Mutex::new(rng(any_seed)),
            turn: AtomicUsize::new(0),
            sticky: Arc::default(),
            policies: Arc::default(),
            secrets: Secrets::default(),
            metrics: Arc::new(PipelineMetrics::new(metrics, &config.metrics.tenant_labels)),
            calibrations: Calibrations::new(metrics),
        }
    }

    /// The policies, for whoever puts them in force. With policies on there must be some from the start, if only empty
    /// ones: without, pools are ignored.
    pub fn policies(&self) -> &PoliciesInForce {
        &self.policies
    }

    /// The credentials of providers, for whoever fetches them.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// What is learnt of how long engines take.
    pub fn calibrations(&self) -> &Arc<Calibrations> {
        &self.calibrations
    }

    /// The models that the request's pool publishes, where it asks for them; `None`: the engines are to be asked.
    ///
    /// # Errors
    /// A [`Rejection`] to answer the client with.
    pub fn models(&self, incoming: &Incoming, shape: ErrorShape) -> Option<Result<Value, Rejection>> {
        let RequestKind::Models(only) = &incoming.kind else { return None };
        let policies = self.policies.load_full()?;
        let asked = (incoming.tenant.as_deref(), only.as_deref());
        let found = pools::named(&policies, incoming).transpose()?;
        let listed = found.and_then(|pool| listing::listing(&pool, asked, shape));
        if let Err(rejection) = &listed {
            self.refused(incoming, rejection);
        }
        Some(listed)
    }

    /// A request was turned away without a decision: tells of it as of those that a decision turns away. Of the request
    /// whatever is known may be said; its body is not looked at.
    pub fn refused(&self, incoming: &Incoming, rejection: &Rejection) {
        let mut clock = Clock::of(incoming);
        clock.asks_for(incoming.asks_for());
        self.metrics.rejected(incoming.tenant.as_ref(), rejection);
        self.rooms.decisions.decided(clock.record(incoming, &Err(rejection.clone())));
    }

    /// Decides where a request goes and reserves its load there. Returns within the deadline, if need be
    /// with a pick on load alone that says so.
    ///
    /// # Errors
    /// A [`Rejection`] to answer the client with.
    pub async fn decide(&self, mut incoming: Incoming) -> Result<Placement, Rejection> {
        let started = Instant::now();
        let mut clock = Clock::of(&incoming);
        let mut decided = self.run(&mut incoming, started + self.deadline, &mut clock).await;
        let took = started.elapsed();
        let record = clock.record(&incoming, &decided);
        self.metrics.decided(incoming.tenant.as_ref(), &decided, (took, &record.stages));
        let told = self.rooms.decisions.decided(record);
        if let Ok(placement) = &mut decided {
            placement.told(told);
        }
        decided
    }

    /// Reads a request that is to be decided later. One whose body names no model is fine: it may be told by then.
    ///
    /// # Errors
    /// A [`Rejection`] to answer the client with: the decision would find the same.
    pub async fn inspect(&self, incoming: &Incoming) -> Result<Inspected, Rejection> {
        let deadline = Instant::now() + self.deadline;
        let reading = Reading { nameless: Nameless::Fine, pools: self.policies.load().is_some() };
        let subject = subject::read(incoming, (&self.decoding, deadline), reading).await?;
        Ok(Inspected { model: subject.model, stream: subject.stream })
    }

    async fn run(
        &self,
        incoming: &mut Incoming,
        deadline: Instant,
        clock: &mut Clock,
    ) -> Result<Placement, Rejection> {
        let policies = self.policies.load_full();
        let reading = Reading { nameless: Nameless::Refused, pools: policies.is_some() };
        let began = Instant::now();
        let read = subject::read(incoming, (&self.decoding, deadline), reading).await;
        clock.passed(Stage::Parse, began);
        let mut subject = read?;
        if policies.is_some() {
            incoming.adopt(&mut subject.declared, self.body_metadata);
        }
        clock.asks_for(subject.model.clone());
        let pool = self.pool(policies.as_deref(), incoming, &subject)?;
        let mut field = match &pool {
            Some(pool) => self.field_of(pool, (incoming, &subject)),
            None => self.field(incoming, &mut subject)?,
        };
        self.stick(&mut subject, &mut field);
        if field.seats.is_empty() {
            return Err(no_worker(field.removed));
        }
        let wordings = self.word(&mut subject, &field, deadline).await?;
        let (mut placement, words) = if self.mock {
            let chosen = mock::choose(self, incoming, &subject, &field);
            chosen.ok_or_else(|| no_worker(field.removed))?
        } else {
            let seats = (&*field.seats, &wordings);
            let prompts = tokens::prepare(self, &mut subject, seats, (deadline, clock)).await;
            let asked = Asked { incoming, subject: &subject, pool: pool.as_ref() };
            choose::choose(self, &asked, (field, &prompts), clock)?
        };
        placement.streamed = subject.stream;
        placement.word(subject, (&wordings, words));
        Ok(placement)
    }

    /// The request in the words of all who may serve it.
    async fn word(
        &self,
        subject: &mut Subject,
        field: &Field,
        deadline: Instant,
    ) -> Result<Wordings, Rejection> {
        let Some(original) = &subject.original else { return Ok(Wordings::default()) };
        let wordings = Wordings::of(original, field.other_words(subject.model.as_ref())).await;
        let bytes = wordings.whole_bytes();
        if bytes > 0 {
            subject.hold(self.decoding.room(bytes, deadline).await?);
        }
        Ok(wordings)
    }

    /// The workers that may serve it, before its length is known.
    fn field(&self, incoming: &Incoming, subject: &mut Subject) -> Result<Field, Rejection> {
        let fleet = self.rooms.registry.snapshot();
        let subset = incoming.subset.as_deref();
        let demand = Demand { subset, exclude: &incoming.exclude, ..Demand::default() };
        let of = |model: Option<Arc<str>>| Field::of(&fleet, &[Backing::anyone(model)], demand);
        let mut field = of(subject.model.clone());
        if let Some(model) = &subject.model
            && field.is_of_other_models()
        {
            // Without policies a pool's published model names are not ours to know: any worker may have it.
            if incoming.pool.is_none() && subject.must_name_a_served_model() {
                return Err(if is_untold(&fleet) { no_worker(field.removed) } else { unknown_model(model) });
            }
            subject.model = None;
            field = of(None);
        }
        Ok(field)
    }

    /// What the request asks for of the pool that it names, if policies say what that is.
    fn pool(
        &self,
        policies: Option<&Policies>,
        incoming: &Incoming,
        subject: &Subject,
    ) -> Result<Option<InPool>, Rejection> {
        let Some(policies) = policies else { return Ok(None) };
        let Some(pool) = pools::named(policies, incoming)? else { return Ok(None) };
        InPool::of(pool, subject.model.as_deref(), incoming.tenant.as_deref()).map(Some)
    }

    /// The workers and providers behind what it asks for. In mock mode requests go to workers only: who tries the router
    /// out wants nothing sent outside.
    fn field_of(&self, pool: &InPool, (incoming, subject): (&Incoming, &Subject)) -> Field {
        let demand =
            Demand { subset: incoming.subset.as_deref(), exclude: &incoming.exclude, ..Demand::default() };
        let backings = pool.backings(incoming.tenant.as_deref());
        let mut field = Field::of(&self.rooms.registry.snapshot(), &backings, demand);
        if !self.mock {
            providers::seat(self, pool, (incoming, subject), &mut field);
        }
        field
    }

    /// Narrows the field to the worker that made the response which the request names.
    fn stick(&self, subject: &mut Subject, field: &mut Field) {
        let Some(id) = &subject.made_before else { return };
        let owner = self.sticky.get(id);
        let is_owner = |seat: &Seat| owner.is_some() && seat.member().map(|member| member.worker.id) == owner;
        if field.seats.iter().any(is_owner) {
            field.seats.retain(is_owner);
        } else {
            subject.lacks(Degradation::StickyMiss);
        }
    }
}

/// No worker has told yet which models it serves, and some will: right after the start an adapter can't be told from a
/// model that does not exist.
fn is_untold(fleet: &Snapshot) -> bool {
    let mut polled = fleet.values().filter(|member| member.worker.http_url.is_some()).peekable();
    polled.peek().is_some() && polled.all(|member| member.status.models.load().is_none())
}

/// Nobody is left of those who were removed.
fn no_worker(removed: Vec<Removed>) -> Rejection {
    let why = "No worker can take this request at the moment.";
    Rejection { removed, ..Rejection::new(ErrorKind::NoWorker, why) }
}

fn unknown_model(model: &str) -> Rejection {
    let shown: String = model.chars().take(200).collect();
    Rejection::new(ErrorKind::ModelNotFound, format!("The model `{shown}` does not exist."))
}
